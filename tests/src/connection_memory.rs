//! The memory of a connection, before and after the traffic of a game. It needs the allocator of `counting`.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::connection::{Connection, ConnectionConfig, Role};

use crate::counting::bytes;
use crate::sinks::Payloads;

/// The connections over which the memory is averaged: two ends of each.
const PAIRS: usize = 10;
/// A tick of 60 Hz.
const TICK: Duration = Duration::from_micros(16_667);
/// The ticks of 20 s.
const TICKS: u64 = 1200;

/// The bytes that a connection takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionMemory {
    /// Before it sent anything.
    pub idle: i64,
    /// After both ends sent messages of 100 bytes for 20 s, 60 times a second on the first channel, half as often on
    /// the next one, and so on.
    pub after_traffic: i64,
}

/// Returns the memory of a connection with these channels.
#[must_use]
pub fn connection_memory(kinds: &[Kind]) -> ConnectionMemory {
    let channels: Vec<ChannelConfig> = kinds.iter().map(|kind| ChannelConfig::from(*kind)).collect();
    let (layout, config) = (Arc::new(Layout::try_from(channels).unwrap()), ConnectionConfig::default());
    let connect = |_| Connection::new(&config, Arc::clone(&layout), Role::Server, None).unwrap();
    let before = bytes();
    let mut pairs: Vec<[Connection; 2]> = (0..PAIRS).map(|_| [(); 2].map(connect)).collect();
    let each = |now: i64| (now - before) / (2 * PAIRS) as i64;
    let idle = each(bytes());
    // Both lists belong to the measurement.
    let (mut scratch, mut sink) = (Vec::new(), Payloads::default());
    for tick in 0..TICKS {
        let now = Instant::from_start(TICK * (tick as u32 + 1));
        for pair in &mut pairs {
            for from in 0..2 {
                exchange(pair, from, kinds.len(), tick, now, &mut sink, &mut scratch);
            }
        }
    }
    drop((scratch, sink));
    ConnectionMemory { idle, after_traffic: each(bytes()) }
}

/// One end sends its messages of a tick, and the other one reads them.
fn exchange(
    pair: &mut [Connection; 2],
    from: usize,
    channels: usize,
    tick: u64,
    now: Instant,
    sink: &mut Payloads,
    scratch: &mut Vec<u8>,
) {
    pair[from].tick(now);
    for channel in (0..channels as u8).map(ChannelId).filter(|channel| tick.is_multiple_of(1 << channel.0)) {
        pair[from].send(channel, &[7; 100], SendOptions::default(), now).unwrap();
    }
    pair[from].transmit(now, sink);
    for datagram in sink.sent.drain(..) {
        let to = &mut pair[1 - from];
        let Ok(Some(mut cursor)) = to.handle(&datagram, Duration::ZERO, now) else { continue };
        while to.next_message(&datagram, &mut cursor, scratch, now).is_some() {}
    }
}
