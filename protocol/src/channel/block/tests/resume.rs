//! Connections that end before their blocks do.

use super::*;
