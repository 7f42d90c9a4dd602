//! Frames that no honest peer sends.

use super::*;
