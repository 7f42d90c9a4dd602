//! Every way in which a connection ends, and what each side says of it: the table of the client's README, line by line.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::client::{ClientState, ConnectError, EndReason};
use slipgate_netcode::server::ClientHandle;
use slipgate_session::channel::control::{ByeCode, VERSION};
use slipgate_session::channel::{ChannelConfig, Kind, Layout};
use slipgate_session::client;
use slipgate_session::server;
use slipgate_session::session::{Config, End, Memory, Traffic};
use slipgate_sim::Conditions;
use slipgate_tests::hall::Hall;
use slipgate_tests::liar::{Liar, Says, hello};
use slipgate_tests::world::{Collected, address};

const README: &str = include_str!("../../../client/README.md");

const SECOND: Duration = Duration::from_secs(1);

fn layout(kind: Kind) -> Arc<Layout> {
    Arc::new(Layout::new(vec![ChannelConfig::new(kind)]).unwrap())
}

fn hall(slots: u32) -> Hall {
    Hall::new(slots, &layout(Kind::ReliableOrdered), &Config::default(), Memory::default())
}

/// A hall with one player in it.
fn met() -> (Hall, ClientHandle) {
    let mut hall = hall(4);
    let client = hall.join(Conditions::perfect());
    hall.run_for(SECOND / 2);
    (hall, client)
}

/// The same without channels.
fn met_without_channels() -> (Hall, ClientHandle) {
    let mut hall = hall(4);
    hall.traffic = Traffic::Payloads;
    hall.server.set_traffic(Traffic::Payloads).unwrap();
    let client = hall.join(Conditions::perfect());
    (hall, client)
}

/// Who carries channels.
enum Side {
    Server,
    Client,
}

/// A hall in which only one of the two carries channels.
fn met_with_channels_on(side: Side) -> (Hall, ClientHandle) {
    let mut hall = hall(4);
    match side {
        Side::Server => hall.traffic = Traffic::Payloads,
        Side::Client => hall.server.set_traffic(Traffic::Payloads).unwrap(),
    }
    let client = hall.join(Conditions::perfect());
    hall.run_for(SECOND / 2);
    let ended = |hall: &mut Hall| hall.player(1).core.netcode().end_reason();
    assert_eq!(ended(&mut hall), None, "nothing ends before the other has said a word");
    (hall, client)
}

/// The same after a minute in which nobody says anything of his own.
fn found_out(side: Side) -> Hall {
    let (mut hall, _) = met_with_channels_on(side);
    hall.run_for(25 * SECOND);
    assert_eq!(hall.player(1).core.netcode().end_reason(), None, "nobody is found out so soon");
    hall.run_for(40 * SECOND);
    hall
}

/// A hall at which a player knocks with a token of so many seconds, after a time.
fn knocked_after(wait: Duration, lifetime: u32) -> (Hall, u64) {
    let mut hall = hall(4);
    let token = hall.token_for(1, lifetime);
    hall.run_for(wait);
    let player = hall.knock(Conditions::perfect(), token);
    (hall, player)
}

/// Nothing travels between the server and a player any more.
fn nowhere() -> Address {
    address("10.200.0.1:1")
}

/// The player says what no client of ours says.
fn lie_to_server(hall: &mut Hall, payloads: &[Vec<u8>]) {
    let now = hall.now().monotonic;
    let player = hall.player(1);
    for payload in payloads {
        let mut outbox = Collected::default();
        player.core.netcode_mut().send(payload, now, &mut outbox).unwrap();
        outbox.datagrams.iter().for_each(|(_, datagram)| player.link.up.push(datagram, now));
    }
}

/// The server says what no server of ours says.
fn lie_to_client(hall: &mut Hall, client: ClientHandle, payloads: &[Vec<u8>]) {
    let now = hall.now();
    for payload in payloads {
        let mut outbox = Collected::default();
        hall.server.netcode_mut().send(client, payload, now, &mut outbox).unwrap();
        for (_, datagram) in outbox.datagrams {
            hall.player(1).link.down.push(&datagram, now.monotonic);
        }
    }
}

/// Packets with a control message in them, so many that some are new to whoever has heard others.
fn packets(control: &[u8]) -> Vec<Vec<u8>> {
    let (mut liar, layout) = (Liar::default(), layout(Kind::ReliableOrdered).hash());
    (0..100).map(|_| liar.packet(Says { greets: None, ..Says::frames(layout, control) })).collect()
}

/// What a program without channels may say.
const PAYLOAD: &[u8] = &[1; 40];
const CUT_GREETING: &[u8] = &[0, 1, 3, 1, 1, 0];

/// What happens, in a hall of which the last player's end is looked at.
type Story = fn() -> Hall;

