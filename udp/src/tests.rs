use std::io;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use slipgate_netcode::Outbox;

use super::*;

/// Binds sockets with limited batching; `None` if the machine does not have this address.
fn on(text: &str, batching: Batching) -> Option<Sockets> {
    let Ok(mut sockets) = Sockets::bind(&[text.parse().unwrap()]) else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: this machine has no {text}");
        return None;
    };
    sockets.limit_batching(batching);
    Some(sockets)
}

fn loopback(text: &str) -> Sockets {
    on(text, Batching::Segments).unwrap()
}

/// Returns every kind of datapath that this machine supports.
fn datapaths() -> Vec<Batching> {
    let most = loopback("127.0.0.1:0").batching();
    [Batching::Off, Batching::Messages, Batching::Segments].into_iter().filter(|batching| *batching <= most).collect()
}

/// Adds a datagram of this size to the batch, all bytes of one value.
fn put(batch: &mut SendBatch, to: SocketAddr, bytes: usize, value: u8) {
    batch.next_buf().unwrap()[..bytes].fill(value);
    batch.commit(to.into(), bytes);
}

/// Receives `count` datagrams in several turns. Returns source, length and value of each.
fn receive(sockets: &mut Sockets, count: usize) -> Vec<(Address, usize, u8)> {
    let mut batch = ReceiveBatch::default();
    let mut arrived = Vec::new();
    for _ in 0..1000 {
        if arrived.len() >= count {
            return arrived;
        }
        sockets.wait(Duration::from_millis(50)).unwrap();
        sockets.receive(&mut batch);
        for index in 0..batch.len() {
            let received = batch.get(index).unwrap();
            assert!(received.datagram.windows(2).all(|pair| pair[0] == pair[1]), "the datagram is unchanged");
            arrived.push((received.from, received.datagram.len(), received.datagram.first().copied().unwrap_or(0)));
        }
    }
    panic!("{} of {count} arrived", arrived.len());
}

