//! The verdict and the picture, with reports made by hand.

use slipgate_netcode::discard::Discard;

use super::super::clients::ClientReport;
use super::super::game::Rules;
use super::super::seats::SeatReport;
use super::*;

/// Three clients that were served, and everything came through.
fn all_well() -> (Picture, ServerReport) {
    let client = |client_id| {
        let mut client = ClientReport { client_id, ..ClientReport::default() };
        let player = &mut client.player;
        player.slot = Some(client_id as u32 - 1);
        (player.chat.said, player.chat.back, player.states.received, player.map.whole) = (8, 8, 600, 1);
        client
    };
    let seats = (1..=3).map(|client_id| SeatReport { client_id, states_sent: 610, ..SeatReport::default() }).collect();
    let mut server = ServerReport { slots: 3, seats, ..ServerReport::default() };
    (server.stats.connects, server.stats.disconnects) = (3, 3);
    let rules = Rules::new(60, 1).expect("the settings are sound");
    (Picture::new((1..=3).map(client).collect(), server.clone(), &rules), server)
}

fn screen(style: Style) -> Screen {
    Screen { style, drawn_lines: 0, next_line: Instant::now() }
}

/// One thing that goes wrong for a client, and at the server's end.
type Spoil = fn(&mut ClientReport, &mut SeatReport, &mut ServerReport);

#[test]
fn all_is_well_only_if_every_client_was_served_and_everything_came_through() {
    let cases: [(&str, Spoil); 14] = [
        ("not served", |client, _, _| client.player.slot = None),
        ("nothing said", |client, _, _| (client.player.chat.said, client.player.chat.back) = (0, 0)),
        ("a wrong line", |client, _, _| client.player.chat.wrong = 1),
        ("a missing line", |client, _, _| client.player.chat.back -= 1),
        ("no state", |client, _, _| client.player.states.received = 0),
        ("an older state", |client, _, _| client.player.states.wrong = 1),
        ("no map", |client, _, _| client.player.map.whole = 0),
        ("two maps", |client, _, _| client.player.map.whole = 2),
        ("another map", |client, _, _| client.player.map.wrong = 1),
        ("trouble", |client, _, _| client.trouble = Some("no token".to_owned())),
        ("a wrong line at the server", |_, seat, _| seat.wrong_lines = 1),
        ("an older state at the server", |_, seat, _| seat.states.wrong = 1),
        ("still connected", |_, _, end| end.connected = 1),
        ("a goodbye unheard", |_, _, end| end.stats.disconnects -= 1),
    ];
    for style in [Style::Lines, Style::Json] {
        let (picture, end) = all_well();
        assert!(screen(style).summarise(&picture, &end).is_ok());
        for (name, spoil) in cases {
            let (mut picture, mut end) = all_well();
            let entry = &mut picture.clients[1];
            spoil(&mut entry.client, &mut entry.seat, &mut end);
            assert!(screen(style).summarise(&picture, &end).is_err(), "{name}");
        }
    }
}

#[test]
fn the_table_shows_each_client_all_together_and_drops_by_reason() {
    let (mut picture, _) = all_well();
    let table = picture.table(2);
    assert!(table[1].contains(" 8/8 ") && table[1].contains(" 600/610 ") && table[1].contains("whole"), "{table:?}");
    assert!(table[3].ends_with("… and 1 more"), "{table:?}");
    assert!(
        table[4].contains(" 24/24 ") && table[4].contains(" 1800/1830 ") && table[4].contains(" 3/3 "),
        "{table:?}"
    );
    assert_eq!(table.last().map(String::as_str), Some("dropped   none"));
    picture.server.discards.add(Discard::TooShort);
    picture.server.discards.add(Discard::TooShort);
    picture.server.discards.add(Discard::UnknownType);
    let (short, unknown) = (Discard::TooShort, Discard::UnknownType);
    let expected = format!("dropped   {short} 2, {unknown} 1");
    assert_eq!(picture.table(30).last(), Some(&expected));
}

#[test]
fn drops_that_belong_to_a_bad_line_are_explained_as_soon_as_there_are_any() {
    let (mut picture, _) = all_well();
    let repeated = "          address_connected: a request or response that was repeated and came late";
    let left = "          unknown_sender: a last packet of a client that had left";
    picture.server.discards.add(Discard::TooShort);
    assert_eq!(picture.legend().count(), 0);
    picture.server.discards.add(Discard::UnknownSender);
    assert!(picture.legend().eq([left]));
    picture.server.discards.add(Discard::AddressConnected);
    let table = picture.table(30);
    let drops = "dropped   too_short 1, unknown_sender 1, address_connected 1";
    assert_eq!(table[table.len() - 3..], [drops, repeated, left]);
    // The heading, the clients and the rest fit a small terminal, so that the next picture lies over this one.
    let (mut screen, mut out, height) = (screen(Style::Table), Vec::new(), OTHER_LINES + 3);
    screen.draw_table(&picture, Some((120, height)), &mut out).expect("a vector takes everything");
    assert_eq!(screen.drawn_lines, height - 1);
}

#[test]
fn a_terminal_without_a_size_is_taken_for_a_usual_one_and_its_cursor_is_never_hidden() {
    let (picture, _) = all_well();
    let drawn = |size| {
        let (mut screen, mut out) = (screen(Style::Table), Vec::new());
        for _ in 0..2 {
            screen.draw_table(&picture, size, &mut out).expect("a vector takes everything");
        }
        String::from_utf8(out).expect("text")
    };
    assert_eq!(drawn(Some((0, 0))), drawn(Some(USUAL_SIZE)));
    assert_eq!(drawn(None), drawn(Some(USUAL_SIZE)));
    assert!(drawn(None).contains("round trip") && !drawn(None).contains("\u{1b}[?25l"));
}

#[test]
fn a_terminal_that_takes_no_control_sequences_gets_plain_lines() {
    let term = |name| Some(OsStr::new(name));
    assert_eq!(Style::choose(false, true, term("xterm")), Style::Table);
    assert_eq!(Style::choose(false, true, None), Style::Table);
    assert_eq!(Style::choose(false, true, term("dumb")), Style::Lines);
    assert_eq!(Style::choose(false, false, term("xterm")), Style::Lines);
    assert_eq!(Style::choose(true, true, term("xterm")), Style::Json);
}
