//! A sender: an application, its packets in flight, and the congestion control of a session.

use slipgate_netcode::time::Instant;
use slipgate_session::congestion::{
    CongestionState, Demand, Feedback, NewestAck, SentPacket, SentPackets, SessionPacketKind,
};
use slipgate_session::wire::reliable::Sequence;

use crate::report::{Report, TimeUnwrapper};
use crate::source::Application;

/// The capacity of the record of sent packets: the largest of a session.
const WINDOW: u16 = 16_384;

/// A packet to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutgoingPacket {
    /// Its sequence number.
    pub sequence: Sequence,
    /// Its size on the path, in bytes.
    pub bytes: u32,
}

/// A sender.
pub struct Sender {
    congestion: CongestionState,
    sent_packets: SentPackets,
    /// The application.
    pub application: Application,
    newest: Option<Sequence>,
    peer: TimeUnwrapper,
    delivered: u64,
    acked: Vec<SentPacket>,
    lost: Vec<SentPacket>,
    /// Those of the acknowledged packets that counted as lost.
    late: Vec<SentPacket>,
}

impl Sender {
    /// Creates a sender that has sent nothing yet.
    #[must_use]
    pub fn new(congestion: CongestionState, application: Application) -> Self {
        Self {
            congestion,
            sent_packets: SentPackets::new(WINDOW),
            application,
            newest: None,
            peer: TimeUnwrapper::default(),
            delivered: 0,
            acked: Vec::new(),
            lost: Vec::new(),
            late: Vec::new(),
        }
    }

    /// Processes a report.
    pub fn on_report(&mut self, report: &Report, now: Instant) {
        let newest_acked = self.process_acks(report);
        self.detect_losses(now);
        let received_at = self.peer.unwrap_time(report.received_at);
        let newest = newest_acked.map(|packet| NewestAck {
            sent_at: packet.sent_at,
            received_at: Some(received_at),
            ack_delay: report.sent_at.since(report.received_at),
            socket_delay: report.socket_delay(),
        });
        let feedback = Feedback {
            now,
            newest,
            acked: &self.acked,
            lost: &self.lost,
            late: &self.late,
            delivered: self.delivered,
            in_flight: self.sent_packets.in_flight(),
        };
        self.congestion.on_feedback(feedback);
        self.acked.clear();
        self.lost.clear();
        self.late.clear();
    }

    /// Records newly acknowledged packets. Returns the newest reported packet if it is newly acknowledged.
    fn process_acks(&mut self, report: &Report) -> Option<SentPacket> {
        let mut newest = None;
        for sequence in report.arrived() {
            let Some(newly_acked) = self.sent_packets.on_ack(sequence) else { continue };
            self.delivered += u64::from(newly_acked.packet.bytes);
            self.acked.push(newly_acked.packet);
            if newly_acked.late {
                self.late.push(newly_acked.packet);
            }
            if sequence == report.newest && self.newest.is_none_or(|newest| sequence.is_newer_than(newest)) {
                self.newest = Some(sequence);
                newest = Some(newly_acked.packet);
            }
        }
        newest
    }

    fn detect_losses(&mut self, now: Instant) {
        let lost = &mut self.lost;
        self.sent_packets.detect_lost(self.congestion.loss_delays(), now, |packet| lost.push(packet));
    }

    /// Advances the time. Call it before asking for packets.
    pub fn tick(&mut self, now: Instant, demand: impl FnMut(f64)) {
        self.application.tick(now, demand);
        self.detect_losses(now);
        self.congestion.on_lost(&self.lost);
        self.lost.clear();
        self.congestion.on_tick(self.sent_packets.in_flight(), now);
    }

    /// Returns the next packet that may be sent now.
    pub fn next_packet(&mut self, now: Instant) -> Option<OutgoingPacket> {
        let Some(wanted) = self.wanted(now) else {
            self.congestion.set_demand(Demand::Met);
            return None;
        };
        let budget = self.congestion.budget(self.sent_packets.in_flight(), now);
        if budget < u64::from(wanted) {
            self.congestion.set_demand(Demand::Unmet);
            return self.keep_alive(budget, now);
        }
        Some(self.send(wanted, now))
    }

    /// Sends a packet that keeps the connection alive, if the budget allows one.
    fn keep_alive(&mut self, budget: u64, now: Instant) -> Option<OutgoingPacket> {
        let alive = self.congestion.next_send(self.sent_packets.in_flight(), now).is_some_and(|next| next <= now);
        (alive && budget >= 256).then(|| self.send(256, now))
    }

    fn send(&mut self, bytes: u32, now: Instant) -> OutgoingPacket {
        let lost = &mut self.lost;
        let sequence =
            self.sent_packets.on_packet_sent(SessionPacketKind::AckEliciting, bytes, now, |packet| lost.push(packet));
        self.congestion.on_sent(bytes, now);
        self.application.sent(bytes);
        OutgoingPacket { sequence, bytes }
    }

    /// Returns when a packet may be sent if no report arrives before; `None` if the application has nothing to send.
    #[must_use]
    pub fn next_departure(&self, now: Instant) -> Option<Instant> {
        let wanted = self.wanted(now)?;
        let in_flight = self.sent_packets.in_flight();
        let next = self.congestion.next_send(in_flight, now)?;
        let stats = self.congestion.stats(now);
        let shut = stats.window.is_some_and(|window| window < in_flight + u64::from(wanted));
        if shut {
            return Some(next);
        }
        // A packet below the maximum size is permitted earlier.
        let missing = u64::from(wanted).saturating_sub(self.congestion.budget(in_flight, now)) as f64;
        let wait = core::time::Duration::from_secs_f64((missing / stats.rate.0).min(1.0));
        Some(next.min(now.after(wait + core::time::Duration::from_nanos(1))))
    }

    fn wanted(&self, now: Instant) -> Option<u32> {
        self.application.next_packet(self.congestion.stats(now).rate.0)
    }
}