#[test]
fn datagrams_arrive_in_order_with_their_senders() {
    for batching in datapaths() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (Some(mut one), Some(mut other)) = (on(address, batching), on(address, batching)) else { continue };
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
fn full_batch_takes_one_send_and_two_receives() {
    for batching in datapaths() {
        for receivers in [1, 3, BATCH_SIZE] {
            let mut one = on("127.0.0.1:0", batching).unwrap();
            let mut others: Vec<_> = (0..receivers).map(|_| on("127.0.0.1:0", batching).unwrap()).collect();
            let mut batch = SendBatch::default();
            for index in 0..BATCH_SIZE {
                put(&mut batch, others[index * receivers / BATCH_SIZE].local_addresses()[0], 1200, index as u8);
            }
            assert!(batch.is_full());
            one.send(&mut batch);
            let mut values = Vec::new();
            for (index, other) in others.iter_mut().enumerate() {
                let share = (0..BATCH_SIZE).filter(|number| number * receivers / BATCH_SIZE == index).count();
                values.extend(receive(other, share).into_iter().map(|(_, _, value)| value));
            }
            assert_eq!(values, (0..BATCH_SIZE as u8).collect::<Vec<_>>(), "{batching:?}");
            let calls = if batching == Batching::Off { BATCH_SIZE as u64 } else { 1 };
            assert_eq!(
                (one.stats().send_calls, one.stats().datagrams_sent),
                (calls, BATCH_SIZE as u64),
                "{batching:?}"
            );
            if receivers == 1 {
                // The first call requests a few datagrams, the second the rest.
                let calls = if batching == Batching::Off { BATCH_SIZE as u64 } else { 2 };
                assert_eq!(others[0].stats().receive_calls, calls, "{batching:?}");
            }
        }
    }
}

#[test]
fn invalid_bind_addresses_are_errors() {
    let holder = loopback("127.0.0.1:0");
    let error = Sockets::bind(&holder.local_addresses()).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    let twice = ["127.0.0.1:0".parse().unwrap(), "127.0.0.2:0".parse().unwrap()];
    assert_eq!(Sockets::bind(&twice).err().unwrap().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(Sockets::bind(&[]).err().unwrap().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn unsendable_datagram_is_counted_and_the_rest_is_sent() {
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
        let refused = SocketErrorKind::ALL.iter().map(|kind| stats.errors(*kind)).sum::<u64>();
        assert_eq!((stats.errors(SocketErrorKind::NoSocket), refused, stats.datagrams_sent), (1, 5, 5), "{batching:?}");
        assert_eq!(one.batching(), batching, "a receiver's address must not disable batching");
    }
}

#[test]
fn system_errors_map_to_their_kinds() {
    for (kind, expected) in [
        (io::ErrorKind::WouldBlock, SocketErrorKind::BufferFull),
        (io::ErrorKind::ConnectionRefused, SocketErrorKind::Refused),
        (io::ErrorKind::NetworkUnreachable, SocketErrorKind::Unreachable),
        (io::ErrorKind::PermissionDenied, SocketErrorKind::Forbidden),
        (io::ErrorKind::InvalidData, SocketErrorKind::Other),
    ] {
        assert_eq!(SocketErrorKind::of(&io::Error::from(kind)), expected);
    }
    #[cfg(target_os = "linux")]
    for (code, expected) in [
        (90, SocketErrorKind::TooLarge),
        (105, SocketErrorKind::BufferFull),
        (111, SocketErrorKind::Refused),
        (101, SocketErrorKind::Unreachable),
        (113, SocketErrorKind::Unreachable),
        (100, SocketErrorKind::Unreachable),
        (1, SocketErrorKind::Forbidden),
        (13, SocketErrorKind::Forbidden),
    ] {
        assert_eq!(SocketErrorKind::of(&io::Error::from_raw_os_error(code)), expected, "{code}");
    }
}

#[test]
fn wait_returns_at_once_while_datagrams_remain() {
    for batching in datapaths() {
        let (mut one, mut other) = (on("127.0.0.1:0", batching).unwrap(), on("127.0.0.1:0", batching).unwrap());
        let mut out = SendBatch::default();
        for _ in 0..BATCH_SIZE + 10 {
            put(&mut out, other.local_addresses()[0], 20, 7);
            one.send(&mut out);
        }
        let mut batch = ReceiveBatch::default();
        let mut arrived = 0;
        for _ in 0..20 {
            // Edge-triggered polling reports an arrival once. Datagrams beyond the batch must not wait for the next
            // one.
            other.wait(Duration::from_secs(5)).unwrap();
            other.receive(&mut batch);
            arrived += batch.len();
            if arrived == BATCH_SIZE + 10 {
                break;
            }
        }
        assert_eq!(arrived, BATCH_SIZE + 10, "{batching:?}");
        while !other.is_drained() {
            other.receive(&mut batch);
        }
        assert!(batch.len() <= 10, "{batching:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn socket_with_only_errors_is_retried_next_turn() {
    for batching in datapaths() {
        let mut sockets = on("127.0.0.1:0", batching).unwrap();
        // A TCP listener cannot receive datagrams: each call returns ENOTCONN.
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
            assert!(batch.is_empty() && sockets.is_drained(), "{batching:?}: the loop would spin");
            assert_eq!(sockets.stats().errors(SocketErrorKind::Other), 64 * turn, "{batching:?}: each turn retries");
        }
    }
}

#[test]
fn closed_port_of_a_peer_is_no_error_of_a_read() {
    for batching in datapaths() {
        let (mut sockets, peer) =
            (on("127.0.0.1:0", batching).unwrap(), std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let here = sockets.local_addresses()[0];
        let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut batch = SendBatch::default();
        (0..10).for_each(|_| put(&mut batch, gone, 20, 1));
        sockets.send(&mut batch);
        // The ICMP messages of these datagrams arrive first.
        std::thread::sleep(Duration::from_millis(20));
        peer.send_to(&[5; 9], here).unwrap();
        assert_eq!(receive(&mut sockets, 1), [(peer.local_addr().unwrap().into(), 9, 5)], "{batching:?}");
        assert_eq!(sockets.stats().errors(SocketErrorKind::Refused), 0, "{batching:?}");
    }
}

/// Other systems cut such a datagram, and the layers above drop it.
#[cfg(windows)]
#[test]
fn datagrams_longer_than_the_buffer_are_dropped() {
    let (mut sockets, peer) = (loopback("127.0.0.1:0"), std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    let here = sockets.local_addresses()[0];
    for _ in 0..BATCH_SIZE {
        peer.send_to(&[4; 5000], here).unwrap();
    }
    peer.send_to(&[5; 9], here).unwrap();
    sockets.wait(Duration::from_millis(50)).unwrap();
    let mut batch = ReceiveBatch::default();
    sockets.receive(&mut batch);
    // A wait of a socket that was not read to its end would miss the last datagram.
    assert!(batch.is_empty() && !sockets.is_drained());
    assert_eq!(receive(&mut sockets, 1), [(peer.local_addr().unwrap().into(), 9, 5)]);
    assert_eq!(sockets.stats().errors(SocketErrorKind::TooLarge), BATCH_SIZE as u64);
}

#[test]
fn flood_of_one_family_does_not_starve_the_other() {
    for batching in datapaths() {
        let addresses = ["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()];
        let Ok(mut sockets) = Sockets::bind(&addresses) else {
            let _ = writeln!(std::io::stderr(), "SKIPPED: this machine has no ::1");
            return;
        };
        sockets.limit_batching(batching);
        let [v4, v6] = sockets.local_addresses()[..] else { panic!("two addresses are bound") };
        let (flood, other) =
            (std::net::UdpSocket::bind(addresses[0]).unwrap(), std::net::UdpSocket::bind(addresses[1]).unwrap());
        // Windows drops datagrams that are longer than the buffer.
        let (flood_bytes, other_bytes) = if cfg!(windows) { (1300, 1300) } else { (1400, 5000) };
        for _ in 0..3 * BATCH_SIZE {
            flood.send_to(&vec![4; flood_bytes], v4).unwrap();
        }
        other.send_to(&vec![6; other_bytes], v6).unwrap();
        let mut batch = ReceiveBatch::default();
        let mut lengths = Vec::new();
        for _ in 0..2 {
            sockets.receive(&mut batch);
            assert!(batch.len() >= BATCH_SIZE / 2);
            lengths.extend((0..batch.len()).map(|index| (batch.bytes(index)[0], batch.bytes(index).len())));
        }
        assert_eq!(lengths.iter().filter(|found| **found == (6, 1300)).count(), 1, "{batching:?}");
        assert!(lengths.iter().all(|(_, bytes)| *bytes == 1300), "{batching:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn receive_buffer_overflow_is_counted() {
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
    assert_eq!(other.overflow_at_most(), Some(1000 - arrived), "there were no other drops");
}

#[cfg(target_os = "linux")]
#[test]
fn filtered_datagrams_are_no_overflow() {
    let one = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let everything = SocketStats { dropped_by_system: Some(u64::MAX), ..SocketStats::default() };
    for _ in 0..1000 {
        let other = loopback("127.0.0.1:0");
        other.set_filter(Some(&SocketFilter { protocol_id: 7, other_protocols: OtherProtocol::Dropped })).unwrap();
        for _ in 0..100 {
            one.send_to(b"junk", other.local_addresses()[0]).unwrap();
        }
        assert_eq!(other.stats().dropped_by_system, Some(100));
        let overflow = other.overflow_at_most();
        // Buffers of other tests may overflow meanwhile, and the system reports only the sum.
        if other.overflow.at_most(&everything) == Some(0) {
            return assert_eq!(overflow, Some(0));
        }
    }
    panic!("other buffers overflow all the time");
}

/// The kernel refuses to change the filter of one of two sockets. Both sockets keep the old filter, and `filter`
/// reports the actual one.
#[cfg(target_os = "linux")]
#[test]
fn irreplaceable_filter_stays_on_all_sockets() {
    let addresses = ["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()];
    let old = SocketFilter { protocol_id: 7, other_protocols: OtherProtocol::Passes };
    let strict = SocketFilter { other_protocols: OtherProtocol::Dropped, ..old };
    for (first, then) in [(Some(old), Some(strict)), (Some(old), None), (None, Some(strict))] {
        let Ok(mut sockets) = Sockets::bind(&addresses) else {
            let _ = writeln!(std::io::stderr(), "SKIPPED: this machine has no ::1");
            return;
        };
        sockets.set_filter(first.as_ref()).unwrap();
        assert_eq!(sockets.filter(), first);
        syscalls::lock_filter(std::os::fd::AsFd::as_fd(&sockets.v6.as_ref().unwrap().socket));
        assert_eq!(sockets.set_filter(then.as_ref()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(sockets.filter(), first);
        for (address, to) in addresses.into_iter().zip(sockets.local_addresses()) {
            let sender = std::net::UdpSocket::bind(address).unwrap();
            // The old filter drops the first datagram. Only the strict filter drops the request for another protocol
            // id.
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
                lengths.extend((0..batch.len()).map(|index| batch.bytes(index).len()));
            }
            let expected =
                if first.is_some() { vec![request.len()] } else { vec![4, request.len() - 1, request.len()] };
            assert_eq!(lengths, expected, "{first:?}, {then:?}, {address}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn drop_counters_are_updated_by_reads() {
    let (one, mut other) = (std::net::UdpSocket::bind("127.0.0.1:0").unwrap(), loopback("127.0.0.1:0"));
    other.set_filter(Some(&SocketFilter { protocol_id: 7, other_protocols: OtherProtocol::Dropped })).unwrap();
    one.send_to(b"junk", other.local_addresses()[0]).unwrap();
    let dropped = |sockets: &Sockets| sockets.v4.as_ref().map(BoundSocket::dropped_total);
    let mut batch = ReceiveBatch::default();
    assert_eq!(dropped(&other), Some(0));
    (0..READS_PER_DROP_UPDATE).for_each(|_| other.receive(&mut batch));
    assert_eq!(dropped(&other), Some(1), "a wrap of the kernel's counter is noticed");
}

#[test]
fn granted_buffer_sizes_are_reported() {
    let buffers = loopback("127.0.0.1:0").buffers().unwrap();
    assert!(buffers.receive >= 64 << 10 && buffers.send >= 64 << 10, "{buffers:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn sent_datagrams_carry_the_dscp() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Some(mut sockets) = on(address, Batching::Segments) else { continue };
        let to = std::net::UdpSocket::bind(address).unwrap();
        let address = to.local_addr().unwrap();
        let options = socket2::SockRef::from(&to);
        if address.is_ipv4() { options.set_recv_tos_v4(true) } else { options.set_recv_tclass_v6(true) }.unwrap();
        for (dscp, byte) in [(Dscp::EXPEDITED, 184), (Dscp::new(8).unwrap(), 32), (Dscp::DEFAULT, 0)] {
            assert_eq!(sockets.set_dscp(dscp).unwrap(), Marking::All);
            let mut batch = SendBatch::default();
            put(&mut batch, address, 10, 7);
            sockets.send(&mut batch);
            assert_eq!(syscalls::receive_traffic_class(std::os::fd::AsFd::as_fd(&to)), Some(byte), "{address}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn blocked_senders_reach_no_socket_until_they_are_unblocked() {
    for host in ["127.0.0.1:0", "[::1]:0"] {
        let Some(mut sockets) = on(host, Batching::Segments) else { continue };
        sockets.set_filter(Some(&SocketFilter { protocol_id: 7, other_protocols: OtherProtocol::Dropped })).unwrap();
        let to = sockets.local_addresses()[0];
        let senders: Vec<_> = (0..4).map(|_| std::net::UdpSocket::bind(host).unwrap()).collect();
        let addresses: Vec<_> = senders.iter().map(|sender| sender.local_addr().unwrap()).collect();
        // Each blocked set, in the order of the steps, with the senders that are received.
        let strangers: Vec<SocketAddr> = vec!["192.0.2.1:9".parse().unwrap(), "[2001:db8::1]:9".parse().unwrap()];
        for blocked in [vec![], vec![1], vec![0, 2], vec![0, 1, 2, 3], vec![]] {
            let senders_to_block = blocked.iter().map(|index| addresses[*index]).chain(strangers.iter().copied());
            let list: Vec<_> =
                senders_to_block.map(|address| BlockedSender { address, passing: Passing::Nothing }).collect();
            sockets.block_senders(&list).both().unwrap();
            for sender in &senders {
                // A payload as far as the filter can see, and one that it drops in any case.
                sender.send_to(&[0x15; 40], to).unwrap();
                sender.send_to(&[0x15; 3], to).unwrap();
            }
            let expected: Vec<_> =
                (0..4).filter(|index| !blocked.contains(index)).map(|index| addresses[index]).collect();
            let arrived: Vec<_> =
                receive(&mut sockets, expected.len()).into_iter().map(|(from, ..)| SocketAddr::from(from)).collect();
            assert_eq!(arrived, expected, "{blocked:?}");
            sockets.receive(&mut ReceiveBatch::default());
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn refused_block_of_one_family_leaves_the_other_one() {
    let hosts = ["127.0.0.1:0", "[::1]:0"].map(|host| host.parse().unwrap());
    // A system without IPv6.
    let Ok(sockets) = Sockets::bind(&hosts) else { return };
    sockets.set_filter(Some(&SocketFilter { protocol_id: 7, other_protocols: OtherProtocol::Dropped })).unwrap();
    // The kernel takes programs of 4,096 instructions.
    let senders = |host: &str, count: u16| {
        let ip: std::net::IpAddr = host.parse().unwrap();
        (0..count).map(move |port| BlockedSender { address: (ip, port).into(), passing: Passing::Nothing })
    };
    for (v4, v6) in [(1, 1), (1, 2000), (2000, 1), (2000, 2000)] {
        let list: Vec<_> = senders("192.0.2.1", v4).chain(senders("2001:db8::1", v6)).collect();
        let results = sockets.block_senders(&list);
        assert_eq!((results.v4.is_ok(), results.v6.is_ok()), (v4 == 1, v6 == 1), "{results:?}");
        assert_eq!(results.both().is_ok(), (v4, v6) == (1, 1));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn one_of_64_datagrams_of_a_probed_sender_passes() {
    for host in ["127.0.0.1:0", "[::1]:0"] {
        let Some(mut sockets) = on(host, Batching::Segments) else { continue };
        sockets.set_filter(Some(&SocketFilter { protocol_id: 7, other_protocols: OtherProtocol::Passes })).unwrap();
        let to = sockets.local_addresses()[0];
        let [probed, other] = [(); 2].map(|()| std::net::UdpSocket::bind(host).unwrap());
        let probed_address = probed.local_addr().unwrap();
        sockets.block_senders(&[BlockedSender { address: probed_address, passing: Passing::OneIn64 }]).both().unwrap();
        let (mut passed, mut others, mut batch) = (0, 0, ReceiveBatch::default());
        for round in 1..=64_000 {
            probed.send_to(&[0x15; 40], to).unwrap();
            // The receive buffer holds what passes of 1,000.
            if round % 1000 == 0 {
                other.send_to(&[0x15; 40], to).unwrap();
                probed.send_to(&[0x15; 3], to).unwrap();
                sockets.receive(&mut batch);
                for index in 0..batch.len() {
                    let arrived = batch.get(index).unwrap();
                    assert_eq!(arrived.datagram.len(), 40, "the rest of the filter holds");
                    let is_probed = SocketAddr::from(arrived.from) == probed_address;
                    *(if is_probed { &mut passed } else { &mut others }) += 1;
                }
            }
        }
        assert!(others >= 60, "{others} of 64");
        // 1,000 are expected; the standard deviation is 31.
        assert!((800..1200).contains(&passed), "{passed} of 64,000 on {host}");
    }
}

/// Returns an encrypted packet of 40 bytes with a sequence number of this many bytes.
#[cfg(target_os = "linux")]
fn packet(sequence: u64, bytes: u8) -> [u8; 40] {
    let mut datagram = [7; 40];
    datagram[0] = bytes << 4 | 5;
    datagram[1..=usize::from(bytes)].copy_from_slice(&sequence.to_le_bytes()[..usize::from(bytes)]);
    datagram
}

#[cfg(target_os = "linux")]
#[test]
fn next_packets_of_a_sampled_sender_pass() {
    for host in ["127.0.0.1:0", "[::1]:0"] {
        let Some(mut sockets) = on(host, Batching::Segments) else { continue };
        sockets.set_filter(Some(&SocketFilter { protocol_id: 7, other_protocols: OtherProtocol::Passes })).unwrap();
        let (to, sender) = (sockets.local_addresses()[0], std::net::UdpSocket::bind(host).unwrap());
        let mut random = 0;
        for first in [0_u16, 200, 255, 3000, 65_000] {
            let address = sender.local_addr().unwrap();
            sockets.block_senders(&[BlockedSender { address, passing: Passing::Next { first } }]).both().unwrap();
            for ahead in (0..65_536_u64).step_by(31) {
                let sequence = (u64::from(first) + ahead) % 65_536;
                let is_next = ahead < u64::from(NEXT_SEQUENCES);
                for bytes in [1, 2, 3, 8].into_iter().filter(|bytes| *bytes > 1 || sequence < 256) {
                    let datagram = packet(sequence + if bytes > 2 { 5 << 16 } else { 0 }, bytes);
                    assert_eq!(sequence_of(&datagram), Some(sequence as u16));
                    sender.send_to(&datagram, to).unwrap();
                    let mut batch = ReceiveBatch::default();
                    sockets.receive(&mut batch);
                    random += u32::from(!is_next && !batch.is_empty());
                    assert!(!is_next || batch.len() == 1, "{sequence} of {bytes} bytes after {first}");
                }
            }
        }
        // A 64th of 31,000 others: 490 are expected, and the standard deviation is 22.
        assert!((350..630).contains(&random), "{random} others");
    }
}
