use std::collections::VecDeque;
use std::net::SocketAddr;

use super::super::Family;
use super::super::runs::Plan;
use super::*;

/// A kernel that takes what it is told to, and notes which datagrams left.
#[derive(Default)]
struct Kernel {
    /// What calls for many answer, in order; later ones take all.
    answers: VecDeque<Result<usize, i32>>,
    /// What calls for one answer, if not success.
    refuses_one: Option<i32>,
    /// Whether it cannot cut.
    refuses_segments: Option<i32>,
    left: Vec<usize>,
    calls_for_one: usize,
    /// Whether it does not cut datagrams, and would if it were asked to.
    keeps_whole: bool,
    /// Whether calls for one are refused while it does not cut.
    refuses_one_while_whole: bool,
}

impl Carrier for Kernel {
    fn send_many(&mut self, runs: &[Run]) -> io::Result<usize> {
        let taken = match self.answers.pop_front() {
            Some(answer) => answer.map_err(io::Error::from_raw_os_error)?,
            None => runs.len(),
        };
        let mut taken = &runs[..taken];
        if let Some(code) = self.refuses_segments
            && let Some(first) = taken.iter().position(|run| run.segment().is_some())
        {
            if first == 0 {
                return Err(io::Error::from_raw_os_error(code));
            }
            taken = &taken[..first];
        }
        self.left.extend(taken.iter().flat_map(Run::places));
        Ok(taken.len())
    }

