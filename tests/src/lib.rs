//! What the tests of more than one file share.

pub mod vectors;
