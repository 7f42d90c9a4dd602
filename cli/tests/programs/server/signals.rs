//! Stopping with and without patience, and reading keys anew.

use slipgate_client::EndReason;

use super::player::{Player, Ticket, until};
use super::program::{OTHER_KEY, PRIVATE_KEY, Place, Program};

#[test]
fn with_nobody_there_it_ends_at_once() {
    for signal in ["-TERM", "-INT"] {
        let place = Place::new();
        let server = place.start(&["--drain", "1h"]);
        server.signal(signal);
        let (code, log) = server.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("connects=0"), "{log}");
    }
}

#[test]
fn while_it_drains_newcomers_are_denied_and_the_others_talk_on_until_they_leave() {
    let place = Place::new();
    let mut server = place.start(&["--drain", "1h"]);
    let address = server.address();
    let mut old = Player::join(1, address);
    server.signal("-TERM");
    server.wait_for("stopping");
    let mut new = Player::new(Ticket::new(2, address).mint());
    until("denied", &mut [&mut old, &mut new], |players| players[1].ended.is_some());
    assert_eq!(new.ended, Some(EndReason::Denied));
    old.echo(b"the old one talks on");
    assert!(server.is_running());
    old.leave();
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("reason=\"left\"") && log.contains("denied="), "{log}");
}

#[test]
fn when_its_patience_is_over_it_disconnects_the_rest() {
    let place = Place::new();
    let server = place.start(&["--drain", "300ms"]);
    let [mut one, mut other] = [1, 2].map(|id| Player::join(id, server.address()));
    server.signal("-INT");
    until("disconnected", &mut [&mut one, &mut other], |players| players.iter().all(|player| player.ended.is_some()));
    assert_eq!([one.ended, other.ended], [Some(EndReason::DisconnectedByServer); 2]);
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.matches("reason=\"server_stopped\"").count(), 2, "{log}");
}

#[test]
fn a_second_signal_does_not_wait() {
    let place = Place::new();
    let server = place.start(&["--drain", "1h"]);
    let mut player = Player::join(1, server.address());
    server.signal("-TERM");
    server.wait_for("stopping");
    server.signal("-TERM");
    player.until("disconnected", |player| player.ended.is_some());
    assert_eq!(player.ended, Some(EndReason::DisconnectedByServer));
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn sighup_rotates_the_keys_and_drops_nobody() {
    let place = Place::new();
    let server = place.start(&[]);
    let address = server.address();
    let join = |id, key| Player::join_with(Ticket { key, ..Ticket::new(id, address) }.mint());
    let refuse = |id, key| Player::fail(Ticket { key, ..Ticket::new(id, address).impatient() }.mint());
    let mut first = join(1, PRIVATE_KEY);
    refuse(2, OTHER_KEY);

    place.write("keys", format!("{OTHER_KEY}\n{PRIVATE_KEY}\n"), 0o600);
    server.signal("-HUP");
    server.wait_for("path=keys keys=2");
    let mut second = join(2, OTHER_KEY);
    let mut third = join(3, PRIVATE_KEY);

    place.write("keys", OTHER_KEY, 0o600);
    server.signal("-HUP");
    server.wait_for("path=keys keys=1");
    refuse(4, PRIVATE_KEY);
    for player in [&mut first, &mut second, &mut third] {
        player.echo(b"still here");
    }
    let log = server.stop();
    assert_eq!(log.matches("was read anew").count(), 2, "{log}");
    assert_eq!(log.matches("does not open with any").count(), 1, "{log}");
}

#[test]
fn a_bad_key_file_or_none_keeps_the_old_keys_and_warns() {
    let place = Place::new();
    let server = place.start(&[]);
    for (content, mode, part) in [("junk", 0o600, "line 1 is not a key"), (OTHER_KEY, 0o644, "mode 0644")] {
        place.write("keys", content, mode);
        server.signal("-HUP");
        assert!(server.wait_for(part).contains("the old keys stay"));
    }
    Player::join(1, server.address()).echo(b"the old key opens");
    server.stop();

    let mut command = place.bare(&["--protocol-id", "0x1234", "--bind", "127.0.0.1:0"]);
    command.env("SLIPGATE_PRIVATE_KEY", PRIVATE_KEY);
    let server = Program::start(command);
    server.signal("-HUP");
    server.wait_for("come from the environment");
    Player::join(1, server.address()).echo(b"the old key opens");
    server.stop();
}
