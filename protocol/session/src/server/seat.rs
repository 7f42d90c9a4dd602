//! One client's place above netcode: its line, and what has been told of it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::event::{Event, Message, Received};
use crate::channel::control::ByeCode;
use crate::session::{Budget, End, Line, PathStats, Place};
use core::time::Duration;
use slipgate_netcode::server::{ClientHandle, DisconnectReason};
use slipgate_netcode::time::Instant;

pub(super) struct Seat {
    client: ClientHandle,
    client_id: u64,
    pub(super) line: Line,
    /// Whether its slot waits to be asked for events.
    pub(super) noisy: bool,
    /// Whether the end was told of: what was said of it is in `last_events`, or taken already.
    told: bool,
    last_events: VecDeque<Event>,
}

impl Seat {
    pub(super) const fn new(client: ClientHandle, client_id: u64, line: Line) -> Self {
        Self { client, client_id, line, noisy: false, told: false, last_events: VecDeque::new() }
    }

    pub(super) fn is(&self, client: ClientHandle) -> bool {
        self.client == client
    }

    pub(super) const fn client(&self) -> ClientHandle {
        self.client
    }

    /// Whether the line ever sends or tells anything by itself; payloads as they are only pass through.
    pub(super) const fn acts_by_itself(&self) -> bool {
        !matches!(self.line, Line::Payloads)
    }

    /// Takes a payload that begins at `start` in its datagram, and may have lain unread for so long.
    pub(super) fn take(
        &mut self,
        sequence: u64,
        payload: &[u8],
        start: usize,
        scratch: &mut Vec<u8>,
        unread: Duration,
        now: Instant,
    ) -> Option<Received> {
        let client = self.client;
        let whole = start..start + payload.len();
        match &mut self.line {
            Line::Payloads => {
                let message = Message::Payload { client, sequence, place: Place::Datagram(whole) };
                Some(Received::Message(Some(message)))
            }
            Line::Packets(packets) => {
                let arrived = packets.handle(payload, scratch, now).ok().flatten()?;
                let place = arrived.place.shifted(start);
                Some(Received::Message(Some(Message::Packet { client, sequence: arrived.sequence, place })))
            }
            Line::Channels(connection) => {
                let incoming = connection.handle_late(payload, unread, now).ok().flatten()?;
                Some(Received::Frames { client, payload: whole, incoming })
            }
        }
    }

    /// The next news of the line, if it has any; its end comes last.
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        if !self.told {
            if let Some(event) = self.poll_line() {
                return Some(event);
            }
            let reason = self.reason()?;
            self.tell_end(reason);
        }
        self.last_events.pop_front()
    }

    fn poll_line(&mut self) -> Option<Event> {
        let client = self.client;
        match &mut self.line {
            Line::Payloads => None,
            Line::Packets(packets) => packets.poll_event().map(|event| Event::Packet { client, event }),
            Line::Channels(connection) => connection.poll_event().map(|event| Event::Channel { client, event }),
        }
    }

    /// Has the next events tell of the end, unless they have.
    pub(super) fn tell_end(&mut self, reason: DisconnectReason) {
        if core::mem::replace(&mut self.told, true) {
            return;
        }
        let (client, client_id) = (self.client, self.client_id);
        if let Line::Channels(connection) = &mut self.line {
            let partial = |(channel, partial)| Event::Partial { client, channel, partial };
            self.last_events.extend(connection.take_partials().map(partial));
        }
        self.last_events.push_back(Event::Disconnected { client, client_id, reason });
    }

    /// Says goodbye, where that can be said.
    pub(super) fn leave(&mut self, code: ByeCode, text: &str) {
        if let Line::Channels(connection) = &mut self.line {
            connection.leave(code, text);
        }
    }

    /// Whether blocks that have arrived are to be hashed.
    pub(super) fn has_blocks_to_hash(&self) -> bool {
        matches!(&self.line, Line::Channels(connection) if connection.channels().has_blocks_to_hash())
    }

    /// Whether it has ended, and only its slot is not free yet.
    pub(super) fn is_leaving(&self) -> bool {
        self.told || self.end().is_some()
    }

    /// Why the connection has ended, if it has.
    fn reason(&self) -> Option<DisconnectReason> {
        self.end().map(reason)
    }

    /// What was said at the end.
    pub(super) const fn end(&self) -> Option<&End> {
        match &self.line {
            Line::Channels(connection) => connection.end(),
            _ => None,
        }
    }

    pub(super) fn tick(&mut self, now: Instant) {
        self.line.tick(now);
    }

    /// About how many bytes on the path would leave now, if nothing but the path limited them.
    pub(super) fn wanted_bytes(&self, now: Instant) -> u64 {
        match &self.line {
            Line::Channels(connection) => connection.wanted_bytes(now),
            Line::Payloads | Line::Packets(_) => 0,
        }
    }

    /// Why the slot should be free now, if it should.
    pub(super) fn over(&self) -> Option<DisconnectReason> {
        match &self.line {
            Line::Channels(connection) if connection.is_over() => self.reason(),
            _ => None,
        }
    }

    pub(super) fn next_deadline(&self, now: Instant) -> Instant {
        let deadline = match &self.line {
            Line::Payloads => None,
            Line::Packets(packets) => packets.next_deadline(),
            Line::Channels(connection) => connection.next_deadline(now),
        };
        deadline.unwrap_or(Instant::NEVER)
    }

    pub(super) fn budget(&self, now: Instant) -> Option<Budget> {
        self.line.budget(now)
    }

    pub(super) fn path(&self, now: Instant) -> Option<PathStats> {
        self.line.path(now)
    }
}

/// What an end is to those who count disconnects.
const fn reason(end: &End) -> DisconnectReason {
    match end {
        End::Left { code: ByeCode::SHUTDOWN, .. } => DisconnectReason::ServerStopped,
        End::Left { .. } => DisconnectReason::Kicked,
        End::Farewell { .. } => DisconnectReason::Left,
        End::LayoutMismatch { .. } => DisconnectReason::LayoutMismatch,
        End::VersionMismatch => DisconnectReason::VersionMismatch,
        End::NotASession => DisconnectReason::NotASession,
        End::Violation(_) => DisconnectReason::Violation,
        End::Accused => DisconnectReason::Accused,
    }
}
