//! The verdict and the picture, with reports made by hand.

use slipgate::protocol::discard::Discard;

use super::*;

/// Three clients that were served, and whose echoes were right.
fn all_well() -> (Picture, ServerReport) {
    let client = |client_id| {
        let mut client = ClientReport { client_id, ..ClientReport::default() };
        (client.probe.was_connected, client.probe.sent, client.probe.right) = (true, 60, 60);
        client
    };
    let mut server = ServerReport { slots: 3, ..ServerReport::default() };
    (server.stats.connects, server.stats.disconnects) = (3, 3);
    (Picture { clients: (1..=3).map(client).collect(), server }, server)
}

fn screen(style: Style) -> Screen {
    Screen { style, drawn_lines: 0, next_line: Instant::now() }
}

/// One thing that goes wrong for a client, and at the server's end.
type Spoil = fn(&mut ClientReport, &mut ServerReport);

#[test]
fn all_is_well_only_if_every_client_was_served_and_every_echo_was_right() {
    let cases: [(&str, Spoil); 7] = [
        ("not served", |client, _| client.probe.was_connected = false),
        ("nothing sent", |client, _| (client.probe.sent, client.probe.right) = (0, 0)),
        ("a wrong echo", |client, _| client.probe.wrong = 1),
        ("a missing echo", |client, _| client.probe.right -= 1),
        ("trouble", |client, _| client.trouble = Some("no token".to_owned())),
        ("still connected", |_, end| end.connected = 1),
        ("a goodbye unheard", |_, end| end.stats.disconnects -= 1),
    ];
    for style in [Style::Lines, Style::Json] {
        let (picture, end) = all_well();
        assert!(screen(style).summarise(&picture, &end).is_ok());
        for (name, spoil) in cases {
            let (mut picture, mut end) = all_well();
            spoil(&mut picture.clients[1], &mut end);
            assert!(screen(style).summarise(&picture, &end).is_err(), "{name}");
        }
    }
}

#[test]
fn the_table_shows_drops_by_reason() {
    let (mut picture, _) = all_well();
    assert_eq!(picture.table(30).last().map(String::as_str), Some("dropped   none"));
    picture.server.discards.add(Discard::TooShort);
    picture.server.discards.add(Discard::TooShort);
    picture.server.discards.add(Discard::UnknownType);
    let (short, unknown) = (Discard::TooShort, Discard::UnknownType);
    let expected = format!("dropped   {short} 2, {unknown} 1");
    assert_eq!(picture.table(30).last(), Some(&expected));
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
