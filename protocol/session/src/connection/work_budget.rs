//! How much work a peer may cause by what it sends (§5.11).
//!
//! The estimate is in nanoseconds of a core, by constants and not by a clock, so that the same packets are refused on
//! every machine and in every replay.

use core::time::Duration;

use slipgate_netcode::time::Instant;

/// The work of a packet without frames: its share of the system call, decryption, header, acknowledgements, feedback
/// of the controller, and a sixteenth of an ack-only packet in reply. Measured: 1.5 to 2.5 us (`benches/floods`).
pub(super) const PACKET_WORK: u64 = 2000;
/// The work of each byte of a packet: decryption, and one copy. Measured: 0.5 to 0.9 ns.
pub(super) const BYTE_WORK: u64 = 1;
/// The work of each byte of control messages and extended acks. Measured: 2 to 6 ns for the shortest control messages,
/// 40 ns for each byte of extended acks, of which a packet has at most 28.
pub(super) const CONTROL_BYTE_WORK: u64 = 6;
/// The work of each frame, delivered or not. Measured: 18 to 100 ns, the most for slices that displace others.
pub(super) const FRAME_WORK: u64 = 100;
/// The work of passing a message to the application, without the application's own. Measured: 50 to 150 ns.
pub(super) const MESSAGE_WORK: u64 = 150;

/// The interval in which refusals are compared with packets that were taken.
const WINDOW: Duration = Duration::from_millis(100);
/// Windows of excess in a row after which the session ends: 2 s. Every congestion control halves its rate several times
/// within 2 s in which it loses more than half of its packets.
const MAX_EXCESSIVE_WINDOWS: u32 = 20;
/// Refusals of a window that never count as excess: a burst after a stall.
const TOLERATED_REFUSALS: u32 = 64;

/// How much work a peer may cause by what it sends on channels. A packet beyond it is refused: it takes no effect, and
/// its sender declares it lost. A peer that goes on for 2 s while most of its packets are refused is disconnected.
///
/// The defaults take 15,000 full packets or 80,000 small messages per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkLimits {
    /// The estimated CPU time of this peer's packets in each second: 100 ms, a tenth of a core.
    pub per_second: Duration,
    /// The estimated CPU time at once, after a pause: 4 ms, a quarter of a tick at 60 Hz.
    pub burst: Duration,
    /// The CPU time of the application for a message: 1 us.
    pub per_message: Duration,
}

impl WorkLimits {
    /// No limit: for peers that are trusted, and for measurements.
    pub const UNLIMITED: Self = Self { per_second: Duration::MAX, burst: Duration::MAX, per_message: Duration::ZERO };
}

impl Default for WorkLimits {
    fn default() -> Self {
        Self {
            per_second: Duration::from_millis(100),
            burst: Duration::from_millis(4),
            per_message: Duration::from_micros(1),
        }
    }
}

/// Whether the application takes messages of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Intake {
    /// It does.
    #[default]
    Open,
    /// It cannot take more now: packets are refused, and their sender declares them lost. That is no violation.
    Refused,
}

/// Whether a packet is processed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WorkPermit {
    Granted,
    Refused,
}

/// The remaining work of one peer: a token bucket in nanoseconds.
///
/// A packet is granted while anything is left, and charged afterwards. Its exact cost is known only then, and a packet
/// of 1,200 bytes costs at most a millisecond.
pub(super) struct WorkBudget {
    /// Nanoseconds of work per second of time.
    per_second: u64,
    burst: i64,
    per_message: u64,
    /// Negative after a packet that cost more than was left.
    left: i64,
    refilled_at: Instant,
    window: RefusalWindow,
    excessive_windows: u32,
    intake: Intake,
    /// Refused packets that were not reported yet.
    refused: u32,
}

/// The packets of the last [`WINDOW`].
#[derive(Default)]
struct RefusalWindow {
    since: Instant,
    granted: u32,
    refused: u32,
}

impl RefusalWindow {
    const fn is_excessive(&self) -> bool {
        self.refused > self.granted.saturating_add(TOLERATED_REFUSALS)
    }
}

impl WorkBudget {
    pub(super) fn new(limits: WorkLimits) -> Self {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let burst = i64::try_from(limits.burst.as_nanos()).unwrap_or(i64::MAX);
        Self {
            per_second: nanos(limits.per_second),
            burst,
            per_message: nanos(limits.per_message).saturating_add(MESSAGE_WORK),
            left: burst,
            refilled_at: Instant::default(),
            window: RefusalWindow::default(),
            excessive_windows: 0,
            intake: Intake::default(),
            refused: 0,
        }
    }

    /// Returns whether a packet may be processed now, and counts it.
    pub(super) fn request(&mut self, now: Instant) -> WorkPermit {
        self.roll_window(now);
        if self.intake == Intake::Refused {
            self.refused = self.refused.saturating_add(1);
            return WorkPermit::Refused;
        }
        if self.has_left(now) {
            self.window.granted = self.window.granted.saturating_add(1);
            return WorkPermit::Granted;
        }
        self.window.refused = self.window.refused.saturating_add(1);
        self.refused = self.refused.saturating_add(1);
        WorkPermit::Refused
    }

