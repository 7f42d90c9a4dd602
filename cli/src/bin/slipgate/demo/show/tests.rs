//! The outcome and the display, with hand-made reports.

use slipgate_netcode::discard::Discard;

use super::super::clients::ClientReport;
use super::super::game::GameSettings;
use super::super::server_game::ServerSideReport;
use super::*;

/// Returns reports of three clients that were served and received everything.
fn perfect_run() -> (Snapshot, ServerReport) {
    let client = |client_id| {
        let mut client = ClientReport { client_id, ..ClientReport::default() };
        let player = &mut client.player;
        player.slot = Some(client_id as u32 - 1);
        (player.chat.sent, player.chat.returned, player.states.received, player.map.complete) = (8, 8, 600, 1);
        client
    };
    let clients = (1..=3)
        .map(|client_id| ServerSideReport { client_id, states_sent: 610, ..ServerSideReport::default() })
        .collect();
    let mut server = ServerReport { slots: 3, clients, ..ServerReport::default() };
    (server.stats.connects, server.stats.disconnects) = (3, 3);
    let settings = GameSettings::new(60, 1).expect("the settings are sound");
    (Snapshot::new((1..=3).map(client).collect(), server.clone(), &settings), server)
}

fn screen(style: Style) -> Screen {
    Screen { style, drawn_lines: 0, next_line: Instant::now() }
}

/// Changes a report of a perfect run so that one thing is wrong.
type Fault = fn(&mut ClientReport, &mut ServerSideReport, &mut ServerReport);

#[test]
fn outcome_is_ok_only_if_every_check_of_every_client_passed() {
    let cases: [(&str, Fault); 14] = [
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
        ("an older state at the server", |_, at_server, _| at_server.states.wrong = 1),
        ("still connected", |_, _, end| end.connected = 1),
        ("a disconnect that the server did not notice", |_, _, end| end.stats.disconnects -= 1),
    ];
    for style in [Style::Lines, Style::Json] {
        let (snapshot, end) = perfect_run();
        assert!(screen(style).summarise(&snapshot, &end).is_ok());
        for (name, inject) in cases {
            let (mut snapshot, mut end) = perfect_run();
            let entry = &mut snapshot.clients[1];
            inject(&mut entry.client, &mut entry.at_server, &mut end);
            assert!(screen(style).summarise(&snapshot, &end).is_err(), "{name}");
        }
    }
}

#[test]
fn table_shows_each_client_their_sum_and_drops_by_reason() {
    let (mut snapshot, _) = perfect_run();
    let table = snapshot.table(2);
    assert!(table[1].contains(" 8/8 ") && table[1].contains(" 600/610 ") && table[1].contains("complete"), "{table:?}");
    assert!(table[3].ends_with("… and 1 more"), "{table:?}");
    assert!(
        table[4].contains(" 24/24 ") && table[4].contains(" 1800/1830 ") && table[4].contains(" 3/3 "),
        "{table:?}"
    );
    assert_eq!(table.last().map(String::as_str), Some("dropped   none"));
    snapshot.server.discards.add(Discard::TooShort);
    snapshot.server.discards.add(Discard::TooShort);
    snapshot.server.discards.add(Discard::UnknownType);
    let (short, unknown) = (Discard::TooShort, Discard::UnknownType);
    let expected = format!("dropped   {short} 2, {unknown} 1");
    assert_eq!(snapshot.table(30).last(), Some(&expected));
}

#[test]
fn expected_drops_are_explained_once_they_occur() {
    let (mut snapshot, _) = perfect_run();
    let repeated =
        "          address_connected: a repeated handshake packet that arrived after the client was connected";
    let left = "          unknown_sender: a last packet of a client that had disconnected";
    snapshot.server.discards.add(Discard::TooShort);
    assert_eq!(snapshot.legend().count(), 0);
    snapshot.server.discards.add(Discard::UnknownSender);
    assert!(snapshot.legend().eq([left]));
    snapshot.server.discards.add(Discard::AddressConnected);
    let table = snapshot.table(30);
    let drops = "dropped   too_short 1, unknown_sender 1, address_connected 1";
    assert_eq!(table[table.len() - 3..], [drops, repeated, left]);
    // All lines must fit a small terminal, or the next table would not be drawn exactly over this one.
    let (mut screen, mut out, height) = (screen(Style::Table), Vec::new(), OTHER_LINES + 3);
    screen.draw_table(&snapshot, Some((120, height)), &mut out).expect("a vector takes everything");
    assert_eq!(screen.drawn_lines, height - 1);
}

#[test]
fn terminal_without_a_size_gets_the_default_size_and_a_cursor() {
    let (snapshot, _) = perfect_run();
    let drawn = |size| {
        let (mut screen, mut out) = (screen(Style::Table), Vec::new());
        for _ in 0..2 {
            screen.draw_table(&snapshot, size, &mut out).expect("a vector takes everything");
        }
        String::from_utf8(out).expect("text")
    };
    assert_eq!(drawn(Some((0, 0))), drawn(Some(DEFAULT_SIZE)));
    assert_eq!(drawn(None), drawn(Some(DEFAULT_SIZE)));
    assert!(drawn(None).contains("round trip") && !drawn(None).contains("\u{1b}[?25l"));
}

#[test]
fn dumb_terminal_gets_plain_lines() {
    let term = |name| Some(OsStr::new(name));
    assert_eq!(Style::choose(false, true, term("xterm")), Style::Table);
    assert_eq!(Style::choose(false, true, None), Style::Table);
    assert_eq!(Style::choose(false, true, term("dumb")), Style::Lines);
    assert_eq!(Style::choose(false, false, term("xterm")), Style::Lines);
    assert_eq!(Style::choose(true, true, term("xterm")), Style::Json);
}
