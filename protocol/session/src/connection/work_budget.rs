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
pub(crate) const BYTE_WORK: u64 = 1;
/// The work of each byte of control messages and extended acks. Measured: 2 to 6 ns for the shortest control messages,
/// 40 ns for each byte of extended acks, of which a packet has at most 28.
pub(super) const CONTROL_BYTE_WORK: u64 = 6;
/// The work of each frame, delivered or not. Measured: 18 to 100 ns, the most for slices that displace others.
pub(super) const FRAME_WORK: u64 = 100;
/// The work of passing a message to the application, without the application's own. Measured: 50 to 150 ns.
pub(super) const MESSAGE_WORK: u64 = 150;

/// The work at once that every peer may cause again and again. The round trip of all others grows by it, so it is below
/// that of a server which handles datagrams as they arrive: 0.8 ms on one machine. A sender at 100 Mbit/s and 60 Hz
/// sends 174 packets at once, of 3.3 us each.
const STEADY_BURST: i64 = 750_000;
/// The same for a peer that was far beyond its budget a moment ago.
const SUSPECT_BURST: i64 = 100_000;
/// Refusals of a window and the one before it after which a peer is suspected, if they are more than the packets that
/// were taken. A sender with congestion control exceeds its budget by less, and would lose most of its rate.
const SUSPICIOUS_REFUSALS: u32 = 32;
/// How long such a peer is suspected after its last excess.
const SUSPICION: Duration = Duration::from_secs(3);
/// The part of the work allowed per second by which the rest of the burst refills: a stall of a path is rare, and 4 ms
/// every 2 s do not count in the 99th percentile of the others.
const RESERVE_REFILL: u64 = 50;

/// The work of a plain payload or acknowledged packet, with 1 us of the application.
pub(crate) const PLAIN_PAYLOAD_WORK: u64 = PACKET_WORK + MESSAGE_WORK + 1000;

/// The messages of a packet that are delivered in a row although their sender has used up its budget. Each batch of
/// them costs a flush, and the last messages of most packets must not wait.
const MAX_MESSAGES_IN_DEBT: u32 = 64;

/// The interval in which refusals are compared with packets that were taken.
const WINDOW: Duration = Duration::from_millis(100);
/// How many more windows with excess than without end the session: 2 s of a steady flood. Every congestion control
/// halves its rate several times within 2 s in which it loses more than half of its packets.
const MAX_EXCESSIVE_WINDOWS: u32 = 20;
/// The windows whose packets a slow turn may find at once: all are as excessive as the packets of the turn. A stall of
/// the server is at most half of what ends a session, as the sender learns of its loss only afterwards.
const MAX_WINDOWS_AT_ONCE: u32 = 9;
/// Refusals of a window that never count as excess: a burst after a stall.
const TOLERATED_REFUSALS: u32 = 64;

/// How much work a peer may cause by what it sends on channels. A packet beyond it is refused: it takes no effect, and
/// its sender declares it lost. A peer that goes on for 2 s while most of its packets are refused is disconnected. Each
/// 100 ms within the budget or without packets count back by as much, so that a peer which floods for more than half of
/// the time is disconnected later.
///
/// The defaults take 15,000 full packets or 80,000 small messages per second.
///
/// # Examples
/// ```
/// use core::time::Duration;
///
/// use slipgate_session::connection::{ConnectionConfig, WorkLimits};
///
/// // Each client may use a fiftieth of a core.
/// let work = WorkLimits { per_second: Duration::from_millis(20), ..WorkLimits::default() };
/// let config = ConnectionConfig { work, ..ConnectionConfig::default() };
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkLimits {
    /// The estimated CPU time of this peer's packets in each second: 100 ms, a tenth of a core.
    pub per_second: Duration,
    /// The estimated CPU time at once: 4 ms, a quarter of a tick at 60 Hz. A peer that has used more than 0.75 ms at
    /// once, or has just connected, has the rest after 2 s.
    pub burst: Duration,
    /// The CPU time of the application for a message: 1 us.
    pub per_message: Duration,
}

impl WorkLimits {
    /// No limit, for trusted peers and for measurements.
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
    /// The application takes messages.
    #[default]
    Open,
    /// The application takes no messages now: packets are refused, and their sender declares them lost. This is not a
    /// violation of the protocol.
    Refused,
    /// The peer goes on far beyond its budget, although its datagrams are dropped before they are read: the connection
    /// ends as a flood.
    Flooded,
}

