//! Messages over the acknowledged-packet endpoint.

pub mod block;
pub mod typed;