fn told(act: impl FnOnce(&mut Hall, ClientHandle)) -> Hall {
    let (mut hall, client) = met();
    act(&mut hall, client);
    hall
}

fn told_without_channels(act: impl FnOnce(&mut Hall, ClientHandle)) -> Hall {
    let (mut hall, client) = met_without_channels();
    act(&mut hall, client);
    hall
}

fn leaves() -> [(&'static str, Story); 2] {
    [
        ("`client.disconnect()`", || told(|hall, _| hall.player(1).core.disconnect())),
        ("`client.leave(ByeCode(300), \"good night\")`", || {
            told(|hall, _| hall.player(1).core.leave(ByeCode(300), "good night"))
        }),
    ]
}

fn kicks() -> [(&'static str, Story); 5] {
    [
        ("`server.kick(client, \"\")`", || told(|hall, client| assert!(hall.server.kick(client, ByeCode::KICKED, "")))),
        ("`server.kick(client, \"enough\")`", || {
            told(|hall, client| assert!(hall.server.kick(client, ByeCode::KICKED, "enough")))
        }),
        ("`server.kick_with(client, ByeCode(400), \"enough\")`", || {
            told(|hall, client| assert!(hall.server.kick(client, ByeCode(400), "enough")))
        }),
        ("`server.disconnect(client)`", || told(|hall, client| assert!(hall.server.disconnect(client)))),
        ("any kick, without channels", || {
            told_without_channels(|hall, client| assert!(hall.server.kick(client, ByeCode(400), "enough")))
        }),
    ]
}

fn stops() -> [(&'static str, Story); 3] {
    [
        ("`server.stop()`", || told(|hall, _| hall.server.stop())),
        ("`server.stop_with(\"until tomorrow\")`", || told(|hall, _| hall.server.stop_with("until tomorrow"))),
        ("any stop, without channels", || told_without_channels(|hall, _| hall.server.stop())),
    ]
}

fn refusals() -> [(&'static str, Story); 7] {
    [
        ("every slot is taken", || {
            let mut hall = hall(1);
            hall.join(Conditions::perfect());
            let token = hall.token(2);
            hall.knock(Conditions::perfect(), token);
            hall
        }),
        ("the server admits nobody: `set_admitting(false)`, a drain", || {
            let (mut hall, _) = knocked_after(Duration::ZERO, 45);
            hall.server.netcode_mut().set_admitting(false);
            hall
        }),
        ("another program has used the token", || {
            let mut hall = hall(4);
            let token = hall.token(1);
            let first = hall.knock(Conditions::perfect(), token.clone());
            hall.run_for(SECOND);
            let first = hall.player(first);
            // It has left, so that only the token stands in the way.
            assert!(first.core.netcode().state().is_connected());
            first.core.disconnect();
            hall.run_for(SECOND);
            hall.knock(Conditions::perfect(), token);
            hall
        }),
        ("this program has used the token", || {
            let mut hall = hall(4);
            let token = hall.token(1);
            hall.knock(Conditions::perfect(), token.clone());
            hall.run_for(SECOND);
            let now = hall.now().monotonic;
            let core = &mut hall.player(1).core;
            core.disconnect();
            while core.poll_event().is_some() {}
            assert_eq!(core.connect(token, now, |_| true), Err(ConnectError::TokenUsed));
            hall
        }),
        ("the token has expired before it came", || knocked_after(46 * SECOND, 45).0),
        ("the token expires while nobody answers", || knocked_after(4 * SECOND, 3).0),
        ("the path breaks behind the challenge", || {
            let (mut hall, player) = knocked_after(Duration::ZERO, 45);
            while hall.player(player).core.netcode().state() != ClientState::SendingResponse {
                hall.turn();
            }
            hall.player(player).address = nowhere();
            hall
        }),
    ]
}

fn troubles() -> [(&'static str, Story); 10] {
    [
        ("the path breaks, or one side crashes", || told(|hall, _| hall.player(1).address = nowhere())),
        ("the two sides have other channels", || {
            let mut hall = hall(4);
            hall.traffic = Traffic::channels((*layout(Kind::Sequenced)).clone());
            hall.join(Conditions::perfect());
            hall
        }),
        ("the client speaks a version of the session layer that the server does not", || {
            let control = hello(VERSION + 1, layout(Kind::ReliableOrdered).hash());
            told(|hall, _| lie_to_server(hall, &packets(&control)))
        }),
        ("the client carries no channels", || {
            let (mut hall, _) = met_with_channels_on(Side::Server);
            lie_to_server(&mut hall, &[PAYLOAD.to_vec()]);
            hall
        }),
        ("the server carries no channels", || {
            let (mut hall, client) = met_with_channels_on(Side::Client);
            lie_to_client(&mut hall, client, &[PAYLOAD.to_vec()]);
            hall
        }),
        ("the client carries no channels, and says nothing", || found_out(Side::Server)),
        ("the server carries no channels, and says nothing", || found_out(Side::Client)),
        ("the client breaks the rules", || told(|hall, _| lie_to_server(hall, &packets(CUT_GREETING)))),
        ("the server breaks the rules", || told(|hall, client| lie_to_client(hall, client, &packets(CUT_GREETING)))),
        ("a socket fails for a moment", || {
            told(|hall, _| {
                // What the system refuses to send is gone, as if it were lost on the way.
                let home = std::mem::replace(&mut hall.player(1).address, nowhere());
                hall.run_for(SECOND);
                hall.player(1).address = home;
            })
        }),
    ]
}

/// The last words, as the table has them.
fn words(end: Option<&End>) -> String {
    match end.and_then(End::code) {
        None => "".to_owned(),
        Some(code) => format!("{} \"{}\"", code.0, end.unwrap().text()),
    }
}

/// What both sides say of the last player's end, as a line of the table.
fn line(what: &str, hall: &mut Hall) -> String {
    hall.run_for(8 * SECOND);
    let id = hall.players.len() as u64;
    let core = &hall.player(id).core;
    let (reason, here) = (core.netcode().end_reason(), words(core.end()));
    // The event, the state and the words are of one end.
    let events = hall.players[id as usize - 1].events.iter();
    let event = events.rev().find_map(|event| match event {
        client::Event::Ended { reason } => Some(*reason),
        _ => None,
    });
    assert!(event.is_none() || event == reason, "{what}: {event:?}, {reason:?}");
    let there = hall.events.iter().rev().find_map(|event| match event {
        server::Event::Disconnected { client, client_id, reason } if *client_id == id => Some((*client, *reason)),
        _ => None,
    });
    let said = there.map_or_else(String::new, |(client, _)| words(hall.server.end(client)));
    let name = |name: Option<String>| name.map_or_else(String::new, |name| format!("`{name}`"));
    let (here_reason, there_reason) =
        (name(reason.map(|reason| format!("{reason:?}"))), name(there.map(|(_, reason)| format!("{reason:?}"))));
    let cells = [what, &here_reason, &here, &there_reason, &said];
    cells.map(|cell| if cell.is_empty() { "|".to_owned() } else { format!("| {cell} ") }).concat() + "|"
}

#[test]
fn both_sides_of_every_end_say_what_the_table_says() {
    let stories = leaves().into_iter().chain(kicks()).chain(stops()).chain(refusals()).chain(troubles());
    let found: Vec<String> = stories.map(|(what, story)| line(what, &mut story())).collect();
    let told: Vec<&str> = README.lines().skip_while(|line| !line.starts_with("| what happens |")).skip(2).collect();
    let told: Vec<&str> = told.into_iter().take_while(|line| line.starts_with('|')).collect();
    assert_eq!(found, told, "the table in client/README.md should be\n{}\n", found.join("\n"));
}

#[test]
fn every_reason_has_its_sentence_in_the_readme() {
    for reason in EndReason::ALL {
        let line = format!("| `{reason:?}` | {reason} |");
        assert!(README.lines().any(|told| told == line), "{line}");
    }
}

#[test]
fn what_was_said_at_an_end_is_not_said_of_the_next_one() {
    let (mut hall, client) = met();
    hall.server.kick(client, ByeCode(400), "enough");
    hall.run_for(SECOND);
    let kicked = hall.player(1).core.netcode().end_reason();
    assert_eq!((kicked, hall.player(1).core.farewell()), (Some(EndReason::Kicked), Some("enough")));
    let (token, now) = (hall.token(9), hall.now().monotonic);
    hall.server.netcode_mut().set_admitting(false);
    hall.player(1).core.connect(token, now, |_| true).unwrap();
    let core = &hall.player(1).core;
    assert_eq!((core.end(), core.farewell()), (None, None));
    hall.run_for(SECOND);
    let core = &hall.player(1).core;
    assert_eq!(core.netcode().end_reason(), Some(EndReason::Denied));
    assert_eq!((core.end(), core.farewell()), (None, None));
    let last = &hall.players[0].events;
    assert!(matches!(last[..], [.., client::Event::Ended { reason: EndReason::Denied }]), "{last:?}");
}

#[test]
fn nobody_can_be_told_a_reason_that_is_the_sessions_own() {
    for code in [1, 2, 3, 5, 255].map(ByeCode) {
        let (mut hall, client) = met();
        hall.server.kick(client, code, "");
        hall.run_for(SECOND);
        assert_eq!(hall.server.end(client), Some(&End::Left { code: ByeCode::KICKED, text: String::new() }));
        assert_eq!(hall.player(1).core.netcode().end_reason(), Some(EndReason::Kicked), "{code:?}");
    }
}
