use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use slipgate_netcode::Outbox;

use super::*;

/// Sockets on loopback whose calls carry at most so much; `None` if the machine has no such address.
fn on(text: &str, batching: Batching) -> Option<Sockets> {
    let Ok(mut sockets) = Sockets::bind(&[text.parse().unwrap()]) else {
        println!("SKIPPED: this machine has no {text}");
        return None;
    };
    sockets.limit_batching(batching);
    Some(sockets)
}

fn loopback(text: &str) -> Sockets {
    on(text, Batching::Segments).unwrap()
}

/// Every kind of datapath that this machine has.
fn datapaths() -> Vec<Batching> {
    let most = loopback("127.0.0.1:0").batching();
    [Batching::Off, Batching::Messages, Batching::Segments].into_iter().filter(|batching| *batching <= most).collect()
}

/// Puts a datagram of so many bytes, all of one value, into the batch.
fn put(batch: &mut SendBatch, to: SocketAddr, bytes: usize, value: u8) {
    batch.room().unwrap()[..bytes].fill(value);
    batch.commit(to.into(), bytes);
}

/// Receives `count` datagrams, by one turn after another, and answers each one's sender, length and value.
fn receive(sockets: &mut Sockets, count: usize) -> Vec<(Address, usize, u8)> {
    let mut batch = ReceiveBatch::default();
    let mut arrived = Vec::new();
    for _ in 0..1000 {
        if arrived.len() >= count {
            return arrived;
        }
        sockets.wait(Duration::from_millis(50)).unwrap();
        sockets.receive(&mut batch);
        for place in 0..batch.len() {
            let received = batch.get(place).unwrap();
            assert!(received.datagram.windows(2).all(|pair| pair[0] == pair[1]), "a datagram is as it was sent");
            arrived.push((received.from, received.datagram.len(), received.datagram.first().copied().unwrap_or(0)));
        }
    }
    panic!("{} of {count} arrived", arrived.len());
}

#[test]
fn datagrams_of_both_families_arrive_in_order_with_their_senders_and_empty_ones_too() {
    for batching in datapaths() {
        for home in ["127.0.0.1:0", "[::1]:0"] {
            let (Some(mut one), Some(mut other)) = (on(home, batching), on(home, batching)) else { continue };
            let (from, to) = (one.local_addresses()[0], other.local_addresses()[0]);
            let sizes = [0, 1, 1200, 0, 300, 300, 299, 300, 1225, 1225, 1225, 7];
            let mut batch = SendBatch::default();
            sizes.iter().zip(1..).for_each(|(bytes, value)| put(&mut batch, to, *bytes, value));
            one.send(&mut batch);
            assert!(batch.is_empty());
            let expected: Vec<_> = sizes
                .iter()
                .zip(1..)
                .map(|(bytes, value)| (from.into(), *bytes, if *bytes > 0 { value } else { 0 }))
                .collect();
            assert_eq!(receive(&mut other, sizes.len()), expected, "{batching:?}");
            let (sent, received) = (one.stats(), other.stats());
            assert_eq!((sent.datagrams_sent, received.datagrams_received), (12, 12));
            assert_eq!((sent.bytes_sent, received.bytes_received), (6082, 6082));
            assert_eq!((one.batching(), other.batching()), (batching, batching));
        }
    }
}

#[test]
fn a_full_batch_to_few_and_to_many_leaves_by_one_call_and_arrives_by_two() {
    for batching in datapaths() {
        for receivers in [1, 3, BATCH] {
            let mut one = on("127.0.0.1:0", batching).unwrap();
            let mut others: Vec<_> = (0..receivers).map(|_| on("127.0.0.1:0", batching).unwrap()).collect();
            let mut batch = SendBatch::default();
            for place in 0..BATCH {
                put(&mut batch, others[place * receivers / BATCH].local_addresses()[0], 1200, place as u8);
            }
            assert!(batch.is_full());
            one.send(&mut batch);
            let mut values = Vec::new();
            for (place, other) in others.iter_mut().enumerate() {
                let share = (0..BATCH).filter(|number| number * receivers / BATCH == place).count();
                values.extend(receive(other, share).into_iter().map(|(_, _, value)| value));
            }
            assert_eq!(values, (0..BATCH as u8).collect::<Vec<_>>(), "{batching:?}");
            let calls = if batching == Batching::Off { BATCH as u64 } else { 1 };
            assert_eq!((one.stats().send_calls, one.stats().datagrams_sent), (calls, BATCH as u64), "{batching:?}");
            if receivers == 1 {
                // A few are asked for first, then the rest.
                let calls = if batching == Batching::Off { BATCH as u64 } else { 2 };
                assert_eq!(others[0].stats().receive_calls, calls, "{batching:?}");
            }
        }
    }
}