    fn send_one(&mut self, run: &Run) -> io::Result<usize> {
        assert_eq!(run.count, 1);
        self.calls_for_one += 1;
        if self.refuses_one_while_whole && self.keeps_whole {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        if let Some(code) = self.refuses_one {
            return Err(io::Error::from_raw_os_error(code));
        }
        self.left.push(run.first);
        Ok(run.bytes())
    }

    fn let_cut(&mut self) -> bool {
        std::mem::take(&mut self.keeps_whole)
    }
}

/// Sends `count` datagrams, `row` in a row to each receiver, of 100 bytes each, and answers what was counted.
fn send(kernel: &mut Kernel, count: usize, row: usize, batching: &mut Batching) -> SocketStats {
    let receiver = |place: usize| SocketAddr::from(([127, 0, 0, 1], 1 + (place / row) as u16));
    let leaving: Vec<_> = (0..count).map(|place| (receiver(place), 100)).collect();
    let mut plan = Plan::default();
    plan.make(&leaving, Family::V4, *batching);
    let mut stats = SocketStats::default();
    let mut able = Able { batching: *batching, ..Able::default() };
    send_runs(kernel, plan.runs(), &mut able, &mut stats);
    *batching = able.batching;
    let troubles = Trouble::ALL.iter().map(|kind| stats.trouble(*kind)).sum::<u64>();
    assert_eq!(stats.datagrams_sent, kernel.left.len() as u64, "what was counted is what left");
    assert_eq!(stats.bytes_sent, 100 * stats.datagrams_sent);
    assert_eq!(stats.datagrams_sent + troubles, count as u64, "each datagram left or was refused, once");
    stats
}

#[test]
fn what_the_kernel_takes_in_parts_all_leaves_in_order() {
    let mut kernel = Kernel { answers: [Ok(1), Ok(5), Ok(2)].into(), ..Kernel::default() };
    let mut batching = Batching::Segments;
    let stats = send(&mut kernel, 20, 1, &mut batching);
    assert_eq!(kernel.left, (0..20).collect::<Vec<_>>());
    assert_eq!((stats.send_calls, batching), (4, Batching::Segments));
}

#[test]
fn a_refused_datagram_is_counted_by_kind_and_what_follows_leaves() {
    for (code, kind) in [
        (libc::ENOBUFS, Trouble::BufferFull),
        (libc::ECONNREFUSED, Trouble::Refused),
        (libc::EPERM, Trouble::Forbidden),
        (libc::ENETUNREACH, Trouble::Unreachable),
        (libc::EMSGSIZE, Trouble::TooLarge),
    ] {
        let mut kernel = Kernel { answers: [Ok(3), Err(code), Ok(2), Err(code)].into(), ..Kernel::default() };
        // What a sandbox forbids to many may be allowed to one; what a firewall forbids is forbidden by whatever call.
        kernel.refuses_one = (code == libc::EPERM).then_some(code);
        let mut batching = Batching::Segments;
        let stats = send(&mut kernel, 10, 1, &mut batching);
        assert_eq!(kernel.left, [0, 1, 2, 4, 5, 7, 8, 9], "{code}");
        assert_eq!((stats.trouble(kind), batching), (2, Batching::Segments), "{code}");
    }
}

#[test]
fn when_the_sockets_buffer_is_full_the_rest_is_lost_at_once() {
    for row in [1, 4] {
        let answers = [Ok(2), Err(libc::EAGAIN)].into();
        let mut kernel = Kernel { answers, ..Kernel::default() };
        let stats = send(&mut kernel, 64, row, &mut { Batching::Segments });
        assert_eq!((kernel.left.len(), kernel.calls_for_one, stats.send_calls), (2 * row, 0, 2));
        assert_eq!(stats.trouble(Trouble::BufferFull), 64 - 2 * row as u64);
    }
}

#[test]
fn where_a_sandbox_forbids_batches_each_leaves_by_itself() {
    let mut kernel = Kernel { answers: [Err(libc::EPERM)].into(), ..Kernel::default() };
    let mut batching = Batching::Segments;
    send(&mut kernel, 3, 1, &mut batching);
    assert_eq!((kernel.left.as_slice(), batching, kernel.calls_for_one), ([0, 1, 2].as_slice(), Batching::Off, 3));
}

#[test]
fn a_refusal_of_the_moment_ends_no_batches_once_some_have_left() {
    // A full table of flows says EPERM, and has room again when the plain call comes.
    for code in [libc::EPERM, libc::EINVAL, libc::EOPNOTSUPP] {
        for row in [1, 4] {
            let mut kernel = Kernel { answers: [Ok(1), Err(code), Err(code)].into(), ..Kernel::default() };
            let mut batching = Batching::Segments;
            let stats = send(&mut kernel, 12, row, &mut batching);
            assert_eq!(kernel.left, (0..12).collect::<Vec<_>>(), "{code}: nothing is lost");
            assert_eq!((batching, stats.datagrams_sent), (Batching::Segments, 12), "{code}, {row}");
        }
    }
}

#[test]
fn what_is_forbidden_says_nothing_of_cutting() {
    let mut kernel = Kernel { answers: [Err(libc::EPERM)].into(), ..Kernel::default() };
    let mut batching = Batching::Segments;
    send(&mut kernel, 8, 4, &mut batching);
    assert_eq!((kernel.left.as_slice(), batching), ([0, 1, 2, 3, 4, 5, 6, 7].as_slice(), Batching::Segments));
}

#[test]
fn a_call_that_becomes_unknown_is_not_made_again() {
    // A sandbox that a program enters when it runs already.
    let mut kernel = Kernel { answers: [Ok(1), Err(libc::ENOSYS)].into(), ..Kernel::default() };
    let mut batching = Batching::Segments;
    send(&mut kernel, 4, 1, &mut batching);
    assert_eq!((kernel.left.as_slice(), batching, kernel.calls_for_one), ([0, 1, 2, 3].as_slice(), Batching::Off, 3));
}

#[test]
fn a_first_run_to_a_narrow_path_ends_no_runs() {
    // A kernel before 6.14 says EINVAL of pieces that a path is too narrow for, and EMSGSIZE of each by itself.
    let answers = [Err(libc::EINVAL), Err(libc::EMSGSIZE)].into();
    let mut kernel = Kernel { answers, keeps_whole: true, ..Kernel::default() };
    let mut batching = Batching::Segments;
    send(&mut kernel, 4, 4, &mut batching);
    assert_eq!((kernel.left.as_slice(), batching), ([0, 1, 2, 3].as_slice(), Batching::Segments));
}

#[test]
fn a_call_that_a_signal_ended_is_made_again() {
    let mut kernel = Kernel { answers: [Err(libc::EINTR)].into(), ..Kernel::default() };
    let stats = send(&mut kernel, 3, 1, &mut { Batching::Segments });
    assert_eq!((stats.send_calls, kernel.left.len()), (2, 3));
}

#[test]
fn where_the_network_card_cannot_cut_everything_leaves_uncut_now_and_from_now_on() {
    for code in [libc::EIO, libc::EINVAL, libc::EOPNOTSUPP] {
        let mut kernel = Kernel { refuses_segments: Some(code), ..Kernel::default() };
        let mut batching = Batching::Segments;
        send(&mut kernel, 12, 4, &mut batching);
        assert_eq!(kernel.left, (0..12).collect::<Vec<_>>(), "{code}");
        assert_eq!(batching, Batching::Messages, "{code}");
        assert_eq!(kernel.calls_for_one, 0);
    }
}

#[test]
fn a_run_that_one_receivers_path_refuses_says_nothing_of_others() {
    // Too large for its path, cut or not; and a refusal that its datagrams meet by themselves as well.
    for code in [libc::EMSGSIZE, libc::EINVAL] {
        let answers = [Err(code); 5].into();
        let mut kernel = Kernel { answers, refuses_one: Some(code), ..Kernel::default() };
        let mut batching = Batching::Segments;
        let stats = send(&mut kernel, 8, 4, &mut batching);
        assert_eq!(kernel.left, [4, 5, 6, 7], "{code}");
        assert_eq!((batching, stats.datagrams_sent), (Batching::Segments, 4), "{code}");
    }
}

#[test]
fn a_kernel_that_has_cut_a_run_is_not_thought_unable_because_one_path_is_narrow() {
    // Two runs: the first one leaves, of the second the kernel says that it cannot, and its datagrams leave singly.
    let mut kernel = Kernel { answers: [Ok(1), Err(libc::EINVAL)].into(), ..Kernel::default() };
    let mut batching = Batching::Segments;
    send(&mut kernel, 8, 4, &mut batching);
    assert_eq!(kernel.left, (0..8).collect::<Vec<_>>());
    assert_eq!(batching, Batching::Segments);
}

#[test]
fn a_kernel_without_batches_is_asked_for_one_datagram_at_a_time() {
    for (code, row) in [(libc::ENOSYS, 1), (libc::ENOSYS, 4), (libc::EOPNOTSUPP, 1), (libc::EINVAL, 1)] {
        let mut kernel = Kernel { answers: [Err(code), Err(code)].into(), ..Kernel::default() };
        let mut batching = Batching::Segments;
        send(&mut kernel, 8, row, &mut batching);
        assert_eq!(kernel.left, (0..8).collect::<Vec<_>>(), "{code}");
        assert_eq!((batching, kernel.calls_for_one), (Batching::Off, 8), "{code}");
    }
}

#[test]
fn a_receiver_that_nothing_can_be_sent_to_does_not_end_batches() {
    // Port 0, which a stranger can pretend to have, is refused with EINVAL, by whatever call.
    let mut kernel =
        Kernel { answers: [Err(libc::EINVAL)].into(), refuses_one: Some(libc::EINVAL), ..Kernel::default() };
    let mut batching = Batching::Segments;
    let stats = send(&mut kernel, 3, 1, &mut batching);
    assert_eq!((kernel.left.as_slice(), batching), ([1, 2].as_slice(), Batching::Segments));
    assert_eq!(stats.trouble(Trouble::Other), 1);
}

#[test]
fn a_datagram_that_is_too_large_for_its_path_is_cut_instead_and_what_is_before_and_behind_it_leaves_once() {
    let mut kernel = Kernel { answers: [Ok(2), Err(libc::EMSGSIZE)].into(), keeps_whole: true, ..Kernel::default() };
    let mut batching = Batching::Segments;
    let stats = send(&mut kernel, 5, 1, &mut batching);
    assert_eq!((kernel.left.as_slice(), kernel.calls_for_one), ([0, 1, 2, 3, 4].as_slice(), 0));
    assert_eq!((stats.trouble(Trouble::TooLarge), stats.datagrams_sent, batching), (0, 5, Batching::Segments));
}

#[test]
fn without_batches_a_datagram_that_is_too_large_is_cut_too() {
    let mut kernel = Kernel { answers: [Err(libc::ENOSYS)].into(), keeps_whole: true, ..Kernel::default() };
    kernel.refuses_one_while_whole = true;
    let stats = send(&mut kernel, 3, 1, &mut { Batching::Segments });
    assert_eq!((kernel.left.as_slice(), kernel.calls_for_one), ([0, 1, 2].as_slice(), 4));
    assert_eq!(stats.trouble(Trouble::TooLarge), 0);
}
