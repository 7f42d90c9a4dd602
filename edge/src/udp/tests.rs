use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use slipgate_protocol::netcode::Outbox;

use super::*;

fn loopback(text: &str) -> Sockets {
    Sockets::bind(&[text.parse().unwrap()]).unwrap()
}

fn send(from: &mut Sockets, to: SocketAddr, bytes: usize) {
    let mut batch = SendBatch::default();
    batch.room().unwrap()[..bytes].fill(7);
    batch.commit(to.into(), bytes);
    from.send(&mut batch);
    assert!(batch.is_empty());
}

#[test]
fn datagrams_of_both_families_arrive_with_their_senders_and_empty_ones_too() {
    for home in ["127.0.0.1:0", "[::1]:0"] {
        if std::net::UdpSocket::bind(home).is_err() {
            println!("SKIPPED: this machine has no {home}");
            continue;
        }
        let (mut one, mut other) = (loopback(home), loopback(home));
        let to = other.local_addresses()[0];
        for bytes in [0, 1, 1200] {
            send(&mut one, to, bytes);
        }
        let mut batch = ReceiveBatch::default();
        let mut lengths = Vec::new();
        for _ in 0..100 {
            other.wait(Duration::from_millis(50)).unwrap();
            other.receive(&mut batch);
            for place in 0..batch.len() {
                let received = batch.get(place).unwrap();
                assert_eq!(received.from, one.local_addresses()[0].into());
                lengths.push(received.datagram.len());
            }
            if lengths.len() == 3 {
                break;
            }
        }
        assert_eq!(lengths, [0, 1, 1200]);
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
fn what_cannot_be_sent_is_counted_and_lost() {
    let mut sockets = loopback("127.0.0.1:0");
    send(&mut sockets, "[::1]:9".parse().unwrap(), 10);
    assert_eq!(sockets.stats().trouble(Trouble::NoSocket), 1);
    // Linux refuses a broadcast without the option (EACCES).
    send(&mut sockets, "255.255.255.255:9".parse().unwrap(), 10);
    let refused = Trouble::ALL.iter().map(|kind| sockets.stats().trouble(*kind)).sum::<u64>();
    assert_eq!((refused, sockets.stats().datagrams_sent), (2, 0));
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
    let (mut one, mut other) = (loopback("127.0.0.1:0"), loopback("127.0.0.1:0"));
    for _ in 0..BATCH + 10 {
        send(&mut one, other.local_addresses()[0], 20);
    }
    let mut batch = ReceiveBatch::default();
    let mut arrived = 0;
    for _ in 0..20 {
        // Edge-triggered polling reports an arrival once: what a batch had no room for must not wait for the next one.
        other.wait(Duration::from_secs(5)).unwrap();
        other.receive(&mut batch);
        arrived += batch.len();
        if arrived == BATCH + 10 {
            return;
        }
    }
    panic!("{arrived} of {} arrived", BATCH + 10);
}
