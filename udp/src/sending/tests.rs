use std::collections::VecDeque;
use std::net::SocketAddr;

use super::super::AddressFamily;
use super::super::gso::SendPlan;
use super::*;

/// A model of a kernel that returns planned results and records which datagrams were sent.
#[derive(Default)]
struct Kernel {
    /// The results of batched calls, in order. Later calls succeed.
    results: VecDeque<Result<usize, i32>>,
    /// The error of portable calls, if any.
    single_error: Option<i32>,
    /// The error of segmented messages, if any.
    segment_error: Option<i32>,
    sent: Vec<usize>,
    single_calls: usize,
    /// Whether fragmentation is forbidden.
    forbids_fragmentation: bool,
    /// Whether portable calls fail with EMSGSIZE while fragmentation is forbidden.
    is_too_large_unfragmented: bool,
}

impl SendSyscalls for Kernel {
    fn send_many(&mut self, runs: &[GsoRun]) -> io::Result<usize> {
        let taken = match self.results.pop_front() {
            Some(result) => result.map_err(io::Error::from_raw_os_error)?,
            None => runs.len(),
        };
        let mut taken = &runs[..taken];
        if let Some(code) = self.segment_error
            && let Some(first) = taken.iter().position(|run| run.segment().is_some())
        {
            if first == 0 {
                return Err(io::Error::from_raw_os_error(code));
            }
            taken = &taken[..first];
        }
        self.sent.extend(taken.iter().flat_map(GsoRun::indices));
        Ok(taken.len())
    }