/// Whether a packet is processed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WorkPermit {
    Granted,
    /// The work budget is used up.
    OverBudget,
    /// The application takes no messages: [`Intake::Refused`].
    NotTaken,
}

/// Refused packets by their cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RefusedPackets {
    /// The work budget was used up.
    pub(crate) over_budget: u32,
    /// The application could not take more: [`Intake::Refused`].
    pub(crate) not_taken: u32,
}

/// The remaining work of one peer: two token buckets in nanoseconds. The first one is small and refills fast, the
/// reserve is for bursts after a stall.
///
/// A packet is granted while anything is left, and charged afterwards. Its exact cost is known only then. With the
/// default limits a packet of 1,200 bytes costs at most a millisecond, without the messages that waited for it: those
/// are charged one by one, and wait again when nothing is left.
pub(super) struct WorkBudget {
    /// Nanoseconds of work per second of time.
    per_second: u64,
    /// What `left` holds at most.
    steady_burst: i64,
    max_reserve: i64,
    per_message: u64,
    /// Negative after a packet that cost more than was left.
    left: i64,
    reserve: i64,
    refilled_at: Instant,
    suspected_until: Instant,
    /// Work that was done and not reported yet.
    done: u64,
    window: RefusalWindow,
    /// The packets of the window before it, if it followed directly.
    previous: RefusalWindow,
    /// The windows with excess, less those without; at least 0.
    excessive_windows: u32,
    intake: Intake,
    /// Packets beyond the budget that were not reported yet.
    refused: u32,
    /// Packets that the application could not take and that were not reported yet.
    not_taken: u32,
    /// Why a packet has messages that were not delivered yet.
    undelivered: Undelivered,
}

/// Why the rest of a packet's messages was not delivered yet. They are delivered before the next packet is processed,
/// so that they stay in order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Undelivered {
    /// Nothing waits.
    Nothing,
    /// Their sender has used up its work budget.
    OverBudget,
    /// The application took no more. Packets that arrive until they are delivered are not the fault of their sender.
    NotTaken,
}

/// Whether the further messages of a packet should wait until other clients had their turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Delivery {
    /// They should be taken now.
    #[default]
    Continues,
    /// They may wait until their sender has work budget again. Its other packets are refused until they are taken.
    MayWait,
}

