//! The sending half: messages in, frames out, retransmission and receipts.

pub(crate) mod context;
pub(crate) mod frame_plan;
pub(crate) mod frames_in_flight;
pub(crate) mod key_index;
pub(crate) mod queue;
pub(crate) mod receipts;
pub(crate) mod retransmit_queue;
pub(crate) mod sender;
mod write_packet;
