//! Runs: datagrams in a row that one message can carry, because they go to one receiver and have one size.

use std::net::SocketAddr;
use std::ops::Range;

use super::batch::BATCH;
use super::{Batching, Family};

/// The most bytes of a message that the kernel cuts: what an IPv4 datagram may carry (RFC 768, RFC 791).
const MAX_RUN_BYTES: usize = 65_507;
/// The most datagrams of such a message (`UDP_MAX_SEGMENTS` of the kernels that have the fewest).
const MAX_RUN: usize = 64;

/// Datagrams in a row of a batch, to one receiver, all of one size but the last, which may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Where they go.
    pub(super) to: SocketAddr,
    /// The first one's place.
    pub(super) first: usize,
    /// How many they are.
    pub(super) count: usize,
    /// Bytes of the first one, and of the others but the last.
    pub(super) each: usize,
    /// Bytes of the last one.
    pub(super) last: usize,
}

impl Run {
    fn of_one(first: usize, (to, bytes): (SocketAddr, usize)) -> Self {
        Self { to, first, count: 1, each: bytes, last: bytes }
    }

    /// The places of its datagrams.
    pub(super) const fn places(&self) -> Range<usize> {
        self.first..self.first + self.count
    }

    /// Bytes of all its datagrams.
    pub(super) const fn bytes(&self) -> usize {
        self.each * (self.count - 1) + self.last
    }

    /// The size at which the kernel is to cut, if there is anything to cut.
    pub(super) fn segment(&self) -> Option<u16> {
        u16::try_from(self.each).ok().filter(|_| self.count > 1)
    }

    /// Its datagrams, each by itself.
    pub(super) fn singly(&self) -> impl Iterator<Item = Self> {
        let Self { to, first, count, each, last } = *self;
        (0..count).map(move |place| Self::of_one(first + place, (to, if place + 1 == count { last } else { each })))
    }

    /// Whether it takes another datagram, which it then has. What was shorter than the others ends a run; an empty one is
    /// no segment.
    fn take(&mut self, (to, bytes): (SocketAddr, usize)) -> bool {
        let fits = self.count < MAX_RUN && self.bytes() + bytes <= MAX_RUN_BYTES;
        let takes = to == self.to && fits && self.last == self.each && bytes > 0 && bytes <= self.each;
        if takes {
            self.count += 1;
            self.last = bytes;
        }
        takes
    }
}

/// A batch's datagrams of one family, in runs as long as they can be, or one by one where nothing can cut them.
pub(super) fn runs(leaving: &[(SocketAddr, usize)], family: Family, batching: Batching) -> impl Iterator<Item = Run> {
    let mut rest = leaving.iter().copied().enumerate().take(BATCH).peekable();
    std::iter::from_fn(move || {
        let (first, datagram) = rest.by_ref().find(|(_, (to, _))| Family::of(to) == family)?;
        let mut run = Run::of_one(first, datagram);
        while batching == Batching::Segments && rest.next_if(|(_, next)| run.take(*next)).is_some() {}
        Some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver's letter, and a size.
    type Sent = (char, usize);
    /// Place, count and bytes of a run.
    type Found = (usize, usize, usize);

    /// Runs of datagrams, each written as a letter for its receiver and its size.
    fn of(datagrams: &[Sent], batching: Batching) -> Vec<Found> {
        let leaving: Vec<_> = datagrams.iter().map(|(letter, bytes)| (receiver(*letter), *bytes)).collect();
        runs(&leaving, Family::V4, batching).map(|run| (run.first, run.count, run.bytes())).collect()
    }

    /// Small letters are IPv4, capital ones IPv6.
    fn receiver(letter: char) -> SocketAddr {
        let host = if letter.is_lowercase() { "192.0.2.1" } else { "2001:db8::1" };
        SocketAddr::new(host.parse().unwrap(), u32::from(letter) as u16)
    }

    #[test]
    fn what_goes_to_one_receiver_in_a_row_and_has_one_size_is_one_run_and_the_last_may_be_shorter() {
        let cases: [(&[Sent], &[Found]); 9] = [
            (&[], &[]),
            (&[('a', 7)], &[(0, 1, 7)]),
            (&[('a', 7), ('a', 7), ('a', 7)], &[(0, 3, 21)]),
            (&[('a', 7), ('a', 7), ('a', 3), ('a', 3)], &[(0, 3, 17), (3, 1, 3)]),
            (&[('a', 7), ('a', 8), ('a', 8)], &[(0, 1, 7), (1, 2, 16)]),
            (&[('a', 7), ('b', 7), ('a', 7)], &[(0, 1, 7), (1, 1, 7), (2, 1, 7)]),
            (&[('a', 7), ('A', 7), ('a', 7), ('B', 1)], &[(0, 1, 7), (2, 1, 7)]),
            (&[('a', 0), ('a', 0), ('a', 7), ('a', 0)], &[(0, 1, 0), (1, 1, 0), (2, 1, 7), (3, 1, 0)]),
            (&[('a', 1200); 60], &[(0, 54, 64_800), (54, 6, 7_200)]),
        ];
        for (datagrams, expected) in cases {
            assert_eq!(of(datagrams, Batching::Segments), expected, "{datagrams:?}");
        }
        assert_eq!(of(&[('a', 7), ('a', 7)], Batching::Messages), [(0, 1, 7), (1, 1, 7)]);
    }

    #[test]
    fn a_run_taken_apart_is_what_it_was_made_of() {
        let leaving = [(receiver('a'), 9), (receiver('a'), 9), (receiver('a'), 4)];
        let run = runs(&leaving, Family::V4, Batching::Segments).next().unwrap();
        assert_eq!((run.count, run.segment()), (3, Some(9)));
        let singles: Vec<_> = run.singly().collect();
        assert_eq!(singles, runs(&leaving, Family::V4, Batching::Messages).collect::<Vec<_>>());
        assert!(singles.iter().all(|single| single.segment().is_none()));
    }
}
