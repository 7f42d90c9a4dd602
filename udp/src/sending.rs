//! Sending runs until each has left or was refused: the kernel may take some of them, and refuse any.
//!
//! One refusal must not lose what follows, nor may it teach more than it says: a peer's address can be the reason for
//! an error that otherwise means that the system lacks something.

use std::io;

use super::Batching;
use super::batch::BATCH;
use super::batched::{is_unknown, may_be_missing};
use super::portable::is_too_large;
use super::runs::Run;
use super::stats::{SocketStats, Trouble};

/// What the system is able to do, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Able {
    /// What one call may carry.
    pub(super) batching: Batching,
    /// A call for many has sent some: the system has such calls, and lets us make them.
    pub(super) has_sent: bool,
    /// A run has left that the kernel was to cut.
    pub(super) has_cut: bool,
    /// Some path was too narrow for a datagram.
    pub(super) is_narrow: bool,
}

impl Default for Able {
    fn default() -> Self {
        Self { batching: Batching::Segments, has_sent: false, has_cut: false, is_narrow: false }
    }
}

/// What carries runs: a socket, or a test's.
pub(super) trait Carrier {
    /// Sends runs by one call and answers how many left; an error is the first one's.
    fn send_many(&mut self, runs: &[Run]) -> io::Result<usize>;
    /// Sends a run of one datagram as every system can.
    fn send_one(&mut self, run: &Run) -> io::Result<usize>;
    /// Lets the kernel cut datagrams for paths that are too narrow for them, and answers whether it did not until now.
    fn let_cut(&mut self) -> bool;
}

/// Sends all runs, counts what became of each datagram, and lowers what the system is held `able` to when it lacks it.
pub(super) fn send_runs(carrier: &mut impl Carrier, runs: &[Run], able: &mut Able, stats: &mut SocketStats) {
    let mut rest = runs;
    while let Some((run, later)) = rest.split_first() {
        if able.batching == Batching::Off {
            run.singly().for_each(|single| send_one(carrier, &single, stats));
            rest = later;
            continue;
        }
        stats.send_calls += 1;
        match carrier.send_many(rest) {
            Ok(sent) => {
                let (left, waiting) = rest.split_at(sent.clamp(1, rest.len()));
                left.iter().for_each(|run| stats.note_left(run.count, run.bytes()));
                able.has_sent = true;
                able.has_cut |= left.iter().any(|run| run.count > 1);
                rest = waiting;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The socket's buffer is full, for whomever the rest is: to ask for each would cost calls when there is no time.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let lost = rest.iter().map(|run| run.count as u64).sum();
                return stats.note_troubles(Trouble::BufferFull, lost);
            }
            // Some path is narrow: better a datagram in pieces than none. From now on all are sent so.
            Err(error) if Trouble::of(&error) == Trouble::TooLarge && carrier.let_cut() => able.is_narrow = true,
            Err(error) => {
                rest = later;
                if run.count > 1 {
                    send_singly(carrier, run, &error, able, stats);
                } else if may_be_missing(&error) {
                    send_portably(carrier, run, &error, able, stats);
                } else {
                    stats.note_trouble(Trouble::of(&error));
                }
            }
        }
    }
}

/// A run was refused: its datagrams go by themselves. If they can, and the refusal may mean so, nothing is cut from now
/// on: some network cards cannot (EIO), and some kernels.
fn send_singly(carrier: &mut impl Carrier, run: &Run, refusal: &io::Error, able: &mut Able, stats: &mut SocketStats) {
    let mut singles = [*run; BATCH];
    let count = singles.iter_mut().zip(run.singly()).map(|(room, single)| *room = single).count();
    let sent_before = stats.datagrams_sent;
    send_runs(carrier, singles.get(..count).unwrap_or_default(), able, stats);
    // A kernel that has cut can: before Linux 6.14 one says EINVAL of a path that is too narrow for the pieces. What is
    // forbidden is so by a firewall, or the call is: cutting is not.
    let may_be_of_cutting = may_be_missing(refusal) && refusal.raw_os_error() != Some(libc::EPERM);
    let may_mean_so =
        may_be_of_cutting && !able.has_cut && !able.is_narrow || refusal.raw_os_error() == Some(libc::EIO);
    if may_mean_so && stats.datagrams_sent > sent_before {
        able.batching = able.batching.min(Batching::Messages);
    }
}

/// A datagram was refused in a way that may mean that there are no batches. That is certain when the call is unknown; and
/// when the plain call takes the same datagram, unless batches have left before. Then the refusal was of the moment, as
/// that of a kernel whose table of flows is full (EPERM): the next call may carry many again.
fn send_portably(carrier: &mut impl Carrier, run: &Run, refusal: &io::Error, able: &mut Able, stats: &mut SocketStats) {
    let sent_before = stats.datagrams_sent;
    send_one(carrier, run, stats);
    if is_unknown(refusal) || !able.has_sent && stats.datagrams_sent > sent_before {
        able.batching = Batching::Off;
    }
}

fn send_one(carrier: &mut impl Carrier, run: &Run, stats: &mut SocketStats) {
    stats.send_calls += 1;
    let mut sent = carrier.send_one(run);
    if is_too_large(&sent) && carrier.let_cut() {
        sent = carrier.send_one(run);
    }
    stats.note_sent(sent, run.bytes());
}

#[cfg(test)]
mod tests;
