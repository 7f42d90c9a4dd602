//! The request to send everything again, after a message was refused (§6.3).

/// The request of a client that refused a message: the server shall send everything again. [`InputLog::write`] sends
/// it, and [`Replicator::resync`] obeys it. A game without inputs sends its number in a message of its own.
///
/// [`InputLog::write`]: crate::InputLog::write
/// [`Replicator::resync`]: crate::Replicator::resync
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResyncRequest(
    /// How often the server has sent everything again, as far as the client has read, modulo 16: a request that comes
    /// late or twice has no effect.
    pub u8,
);
