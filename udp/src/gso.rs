//! Runs for segmentation offload (GSO): consecutive datagrams of a batch to one receiver, of one size, leave as one
//! message.
//!
//! Datagrams to different receivers may be reordered; those to one receiver never are.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use super::address_family::AddressFamily;
use super::batch::BATCH_SIZE;
use super::batching::Batching;

/// The maximum size of a message that the kernel segments: the payload of an IPv4 datagram, in bytes (RFC 768, RFC
/// 791).
const MAX_RUN_BYTES: usize = 65_507;
/// The maximum number of datagrams in such a message (`UDP_MAX_SEGMENTS` of the kernels with the lowest limit).
const MAX_RUN_DATAGRAMS: usize = 64;

/// Datagrams of a batch to one receiver, all of one size except the last, which may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GsoRun {
    /// The destination.
    pub(super) to: SocketAddr,
    /// The index of the first datagram in the plan's order.
    pub(super) first: usize,
    /// The number of datagrams.
    pub(super) count: usize,
    /// The size of each datagram except the last, in bytes.
    pub(super) each: usize,
    /// The size of the last datagram, in bytes.
    pub(super) last: usize,
}

impl GsoRun {
    fn of_one(first: usize, (to, bytes): (SocketAddr, usize)) -> Self {
        Self { to, first, count: 1, each: bytes, last: bytes }
    }

    /// Returns the indices of its datagrams in the plan's order.
    pub(super) const fn indices(&self) -> Range<usize> {
        self.first..self.first + self.count
    }

    /// Returns the size of all its datagrams, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.each * (self.count - 1) + self.last
    }

    /// Returns the segment size for the kernel; `None` for a single datagram.
    pub(super) fn segment(&self) -> Option<u16> {
        u16::try_from(self.each).ok().filter(|_| self.count > 1)
    }

    /// Returns a run for each of its datagrams.
    pub(super) fn split(&self) -> impl Iterator<Item = Self> {
        let Self { to, first, count, each, last } = *self;
        (0..count).map(move |index| Self::of_one(first + index, (to, if index + 1 == count { last } else { each })))
    }

    /// Appends a datagram if possible, and returns whether it did. A datagram that is shorter than the others ends the
    /// run. An empty datagram cannot be a segment.
    fn try_append(&mut self, (to, bytes): (SocketAddr, usize)) -> bool {
        let fits = self.count < MAX_RUN_DATAGRAMS && self.bytes() + bytes <= MAX_RUN_BYTES;
        let can_append = to == self.to && fits && self.last == self.each && bytes > 0 && bytes <= self.each;
        if can_append {
            self.count += 1;
            self.last = bytes;
        }
        can_append
    }
}

/// The runs of a batch, in buffers that are allocated once.
pub(super) struct SendPlan {
    runs: Vec<GsoRun>,
    /// The indices into the batch, grouped by run.
    order: Vec<usize>,
}

impl Default for SendPlan {
    fn default() -> Self {
        Self { runs: Vec::with_capacity(BATCH_SIZE), order: Vec::with_capacity(BATCH_SIZE) }
    }
}

impl SendPlan {
    /// Plans the datagrams of one address family: in the longest possible runs, or one by one without segmentation.
    pub(super) fn make(&mut self, leaving: &[(SocketAddr, usize)], family: AddressFamily, batching: Batching) {
        self.runs.clear();
        // The index of the last run of the receivers in each bucket, which a datagram to the same receiver may join. A
        // bucket shared by two receivers only ends runs early.
        let mut open = [usize::MAX; BUCKETS];
        let mut run_of = [usize::MAX; BATCH_SIZE];
        for ((index, datagram), run_index) in leaving.iter().enumerate().zip(&mut run_of) {
            if AddressFamily::of(&datagram.0) != family {
                continue;
            }
            let mut last_run = open.get_mut(bucket(&datagram.0)).filter(|_| batching == Batching::Segments);
            let number = last_run.as_deref().copied().unwrap_or(usize::MAX);
            let is_appended = self.runs.get_mut(number).is_some_and(|run| run.try_append(*datagram));
            *run_index = if is_appended { number } else { self.runs.len() };
            if !is_appended {
                self.runs.push(GsoRun::of_one(index, *datagram));
            }
            last_run.iter_mut().for_each(|last_run| **last_run = *run_index);
        }
        self.put_in_order(&run_of);
    }

