//! Two ends with channels over acknowledged packets, in a simulated world.

mod expectation;

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_session::channel::{ChannelEvent, ChannelId, Channels, FrameCursor, Layout, ReceivedMessage, SendOptions};
use slipgate_session::connection::SendError;
use slipgate_session::reliability::{Acceptance, Endpoint, EndpointConfig, MemoryBudget, PacketEvent};
use slipgate_session::wire::reliable::Sequence;
use slipgate_sim::Conditions;

pub use self::expectation::{Expectation, message, number_of};
use crate::world::{End, PathSink, Program, World};

/// One tick of both programs: about 60 per second.
pub const TICK: Duration = Duration::from_millis(16);
/// The number of newer packets that must be acknowledged before a packet is lost. `congestion/sent_packets.rs` compares
/// with the newest one only, and also waits for the loss delay.
const PACKET_THRESHOLD: usize = 3;
/// The maximum number of packets that an end sends in a tick.
const PACKETS_PER_TICK: usize = 16;

/// Two ends with channels, and the path between them.
pub type ChannelWorld = World<ChannelProgram>;

/// One end, and what its application received.
pub struct ChannelProgram {
    /// The channels under test.
    pub channels: Channels,
    /// Events of its own transfers and of those of the peer.
    pub events: Vec<ChannelEvent>,
    /// The maximum memory that its messages took, in bytes.
    pub peak_bytes: usize,
    /// Packets sent.
    pub packets: u64,
    /// The delivery promises of the peer to this end.
    pub expectation: Expectation,
    /// The maximum payload of a packet, in bytes.
    payload_bytes: usize,
    endpoint: Endpoint,
    scratch: Vec<u8>,
    /// Packets in flight, oldest first, and whether each was acknowledged.
    in_flight: Vec<(Sequence, bool)>,
    silent_ticks: u32,
}

impl ChannelWorld {
    /// Creates two ends with this layout. The seed determines all random decisions.
    #[must_use]
    pub fn new(seed: u64, layout: &Arc<Layout>, conditions: Conditions, memory: Option<&MemoryBudget>) -> Self {
        let side = || ChannelProgram {
            channels: Channels::new(Arc::clone(layout), memory.cloned()),
            events: Vec::new(),
            peak_bytes: 0,
            packets: 0,
            expectation: Expectation::new(layout),
            payload_bytes: 1200,
            endpoint: Endpoint::new(EndpointConfig::default(), None).expect("valid settings"),
            scratch: Vec::new(),
            in_flight: Vec::new(),
            silent_ticks: 0,
        };
        Self::of([side(), side()], conditions, seed)
    }

    /// Changes the maximum payload of a packet at both ends.
    pub fn set_payload_bytes(&mut self, payload_bytes: usize) {
        End::BOTH.into_iter().for_each(|end| self.side(end).payload_bytes = payload_bytes);
    }

    /// Sends the next message of `bytes` bytes if the queue has space. Returns whether it had.
    pub fn send(&mut self, from: End, channel: ChannelId, bytes: usize) -> bool {
        let now = self.now();
        let number = self.side(from.other()).expectation.sent(channel);
        let side = self.side(from);
        let free = side.channels.remaining(channel);
        let sent = side.channels.send(channel, &message(channel, number, bytes), SendOptions::default(), now);
        let fits = free.messages > 0 && free.bytes as usize >= bytes;
        assert_eq!(sent.is_ok(), fits, "{sent:?} with {free:?} for {bytes} bytes");
        if fits {
            self.side(from.other()).expectation.note_sent(channel);
        }
        fits
    }

    /// Returns whether both ends have nothing to send.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sides().iter().all(|side| !side.channels.wants_to_send())
    }
}

impl Program for ChannelProgram {
    fn receive(&mut self, datagram: &[u8], _waited: Duration, now: Instant) {
        let Self { endpoint, channels, scratch, expectation, .. } = self;
        let accept = |payload: &[u8]| if channels.can_take(payload) { Acceptance::Take } else { Acceptance::Refuse };
        let Ok(Some(packet)) = endpoint.handle_if(datagram, now, |packet| accept(packet.payload)) else { return };
        let mut at = FrameCursor::default();
        while let Some(arrival) =
            channels.next(packet.payload, &mut at, scratch, now).expect("the peer keeps the protocol")
        {
            let ReceivedMessage { channel, span } = arrival;
            expectation.received(channel, span.bytes(packet.payload, scratch));
        }
    }

    fn run(&mut self, sink: &mut PathSink<'_>, now: Instant) {
        sink.set_max_bytes(self.payload_bytes);
        self.process_events();
        self.channels.begin_tick(now);
        self.pack(now, sink);
        self.endpoint.tick(now);
        self.endpoint.transmit(now, sink);
        self.peak_bytes = self.peak_bytes.max(self.channels.memory_bytes());
    }
}

impl ChannelProgram {
    /// Processes the acknowledgements and losses of its packets.
    fn process_events(&mut self) {
        let mut acked = false;
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                PacketEvent::Acked { sequence, .. } => {
                    self.channels.on_acked(sequence);
                    if let Some(packet) = self.in_flight.iter_mut().find(|packet| packet.0 == sequence) {
                        packet.1 = true;
                    }
                    acked = true;
                }
                PacketEvent::Lost { sequence } => {
                    self.channels.on_lost(sequence);
                    self.in_flight.retain(|packet| packet.0 != sequence);
                }
            }
        }
        self.silent_ticks = if acked || self.in_flight.is_empty() { 0 } else { self.silent_ticks + 1 };
        if self.silent_ticks > 20 {
            self.channels.on_pto();
            self.silent_ticks = 0;
        }
        self.detect_lost();
        while let Some(event) = self.channels.poll_event() {
            self.events.push(event);
        }
    }

    /// Declares packets lost once enough newer ones are acknowledged. This may be wrong on a reordering path.
    fn detect_lost(&mut self) {
        let Self { in_flight, channels, .. } = self;
        let mut acked_behind = in_flight.iter().filter(|packet| packet.1).count();
        in_flight.retain(|(sequence, acked)| {
            acked_behind -= usize::from(*acked);
            if !acked && acked_behind >= PACKET_THRESHOLD {
                channels.on_lost(*sequence);
                return false;
            }
            !acked || acked_behind > 0
        });
        while in_flight.first().is_some_and(|packet| packet.1) {
            in_flight.remove(0);
        }
    }

    fn pack(&mut self, now: Instant, sink: &mut PathSink<'_>) {
        for _ in 0..PACKETS_PER_TICK {
            if !self.channels.wants_to_send() {
                break;
            }
            let (channels, sequence) = (&mut self.channels, self.endpoint.next_header().sequence);
            match self.endpoint.send_with(now, sink, |buf| channels.write(sequence, now, buf)) {
                Ok(sequence) => {
                    self.packets += 1;
                    self.in_flight.push((sequence, false));
                }
                Err(SendError::Empty) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}
