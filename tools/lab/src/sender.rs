//! A sender: an application, its packets under way, and the congestion avoidance that a session has.

use slipgate_netcode::time::Instant;
use slipgate_session::congestion::{Congestion, Demand, Departed, Feedback, Flight, Newest};
use slipgate_session::wire::reliable::Sequence;

use crate::report::{PeerClock, Report};
use crate::source::Application;

/// Packets of which a sender remembers the fate: enough for 100 Mbit/s with a third of a second of delay.
const WINDOW: u16 = 4096;

/// A packet that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaving {
    /// Its number.
    pub sequence: Sequence,
    /// Its bytes on the path.
    pub bytes: u32,
}

/// A sender.
pub struct Sender {
    congestion: Congestion,
    flight: Flight,
    /// What it sends.
    pub application: Application,
    next: Sequence,
    newest: Option<Sequence>,
    peer: PeerClock,
    delivered: u64,
    acked: Vec<Departed>,
    lost: Vec<Departed>,
}

impl Sender {
    /// A sender that has sent nothing yet.
    #[must_use]
    pub fn new(congestion: Congestion, application: Application) -> Self {
        Self {
            congestion,
            flight: Flight::new(WINDOW),
            application,
            next: Sequence(0),
            newest: None,
            peer: PeerClock::default(),
            delivered: 0,
            acked: Vec::new(),
            lost: Vec::new(),
        }
    }

    /// A report has arrived.
    pub fn hear(&mut self, report: &Report, now: Instant) {
        let newest_departed = self.note_arrivals(report);
        self.detect_losses(now);
        let received_at = self.peer.unwrap_time(report.received_at);
        let newest = newest_departed.map(|departed| Newest {
            sent_at: departed.sent_at,
            received_at: Some(received_at),
            ack_delay: report.sent_at.since(report.received_at),
            unread: report.unread(),
        });
        let feedback = Feedback {
            now,
            newest,
            acked: &self.acked,
            lost: &self.lost,
            delivered: self.delivered,
            in_flight: self.flight.in_flight(),
        };
        self.congestion.on_feedback(&feedback);
        self.acked.clear();
        self.lost.clear();
    }

    /// Notes what the report acknowledges for the first time; answers the newest packet if that is news.
    fn note_arrivals(&mut self, report: &Report) -> Option<Departed> {
        let mut newest = None;
        for sequence in report.arrived() {
            let Some(landed) = self.flight.acked(sequence) else { continue };
            self.delivered += u64::from(landed.departed.bytes);
            self.acked.push(landed.departed);
            if sequence == report.newest && self.newest.is_none_or(|newest| sequence.is_newer_than(newest)) {
                self.newest = Some(sequence);
                newest = Some(landed.departed);
            }
        }
        newest
    }

    fn detect_losses(&mut self, now: Instant) {
        let lost = &mut self.lost;
        self.flight.detect(&self.congestion.timing(), now, |_, departed| lost.push(departed));
    }

    /// Time has passed: to be called before packets are asked for.
    pub fn tick(&mut self, now: Instant, demand: impl FnMut(f64)) {
        self.application.tick(now, demand);
        self.detect_losses(now);
        self.congestion.on_lost(&self.lost);
        self.lost.clear();
        self.congestion.on_tick(self.flight.in_flight(), now);
    }

    /// The next packet that may leave now.
    pub fn next_packet(&mut self, now: Instant) -> Option<Leaving> {
        let Some(wanted) = self.wanted(now) else {
            self.congestion.set_demand(Demand::Met);
            return None;
        };
        let budget = self.congestion.budget(self.flight.in_flight(), now);
        if budget < u64::from(wanted) {
            self.congestion.set_demand(Demand::Unmet);
            return self.keep_alive(budget, now);
        }
        Some(self.send(wanted, now))
    }

    /// What the budget holds is worth a packet only when it keeps the connection alive.
    fn keep_alive(&mut self, budget: u64, now: Instant) -> Option<Leaving> {
        let alive = self.congestion.next_send(self.flight.in_flight(), now).is_some_and(|next| next <= now);
        (alive && budget >= 256).then(|| self.send(256, now))
    }

    fn send(&mut self, bytes: u32, now: Instant) -> Leaving {
        let sequence = self.next;
        self.next = sequence.ahead(1);
        let lost = &mut self.lost;
        self.flight.depart(sequence, bytes, now, |_, departed| lost.push(departed));
        self.congestion.on_sent(bytes, now);
        self.application.sent(bytes);
        Leaving { sequence, bytes }
    }

    /// When a packet may leave if no report arrives before; `None` if the application has nothing to send.
    #[must_use]
    pub fn next_departure(&self, now: Instant) -> Option<Instant> {
        let wanted = self.wanted(now)?;
        let in_flight = self.flight.in_flight();
        let next = self.congestion.next_send(in_flight, now)?;
        let stats = self.congestion.stats(now);
        let shut = stats.window.is_some_and(|window| window < in_flight + u64::from(wanted));
        if shut {
            return Some(next);
        }
        // A packet smaller than the largest is ready earlier.
        let missing = u64::from(wanted).saturating_sub(self.congestion.budget(in_flight, now)) as f64;
        let wait = core::time::Duration::from_secs_f64((missing / stats.rate.0).min(1.0));
        Some(next.min(now.after(wait + core::time::Duration::from_nanos(1))))
    }

    fn wanted(&self, now: Instant) -> Option<u32> {
        self.application.next_packet(self.congestion.stats(now).rate.0)
    }
}
