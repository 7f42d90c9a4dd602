//! The applications `echo` and `relay`, over IPv4, IPv6 and both.

use std::net::SocketAddr;

use super::client::{TestClient, until};
use super::program::{Program, TestFolder};

#[test]
fn echo_returns_each_clients_own_payloads_over_ipv4_and_ipv6() {
    for binds in [&["127.0.0.1:0"][..], &["[::1]:0"], &["127.0.0.1:0", "[::1]:0"]] {
        let folder = TestFolder::new();
        let server = Program::start(folder.on(binds, &[]));
        let addresses = server.addresses();
        assert_eq!(addresses.len(), binds.len());
        assert_eq!(server.fact("advertise"), server.fact("bind"));
        let mut clients: Vec<_> =
            (0..4).map(|id| TestClient::join(id, addresses[id as usize % addresses.len()])).collect();
        for (id, client) in clients.iter_mut().enumerate() {
            for length in [1, 2, 600, 1199, 1200] {
                client.echo(&vec![id as u8; length]);
            }
        }
        for (id, client) in clients.iter().enumerate() {
            assert!(client.received.iter().flatten().all(|byte| *byte == id as u8), "payload of another client");
        }
        let log = server.stop();
        assert_eq!(log.matches("client connected").count(), 4, "{log}");
        assert_eq!(log.matches("reason=server_stopped ").count(), 4, "{log}");
    }
}

#[test]
fn relay_sends_each_payload_to_all_other_clients() {
    let folder = TestFolder::new();
    let server = folder.start(&["--app", "relay"]);
    let [mut one, mut two, mut three] = [1, 2, 3].map(|id| TestClient::join(id, server.address()));
    send_until_received(&mut one, b"of one", [&mut two, &mut three]);
    send_until_received(&mut two, b"of two", [&mut one, &mut three]);
    assert!(!one.has_received(b"of one") && !two.has_received(b"of two"), "the sender does not get its own payload");

    three.leave();
    server.wait_for("reason=left ");
    let mut four = TestClient::join(4, server.address());
    send_until_received(&mut one, b"to those who are left", [&mut two, &mut four]);
    assert!(!three.has_received(b"to those who are left") && !four.has_received(b"of one"));
    server.stop();
}

/// Repeats a payload until both other clients received it, because datagrams may be lost.
fn send_until_received(speaker: &mut TestClient, words: &[u8], [one, other]: [&mut TestClient; 2]) {
    let mut turns = 0;
    until("received by both others", &mut [speaker, one, other], |clients| {
        if turns % 50 == 0 {
            clients[0].send(words);
        }
        turns += 1;
        clients[1..].iter().all(|client| client.has_received(words))
    });
}

#[test]
fn advertised_address_may_differ_from_the_bound_one() {
    let folder = TestFolder::new();
    // Simulates NAT: clients send to one address, and the server identifies itself by another.
    let server = Program::start(folder.on(&["0.0.0.0:0"], &["--advertise", "203.0.113.7:40000"]));
    let dialled = SocketAddr::from(([127, 0, 0, 1], server.address().port()));
    let internal = Some(vec!["203.0.113.7:40000".parse().unwrap()]);
    let token = super::client::TestToken { internal, ..super::client::TestToken::new(1, dialled) };
    TestClient::join_with(token.mint()).echo(b"through");
    server.stop();
}

#[cfg(target_os = "linux")]
#[test]
fn idle_server_uses_little_cpu_time() {
    let folder = TestFolder::new();
    let server = folder.start(&["--tick", "60"]);
    let spent = || -> u64 {
        // Fields 14 and 15 are user and system time in hundredths of a second; the name in field 2 may hold spaces.
        let stat = server.proc("stat");
        let fields = stat.rsplit_once(") ").unwrap().1.split(' ');
        fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
    };
    // On a busy machine a turn costs more, so the best of some attempts counts.
    let shares = std::iter::repeat_with(|| {
        let (before, start) = (spent(), std::time::Instant::now());
        std::thread::sleep(std::time::Duration::from_secs(2));
        (spent() - before) as f64 / 100.0 / start.elapsed().as_secs_f64()
    });
    let shares: Vec<_> = shares
        .take(10)
        .scan(false, |is_over, share| (!std::mem::replace(is_over, share <= 0.1)).then_some(share))
        .collect();
    assert!(shares.last().is_some_and(|share| *share <= 0.1), "shares of a processor: {shares:?}");
}
