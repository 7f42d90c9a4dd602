//! Bytes and their meaning inside of encrypted payloads: reliable 1.0, and the session's own frames.

pub mod reliable;
pub mod session;