    pub(super) const fn set_intake(&mut self, intake: Intake) {
        self.intake = intake;
    }

    /// Returns how many packets were refused since the last call.
    #[inline]
    pub(super) const fn take_refused(&mut self) -> u32 {
        core::mem::replace(&mut self.refused, 0)
    }

    /// Returns whether work is left now.
    pub(super) fn has_left(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.left > 0 || self.burst == i64::MAX
    }

    /// Charges work that was done.
    #[inline]
    pub(super) fn charge(&mut self, work: u64) {
        self.left = self.left.saturating_sub_unsigned(work);
    }

    /// Charges messages that were delivered.
    #[inline]
    pub(super) fn charge_message(&mut self) {
        self.charge(self.per_message);
    }

    /// Returns whether most packets of the peer were refused for so long that it cannot be an honest sender.
    pub(super) const fn is_flood(&self) -> bool {
        self.excessive_windows >= MAX_EXCESSIVE_WINDOWS
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.since(self.refilled_at).as_nanos();
        let gained = i64::try_from(elapsed * u128::from(self.per_second) / 1_000_000_000).unwrap_or(i64::MAX);
        // The remainder of the division stays in the clock: it would be lost with frequent refills.
        if gained > 0 {
            self.left = self.left.saturating_add(gained).min(self.burst);
            self.refilled_at = now;
        }
    }

    fn roll_window(&mut self, now: Instant) {
        if !now.reached(self.window.since, WINDOW) {
            return;
        }
        // A pause between two windows interrupts the row.
        let follows = !now.reached(self.window.since, 2 * WINDOW);
        let was_excessive = self.window.is_excessive();
        self.excessive_windows = match (was_excessive, follows) {
            (true, true) => self.excessive_windows + 1,
            (true, false) => 1,
            (false, _) => 0,
        };
        self.window = RefusalWindow { since: now, ..RefusalWindow::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    /// Sends packets of this much work at one time. Returns how many were granted.
    fn send(budget: &mut WorkBudget, packets: u32, work: u64, now: Instant) -> u32 {
        let mut granted = 0;
        for _ in 0..packets {
            if budget.request(now) == WorkPermit::Granted {
                granted += 1;
                budget.charge(work);
            }
        }
        granted
    }

    #[test]
    fn work_follows_the_rate_after_the_burst() {
        let mut budget = WorkBudget::new(WorkLimits::default());
        assert_eq!(send(&mut budget, 100, 100_000, at(5000)), 40, "4 ms");
        assert_eq!(send(&mut budget, 100, 100_000, at(5010)), 10, "1 ms after 10 ms");
        assert_eq!(send(&mut budget, 1, 900_000, at(5011)), 1, "granted with a tenth of it left");
        assert_eq!(send(&mut budget, 1, 1, at(5018)), 0, "the debt is paid first");
        assert_eq!(send(&mut budget, 100, 100_000, at(9000)), 40, "never more than the burst");
    }

    #[test]
    fn frequent_requests_refill_as_rare_ones_do() {
        let mut budget = WorkBudget::new(WorkLimits::default());
        let granted: u32 = (0..1_000_000)
            .map(|micros| send(&mut budget, 1, 10_000, Instant::from_start(Duration::from_micros(micros))))
            .sum();
        assert!((10_000..10_500).contains(&granted), "{granted} of 10 us in a second");
    }

    #[test]
    fn most_packets_refused_for_two_seconds_is_a_flood() {
        let mut budget = WorkBudget::new(WorkLimits::default());
        let mut ends_at = |turn: u64| {
            send(&mut budget, 256, 500_000, at(16 * turn));
            budget.is_flood()
        };
        let end = (1..200).find(|turn| ends_at(*turn)).map(|turn| 16 * turn);
        assert!(end.is_some_and(|end| (2000..2400).contains(&end)), "{end:?} ms");
    }

    #[test]
    fn sender_that_slows_down_is_no_flood() {
        // A third of the packets is refused, for a minute; every tenth window is far beyond the budget.
        let mut budget = WorkBudget::new(WorkLimits::default());
        for turn in 0..60_000 / 16 {
            let packets = if turn / 6 % 10 == 0 { 256 } else { 3 };
            send(&mut budget, packets, 700_000, at(16 * turn));
            assert!(!budget.is_flood(), "turn {turn}");
        }
    }

    #[test]
    fn backlog_that_is_read_at_once_is_no_flood() {
        // A loop that reads once a second finds a second of packets.
        let mut budget = WorkBudget::new(WorkLimits::default());
        for turn in 0..60 {
            send(&mut budget, 256, 500_000, at(1000 * turn));
            assert!(!budget.is_flood(), "turn {turn}");
        }
    }

    #[test]
    fn unlimited_work_is_never_refused() {
        let mut budget = WorkBudget::new(WorkLimits::UNLIMITED);
        for turn in 0..10 {
            assert_eq!(send(&mut budget, 1000, u64::MAX / 4, at(turn)), 1000);
        }
    }
}