    /// Assigns each run its range in the order, after the ranges of the runs before it.
    fn put_in_order(&mut self, run_of: &[usize; BATCH_SIZE]) {
        let mut next = [0; BATCH_SIZE];
        let mut first = 0;
        for (run, next) in self.runs.iter_mut().zip(&mut next) {
            (run.first, *next) = (first, first);
            first += run.count;
        }
        self.order.clear();
        self.order.resize(first, 0);
        for (index, number) in run_of.iter().enumerate() {
            let Some(next) = next.get_mut(*number) else { continue };
            self.order.get_mut(*next).into_iter().for_each(|entry| *entry = index);
            *next += 1;
        }
    }

    /// Returns the runs.
    pub(super) fn runs(&self) -> &[GsoRun] {
        &self.runs
    }

    /// Returns the indices of a run's datagrams in the batch.
    pub(super) fn indices(&self, run: &GsoRun) -> impl Iterator<Item = usize> {
        self.order.get(run.indices()).unwrap_or_default().iter().copied()
    }
}

/// Twice as many buckets as datagrams, so that few receivers share one.
const BUCKETS: usize = 2 * BATCH_SIZE;

/// Returns a receiver's bucket. Receivers at one address differ in their ports, others mostly in the low bits of their
/// address.
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

    /// A letter for the receiver, and a size in bytes.
    type Sent = (char, usize);
    /// The indices of a run's datagrams, and its size in bytes.
    type Found<'a> = (&'a [usize], usize);

    /// Lower-case letters are IPv4 receivers, upper-case letters IPv6 receivers.
    fn leaving(datagrams: &[Sent]) -> Vec<(SocketAddr, usize)> {
        let receiver = |letter: char| {
            let host = if letter.is_lowercase() { "192.0.2.1" } else { "2001:db8::1" };
            SocketAddr::new(host.parse().unwrap(), u32::from(letter) as u16)
        };
        datagrams.iter().map(|(letter, bytes)| (receiver(*letter), *bytes)).collect()
    }

    fn found(plan: &SendPlan) -> Vec<Found<'_>> {
        plan.runs().iter().map(|run| (&plan.order[run.indices()], run.bytes())).collect()
    }

    #[test]
    fn equal_sizes_to_one_receiver_form_a_run() {
        let mut plan = SendPlan::default();
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
            plan.make(&leaving(datagrams), AddressFamily::V4, Batching::Segments);
            assert_eq!(found(&plan), expected, "{datagrams:?}");
        }
        plan.make(&leaving(&[('a', 7), ('A', 7), ('a', 7)]), AddressFamily::V4, Batching::Messages);
        assert_eq!(found(&plan), [(&[0][..], 7), (&[2], 7)]);
    }

    #[test]
    fn run_size_is_bounded_by_the_ipv4_payload() {
        let mut plan = SendPlan::default();
        plan.make(&leaving(&[('a', 1200); BATCH_SIZE]), AddressFamily::V4, Batching::Segments);
        let sizes: Vec<_> = plan.runs().iter().map(|run| (run.count, run.bytes())).collect();
        assert_eq!(sizes, [(54, 64_800), (10, 12_000)]);
    }

    #[test]
    fn each_receivers_datagrams_stay_in_order() {
        let mut plan = SendPlan::default();
        for receivers in 1..=BATCH_SIZE as u16 {
            let datagram = |index: usize| {
                let number = index as u16 * 37 % receivers;
                (SocketAddr::from(([127, 0, 0, (number / 256) as u8], 1000 + number)), 100 + index % 3)
            };
            let leaving: Vec<_> = (0..BATCH_SIZE).map(datagram).collect();
            plan.make(&leaving, AddressFamily::V4, Batching::Segments);
            let mut seen = [usize::MAX; BATCH_SIZE];
            let order = plan.runs().iter().flat_map(|run| plan.indices(run).map(|index| (run.to, index)));
            for (when, (to, index)) in order.enumerate() {
                assert_eq!((leaving[index].0, seen[index]), (to, usize::MAX), "{receivers} receivers");
                seen[index] = when;
            }
            for (earlier, (to, _)) in leaving.iter().enumerate() {
                let later = (earlier + 1..BATCH_SIZE).filter(|later| leaving[*later].0 == *to);
                assert!(later.into_iter().all(|later| seen[earlier] < seen[later]), "{receivers} receivers");
            }
        }
    }

    #[test]
    fn split_run_equals_its_datagrams() {
        let leaving = leaving(&[('a', 9), ('a', 9), ('a', 4)]);
        let (mut plan, mut singles) = (SendPlan::default(), SendPlan::default());
        plan.make(&leaving, AddressFamily::V4, Batching::Segments);
        singles.make(&leaving, AddressFamily::V4, Batching::Messages);
        let run = plan.runs()[0];
        assert_eq!((run.count, run.segment()), (3, Some(9)));
        assert_eq!(run.split().collect::<Vec<_>>(), singles.runs());
        assert!(run.split().all(|single| single.segment().is_none()));
    }
}