    fn send_one(&mut self, run: &GsoRun) -> io::Result<usize> {
        assert_eq!(run.count, 1);
        self.single_calls += 1;
        if self.is_too_large_unfragmented && self.forbids_fragmentation {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        if let Some(code) = self.single_error {
            return Err(io::Error::from_raw_os_error(code));
        }
        self.sent.push(run.first);
        Ok(run.bytes())
    }

    fn allow_fragmentation(&mut self) -> bool {
        std::mem::take(&mut self.forbids_fragmentation)
    }
}

/// Sends `count` datagrams of 100 bytes, `row` in a row to each receiver. Returns the counters.
fn send(kernel: &mut Kernel, count: usize, row: usize, batching: &mut Batching) -> SocketStats {
    let receiver = |index: usize| SocketAddr::from(([127, 0, 0, 1], 1 + (index / row) as u16));
    let leaving: Vec<_> = (0..count).map(|index| (receiver(index), 100)).collect();
    let mut plan = SendPlan::default();
    plan.make(&leaving, AddressFamily::V4, *batching);
    let mut stats = SocketStats::default();
    let mut caps = SendCaps { batching: *batching, ..SendCaps::default() };
    send_runs(kernel, plan.runs(), &mut caps, &mut stats);
    *batching = caps.batching;
    let errors = SocketErrorKind::ALL.iter().map(|kind| stats.errors(*kind)).sum::<u64>();
    assert_eq!(stats.datagrams_sent, kernel.sent.len() as u64, "the counters equal the sent datagrams");
    assert_eq!(stats.bytes_sent, 100 * stats.datagrams_sent);
    assert_eq!(stats.datagrams_sent + errors, count as u64, "each datagram was sent or refused, once");
    stats
}

#[test]
fn partially_accepted_runs_leave_in_order() {
    let mut kernel = Kernel { results: [Ok(1), Ok(5), Ok(2)].into(), ..Kernel::default() };
    let mut batching = Batching::Segments;
    let stats = send(&mut kernel, 20, 1, &mut batching);
    assert_eq!(kernel.sent, (0..20).collect::<Vec<_>>());
    assert_eq!((stats.send_calls, batching), (4, Batching::Segments));
}

#[test]
fn refused_datagram_is_counted_and_the_rest_leaves() {
    for (code, kind) in [
        (libc::ENOBUFS, SocketErrorKind::BufferFull),
        (libc::ECONNREFUSED, SocketErrorKind::Refused),
        (libc::EPERM, SocketErrorKind::Forbidden),
        (libc::ENETUNREACH, SocketErrorKind::Unreachable),
        (libc::EMSGSIZE, SocketErrorKind::TooLarge),
    ] {
        let mut kernel = Kernel { results: [Ok(3), Err(code), Ok(2), Err(code)].into(), ..Kernel::default() };
        // A sandbox may forbid batched calls only; a firewall forbids a datagram in any call.
        kernel.single_error = (code == libc::EPERM).then_some(code);
        let mut batching = Batching::Segments;
        let stats = send(&mut kernel, 10, 1, &mut batching);
        assert_eq!(kernel.sent, [0, 1, 2, 4, 5, 7, 8, 9], "{code}");
        assert_eq!((stats.errors(kind), batching), (2, Batching::Segments), "{code}");
    }
}

#[test]
fn full_send_buffer_loses_the_rest_at_once() {
    for row in [1, 4] {
        let results = [Ok(2), Err(libc::EAGAIN)].into();
        let mut kernel = Kernel { results, ..Kernel::default() };
        let stats = send(&mut kernel, 64, row, &mut { Batching::Segments });
        assert_eq!((kernel.sent.len(), kernel.single_calls, stats.send_calls), (2 * row, 0, 2));
        assert_eq!(stats.errors(SocketErrorKind::BufferFull), 64 - 2 * row as u64);
    }
}

#[test]
fn sandbox_without_batched_calls_gets_single_sends() {
    let mut kernel = Kernel { results: [Err(libc::EPERM)].into(), ..Kernel::default() };
    let mut batching = Batching::Segments;
    send(&mut kernel, 3, 1, &mut batching);
    assert_eq!((kernel.sent.as_slice(), batching, kernel.single_calls), ([0, 1, 2].as_slice(), Batching::Off, 3));
}

#[test]
fn temporary_refusal_keeps_batching_after_a_success() {
    // A kernel with a full connection tracking table returns EPERM, and accepts the portable call later.
    for code in [libc::EPERM, libc::EINVAL, libc::EOPNOTSUPP] {
        for row in [1, 4] {
            let mut kernel = Kernel { results: [Ok(1), Err(code), Err(code)].into(), ..Kernel::default() };
            let mut batching = Batching::Segments;
            let stats = send(&mut kernel, 12, row, &mut batching);
            assert_eq!(kernel.sent, (0..12).collect::<Vec<_>>(), "{code}: no datagram is lost");
            assert_eq!((batching, stats.datagrams_sent), (Batching::Segments, 12), "{code}, {row}");
        }
    }
}

#[test]
fn forbidden_send_keeps_segmentation() {
    let mut kernel = Kernel { results: [Err(libc::EPERM)].into(), ..Kernel::default() };
    let mut batching = Batching::Segments;
    send(&mut kernel, 8, 4, &mut batching);
    assert_eq!((kernel.sent.as_slice(), batching), ([0, 1, 2, 3, 4, 5, 6, 7].as_slice(), Batching::Segments));
}

#[test]
fn call_that_becomes_unsupported_is_not_repeated() {
    // A program may enter a sandbox while it runs.
    let mut kernel = Kernel { results: [Ok(1), Err(libc::ENOSYS)].into(), ..Kernel::default() };
    let mut batching = Batching::Segments;
    send(&mut kernel, 4, 1, &mut batching);
    assert_eq!((kernel.sent.as_slice(), batching, kernel.single_calls), ([0, 1, 2, 3].as_slice(), Batching::Off, 3));
}

#[test]
fn first_run_to_a_small_mtu_keeps_segmentation() {
    // A kernel before 6.14 returns EINVAL for segments that exceed the path MTU, and EMSGSIZE for each datagram.
    let results = [Err(libc::EINVAL), Err(libc::EMSGSIZE)].into();
    let mut kernel = Kernel { results, forbids_fragmentation: true, ..Kernel::default() };
    let mut batching = Batching::Segments;
    send(&mut kernel, 4, 4, &mut batching);
    assert_eq!((kernel.sent.as_slice(), batching), ([0, 1, 2, 3].as_slice(), Batching::Segments));
}

#[test]
fn interrupted_call_is_repeated() {
    let mut kernel = Kernel { results: [Err(libc::EINTR)].into(), ..Kernel::default() };
    let stats = send(&mut kernel, 3, 1, &mut { Batching::Segments });
    assert_eq!((stats.send_calls, kernel.sent.len()), (2, 3));
}

#[test]
fn unsupported_segmentation_is_disabled_without_loss() {
    for code in [libc::EIO, libc::EINVAL, libc::EOPNOTSUPP] {
        let mut kernel = Kernel { segment_error: Some(code), ..Kernel::default() };
        let mut batching = Batching::Segments;
        send(&mut kernel, 12, 4, &mut batching);
        assert_eq!(kernel.sent, (0..12).collect::<Vec<_>>(), "{code}");
        assert_eq!(batching, Batching::Messages, "{code}");
        assert_eq!(kernel.single_calls, 0);
    }
}

#[test]
fn refused_run_of_one_receiver_keeps_segmentation() {
    // The run exceeds the path MTU, or each of its datagrams is refused as well.
    for code in [libc::EMSGSIZE, libc::EINVAL] {
        let results = [Err(code); 5].into();
        let mut kernel = Kernel { results, single_error: Some(code), ..Kernel::default() };
        let mut batching = Batching::Segments;
        let stats = send(&mut kernel, 8, 4, &mut batching);
        assert_eq!(kernel.sent, [4, 5, 6, 7], "{code}");
        assert_eq!((batching, stats.datagrams_sent), (Batching::Segments, 4), "{code}");
    }
}

#[test]
fn segmentation_stays_enabled_after_a_success() {
    // The first run leaves. The kernel refuses the second, and its datagrams leave one by one.
    let mut kernel = Kernel { results: [Ok(1), Err(libc::EINVAL)].into(), ..Kernel::default() };
    let mut batching = Batching::Segments;
    send(&mut kernel, 8, 4, &mut batching);
    assert_eq!(kernel.sent, (0..8).collect::<Vec<_>>());
    assert_eq!(batching, Batching::Segments);
}

#[test]
fn kernel_without_batched_calls_gets_single_sends() {
    for (code, row) in [(libc::ENOSYS, 1), (libc::ENOSYS, 4), (libc::EOPNOTSUPP, 1), (libc::EINVAL, 1)] {
        let mut kernel = Kernel { results: [Err(code), Err(code)].into(), ..Kernel::default() };
        let mut batching = Batching::Segments;
        send(&mut kernel, 8, row, &mut batching);
        assert_eq!(kernel.sent, (0..8).collect::<Vec<_>>(), "{code}");
        assert_eq!((batching, kernel.single_calls), (Batching::Off, 8), "{code}");
    }
}

#[test]
fn invalid_receiver_does_not_disable_batching() {
    // Port 0, which a spoofed address may have, is refused with EINVAL by each call.
    let mut kernel =
        Kernel { results: [Err(libc::EINVAL)].into(), single_error: Some(libc::EINVAL), ..Kernel::default() };
    let mut batching = Batching::Segments;
    let stats = send(&mut kernel, 3, 1, &mut batching);
    assert_eq!((kernel.sent.as_slice(), batching), ([1, 2].as_slice(), Batching::Segments));
    assert_eq!(stats.errors(SocketErrorKind::Other), 1);
}

#[test]
fn too_large_datagram_is_fragmented_and_others_leave_once() {
    let mut kernel =
        Kernel { results: [Ok(2), Err(libc::EMSGSIZE)].into(), forbids_fragmentation: true, ..Kernel::default() };
    let mut batching = Batching::Segments;
    let stats = send(&mut kernel, 5, 1, &mut batching);
    assert_eq!((kernel.sent.as_slice(), kernel.single_calls), ([0, 1, 2, 3, 4].as_slice(), 0));
    assert_eq!((stats.errors(SocketErrorKind::TooLarge), stats.datagrams_sent, batching), (0, 5, Batching::Segments));
}

#[test]
fn too_large_datagram_is_fragmented_without_batching() {
    let mut kernel = Kernel { results: [Err(libc::ENOSYS)].into(), forbids_fragmentation: true, ..Kernel::default() };
    kernel.is_too_large_unfragmented = true;
    let stats = send(&mut kernel, 3, 1, &mut { Batching::Segments });
    assert_eq!((kernel.sent.as_slice(), kernel.single_calls), ([0, 1, 2].as_slice(), 4));
    assert_eq!(stats.errors(SocketErrorKind::TooLarge), 0);
}