/// The packets of a [`WINDOW`], or of several whose packets were read at once.
#[derive(Clone, Copy, Default)]
struct RefusalWindow {
    since: Instant,
    /// The windows in which the packets arrived; at least 1.
    count: u32,
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
        let burst = i64::try_from(limits.burst.as_nanos()).unwrap_or(i64::MAX);
        // Without a limit one bucket holds everything.
        let steady_burst = if burst == i64::MAX { burst } else { burst.min(STEADY_BURST) };
        Self {
            per_second: nanos(limits.per_second),
            steady_burst,
            max_reserve: burst - steady_burst,
            per_message: nanos(limits.per_message).saturating_add(MESSAGE_WORK),
            left: steady_burst,
            // It fills while the peer is honest: a client that floods at once has none.
            reserve: 0,
            refilled_at: Instant::default(),
            suspected_until: Instant::default(),
            done: 0,
            window: RefusalWindow::default(),
            previous: RefusalWindow::default(),
            excessive_windows: 0,
            intake: Intake::default(),
            refused: 0,
            not_taken: 0,
            undelivered: Undelivered::Nothing,
        }
    }

    /// Returns whether a packet may be processed now, and counts it. It may have waited up to `unread`: a loop that
    /// reads rarely finds packets that arrived at different times.
    #[inline]
    pub(super) fn request(&mut self, unread: Duration, now: Instant) -> WorkPermit {
        self.roll_window(unread, now);
        if self.intake == Intake::Refused || self.undelivered == Undelivered::NotTaken {
            self.not_taken = self.not_taken.saturating_add(1);
            return WorkPermit::NotTaken;
        }
        if self.undelivered == Undelivered::Nothing && self.has_left(unread, now) {
            self.window.granted = self.window.granted.saturating_add(1);
            return WorkPermit::Granted;
        }
        self.window.refused = self.window.refused.saturating_add(1);
        self.refused = self.refused.saturating_add(1);
        if self.is_suspicious() {
            self.suspected_until = now.after(SUSPICION);
        }
        WorkPermit::OverBudget
    }

    pub(super) const fn set_intake(&mut self, intake: Intake) {
        self.intake = intake;
    }

    /// Returns whether the next message of a packet is delivered now, after `in_a_row` others of it. Otherwise further
    /// packets are refused until the messages of this one were delivered: the application takes none, or their sender
    /// owes work. The rest of a packet that has waited goes on when there is some budget again.
    pub(super) fn may_deliver(&mut self, in_a_row: u32, now: Instant) -> bool {
        if self.intake == Intake::Refused {
            self.undelivered = Undelivered::NotTaken;
            return false;
        }
        let may_be_in_debt = (1..MAX_MESSAGES_IN_DEBT).contains(&in_a_row);
        may_be_in_debt || self.undelivered != Undelivered::OverBudget || self.has_left(Duration::ZERO, now)
    }

    /// Returns how many packets were refused since the last call.
    #[inline]
    pub(super) const fn take_refused(&mut self) -> RefusedPackets {
        let over_budget = core::mem::replace(&mut self.refused, 0);
        RefusedPackets { over_budget, not_taken: core::mem::replace(&mut self.not_taken, 0) }
    }

    /// Returns the work that was done since the last call.
    #[inline]
    pub(super) const fn take_done(&mut self) -> u64 {
        core::mem::replace(&mut self.done, 0)
    }

    /// Returns whether work is left now. It takes what is missing from the reserve.
    fn has_left(&mut self, unread: Duration, now: Instant) -> bool {
        self.refill(unread, now);
        if self.left <= 0 && self.reserve > 0 && !self.is_suspect(now) {
            let taken = self.reserve.min(self.steady_burst);
            (self.left, self.reserve) = (self.left + taken, self.reserve - taken);
        }
        self.left > 0 || self.steady_burst == i64::MAX
    }

    /// Charges a message that was delivered. Returns whether the next one of its packet should wait, because its peer
    /// owes work.
    pub(super) fn charge_message(&mut self, now: Instant) -> Delivery {
        self.charge(self.per_message);
        if self.left <= 0 && !self.has_left(Duration::ZERO, now) {
            self.undelivered = Undelivered::OverBudget;
            return Delivery::MayWait;
        }
        self.undelivered = Undelivered::Nothing;
        Delivery::Continues
    }

    /// Charges an event that the peer causes, which the application processes like a message.
    pub(super) fn charge_event(&mut self) {
        self.charge(self.per_message);
    }

    /// Records that all messages of a packet were delivered.
    #[inline]
    pub(super) const fn on_packet_delivered(&mut self) {
        self.undelivered = Undelivered::Nothing;
    }

    const fn is_suspicious(&self) -> bool {
        let refused = self.window.refused.saturating_add(self.previous.refused);
        refused > SUSPICIOUS_REFUSALS && refused > self.window.granted.saturating_add(self.previous.granted)
    }

    fn is_suspect(&self, now: Instant) -> bool {
        now < self.suspected_until
    }

    /// Charges work that was done.
    #[inline]
    pub(super) fn charge(&mut self, work: u64) {
        self.left = self.left.saturating_sub_unsigned(work);
        self.done = self.done.saturating_add(work);
    }

    /// Returns whether the windows in which most packets of the peer were refused are [`MAX_EXCESSIVE_WINDOWS`] more
    /// than the others.
    pub(super) const fn is_flood(&self) -> bool {
        self.excessive_windows >= MAX_EXCESSIVE_WINDOWS
    }

    fn refill(&mut self, unread: Duration, now: Instant) {
        if self.refilled_at == Instant::default() {
            // The first packet may have waited, too.
            self.refilled_at = now - unread;
        }
        let gained = self.gained_in(now.as_nanos().saturating_sub(self.refilled_at.as_nanos()));
        // The remainder of the division stays in the clock: it would be lost with frequent refills.
        if gained < RESERVE_REFILL as i64 {
            return;
        }
        self.refilled_at = now;
        let burst = if self.is_suspect(now) { self.steady_burst.min(SUSPECT_BURST) } else { self.steady_burst };
        // The credit of an unread time ends with it: no packet waits any longer.
        let max = if unread.is_zero() { burst } else { burst.saturating_add(self.gained_in(nanos(unread))) };
        self.left = self.left.saturating_add(gained).min(max);
        self.reserve = self.reserve.saturating_add(gained / RESERVE_REFILL as i64).min(self.max_reserve);
    }

    /// Returns the work that this many nanoseconds allow.
    fn gained_in(&self, time: u64) -> i64 {
        // 64 bits are enough for the time between two packets; a 128-bit division takes longer than all else here.
        match time.checked_mul(self.per_second) {
            Some(product) => (product / 1_000_000_000) as i64,
            None => i64::try_from(u128::from(time) * u128::from(self.per_second) / 1_000_000_000).unwrap_or(i64::MAX),
        }
    }

    /// Begins a new window if this one is over, with a packet that may have waited up to `unread`.
    fn roll_window(&mut self, unread: Duration, now: Instant) {
        if !now.reached(self.window.since, WINDOW) {
            return;
        }
        let elapsed = windows_in(now.since(self.window.since));
        // The windows since the last one in which this packet, and those read with it, may have arrived.
        let count = windows_in(unread).min(elapsed).clamp(1, MAX_WINDOWS_AT_ONCE);
        let (excessive, calm) =
            if self.window.is_excessive() { (self.window.count, 0) } else { (0, self.window.count) };
        let pause = elapsed - count;
        // Calm windows and pauses count back and do not reset: otherwise a flood would only have to pause at times.
        self.excessive_windows = (self.excessive_windows + excessive).saturating_sub(calm.saturating_add(pause));
        self.previous = if pause == 0 { self.window } else { RefusalWindow::default() };
        self.window = RefusalWindow { since: now, count, ..RefusalWindow::default() };
    }
}

