//! Echo and relay, over IPv4, IPv6 and both.

use std::net::SocketAddr;

use super::player::{Player, until};
use super::program::{Place, Program};

#[test]
fn each_client_hears_what_it_said_over_either_family_and_over_both() {
    for binds in [&["127.0.0.1:0"][..], &["[::1]:0"], &["127.0.0.1:0", "[::1]:0"]] {
        let place = Place::new();
        let server = Program::start(place.on(binds, &[]));
        let addresses = server.addresses();
        assert_eq!(addresses.len(), binds.len());
        assert_eq!(server.fact("advertise"), server.fact("bind"));
        let mut players: Vec<_> = (0..4).map(|id| Player::join(id, addresses[id as usize % addresses.len()])).collect();
        for (id, player) in players.iter_mut().enumerate() {
            for length in [1, 2, 600, 1199, 1200] {
                player.echo(&vec![id as u8; length]);
            }
        }
        for (id, player) in players.iter().enumerate() {
            assert!(player.heard.iter().flatten().all(|byte| *byte == id as u8), "it heard another's words");
        }
        let log = server.stop();
        assert_eq!(log.matches("client connected").count(), 4, "{log}");
        assert_eq!(log.matches("reason=\"server_stopped\"").count(), 4, "{log}");
    }
}

#[test]
fn a_relay_tells_all_others_what_one_client_says() {
    let place = Place::new();
    let server = place.start(&["--app", "relay"]);
    let [mut one, mut two, mut three] = [1, 2, 3].map(|id| Player::join(id, server.address()));
    speak_until_heard(&mut one, b"of one", [&mut two, &mut three]);
    speak_until_heard(&mut two, b"of two", [&mut one, &mut three]);
    assert!(!one.has_heard(b"of one") && !two.has_heard(b"of two"), "nobody hears their own words");

    three.leave();
    server.wait_for("reason=\"left\"");
    let mut four = Player::join(4, server.address());
    speak_until_heard(&mut one, b"to those who are left", [&mut two, &mut four]);
    assert!(!three.has_heard(b"to those who are left") && !four.has_heard(b"of one"));
    server.stop();
}

/// Says something until both others have heard it: datagrams may be lost.
fn speak_until_heard(speaker: &mut Player, words: &[u8], [one, other]: [&mut Player; 2]) {
    let mut turns = 0;
    until("heard by both others", &mut [speaker, one, other], |players| {
        if turns % 50 == 0 {
            players[0].say(words);
        }
        turns += 1;
        players[1..].iter().all(|player| player.has_heard(words))
    });
}

#[test]
fn the_address_that_is_advertised_may_be_another_than_the_bound_one() {
    let place = Place::new();
    // As behind NAT: the players dial one address, and the server knows itself by another.
    let server = Program::start(place.on(&["0.0.0.0:0"], &["--advertise", "203.0.113.7:40000"]));
    let dialled = SocketAddr::from(([127, 0, 0, 1], server.address().port()));
    let internal = Some(vec!["203.0.113.7:40000".parse().unwrap()]);
    let ticket = super::player::Ticket { internal, ..super::player::Ticket::new(1, dialled) };
    Player::join_with(ticket.mint()).echo(b"through");
    server.stop();
}

#[cfg(target_os = "linux")]
#[test]
fn an_idle_server_sleeps() {
    let place = Place::new();
    let server = place.start(&["--tick", "60"]);
    let spent = || -> u64 {
        // Fields 14 and 15, user and system time, in hundredths of a second; the name in field 2 may hold spaces.
        let stat = server.proc("stat");
        let fields = stat.rsplit_once(") ").unwrap().1.split(' ');
        fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
    };
    let before = spent();
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(spent() - before <= 20, "{} of 200 hundredths", spent() - before);
}
