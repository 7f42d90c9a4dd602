//! Senders that the kernel or the server drops.

use std::net::IpAddr;

#[cfg(target_os = "linux")]
use slipgate_netcode::wire::{REQUEST_BYTES, VERSION};
#[cfg(target_os = "linux")]
use slipgate_udp::OtherProtocol;
use slipgate_udp::Passing;

use super::*;

fn v4(port: u16) -> BlockedSender {
    BlockedSender { address: (IpAddr::from([192, 0, 2, 1]), port).into(), passing: Passing::Nothing }
}

fn v6(port: u16) -> BlockedSender {
    BlockedSender { address: (IpAddr::from([0; 16]), port).into(), passing: Passing::Nothing }
}

/// A kernel with memory for a number of senders of each address family.
struct Kernel {
    max: [usize; 2],
    blocked: [Option<Vec<BlockedSender>>; 2],
    attempts: usize,
}

impl Kernel {
    const fn new(max_v4: usize, max_v6: usize) -> Self {
        Self { max: [max_v4, max_v6], blocked: [None, None], attempts: 0 }
    }

    fn block(&mut self, senders: &[BlockedSender]) -> BlockResults {
        self.attempts += 1;
        let [v4, v6] = [0, 1].map(|family| {
            let of_family = senders.iter().copied().filter(|sender| usize::from(sender.address.is_ipv6()) == family);
            let list: Vec<_> = of_family.collect();
            if list.len() > self.max[family] {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            self.blocked[family] = Some(list);
            Ok(())
        });
        BlockResults { v4, v6 }
    }
}

#[test]
fn kernel_that_refuses_many_senders_blocks_the_first_sixteen() {
    for (count, max, fit) in [(40, 64, 40), (40, 16, 16), (17, 16, 16), (16, 16, 16), (40, 0, 0)] {
        for sender in [v4, v6] {
            let (senders, mut kernel) = ((0..count).map(sender).collect::<Vec<_>>(), Kernel::new(max, max));
            let refused = block_in_kernel(&senders, |list| kernel.block(list));
            let family = usize::from(senders[0].address.is_ipv6());
            let expected = (fit > 0).then(|| (0..fit).map(sender).collect());
            assert_eq!(kernel.blocked[family], expected, "{count} senders, {max} fit");
            // The order does not matter.
            assert_eq!(refused.len(), usize::from(count - fit), "{count} senders, {max} fit");
            assert!((fit..count).map(sender).all(|sender| refused.contains(&sender)), "{refused:?}");
            assert_eq!(kernel.attempts, if usize::from(count) > max { 2 } else { 1 });
        }
    }
    // The flood guard lists no sender at the end of its block.
    let mut kernel = Kernel::new(64, 64);
    assert!(block_in_kernel(&[], |list| kernel.block(list)).is_empty());
    assert_eq!(kernel.blocked, [Some(Vec::new()), Some(Vec::new())]);
}

#[test]
fn refusal_for_one_address_family_marks_none_of_the_other() {
    for (max_v6, blocked_v6) in [(16, 16), (15, 0)] {
        let senders: Vec<_> = (0..40).map(v4).chain((0..20).map(v6)).collect();
        let mut kernel = Kernel::new(64, max_v6);
        let refused = block_in_kernel(&senders, |list| kernel.block(list));
        assert_eq!(kernel.blocked[0], Some((0..40).map(v4).collect()), "all of IPv4");
        assert_eq!(kernel.blocked[1], (blocked_v6 > 0).then(|| (0..16).map(v6).collect()));
        assert_eq!(refused.len(), 20 - blocked_v6);
        assert!(refused.iter().all(|sender| sender.address.is_ipv6()), "{refused:?}");
    }
}

#[test]
fn kernel_list_changes_that_were_put_off_are_made_by_a_read() {
    let (mut server, _) = server();
    let at = |millis: u64| Now { monotonic: Instant::from_start(Duration::from_millis(millis)), ..at(5) };
    server.begin_still_turn(at(5000));
    (0..100).for_each(|_| server.block_senders());
    assert!(server.filter_changes.is_due());
    for (millis, is_due) in [(5001, true), (5016, false)] {
        server.begin_still_turn(at(millis));
        assert!(Inbox::default().next(&mut server).is_none());
        assert_eq!(server.filter_changes.is_due(), is_due, "the read after {millis} ms");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn blocks_outlast_a_change_of_the_kernel_filter() {
    let (mut server, to) = server();
    server.set_kernel_filter(true).unwrap();
    server.begin_still_turn(at(5));
    let [blocked, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let from = Address::from(blocked.local_addr().unwrap());
    let excess = DatagramResult::Excess(Excess::Client);
    (0..300).for_each(|_| server.on_handled(from, &[0x15; 40], excess));
    // Requests for another protocol id: the filter drops them once they were reported.
    let mut request = [0; REQUEST_BYTES];
    request[1..14].copy_from_slice(&VERSION);
    request[14..22].copy_from_slice(&8_u64.to_le_bytes());
    let mut inbox = Inbox::default();
    for _ in 0..20 {
        other.send_to(&request, to).unwrap();
        blocked.send_to(&[0x15; 40], to).unwrap();
        server.wait(Duration::from_millis(50)).unwrap();
        server.begin_still_turn(at(5));
        while inbox.next(&mut server).is_some() {}
        server.end_turn();
    }
    assert_eq!(server.sockets.filter().unwrap().other_protocols, OtherProtocol::Dropped);
    assert_eq!(server.flood_guard.dropped(), 0, "the kernel has dropped all");
    server.set_kernel_filter(true).unwrap();
    blocked.send_to(&[0x15; 40], to).unwrap();
    other.send_to(&request, to).unwrap();
    server.wait(Duration::from_millis(500)).unwrap();
    server.begin_still_turn(at(5));
    while inbox.next(&mut server).is_some() {}
    assert_eq!(server.flood_guard.dropped(), 0);
}

/// A server in a turn whose time stands still, and a stranger that sends one datagram before each wait.
struct Waits {
    server: Server,
    inbox: Inbox,
    now: Now,
    stranger: UdpSocket,
}

impl Waits {
    fn new(server: Server) -> Self {
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.connect(server.sockets().local_addresses()[0]).unwrap();
        Self { now: server.now, server, inbox: Inbox::default(), stranger }
    }

    /// Waits for datagrams this often. Returns how long that takes.
    fn wait(&mut self, times: u32) -> Duration {
        let start = std::time::Instant::now();
        for _ in 0..times {
            assert_eq!(self.stranger.send(b"junk").unwrap(), 4);
            self.server.wait(Duration::from_secs(5)).unwrap();
            self.server.begin_still_turn(self.now);
            while self.inbox.next(&mut self.server).is_some() {}
        }
        start.elapsed()
    }
}

#[test]
fn dropped_datagrams_keep_waits_apart() {
    // Each wait but the first one ends at least 0.22 ms after the one before. Without a flood it takes microseconds.
    const MIN_TIME: Duration = Duration::from_millis(10);
    let (mut server, _player, _, handle) = with_connected_client();
    let hostile = server.client(handle).unwrap().address().unwrap().into();
    server.set_intake(handle, Intake::Flooded);
    assert!(matches!(server.poll_event(), Some(SessionEvent::Disconnected { .. })));
    server.client(handle).unwrap().disconnect().unwrap();
    let mut waits = Waits::new(server);
    // The first 256 are handled. Then the sender is blocked, and the server drops its datagrams unread.
    for (blocked_before, dropped) in [(0, 44), (1, 344)] {
        waits.wait(1);
        assert_eq!(waits.server.flood_guard.blocked().len(), blocked_before);
        assert_eq!(send_junk(&mut waits.server, hostile), 1);
        assert_eq!(waits.server.flood_guard.dropped(), dropped);
        let time = waits.wait(50);
        assert!(time > MIN_TIME, "50 waits in {time:?}, {dropped} dropped");
        // The flood of a window of 50 ms is remembered until the end of the next one.
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(60));
            waits.wait(1);
        }
    }
}
