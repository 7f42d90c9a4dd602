//! The wire formats inside encrypted payloads: reliable 1.0, and the session frame behind its header.

pub mod reliable;
pub mod session_frame;
