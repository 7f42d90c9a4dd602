//! Which packets were sent, and what became of them (§2.4).

use alloc::collections::VecDeque;
use core::time::Duration;

use super::{Event, seed};
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

/// How long after its sending a lost packet may still be acknowledged: four times the longest round trip that the article
/// measures.
const LATE_WITHIN: Duration = seed::MAX_RTT.saturating_mul(4);

/// How far behind the newest packet that it has received a peer tells of others at most: the largest window that an
/// endpoint may have.
const TOLD_WITHIN: u64 = 1 << 14;

/// How many packets there are numbers for: farther apart, two of them have the same.
const NUMBERS: u64 = 1 << 16;

/// Which packets are remembered, as long as the window has room for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Remember {
    /// Those of which there can be news, and what was sent since: a steady stream with a round trip of 100 ms takes a
    /// tenth of a second's worth of packets, and not a window.
    Needed,
    /// All: the reference's statistics look at packets whose fate was decided long ago.
    All,
}

/// What is remembered of a packet.
#[derive(Clone, Copy)]
pub(super) struct Departure {
    pub(super) at: Instant,
    pub(super) bytes: u32,
    fate: Fate,
}

/// ```text
///  Awaited ──▶ Acked        Silent ──▶ Acked
///     │          ▲
///     └──▶ Lost ─┘ (its acknowledgement was late)
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Nobody knows yet.
    Awaited,
    /// It carries acknowledgements alone, which nobody acknowledges in turn: it is never called lost.
    Silent,
    Acked,
    Lost,
}

impl Departure {
    pub(super) fn is_acked(&self) -> bool {
        self.fate == Fate::Acked
    }

    /// Whether an acknowledgement of it would be no news.
    fn is_settled(&self, now: Instant) -> bool {
        match self.fate {
            Fate::Awaited => false,
            Fate::Lost => now.reached(self.at, LATE_WITHIN),
            Fate::Silent | Fate::Acked => true,
        }
    }
}

/// Whether a packet waits for an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cargo {
    Data,
    AcksAlone,
}

/// When a packet with acknowledgements left, among those that came with some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
    /// After all that came before it: what its sender had received by then, it still has.
    Newest,
    /// Before one that overtook it.
    Overtaken,
}

/// What an acknowledgement said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    News(News),
    /// Known, of no interest, or forgotten.
    Nothing,
    /// A packet that was never sent.
    Nonsense,
}

/// The first word of a packet that carried data: it arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct News {
    pub(super) bytes: u32,
    pub(super) age: Duration,
    /// It had been called lost.
    pub(super) late: bool,
}

/// An [`Event`] in 8 bytes.
#[derive(Clone, Copy)]
enum Verdict {
    Acked { sequence: Sequence, micros: u32 },
    Lost { sequence: Sequence },
}

/// The window of sent packets, and what the application has not been told yet.
pub(super) struct Sent {
    /// How many were sent in all; numbers start at 0, so this is the next one, without the wrap.
    total: u64,
    /// The oldest packet that is awaited, in the same count, or the next one.
    oldest: u64,
    /// The peer is known to have received one so much newer, that it does not tell of any before this one any more.
    told_from: u64,
    /// One behind the newest packet that the peer is known to have received, however long that took.
    heard_to: u64,
    /// The last packets, the newest last; never more than the window holds. It grows with what is under way.
    departures: VecDeque<Departure>,
    size: u16,
    remember: Remember,
    /// The newest ones, at most as many as the window holds: an application that asks every turn never misses one, and
    /// one that never asks takes no more memory.
    verdicts: VecDeque<Verdict>,
    untold: u64,
}

impl Sent {
    pub(super) fn new(size: u16, remember: Remember) -> Self {
        let departures = match remember {
            Remember::Needed => VecDeque::new(),
            Remember::All => VecDeque::with_capacity(size.into()),
        };
        Self {
            total: 0,
            oldest: 0,
            told_from: 0,
            heard_to: 0,
            departures,
            size,
            remember,
            verdicts: VecDeque::new(),
            untold: 0,
        }
    }

    /// One behind the newest packet that the peer is known to have received, counted without the wrap.
    pub(super) const fn heard_to(&self) -> u64 {
        self.heard_to
    }

    /// The number of the next packet.
    pub(super) const fn next(&self) -> Sequence {
        Sequence(self.total as u16)
    }

    /// Notes that the next packet has left. Answers whether its place in the window was that of a packet whose fate is
    /// not known: that one counts as lost.
    pub(super) fn depart(&mut self, cargo: Cargo, bytes: u32, now: Instant) -> bool {
        let fate = if cargo == Cargo::Data { Fate::Awaited } else { Fate::Silent };
        let displaced = self.total - self.oldest == self.size.into();
        if displaced {
            self.give_up_oldest();
        }
        self.forget_settled(now);
        self.departures.push_back(Departure { at: now, bytes, fate });
        self.total += 1;
        self.pass_over_settled();
        displaced
    }

