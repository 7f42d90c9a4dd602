//! What the payloads of a server's or client's connections carry.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::{Budget, Config, ConfigError, Connection, Memory, Packets, PathStats};
use crate::channel::Layout;
use slipgate_netcode::time::Instant;

/// What the payloads of connections carry; both ends must agree.
#[derive(Clone, Debug, Default)]
pub enum Traffic {
    /// Payloads as they are: for peers of plain netcode, and games that bring a protocol of their own.
    #[default]
    Payloads,
    /// Acknowledged packets: for peers of netcode and reliable 1.0.
    Packets(Config),
    /// Messages on channels: for peers of ours.
    Channels(Arc<Layout>, Config),
}

impl Traffic {
    /// Messages on these channels, with the default settings.
    #[must_use]
    pub fn channels(layout: Layout) -> Self {
        Self::Channels(Arc::new(layout), Config::default())
    }

    /// Acknowledged packets, with the default settings.
    #[must_use]
    pub fn packets() -> Self {
        Self::Packets(Config::default())
    }

    /// Whether a connection can run with these settings.
    ///
    /// # Errors
    /// Why none can.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.line(None).map(|_| ())
    }

    /// A connection on which nothing was sent yet.
    pub(crate) fn line(&self, memory: Option<&Memory>) -> Result<Line, ConfigError> {
        Ok(match self {
            Self::Payloads => Line::Payloads,
            Self::Packets(config) => Line::Packets(Box::new(Packets::new(config, memory)?)),
            Self::Channels(layout, config) => {
                Line::Channels(Box::new(Connection::new(config, Arc::clone(layout), memory)?))
            }
        })
    }
}

/// One connection of a [`Traffic`].
pub(crate) enum Line {
    Payloads,
    Packets(Box<Packets>),
    Channels(Box<Connection>),
}

impl Line {
    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Instant) {
        match self {
            Self::Payloads => {}
            Self::Packets(packets) => packets.tick(now),
            Self::Channels(connection) => connection.tick(now),
        }
    }

    /// What may leave now; `None` for payloads as they are.
    pub(crate) fn budget(&self, now: Instant) -> Option<Budget> {
        match self {
            Self::Payloads => None,
            Self::Packets(packets) => Some(packets.budget(now)),
            Self::Channels(connection) => Some(connection.budget(now)),
        }
    }

    /// How the path is; `None` for payloads as they are.
    pub(crate) fn path(&self, now: Instant) -> Option<PathStats> {
        match self {
            Self::Payloads => None,
            Self::Packets(packets) => Some(packets.stats(now)),
            Self::Channels(connection) => Some(connection.stats(now)),
        }
    }
}
