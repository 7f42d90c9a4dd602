//! The wire formats inside encrypted payloads: reliable 1.0, and the session frame behind its header.

mod payload_span;
pub mod reliable;
pub mod session_frame;

pub use self::payload_span::PayloadSpan;
