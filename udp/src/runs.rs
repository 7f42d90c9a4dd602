//! Runs: datagrams of a batch that one message can carry, because they go to one receiver and have one size.
//!
//! A batch's datagrams to different receivers may change places; those to one receiver never do.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use super::batch::BATCH;
use super::{Batching, Family};

/// The most bytes of a message that the kernel cuts: what an IPv4 datagram may carry (RFC 768, RFC 791).
const MAX_RUN_BYTES: usize = 65_507;
/// The most datagrams of such a message (`UDP_MAX_SEGMENTS` of the kernels that have the fewest).
const MAX_RUN: usize = 64;

/// Datagrams of a batch to one receiver, all of one size but the last, which may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Where they go.
    pub(super) to: SocketAddr,
    /// The first one's place in the plan's order.
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

    /// The places of its datagrams in the plan's order.
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

    /// Whether it takes another datagram, which it then has. What was shorter than the others ends a run; an empty one
    /// is no segment.
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

/// The runs of a batch, in buffers that are allocated once.
pub(super) struct Plan {
    runs: Vec<Run>,
    /// The batch's places, run by run.
    order: Vec<usize>,
}

impl Default for Plan {
    fn default() -> Self {
        Self { runs: Vec::with_capacity(BATCH), order: Vec::with_capacity(BATCH) }
    }
}

impl Plan {
    /// Plans a batch's datagrams of one family: in runs as long as they can be, or one by one where nothing can cut them.
    pub(super) fn make(&mut self, leaving: &[(SocketAddr, usize)], family: Family, batching: Batching) {
        self.runs.clear();
        // The run that a receiver's next datagram may join, by receivers: the last one in each bucket. Where two receivers
        // share a bucket, runs end early, and nothing else happens.
        let mut open = [usize::MAX; BUCKETS];
        let mut run_of = [usize::MAX; BATCH];
        for ((place, datagram), home) in leaving.iter().enumerate().zip(&mut run_of) {
            if Family::of(&datagram.0) != family {
                continue;
            }
            let mut beside = open.get_mut(bucket(&datagram.0)).filter(|_| batching == Batching::Segments);
            let number = beside.as_deref().copied().unwrap_or(usize::MAX);
            let takes = self.runs.get_mut(number).is_some_and(|run| run.take(*datagram));
            *home = if takes { number } else { self.runs.len() };
            if !takes {
                self.runs.push(Run::of_one(place, *datagram));
            }
            beside.iter_mut().for_each(|beside| **beside = *home);
        }
        self.put_in_order(&run_of);
    }

    /// Gives each run its places in the order: behind those of the runs before it.
    fn put_in_order(&mut self, run_of: &[usize; BATCH]) {
        let mut next = [0; BATCH];
        let mut first = 0;
        for (run, next) in self.runs.iter_mut().zip(&mut next) {
            (run.first, *next) = (first, first);
            first += run.count;
        }
        self.order.clear();
        self.order.resize(first, 0);
        for (place, number) in run_of.iter().enumerate() {
            let Some(next) = next.get_mut(*number) else { continue };
            self.order.get_mut(*next).into_iter().for_each(|room| *room = place);
            *next += 1;
        }
    }

    /// The runs.
    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The places in the batch of a run's datagrams.
    pub(super) fn places(&self, run: &Run) -> impl Iterator<Item = usize> {
        self.order.get(run.places()).unwrap_or_default().iter().copied()
    }
}

/// Twice as many buckets as there are datagrams: few receivers meet in one.
const BUCKETS: usize = 2 * BATCH;

