//! The screen in all sizes, from hand-made reports.

use std::collections::BTreeSet;

use slipgate_client::ClientState;
use slipgate_netcode::discard::Discard;
use slipgate_sim::Preset;

use super::super::super::flood::FloodCount;
use super::super::super::show::tests::perfect_run;
use super::drops as drops_row;
use super::*;

/// Returns a run that has something to show in each part of the screen.
fn busy_run() -> (DemoSnapshot, History, Instant) {
    let (mut snapshot, _) = perfect_run();
    for entry in &mut snapshot.clients {
        entry.client.player.state = ClientState::Connected;
    }
    for _ in 0..12 {
        let entry = snapshot.clients[0].clone();
        snapshot.clients.push(entry);
    }
    snapshot.clients[1].client.error = Some("cannot open a socket: too many open files in this process".to_owned());
    snapshot.server.discards += Discard::UnknownSender;
    snapshot.server.discards += Discard::AddressConnected;
    snapshot.server.dropped_by_system = Some(1_234_567);
    let start = Instant::now();
    let mut history = History::new(start);
    for second in 0..100 {
        let now = start + Duration::from_secs(second);
        // The samples are late by up to 300 ms, which must not change the rate.
        let flood = FloodCount { sent: 100_000 * second, until: now };
        history.update(&snapshot, (second > 50).then_some(flood), now + Duration::from_millis(second % 4 * 100));
    }
    history.add_event(start, "Player 1003 is kicked and reads: \"Please be kind in the chat.\"".to_owned());
    history.add_event(start, "Restart 12: 0.01 s without a server, all 8 players back after 0.12 s.".to_owned());
    (snapshot, history, start + Duration::from_secs(100))
}

fn screen(width: usize, height: usize) -> Vec<String> {
    let (snapshot, history, now) = busy_run();
    let line = Line(Some(Preset::DslBufferbloat));
    let addresses = "issuer http://127.0.0.1:40047 (HTTP)   server 127.0.0.1:60793 (UDP)";
    let view = View { snapshot: &snapshot, history: &history, line, addresses, now };
    rows(&view, width, height).iter().map(ScreenRow::text).collect()
}

/// Returns the words of a screen, without bars.
fn words(screen: &[String]) -> BTreeSet<String> {
    let is_bar = |word: &str| word.chars().all(|character| BARS.contains(&character) || "░…".contains(character));
    let words = screen.iter().flat_map(|row| row.split_whitespace());
    words.map(|word| word.trim_end_matches(',').to_owned()).filter(|word| !is_bar(word)).collect()
}

#[test]
fn screen_of_any_size_has_whole_words_within_its_bounds() {
    let wide = words(&screen(240, 80));
    for (width, height) in (0..180).map(|width| (width, 24)).chain((0..60).map(|height| (79, height))) {
        let screen = screen(width, height);
        assert!(screen.len() <= height.max(1), "{width} x {height}: {} rows", screen.len());
        for row in &screen {
            assert!(row.chars().count() <= width, "{width} x {height}: {row}");
        }
        // Shorter texts stand in for longer ones, of which these words are no part.
        let variants = ["Slipgate", "quit", "kick", "restart", "flood", "r", "k", "f", "q", "1-5", "and", "more"];
        for word in words(&screen) {
            let is_number = word.chars().all(|character| character.is_ascii_digit() || ",.:%".contains(character));
            let is_known = wide.contains(&word) || variants.contains(&word.as_str()) || is_number;
            assert!(is_known, "{width} x {height}: cut word {word:?}\n{}", screen.join("\n"));
        }
    }
}

#[test]
fn screen_of_80_by_24_has_every_part() {
    let screen = screen(79, 24);
    let text = screen.join("\n");
    println!("{text}");
    for part in [
        "Slipgate demo",
        "issuer http://127.0.0.1:40047",
        "5 dsl-bufferbloat",
        "a buffer of a second",
        "round trip",
        "server CPU",
        "player state",
        "failed     cannot open a socket",
        "and 8 more players",
        "is kicked and reads: \"Please be kind in the chat.\"",
        "all 8 players back after 0.12 s.",
        " q  quit",
    ] {
        assert!(text.contains(part), "{part:?} is missing\n{text}");
    }
    assert!(screen.last().is_some_and(|row| row.starts_with(" 1-5  line")), "{text}");
}

#[test]
fn flood_shows_rates_and_its_end_shows_sums() {
    let (snapshot, mut history, now) = busy_run();
    let line = Line(None);
    let drops = |history: &History| {
        let view = View { snapshot: &snapshot, history, line, addresses: "", now };
        drops_row(&view, 79).text()
    };
    assert!(drops(&history).starts_with("flood        100,000/s  dropped: "), "{}", drops(&history));
    history.update(&snapshot, None, now + Duration::from_secs(1));
    let sums = "dropped      1,234,567 by the kernel, 1 unknown_sender, 1 address_connected";
    assert_eq!(drops(&history), sums);
    // The first count of a flood has no time yet, so it is no rate.
    let until = now + Duration::from_secs(2);
    history.update(&snapshot, Some(FloodCount { sent: 100_000, until }), until);
    assert_eq!(drops(&history), sums);
    let drops_of_flood = vec![("unknown_sender", 100_001)];
    let (flood, dropped_by_system) = (Some(100_000), 100_001);
    history.add_sample(Sample { round_trip: None, cpu: None, flood, dropped_by_system, drops: drops_of_flood });
    assert_eq!(drops(&history), "flood        100,000/s  dropped: 100,001/s kernel, 100,001/s unknown_sender");
}

#[test]
fn noise_of_loopback_is_flat_and_a_satellite_is_high() {
    let mut history = History::new(Instant::now());
    for (micros, expected) in [(300, "▁"), (900, "▁▂"), (560_000, "▁▁█")] {
        history.add_sample(Sample { round_trip: Some(Duration::from_micros(micros)), ..Sample::default() });
        let bars: String = round_trip(&history, 79).text().chars().filter(|bar| BARS.contains(bar)).collect();
        assert_eq!(bars, expected);
    }
}
