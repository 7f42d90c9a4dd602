//! The bytes of frames and control messages (§3.1 to §3.5).

pub mod control;
pub(crate) mod frame;
pub(crate) mod frame_writer;
pub(crate) mod message_id;
pub(crate) mod pieces;