    /// Takes a packet's acknowledgement.
    pub(super) fn acknowledge(&mut self, sequence: Sequence, word: Word, now: Instant) -> Heard {
        let Some(number) = self.meant(sequence, word) else { return Heard::Nonsense };
        if word == Word::Newest {
            self.believe(number);
        }
        let Some(departure) = self.place(number) else { return Heard::Nothing };
        let Departure { at, bytes, fate } = *departure;
        if fate == Fate::Acked {
            return Heard::Nothing;
        }
        departure.fate = Fate::Acked;
        self.pass_over_settled();
        if fate == Fate::Silent {
            return Heard::Nothing;
        }
        let age = now.since(at);
        let micros = u32::try_from(age.as_micros()).unwrap_or(u32::MAX);
        self.tell(Verdict::Acked { sequence, micros });
        Heard::News(News { bytes, age, late: fate == Fate::Lost })
    }

    /// The last packet with this number, unless none was sent that an honest peer can speak of.
    ///
    /// A peer that has not received anything for 32,768 packets and more still tells of the last that it has: its number
    /// looks as if it were ahead of all that was sent. It is held against nobody.
    fn meant(&self, sequence: Sequence, word: Word) -> Option<u64> {
        let ahead = u64::from(sequence.distance_from(self.next()));
        let number = self.total.checked_sub(NUMBERS - ahead)?;
        (word == Word::Overtaken || number >= self.told_from).then_some(number)
    }

    /// The peer has received a packet, unless its number could be that of another one as well.
    fn believe(&mut self, number: u64) {
        if self.total - self.told_from <= NUMBERS {
            self.told_from = self.told_from.max(number.saturating_sub(TOLD_WITHIN));
            self.heard_to = self.heard_to.max(number + 1);
        }
    }

    /// Gives up the oldest packet that has been awaited for `deadline`, if there is one; call again until there is none.
    ///
    /// Packets leave in the order of their numbers, so nobody else is overdue before the oldest is.
    pub(super) fn give_up_overdue(&mut self, deadline: Duration, now: Instant) -> bool {
        let overdue = self.awaited_since().is_some_and(|since| now.reached(since, deadline));
        if overdue {
            self.give_up_oldest();
        }
        overdue
    }

    /// When the oldest packet that is awaited was sent.
    pub(super) fn awaited_since(&self) -> Option<Instant> {
        self.oldest_awaited().map(|departure| departure.at)
    }

    /// The oldest verdict that the application was not told.
    pub(super) fn poll(&mut self) -> Option<Event> {
        self.verdicts.pop_front().map(|verdict| match verdict {
            Verdict::Acked { sequence, micros } => Event::Acked { sequence, rtt: Duration::from_micros(micros.into()) },
            Verdict::Lost { sequence } => Event::Lost { sequence },
        })
    }

    /// Verdicts that were forgotten because nobody asked.
    pub(super) const fn untold(&self) -> u64 {
        self.untold
    }

    /// The packets of the older half of the window, as far as they were sent, the oldest first (§2.5).
    pub(super) fn older_half(&self) -> impl Iterator<Item = &Departure> {
        let half = u64::from(self.size / 2);
        let from = self.total.saturating_sub(self.size.into());
        let numbers = from..self.total.saturating_sub(half);
        numbers.filter_map(|number| self.departures.get(self.index(number)?))
    }

    pub(super) fn reset(&mut self) {
        *self = Self::new(self.size, self.remember);
    }

    /// Makes room for one more packet, and gives up room that is not needed.
    fn forget_settled(&mut self, now: Instant) {
        let full = usize::from(self.size);
        while self.departures.front().is_some_and(|oldest| {
            self.departures.len() >= full || (self.remember == Remember::Needed && oldest.is_settled(now))
        }) {
            self.departures.pop_front();
        }
    }

    /// The oldest packet that is awaited is lost.
    fn give_up_oldest(&mut self) {
        let number = self.oldest;
        if let Some(departure) = self.place(number) {
            departure.fate = Fate::Lost;
        }
        self.tell(Verdict::Lost { sequence: Sequence(number as u16) });
        self.pass_over_settled();
    }

    /// Moves on to the oldest packet that is awaited; each number is passed over once.
    fn pass_over_settled(&mut self) {
        while self.oldest_awaited().is_some_and(|departure| departure.fate != Fate::Awaited) {
            self.oldest += 1;
        }
    }

    fn oldest_awaited(&self) -> Option<&Departure> {
        self.departures.get(self.index(self.oldest)?)
    }

    fn place(&mut self, number: u64) -> Option<&mut Departure> {
        let index = self.index(number)?;
        self.departures.get_mut(index)
    }

    /// Where a packet is remembered, unless it is forgotten or not sent yet.
    fn index(&self, number: u64) -> Option<usize> {
        let behind_newest = usize::try_from(self.total.checked_sub(number)?).ok()?;
        self.departures.len().checked_sub(behind_newest)
    }

    fn tell(&mut self, verdict: Verdict) {
        if self.verdicts.len() >= self.size.into() {
            self.verdicts.pop_front();
            self.untold += 1;
        }
        self.verdicts.push_back(verdict);
    }
}

#[cfg(test)]
mod tests;
