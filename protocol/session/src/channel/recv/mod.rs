//! The receiving half: frames in, messages out.

pub(crate) mod assembly;
mod read_packet;
pub(crate) mod receiver;
pub(crate) mod window;
