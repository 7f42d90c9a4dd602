//! The outcome and the display, with hand-made reports.

use slipgate_netcode::discard::Discard;
use slipgate_netcode::ids::ClientId;

use super::super::clients::ClientReport;
use super::super::game::GameSettings;
use super::super::server_game::ServerSideReport;
use super::*;

/// Returns reports of three clients that were served and received everything.
pub(in super::super) fn perfect_run() -> (DemoSnapshot, ServerReport) {
    let client = |client_id: u32| {
        let mut client = ClientReport { client_id: ClientId(client_id.into()), ..ClientReport::default() };
        let player = &mut client.player;
        player.slot = Some(client_id - 1);
        (player.chat.sent, player.chat.returned, player.states.received, player.map.complete) = (8, 8, 600, 1);
        client
    };
    let clients = (1..=3)
        .map(|client_id| ServerSideReport {
            client_id: ClientId(client_id),
            states_sent: 610,
            ..ServerSideReport::default()
        })
        .collect();
    let mut server = ServerReport { slots: 3, clients, ..ServerReport::default() };
    (server.stats.connects, server.stats.disconnects) = (3, 3);
    let settings = GameSettings::new(60, 1).expect("the settings are sound");
    (DemoSnapshot::new((1..=3).map(client).collect(), server.clone(), &settings), server)
}

fn outcome(style: Style, snapshot: &DemoSnapshot, end: &ServerReport) -> Result<(), Failure> {
    DemoScreen::new(style).summarise(snapshot, end, Ending::Complete)
}

/// Changes a report of a perfect run so that one thing is wrong.
type Fault = fn(&mut ClientReport, &mut ServerSideReport, &mut ServerReport);

#[test]
fn outcome_is_ok_only_if_every_check_of_every_client_passed() {
    let cases: [(&str, Fault); 17] = [
        ("not served", |client, _, _| client.player.slot = None),
        ("nothing sent", |client, _, _| (client.player.chat.sent, client.player.chat.returned) = (0, 0)),
        ("a wrong line", |client, _, _| client.player.chat.wrong = 1),
        ("a missing line", |client, _, _| client.player.chat.returned -= 1),
        ("no state", |client, _, _| client.player.states.received = 0),
        ("an older state", |client, _, _| client.player.states.wrong = 1),
        ("no map", |client, _, _| client.player.map.complete = 0),
        ("two maps", |client, _, _| client.player.map.complete = 2),
        ("another map", |client, _, _| client.player.map.wrong = 1),
        ("error", |client, _, _| client.error = Some("no token".to_owned())),
        ("a wrong line at the server", |_, at_server, _| at_server.wrong_lines = 1),
        ("a lost connection", |client, _, _| client.past.lost = 1),
        ("a wrong message in an earlier session", |client, _, _| client.past.wrong = 1),
        ("a wrong message of a former connection", |_, _, server| server.past_wrong = 1),
        ("an older state at the server", |_, at_server, _| at_server.states.wrong = 1),
        ("still connected", |_, _, end| end.connected = 1),
        ("a disconnect that the server did not notice", |_, _, end| end.stats.disconnects -= 1),
    ];
    for style in [Style::Lines, Style::Json] {
        let (snapshot, end) = perfect_run();
        assert!(outcome(style, &snapshot, &end).is_ok());
        for (name, inject) in cases {
            let (mut snapshot, mut end) = perfect_run();
            let entry = &mut snapshot.clients[1];
            inject(&mut entry.client, &mut entry.at_server, &mut end);
            assert!(outcome(style, &snapshot, &end).is_err(), "{name}");
        }
    }
}

#[test]
fn session_that_was_cut_need_not_be_complete() {
    let (mut snapshot, end) = perfect_run();
    let client = &mut snapshot.clients[0].client;
    (client.player.map.complete, client.player.chat.sent) = (0, 9);
    assert!(snapshot.outcome(&end, Ending::Complete).is_err());
    assert!(snapshot.outcome(&end, Ending::CutShort).is_ok(), "the person did not wait");
    // The player was kicked and is not back.
    snapshot.clients[0].client.past.count = 1;
    assert!(snapshot.outcome(&end, Ending::Complete).is_ok());
    let summary = snapshot.summary(true, Ending::Complete);
    assert!(summary.contains("except to players that were on their way back: 3 of 3 clients"), "{summary}");
    assert!(summary.contains("2 of 3 maps complete"), "{summary}");
    let complete = perfect_run().0.summary(true, Ending::Complete);
    assert!(complete.contains("every reliable message arrived: 3 of 3 clients"), "{complete}");
    snapshot.clients[0].client.past.wrong = 1;
    assert!(snapshot.outcome(&end, Ending::CutShort).is_err());
}

#[test]
fn expected_drops_are_explained_once_they_occur() {
    let (mut snapshot, _) = perfect_run();
    let repeated =
        "          address_connected: a repeated handshake packet that arrived after the client was connected";
    let left = "          connection_ended: a last packet of a client that had disconnected";
    snapshot.server.discards += Discard::TooShort;
    assert_eq!(snapshot.legend().count(), 0);
    snapshot.server.discards += Discard::ConnectionEnded;
    assert!(snapshot.legend().eq([left]));
    snapshot.server.discards += Discard::AddressConnected;
    assert!(snapshot.legend().eq([repeated, left]));
    let drops = "dropped: too_short 1, connection_ended 1, address_connected 1";
    assert!(snapshot.line().ends_with(drops), "{}", snapshot.line());
}

#[test]
fn only_a_terminal_with_a_cursor_gets_the_live_screen() {
    let of = |terminal, term: Option<&str>| Style::of_terminal(terminal, term.map(OsStr::new));
    assert_eq!(of(Terminal::Present, Some("xterm")), Style::Live);
    assert_eq!(of(Terminal::Present, None), Style::Live);
    assert_eq!(of(Terminal::Present, Some("dumb")), Style::Lines);
    assert_eq!(of(Terminal::Absent, Some("xterm")), Style::Lines);
}
