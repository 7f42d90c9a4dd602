//! Sends runs and falls back: the kernel may accept some of them and refuse any other.
//!
//! One refusal must not lose the datagrams behind it. It must not disable a feature either unless it proves that the
//! system lacks it: a peer's address can cause an error that otherwise means a missing feature.

use std::io;

use super::batch::BATCH_SIZE;
use super::batching::Batching;
use super::gso::GsoRun;
use super::portable::is_too_large;
use super::refusal::{is_unsupported, may_be_unsupported};
use super::stats::{SocketErrorKind, SocketStats};

/// The features of the system, as far as they are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SendCaps {
    /// How many datagrams one call carries.
    pub(super) batching: Batching,
    /// Whether a batched call has worked before: the system has such calls and permits them.
    pub(super) has_sent: bool,
    /// Whether the kernel has segmented a run before.
    pub(super) has_segmented: bool,
    /// Whether a datagram exceeded the MTU of its path, so that fragmentation is allowed since.
    pub(super) met_small_mtu: bool,
}

impl Default for SendCaps {
    fn default() -> Self {
        Self { batching: Batching::Segments, has_sent: false, has_segmented: false, met_small_mtu: false }
    }
}

/// The system calls that send runs. Tests replace them by a model of a kernel.
pub(super) trait SendSyscalls {
    /// Sends runs by one call. Returns how many left; an error concerns the first one.
    fn send_many(&mut self, runs: &[GsoRun]) -> io::Result<usize>;
    /// Sends a run of one datagram by the portable call.
    fn send_one(&mut self, run: &GsoRun) -> io::Result<usize>;
    /// Allows the kernel to fragment datagrams that exceed the MTU of their path. Returns whether that was forbidden
    /// until now.
    fn allow_fragmentation(&mut self) -> bool;
}

/// Sends all runs and counts the result of each datagram. Reduces `caps` when the system turns out to lack a feature.
pub(super) fn send_runs(
    syscalls: &mut impl SendSyscalls,
    runs: &[GsoRun],
    caps: &mut SendCaps,
    stats: &mut SocketStats,
) {
    let mut rest = runs;
    while let Some((run, later)) = rest.split_first() {
        if caps.batching == Batching::Off {
            run.split().for_each(|single| send_one(syscalls, &single, stats));
            rest = later;
            continue;
        }
        stats.send_calls += 1;
        rest = match syscalls.send_many(rest) {
            Ok(sent) => on_sent(rest, sent, caps, stats),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => rest,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // The socket's buffer is full for all destinations. Trying each datagram would cost calls when there is
                // no time.
                let lost = rest.iter().map(|run| run.count as u64).sum();
                return stats.count_errors(SocketErrorKind::BufferFull, lost);
            }
            Err(error) if is_too_large(&error) && syscalls.allow_fragmentation() => {
                // A path has a small MTU: a fragmented datagram is better than a lost one. Fragmentation stays allowed.
                caps.met_small_mtu = true;
                rest
            }
            Err(error) => {
                on_refused(syscalls, run, &error, caps, stats);
                later
            }
        };
    }
}

/// Counts the first `sent` runs and returns the others.
fn on_sent<'a>(runs: &'a [GsoRun], sent: usize, caps: &mut SendCaps, stats: &mut SocketStats) -> &'a [GsoRun] {
    // The kernel never returns 0; the bound guarantees progress even so.
    let (left, waiting) = runs.split_at(sent.clamp(1, runs.len()));
    left.iter().for_each(|run| stats.count_sent(run.count, run.bytes()));
    caps.has_sent = true;
    caps.has_segmented |= left.iter().any(|run| run.count > 1);
    waiting
}

/// Handles the refusal of a run: sends its datagrams in another way, or counts the error.
fn on_refused(
    syscalls: &mut impl SendSyscalls,
    run: &GsoRun,
    refusal: &io::Error,
    caps: &mut SendCaps,
    stats: &mut SocketStats,
) {
    if run.count > 1 {
        send_split(syscalls, run, refusal, caps, stats);
    } else if may_be_unsupported(refusal) {
        send_portably(syscalls, run, refusal, caps, stats);
    } else {
        stats.count_error(SocketErrorKind::of(refusal));
    }
}

/// Sends the datagrams of a refused run one by one. Disables segmentation if they leave and the refusal may have
/// concerned it: some network cards (EIO) and kernels cannot segment.
fn send_split(
    syscalls: &mut impl SendSyscalls,
    run: &GsoRun,
    refusal: &io::Error,
    caps: &mut SendCaps,
    stats: &mut SocketStats,
) {
    let mut singles = [*run; BATCH_SIZE];
    let count = singles.iter_mut().zip(run.split()).map(|(entry, single)| *entry = single).count();
    let sent_before = stats.datagrams_sent;
    send_runs(syscalls, singles.get(..count).unwrap_or_default(), caps, stats);
    // A kernel that has segmented before supports it: before Linux 6.14 EINVAL also meant that the segments exceed the
    // MTU of the path. EPERM comes from a firewall or a sandbox, not from segmentation.
    let may_concern_segmentation = may_be_unsupported(refusal) && refusal.raw_os_error() != Some(libc::EPERM);
    let is_suspect = may_concern_segmentation && !caps.has_segmented && !caps.met_small_mtu
        || refusal.raw_os_error() == Some(libc::EIO);
    if is_suspect && stats.datagrams_sent > sent_before {
        caps.batching = caps.batching.min(Batching::Messages);
    }
}

/// Sends a datagram by the portable call after an error that may mean that batched calls are missing. Disables them if
/// the call is certainly unknown, or if the portable call accepts the same datagram and no batched call has worked
/// before. Otherwise the refusal was temporary, as EPERM of a kernel with a full connection tracking table.
fn send_portably(
    syscalls: &mut impl SendSyscalls,
    run: &GsoRun,
    refusal: &io::Error,
    caps: &mut SendCaps,
    stats: &mut SocketStats,
) {
    let sent_before = stats.datagrams_sent;
    send_one(syscalls, run, stats);
    if is_unsupported(refusal) || !caps.has_sent && stats.datagrams_sent > sent_before {
        caps.batching = Batching::Off;
    }
}

fn send_one(syscalls: &mut impl SendSyscalls, run: &GsoRun, stats: &mut SocketStats) {
    stats.send_calls += 1;
    let mut sent = syscalls.send_one(run);
    if sent.as_ref().is_err_and(is_too_large) && syscalls.allow_fragmentation() {
        sent = syscalls.send_one(run);
    }
    stats.count_send_result(sent, run.bytes());
}

#[cfg(test)]
mod tests;
