//! Loss and bandwidths, as the configuration wants them measured.

use alloc::boxed::Box;
use core::time::Duration;

use super::config::Statistics;
use super::recent::Recent;
use super::reference::Reference;
use super::sent::{News, Sent};
use super::stats::BitsPerSecond;
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

/// A tenth of the second over which bandwidths are measured.
const BANDWIDTH_BUCKET: Duration = Duration::from_millis(100);
/// A tenth of the ten seconds over which loss is measured: at 10 packets a second, the article's slow rate, one lost
/// packet is one per cent.
const LOSS_BUCKET: Duration = Duration::from_secs(1);

/// A packet that arrived.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    pub(super) sequence: Sequence,
    pub(super) bytes: u32,
    pub(super) at: Instant,
}

#[expect(clippy::large_enum_variant, reason = "the large one is the usual one, and there is one for each endpoint")]
pub(super) enum Meter {
    Seed(Recently),
    Reference(Box<Reference>),
}

/// What happened in the last second, and to packets in the last ten.
pub(super) struct Recently {
    sent: Recent,
    received: Recent,
    acked: Recent,
    acked_packets: Recent,
    lost_packets: Recent,
}

impl Recently {
    const fn new() -> Self {
        Self {
            sent: Recent::new(BANDWIDTH_BUCKET),
            received: Recent::new(BANDWIDTH_BUCKET),
            acked: Recent::new(BANDWIDTH_BUCKET),
            acked_packets: Recent::new(LOSS_BUCKET),
            lost_packets: Recent::new(LOSS_BUCKET),
        }
    }

    fn loss(&self, now: Instant) -> f64 {
        let (acked, lost) = (self.acked_packets.sum(now).max(0), self.lost_packets.sum(now).max(0));
        if lost == 0 { 0.0 } else { lost as f64 / (lost + acked) as f64 }
    }
}

/// What the meter has measured.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    pub(super) loss: f64,
    pub(super) sent: BitsPerSecond,
    pub(super) received: BitsPerSecond,
    pub(super) acked: BitsPerSecond,
}

impl Meter {
    pub(super) fn new(statistics: Statistics, received_window: u16) -> Self {
        match statistics {
            Statistics::Seed => Self::Seed(Recently::new()),
            Statistics::Reference(smoothing) => Self::Reference(Box::new(Reference::new(smoothing, received_window))),
        }
    }

    pub(super) fn sent(&mut self, bytes: u32, now: Instant) {
        match self {
            Self::Seed(recently) => recently.sent.add(bytes.into(), now),
            Self::Reference(reference) => reference.note_sent(),
        }
    }

    /// A datagram that was of use, whole packet or fragment.
    pub(super) fn datagram(&mut self, bytes: u32, now: Instant) {
        if let Self::Seed(recently) = self {
            recently.received.add(bytes.into(), now);
        }
    }

    /// A packet that is complete.
    pub(super) fn packet(&mut self, arrival: Arrival) {
        if let Self::Reference(reference) = self {
            reference.note_received(arrival);
        }
    }

    /// A packet of which a fragment has come.
    pub(super) fn expect(&mut self, sequence: Sequence) {
        if let Self::Reference(reference) = self {
            reference.advance(sequence);
        }
    }

    pub(super) fn acked(&mut self, news: &News, now: Instant) {
        match self {
            Self::Seed(recently) => {
                recently.acked.add(news.bytes.into(), now);
                recently.acked_packets.add(1, now);
                if news.late {
                    recently.lost_packets.add(-1, now);
                }
            }
            Self::Reference(reference) => reference.note_sent(),
        }
    }

    pub(super) fn lost(&mut self, now: Instant) {
        if let Self::Seed(recently) = self {
            recently.lost_packets.add(1, now);
        }
    }

    pub(super) fn tick(&mut self, sent: &Sent) {
        if let Self::Reference(reference) = self {
            reference.tick(sent);
        }
    }

    pub(super) fn read(&self, now: Instant) -> Reading {
        match self {
            Self::Seed(recently) => Reading {
                loss: recently.loss(now),
                sent: BitsPerSecond(recently.sent.per_second(now) * 8.0),
                received: BitsPerSecond(recently.received.per_second(now) * 8.0),
                acked: BitsPerSecond(recently.acked.per_second(now) * 8.0),
            },
            Self::Reference(reference) => reference.read(),
        }
    }

    pub(super) fn reset(&mut self) {
        match self {
            Self::Seed(recently) => *recently = Recently::new(),
            Self::Reference(reference) => reference.reset(),
        }
    }
}