#[test]
fn a_port_in_use_two_addresses_of_a_family_and_none_are_errors() {
    let holder = loopback("127.0.0.1:0");
    let error = Sockets::bind(&holder.local_addresses()).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    let twice = ["127.0.0.1:0".parse().unwrap(), "127.0.0.2:0".parse().unwrap()];
    assert_eq!(Sockets::bind(&twice).err().unwrap().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(Sockets::bind(&[]).err().unwrap().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn what_cannot_be_sent_is_counted_and_lost_and_what_follows_is_sent() {
    for batching in datapaths() {
        let (mut one, mut other) = (on("127.0.0.1:0", batching).unwrap(), loopback("127.0.0.1:0"));
        let good = other.local_addresses()[0];
        let mut batch = SendBatch::default();
        let bad =
            ["[::1]:9", "255.255.255.255:9", "127.0.0.1:0", "255.255.255.255:9"].map(|text| text.parse().unwrap());
        for (value, to) in (1..).zip([good, bad[0], good, bad[1], good, good, bad[2], bad[2], good, bad[3]]) {
            put(&mut batch, to, 10, value);
        }
        one.send(&mut batch);
        let values: Vec<_> = receive(&mut other, 5).into_iter().map(|(_, _, value)| value).collect();
        assert_eq!(values, [1, 3, 5, 6, 9], "{batching:?}");
        let stats = one.stats();
        // Linux refuses a broadcast without the option (EACCES), and port 0 (EINVAL).
        let refused = Trouble::ALL.iter().map(|kind| stats.trouble(*kind)).sum::<u64>();
        assert_eq!((stats.trouble(Trouble::NoSocket), refused, stats.datagrams_sent), (1, 5, 5), "{batching:?}");
        assert_eq!(one.batching(), batching, "a receiver's address says nothing of the system");
    }
}

#[test]
fn errors_of_the_system_have_their_kinds() {
    for (kind, trouble) in [
        (io::ErrorKind::WouldBlock, Trouble::BufferFull),
        (io::ErrorKind::ConnectionRefused, Trouble::Refused),
        (io::ErrorKind::NetworkUnreachable, Trouble::Unreachable),
        (io::ErrorKind::PermissionDenied, Trouble::Forbidden),
        (io::ErrorKind::InvalidData, Trouble::Other),
    ] {
        assert_eq!(Trouble::of(&io::Error::from(kind)), trouble);
    }
    #[cfg(target_os = "linux")]
    for (code, trouble) in [
        (90, Trouble::TooLarge),
        (105, Trouble::BufferFull),
        (111, Trouble::Refused),
        (101, Trouble::Unreachable),
        (113, Trouble::Unreachable),
        (100, Trouble::Unreachable),
        (1, Trouble::Forbidden),
        (13, Trouble::Forbidden),
    ] {
        assert_eq!(Trouble::of(&io::Error::from_raw_os_error(code)), trouble, "{code}");
    }
}

#[test]
fn a_wait_does_not_sleep_while_datagrams_were_left_behind() {
    for batching in datapaths() {
        let (mut one, mut other) = (on("127.0.0.1:0", batching).unwrap(), on("127.0.0.1:0", batching).unwrap());
        let mut out = SendBatch::default();
        for _ in 0..BATCH + 10 {
            put(&mut out, other.local_addresses()[0], 20, 7);
            one.send(&mut out);
        }
        let mut batch = ReceiveBatch::default();
        let mut arrived = 0;
        for _ in 0..20 {
            // Edge-triggered polling reports an arrival once: what a batch had no room for must not wait for the next.
            other.wait(Duration::from_secs(5)).unwrap();
            other.receive(&mut batch);
            arrived += batch.len();
            if arrived == BATCH + 10 {
                break;
            }
        }
        assert_eq!(arrived, BATCH + 10, "{batching:?}");
        while !other.is_drained() {
            other.receive(&mut batch);
        }
        assert!(batch.len() <= 10, "{batching:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_socket_that_gives_nothing_but_errors_is_left_alone_until_the_next_turn() {
    for batching in datapaths() {
        let mut sockets = on("127.0.0.1:0", batching).unwrap();
        // Nobody can receive from a listener: each call says ENOTCONN.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let broken = std::net::UdpSocket::from(std::os::fd::OwnedFd::from(listener));
        let port = sockets.v4.as_mut().unwrap();
        sockets.poll.registry().deregister(&mut port.socket).unwrap();
        port.socket = mio::net::UdpSocket::from_std(broken);
        sockets.poll.registry().register(&mut port.socket, Token(0), Interest::READABLE).unwrap();
        let mut batch = ReceiveBatch::default();
        for turn in 1..=3 {
            sockets.receive(&mut batch);
            assert!(batch.is_empty() && sockets.is_drained(), "{batching:?}: the loop would not sleep any more");
            assert_eq!(sockets.stats().trouble(Trouble::Other), 64 * turn, "{batching:?}: each turn tries again");
        }
    }
}

#[test]
fn a_datagram_that_is_too_long_is_cut_and_a_flood_of_one_family_leaves_room_for_the_other() {
    for batching in datapaths() {
        let homes = ["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()];
        let Ok(mut sockets) = Sockets::bind(&homes) else {
            println!("SKIPPED: this machine has no ::1");
            return;
        };
        sockets.limit_batching(batching);
        let [v4, v6] = sockets.local_addresses()[..] else { panic!("two addresses are bound") };
        let (flood, guest) =
            (std::net::UdpSocket::bind(homes[0]).unwrap(), std::net::UdpSocket::bind(homes[1]).unwrap());
        for _ in 0..3 * BATCH {
            flood.send_to(&[4; 1400], v4).unwrap();
        }
        guest.send_to(&[6; 5000], v6).unwrap();
        let mut batch = ReceiveBatch::default();
        let mut lengths = Vec::new();
        for _ in 0..2 {
            sockets.receive(&mut batch);
            assert!(batch.len() >= BATCH / 2);
            lengths.extend((0..batch.len()).map(|place| (batch.bytes(place)[0], batch.bytes(place).len())));
        }
        assert_eq!(lengths.iter().filter(|found| **found == (6, 1300)).count(), 1, "{batching:?}");
        assert!(lengths.iter().all(|(_, bytes)| *bytes == 1300), "{batching:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_the_receive_buffer_had_no_room_for_is_counted() {
    let (one, mut other) = (std::net::UdpSocket::bind("127.0.0.1:0").unwrap(), loopback("127.0.0.1:0"));
    other.v4.as_ref().unwrap().options().set_recv_buffer_size(16 << 10).unwrap();
    assert_eq!(other.stats().dropped_by_system, Some(0));
    let to = other.local_addresses()[0];
    for _ in 0..1000 {
        one.send_to(&[7; 1000], to).unwrap();
    }
    let mut batch = ReceiveBatch::default();
    let mut arrived = 0;
    while !other.is_drained() || arrived == 0 {
        other.receive(&mut batch);
        arrived += batch.len() as u64;
    }
    assert!(arrived < 1000);
    assert_eq!(other.stats().dropped_by_system, Some(1000 - arrived));
    assert_eq!(other.overflow_at_most(), Some(1000 - arrived), "nothing else was dropped");
}

#[cfg(target_os = "linux")]
#[test]
fn what_the_filter_drops_is_no_overflow() {
    let one = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let everything = SocketStats { dropped_by_system: Some(u64::MAX), ..SocketStats::default() };
    for _ in 0..1000 {
        let other = loopback("127.0.0.1:0");
        other.set_filter(Some(&Filter { protocol_id: 7, foreign: Foreign::Dropped })).unwrap();
        for _ in 0..100 {
            one.send_to(b"junk", other.local_addresses()[0]).unwrap();
        }
        assert_eq!(other.stats().dropped_by_system, Some(100));
        let told = other.overflow_at_most();
        // Other tests' buffers may overflow meanwhile, and the system does not say whose did.
        if other.overflow.at_most(&everything) == Some(0) {
            return assert_eq!(told, Some(0));
        }
    }
    panic!("buffers overflow all the time");
}

/// The kernel refuses to change the filter of one of two sockets: neither has half of one, and it is told what there is.
#[cfg(target_os = "linux")]
#[test]
fn a_filter_that_cannot_be_replaced_stays_before_all_sockets() {
    let homes = ["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()];
    let old = Filter { protocol_id: 7, foreign: Foreign::Passes };
    let strict = Filter { foreign: Foreign::Dropped, ..old };
    for (first, then) in [(Some(old), Some(strict)), (Some(old), None), (None, Some(strict))] {
        let Ok(mut sockets) = Sockets::bind(&homes) else {
            println!("SKIPPED: this machine has no ::1");
            return;
        };
        sockets.set_filter(first.as_ref()).unwrap();
        assert_eq!(sockets.filter(), first);
        system::lock_filter(std::os::fd::AsFd::as_fd(&sockets.v6.as_ref().unwrap().socket));
        assert_eq!(sockets.set_filter(then.as_ref()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(sockets.filter(), first);
        for (home, to) in homes.into_iter().zip(sockets.local_addresses()) {
            let sender = std::net::UdpSocket::bind(home).unwrap();
            // The old filter drops the first; all but the strict one pass the second, a request for another protocol id.
            sender.send_to(&[0; 4], to).unwrap();
            let request = [&b"\0NETCODE 1.02\0"[..], &8_u64.to_le_bytes(), &[8; 1056][..]].concat();
            sender.send_to(&request[1..], to).unwrap();
            sender.send_to(&request, to).unwrap();
            let mut batch = ReceiveBatch::default();
            let mut lengths = Vec::new();
            for _ in 0..100 {
                if lengths.contains(&request.len()) {
                    break;
                }
                sockets.wait(Duration::from_millis(50)).unwrap();
                sockets.receive(&mut batch);
                lengths.extend((0..batch.len()).map(|place| batch.bytes(place).len()));
            }
            let expected =
                if first.is_some() { vec![request.len()] } else { vec![4, request.len() - 1, request.len()] };
            assert_eq!(lengths, expected, "{first:?}, {then:?}, {home}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn drops_are_noted_while_sockets_are_read() {
    let (one, mut other) = (std::net::UdpSocket::bind("127.0.0.1:0").unwrap(), loopback("127.0.0.1:0"));
    other.set_filter(Some(&Filter { protocol_id: 7, foreign: Foreign::Dropped })).unwrap();
    one.send_to(b"junk", other.local_addresses()[0]).unwrap();
    let noted = |sockets: &Sockets| sockets.v4.as_ref().map(Port::noted);
    let mut batch = ReceiveBatch::default();
    assert_eq!(noted(&other), Some(0));
    (0..READS_PER_NOTE).for_each(|_| other.receive(&mut batch));
    assert_eq!(noted(&other), Some(1), "so that the system's count cannot go around unseen");
}

#[test]
fn the_buffers_that_were_given_are_told() {
    let buffers = loopback("127.0.0.1:0").buffers().unwrap();
    assert!(buffers.receive >= 64 << 10 && buffers.send >= 64 << 10, "{buffers:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn packets_bear_the_mark_that_was_set() {
    for home in ["127.0.0.1:0", "[::1]:0"] {
        let Some(mut sockets) = on(home, Batching::Segments) else { continue };
        let to = std::net::UdpSocket::bind(home).unwrap();
        let address = to.local_addr().unwrap();
        let options = socket2::SockRef::from(&to);
        if address.is_ipv4() { options.set_recv_tos_v4(true) } else { options.set_recv_tclass_v6(true) }.unwrap();
        for (dscp, byte) in [(Dscp::EXPEDITED, 184), (Dscp::new(8).unwrap(), 32), (Dscp::DEFAULT, 0)] {
            assert_eq!(sockets.set_dscp(dscp).unwrap(), Marking::All);
            let mut batch = SendBatch::default();
            put(&mut batch, address, 10, 7);
            sockets.send(&mut batch);
            assert_eq!(system::receive_traffic_class(std::os::fd::AsFd::as_fd(&to)), Some(byte), "{home}");
        }
    }
}