/// A receiver's bucket. Receivers behind one address differ in their ports, others mostly in the end of their address.
fn bucket(to: &SocketAddr) -> usize {
    let host = match to.ip() {
        IpAddr::V4(ip) => u32::from(ip),
        IpAddr::V6(ip) => {
            let bits = u128::from(ip);
            (bits >> 64) as u32 ^ bits as u32
        }
    };
    // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
    let hash = (host ^ u32::from(to.port()) << 16).wrapping_mul(0x9e37_79b9);
    (hash >> 25) as usize % BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver's letter, and a size.
    type Sent = (char, usize);
    /// The places of a run's datagrams, and its bytes.
    type Found<'a> = (&'a [usize], usize);

    /// Small letters are IPv4, capital ones IPv6.
    fn leaving(datagrams: &[Sent]) -> Vec<(SocketAddr, usize)> {
        let receiver = |letter: char| {
            let host = if letter.is_lowercase() { "192.0.2.1" } else { "2001:db8::1" };
            SocketAddr::new(host.parse().unwrap(), u32::from(letter) as u16)
        };
        datagrams.iter().map(|(letter, bytes)| (receiver(*letter), *bytes)).collect()
    }

    fn found(plan: &Plan) -> Vec<Found<'_>> {
        plan.runs().iter().map(|run| (&plan.order[run.places()], run.bytes())).collect()
    }

    #[test]
    fn what_goes_to_one_receiver_and_has_one_size_is_one_run_and_the_last_may_be_shorter() {
        let mut plan = Plan::default();
        let cases: [(&[Sent], &[Found<'_>]); 9] = [
            (&[], &[]),
            (&[('a', 7)], &[(&[0], 7)]),
            (&[('a', 7), ('a', 7), ('a', 7)], &[(&[0, 1, 2], 21)]),
            (&[('a', 7), ('a', 7), ('a', 3), ('a', 3)], &[(&[0, 1, 2], 17), (&[3], 3)]),
            (&[('a', 7), ('a', 8), ('a', 8)], &[(&[0], 7), (&[1, 2], 16)]),
            (&[('a', 7), ('b', 7), ('a', 7), ('b', 9), ('a', 5)], &[(&[0, 2, 4], 19), (&[1], 7), (&[3], 9)]),
            (&[('A', 1), ('a', 7), ('A', 7), ('a', 7), ('B', 1)], &[(&[1, 3], 14)]),
            (&[('a', 0), ('a', 0), ('a', 7), ('a', 0)], &[(&[0], 0), (&[1], 0), (&[2], 7), (&[3], 0)]),
            (&[('a', 9), ('b', 7), ('a', 3), ('a', 3)], &[(&[0, 2], 12), (&[1], 7), (&[3], 3)]),
        ];
        for (datagrams, expected) in cases {
            plan.make(&leaving(datagrams), Family::V4, Batching::Segments);
            assert_eq!(found(&plan), expected, "{datagrams:?}");
        }
        plan.make(&leaving(&[('a', 7), ('A', 7), ('a', 7)]), Family::V4, Batching::Messages);
        assert_eq!(found(&plan), [(&[0][..], 7), (&[2], 7)]);
    }

    #[test]
    fn a_run_carries_no_more_than_a_datagram_may() {
        let mut plan = Plan::default();
        plan.make(&leaving(&[('a', 1200); BATCH]), Family::V4, Batching::Segments);
        let sizes: Vec<_> = plan.runs().iter().map(|run| (run.count, run.bytes())).collect();
        assert_eq!(sizes, [(54, 64_800), (10, 12_000)]);
    }

    #[test]
    fn every_datagram_is_in_one_run_and_a_receivers_own_stay_in_order_whoever_share_buckets() {
        let mut plan = Plan::default();
        for receivers in 1..=BATCH as u16 {
            let datagram = |place: usize| {
                let number = place as u16 * 37 % receivers;
                (SocketAddr::from(([127, 0, 0, (number / 256) as u8], 1000 + number)), 100 + place % 3)
            };
            let leaving: Vec<_> = (0..BATCH).map(datagram).collect();
            plan.make(&leaving, Family::V4, Batching::Segments);
            let mut seen = [usize::MAX; BATCH];
            let order = plan.runs().iter().flat_map(|run| plan.places(run).map(|place| (run.to, place)));
            for (when, (to, place)) in order.enumerate() {
                assert_eq!((leaving[place].0, seen[place]), (to, usize::MAX), "{receivers} receivers");
                seen[place] = when;
            }
            for (earlier, (to, _)) in leaving.iter().enumerate() {
                let later = (earlier + 1..BATCH).filter(|later| leaving[*later].0 == *to);
                assert!(later.into_iter().all(|later| seen[earlier] < seen[later]), "{receivers} receivers");
            }
        }
    }

    #[test]
    fn a_run_taken_apart_is_what_it_was_made_of() {
        let leaving = leaving(&[('a', 9), ('a', 9), ('a', 4)]);
        let (mut plan, mut singles) = (Plan::default(), Plan::default());
        plan.make(&leaving, Family::V4, Batching::Segments);
        singles.make(&leaving, Family::V4, Batching::Messages);
        let run = plan.runs()[0];
        assert_eq!((run.count, run.segment()), (3, Some(9)));
        assert_eq!(run.singly().collect::<Vec<_>>(), singles.runs());
        assert!(run.singly().all(|single| single.segment().is_none()));
    }
}