/// Returns the whole windows of this time.
fn windows_in(time: Duration) -> u32 {
    u32::try_from(time.as_nanos() / WINDOW.as_nanos()).unwrap_or(u32::MAX)
}

/// Returns whole nanoseconds, at most the largest number of 64 bits.
fn nanos(duration: Duration) -> u64 {
    Instant::from_start(duration).as_nanos()
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    /// Returns the budget of a connection that began after 1 ms.
    fn budget() -> WorkBudget {
        let mut budget = WorkBudget::new(WorkLimits::default());
        assert_eq!(budget.request(Duration::ZERO, at(1)), WorkPermit::Granted);
        budget
    }

    /// Sends packets of this much work at one time. Returns how many were granted.
    fn send(budget: &mut WorkBudget, packets: u32, work: u64, now: Instant) -> u32 {
        send_unread(budget, packets, work, Duration::ZERO, now)
    }

    /// Reads packets at one time that may have waited for a time.
    fn send_unread(budget: &mut WorkBudget, packets: u32, work: u64, unread: Duration, now: Instant) -> u32 {
        let mut granted = 0;
        for _ in 0..packets {
            if budget.request(unread, now) == WorkPermit::Granted {
                granted += 1;
                budget.charge(work);
            }
        }
        granted
    }

    #[test]
    fn work_follows_the_rate_after_the_burst() {
        let mut budget = budget();
        assert_eq!(send(&mut budget, 20, 100_000, at(1)), 8, "0.75 ms at the start");
        assert_eq!(send(&mut budget, 60, 100_000, at(5000)), 40, "4 ms");
        assert_eq!(send(&mut budget, 15, 100_000, at(5006)), 7, "0.6 ms after 6 ms, and 12 us of the reserve");
        assert_eq!(send(&mut budget, 1, 900_000, at(5007)), 1, "granted with a tenth of it left");
        assert_eq!(send(&mut budget, 1, 1, at(5013)), 0, "the debt is paid first");
        assert_eq!(send(&mut budget, 60, 100_000, at(9000)), 40, "never more than the burst");
        assert_eq!(send(&mut budget, 15, 100_000, at(9050)), 9, "0.75 ms, and 0.1 ms of the reserve");
    }

    #[test]
    fn large_bursts_are_possible_every_two_seconds() {
        // A peer that uses all that it may, in bursts: the work at once decides about the round trips of others.
        let mut budget = WorkBudget::new(WorkLimits::default());
        let bursts: Vec<u32> = (100..600).map(|turn| send(&mut budget, 1000, 10_000, at(turn * 10))).collect();
        let large = bursts.iter().filter(|packets| **packets > 105).count();
        assert!(large <= 1, "{large} of 500 bursts exceed 1.05 ms: {bursts:?}");
        assert!(bursts.iter().sum::<u32>() <= 51_000, "50 ms a second and the bursts");
    }

    #[test]
    fn rare_reads_take_what_arrived_in_between() {
        // 100 Mbit/s on a server that reads 30 times a second, and 64 packets after a stall of 100 ms.
        let mut budget = WorkBudget::new(WorkLimits::default());
        for turn in 1..1000 {
            for _ in 0..347 {
                assert_eq!(budget.request(Duration::from_millis(33), at(33 * turn)), WorkPermit::Granted, "{turn}");
                budget.charge(3300);
            }
        }
        let mut budget = WorkBudget::new(WorkLimits::default());
        for stall in 1..100 {
            assert_eq!(send(&mut budget, 64, 4500, at(100 * stall)), 64, "{stall}");
        }
    }

    #[test]
    fn peer_far_beyond_its_budget_has_small_bursts_for_a_while() {
        let mut budget = WorkBudget::new(WorkLimits::default());
        send(&mut budget, 200, 100_000, at(1000));
        assert_eq!(send(&mut budget, 40, 10_000, at(3900)), 10, "0.1 ms");
        assert_eq!(send(&mut budget, 100, 10_000, at(4500)), 100);
    }

    #[test]
    fn peer_somewhat_beyond_its_budget_keeps_its_rate() {
        // Packets of 3.3 us in ticks of 16 ms: 233 are within the rate, and 300 exceed the burst.
        let mut budget = WorkBudget::new(WorkLimits::default());
        for turn in 1..1000 {
            let packets = if turn % 20 == 0 { 300 } else { 220 };
            let granted = send(&mut budget, packets, 3300, at(16 * turn));
            assert!(granted >= 220, "{granted} in turn {turn}");
        }
    }

    #[test]
    fn packets_wait_for_the_messages_of_an_earlier_one() {
        let mut budget = budget();
        assert_eq!(budget.request(Duration::ZERO, at(3000)), WorkPermit::Granted);
        let deliveries = (0..5000).map(|_| budget.charge_message(at(3000)));
        let in_a_row = deliveries.take_while(|delivery| *delivery == Delivery::Continues).count();
        assert!((3400..3500).contains(&in_a_row), "{in_a_row} of 1.15 us in 4 ms");
        // The budget is full again, but the rest of the messages come first.
        assert_eq!(budget.request(Duration::ZERO, at(9000)), WorkPermit::OverBudget);
        budget.on_packet_delivered();
        assert_eq!(budget.request(Duration::ZERO, at(9000)), WorkPermit::Granted);
    }

    #[test]
    fn messages_of_one_packet_follow_the_budget() {
        let mut budget = WorkBudget::new(WorkLimits { burst: Duration::from_micros(750), ..WorkLimits::default() });
        assert_eq!(budget.request(Duration::ZERO, at(1)), WorkPermit::Granted);
        // A packet releases 4,096 messages, and each millisecond is a turn.
        let (mut rest, mut turns) = (4096, Vec::new());
        while rest > 0 {
            let (now, mut in_a_row, mut delivered) = (at(1 + turns.len() as u64), 0, 0);
            while rest > 0 && budget.may_deliver(in_a_row, now) {
                budget.charge_message(now);
                (rest, in_a_row, delivered) = (rest - 1, in_a_row + 1, delivered + 1);
            }
            turns.push(delivered);
        }
        assert!((652..=653 + 64).contains(&turns[0]), "0.75 ms: {turns:?}");
        assert!(turns[1..].iter().all(|delivered| *delivered <= 64 + 87), "0.1 ms: {turns:?}");
        assert!((36..44).contains(&turns.len()), "4.7 ms of work take {} ms", turns.len());
    }

    #[test]
    fn packets_behind_messages_not_taken_are_no_flood() {
        let mut budget = budget();
        budget.set_intake(Intake::Refused);
        assert!(!budget.may_deliver(1, at(1)));
        budget.set_intake(Intake::Open);
        assert!(budget.may_deliver(0, at(1)));
        for turn in 1..200 {
            for _ in 0..256 {
                assert_eq!(budget.request(Duration::ZERO, at(16 * turn)), WorkPermit::NotTaken, "turn {turn}");
            }
        }
        assert!(!budget.is_flood());
        let refused = budget.take_refused();
        assert_eq!((refused.over_budget, refused.not_taken), (0, 199 * 256));
        assert_eq!(budget.charge_message(at(3200)), Delivery::Continues);
        assert_eq!(budget.request(Duration::ZERO, at(3200)), WorkPermit::Granted);
        // A sender that has used up its budget by the same messages owes work.
        budget.set_intake(Intake::Refused);
        assert!(!budget.may_deliver(1, at(3200)));
        budget.set_intake(Intake::Open);
        budget.charge(10_000_000);
        assert_eq!(budget.charge_message(at(3200)), Delivery::MayWait);
        assert_eq!(budget.request(Duration::ZERO, at(3200)), WorkPermit::OverBudget);
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
    fn flood_ends_at_a_server_with_slow_turns() {
        for millis in [50, 150, 199, 200, 250, 299, 300, 500, 900, 1000, 1500] {
            let mut budget = WorkBudget::new(WorkLimits::default());
            let turn_time = Duration::from_millis(millis);
            let mut ends_at = |turn: u64| {
                send_unread(&mut budget, 10 * millis as u32, 500_000, turn_time, at(millis * turn));
                budget.is_flood()
            };
            let end = (1..200).find(|turn| ends_at(*turn)).map(|turn| millis * turn);
            assert!(end.is_some_and(|end| (1500..=12_000).contains(&end)), "turns of {millis} ms: {end:?} ms");
        }
    }

    #[test]
    fn stalls_of_the_server_alone_are_no_flood() {
        // Every ten seconds it finds the packets of two seconds, and the sender halves its rate in each turn after it.
        let mut budget = WorkBudget::new(WorkLimits::default());
        for stall in 1..=360_u64 {
            for turn in 0..8 {
                let unread = Duration::from_millis(if turn == 0 { 2000 } else { 100 });
                let now = at(10_000 * stall + 100 * turn);
                send_unread(&mut budget, 2000 >> turn, 500_000, unread, now);
                assert!(!budget.is_flood(), "turn {turn} after stall {stall}");
            }
        }
    }

    /// Sends floods of some windows with pauses, and some packets within the budget in each window of a pause. Returns
    /// after how many milliseconds they end the session, within ten minutes.
    fn end_of_floods(flood_millis: u64, pause_millis: u64, packets_in_pauses: u32) -> Option<u64> {
        let mut budget = WorkBudget::new(WorkLimits::default());
        (1..600_000).step_by(10).find(|now| {
            let is_flood = now % (flood_millis + pause_millis) < flood_millis;
            let packets = if is_flood { 256 } else { packets_in_pauses };
            send(&mut budget, packets, 50_000, at(*now));
            budget.is_flood()
        })
    }

    #[test]
    fn flood_with_pauses_or_calm_windows_ends_the_session() {
        // The longest floods pause just before they would end the session.
        for (flood, pause) in [(1900, 250), (1900, 100), (500, 250), (400, 200)] {
            for packets_in_pauses in [0, 1] {
                let end = end_of_floods(flood, pause, packets_in_pauses);
                let is_in_time = end.is_some_and(|end| (1900..20_000).contains(&end));
                assert!(is_in_time, "{flood} ms, pauses of {pause} ms with {packets_in_pauses} packets: {end:?}");
            }
        }
    }

    #[test]
    fn honest_bursts_of_a_long_game_are_no_flood() {
        // In each 10 s, an upload begins far beyond the budget, and its sender halves its rate each 0.2 s. Later a lag
        // spike of 1 s ends with all of its packets at once.
        let mut budget = WorkBudget::new(WorkLimits::default());
        for step in 0..3600 * 100_u64 {
            let packets = match step % 1000 {
                start @ 0..100 => 256 >> (start / 20),
                500..600 => 0,
                600 => 200,
                _ => 2,
            };
            send(&mut budget, packets, 50_000, at(10 * step));
            assert!(!budget.is_flood(), "after {step} times 10 ms");
        }
    }

    #[test]
    fn excess_for_less_than_half_of_the_time_is_no_flood() {
        // Floods of 1.8 s with calm times of 2.2 s, for an hour.
        let mut budget = WorkBudget::new(WorkLimits::default());
        for turn in 0..3600 * 100_u64 {
            let packets = if turn % 400 < 180 { 256 } else { 1 };
            send(&mut budget, packets, 50_000, at(10 * turn));
            assert!(!budget.is_flood(), "turn {turn}");
        }
    }

    #[test]
    fn credit_of_an_unread_time_ends_with_it() {
        let mut budget = budget();
        // 500 ms without reading are 50 ms of work, of which the packets that waited took nothing.
        assert_eq!(budget.request(Duration::from_millis(500), at(600)), WorkPermit::Granted);
        let granted = send(&mut budget, 10_000, 10_000, at(616));
        assert!((75..=401).contains(&granted), "{granted} packets of 10 us, of 4 ms at most");
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
