//! The demo as a person sees it: in a pseudo-terminal, with keys.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]

use std::process::Command;
use std::time::{Duration, Instant};

use super::pseudo_terminal::{MAX_WAIT, PseudoTerminal};

const COLUMNS: u16 = 80;
const ROWS: u16 = 24;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipgate"));
    command.arg("demo").args(arguments).env_remove("NO_COLOR");
    command
}

/// Starts the demo and waits until all players are connected and have their maps.
#[track_caller]
fn start(arguments: &[&str]) -> PseudoTerminal {
    let mut demo = PseudoTerminal::start(command(arguments), COLUMNS, ROWS);
    demo.wait_for_text("maps of");
    demo
}

/// Returns the row that starts with this text.
#[track_caller]
fn row<'s>(screen: &'s [String], start: &str) -> &'s str {
    let found = screen.iter().find(|row| row.trim_start().starts_with(start));
    found.unwrap_or_else(|| panic!("no row {start:?}:\n{}", screen.join("\n")))
}

/// Returns the number behind this text, without commas: `1,234/s` is 1234.
#[track_caller]
fn number_after(row: &str, text: &str) -> f64 {
    let (_, rest) = row.split_once(text).unwrap_or_else(|| panic!("no {text:?} in {row:?}"));
    let number: String = rest.trim_start().chars().take_while(|c| c.is_ascii_digit() || ",.".contains(*c)).collect();
    number.replace(',', "").parse().unwrap_or_else(|_| panic!("no number after {text:?} in {row:?}"))
}

/// Checks what holds for each screen of 80 x 24: nothing reaches the last column, and no row is missing.
#[track_caller]
fn assert_fits(screen: &[String]) {
    let text = screen.join("\n");
    assert_eq!(screen.len(), usize::from(ROWS), "{text}");
    for row in screen {
        assert!(row.chars().count() < usize::from(COLUMNS), "the last column is free: {row}\n{text}");
    }
    assert!(screen[0].starts_with("Slipgate demo  8 players, a game server and a token issuer"), "{text}");
    assert_eq!(
        row(screen, "player state"),
        "player state      round trip  jitter   loss      budget map         chat wrong",
        "{text}"
    );
    assert_eq!(row(screen, "all").split_whitespace().nth(2), Some("of"), "{text}");
    let keys = " 1-5  line    k  kick    r  restart    f  flood    q  quit";
    assert_eq!(screen[usize::from(ROWS) - 1], keys, "{text}");
}

#[test]
fn screen_of_80_by_24_shows_players_and_obeys_keys() {
    let mut demo = start(&[]);
    // The maps may arrive before the first values of the lines, which are added once a second.
    let screen = demo.wait_for("all players, full bars of the maps and a line of round trips", |screen| {
        let shows = |start: &str, text: &str| {
            screen.iter().any(|row| row.trim_start().starts_with(start) && row.contains(text))
        };
        shows("all", "8 of 8") && shows("1001", "██████████") && shows("round trip", " ms   ")
    });
    println!("{}\n", screen.join("\n"));
    assert_fits(&screen);
    assert!(demo.raw().contains("\u{1b}[38;5;10m") || demo.raw().contains("\u{1b}[32m"), "green: {}", demo.raw());

    demo.press("k");
    let screen = demo.wait_for_text("is kicked and reads: \"Your map is from last week.\"");
    println!("{}\n", screen.join("\n"));
    assert_fits(&screen);
    assert!(screen.iter().any(|row| row.contains("kicked     Your map is from last week.")), "{}", screen.join("\n"));
    demo.wait_for_text("is back with a new token.");

    demo.press("4");
    let screen = demo.wait_for("a satellite's round trip", |screen| {
        row(screen, "round trip").contains(" ms") && number_after(row(screen, "round trip"), "round trip") > 500.0
    });
    println!("{}\n", screen.join("\n"));
    assert_fits(&screen);
    assert!(screen.iter().any(|row| row.contains('█') && row.starts_with("round trip")), "{}", screen.join("\n"));
    demo.press("1");
    demo.wait_for("a short round trip", |screen| {
        let row = row(screen, "round trip");
        row.contains(" ms") && number_after(row, "round trip") < 100.0
    });

    demo.press("q");
    let status = demo.wait_for_end();
    let screen = demo.screen();
    println!("{}\n", screen.join("\n"));
    assert!(status.success() && demo.is_restored(), "{status}\n{}", screen.join("\n"));
    assert!(screen.iter().any(|row| row.starts_with("SUCCESS: every client was served")), "{}", screen.join("\n"));
}

/// The rate of the flood in datagrams per second, on a machine that permits it.
const MIN_FLOOD: f64 = 100_000.0;

/// Returns how many datagrams a second one thread can send now.
fn bare_rate() -> f64 {
    let [from, to] = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    let (to, start, mut sent) = (to.local_addr().unwrap(), Instant::now(), 0_u32);
    while start.elapsed() < Duration::from_millis(500) {
        sent += u32::from(from.send_to(&[0x15; 200], to).is_ok());
    }
    f64::from(sent) / start.elapsed().as_secs_f64()
}

/// Waits until a flood is as fast as the machine permits. Returns the screen, the highest rate, and the permitted one.
///
/// A loaded machine may not permit [`MIN_FLOOD`]: a sender beside the demo shows what it permits. The highest rate of
/// the flood must reach half of the lowest rate of that sender.
fn wait_for_the_flood(demo: &mut PseudoTerminal) -> (Vec<String>, f64, f64) {
    let (start, mut rate, mut permitted) = (Instant::now(), 0.0_f64, MIN_FLOOD);
    let mut next_comparison = Duration::from_secs(10);
    loop {
        let screen = demo.screen_now();
        if let Some(row) = screen.iter().find(|row| row.starts_with("flood ")) {
            rate = rate.max(number_after(row, "flood"));
            if row.contains("unknown_sender") && rate >= permitted {
                return (screen, rate, permitted);
            }
        }
        if start.elapsed() > next_comparison {
            permitted = permitted.min(bare_rate() / 2.0);
            next_comparison = start.elapsed() + Duration::from_secs(5);
        }
        assert!(start.elapsed() < MAX_WAIT, "{rate} a second, {permitted:.0} are possible:\n{}", screen.join("\n"));
    }
}

#[test]
fn flood_shows_rates_drops_and_processor_time() {
    let mut demo = start(&[]);
    demo.press("f");
    let (screen, rate, permitted) = wait_for_the_flood(&mut demo);
    let goal = "goal: 100,000 a second where the machine permits it";
    println!("{}\nflood: {rate} a second; {goal}: {permitted:.0} here\n", screen.join("\n"));
    let flood = row(&screen, "flood");
    let (sent, dropped) = (number_after(flood, "flood"), number_after(flood, "dropped:"));
    assert!(sent < 150_000.0, "the flood is paced: {flood}");
    assert!(dropped > sent / 10.0, "{flood}");
    assert!(number_after(row(&screen, "server CPU"), "server CPU") > 0.0, "{}", screen.join("\n"));
    assert!(screen.iter().any(|row| row.contains("all 8 of 8")), "a client is lost:\n{}", screen.join("\n"));
    demo.press("f");
    let screen = demo.wait_for("the end of the flood", |screen| screen.iter().any(|row| row.starts_with("dropped ")));
    let mut sum = number_after(row(&screen, "dropped"), "dropped");
    demo.wait_for_text("The flood ends");
    // The server of a slow machine reads the rest later. A flood that goes on would change each number.
    let start = Instant::now();
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let screen = demo.screen_now();
        let later = number_after(row(&screen, "dropped"), "dropped");
        if later < sum + 1_000.0 {
            break;
        }
        assert!(start.elapsed() < MAX_WAIT, "the flood goes on: {sum}, then {later}");
        sum = later;
    }
    demo.press("q");
    assert!(demo.wait_for_end().success(), "{}", demo.screen().join("\n"));
}

/// Players are back this soon, on a machine that permits it. A machine that pauses has five attempts for each restart.
const MAX_BACK: Duration = Duration::from_secs(2);
/// On a busy machine a program starts slowly. Players may be back as late as this number of starts there. On a quiet
/// machine, which needs less than 40 ms for each, these are less than [`MAX_BACK`].
const MAX_STARTS: u32 = 50;

/// Returns the time that a start and an end of the program take now.
fn start_time() -> Duration {
    let began = Instant::now();
    assert!(Command::new(env!("CARGO_BIN_EXE_slipgate")).arg("--version").output().unwrap().status.success());
    began.elapsed()
}

#[test]
fn players_are_back_within_two_seconds_of_20_restarts() {
    let mut demo = start(&[]);
    let (mut times, mut number) = (Vec::new(), 0);
    for _ in 0..20 {
        let mut misses = Vec::new();
        loop {
            number += 1;
            let control = start_time();
            let began = Instant::now();
            demo.press("r");
            let restarted = format!("Restart {number}:");
            let screen = demo.wait_for_text(&restarted);
            let seen = began.elapsed();
            let shown = screen.iter().find(|row| row.contains(&restarted)).unwrap();
            let back = number_after(shown, "back after");
            assert!(screen.iter().any(|row| row.contains("all 8 of 8")), "{}", screen.join("\n"));
            let permitted = MAX_BACK.max(MAX_STARTS * control.max(start_time()));
            if back < permitted.as_secs_f64() && seen < permitted {
                times.push((back, seen));
                break;
            }
            misses.push((back, seen, permitted));
            assert!(misses.len() < 5, "seconds on the screen, time until it was seen, permitted time: {misses:?}");
        }
    }
    println!("restarts: seconds on the screen, and until the screen showed it: {times:?}");
    demo.press("q");
    assert!(demo.wait_for_end().success(), "{}", demo.screen().join("\n"));
}

/// Each player has a socket here and one at the line; each token needs descriptors at both ends.
#[test]
fn restart_with_256_players_needs_at_most_1024_descriptors() {
    let mut command = Command::new("sh");
    let demo = "ulimit -n 1024 && exec \"$0\" demo --clients 256 --rate 2 --map 8";
    command.args(["-c", demo, env!("CARGO_BIN_EXE_slipgate")]);
    let mut demo = PseudoTerminal::start(command, COLUMNS, ROWS);
    demo.wait_for_text("maps of");
    demo.press("r");
    demo.wait_for_text("Restart 1:");
    // On a busy machine a player may have lost its connection again.
    let screen = demo.wait_for("all players", |screen| screen.iter().any(|row| row.contains("all 256 of 256")));
    println!("{}\n", screen.join("\n"));
    demo.press("q");
    assert!(demo.wait_for_end().success(), "{}", demo.screen().join("\n"));
}

#[test]
fn screen_follows_the_size_of_the_terminal() {
    let mut demo = start(&[]);
    for (columns, rows, last) in [
        (60, 20, " 1-5  line    k  kick    r  restart    f  flood    q  quit"),
        (34, 12, "1-5 k r f q"),
        (10, 4, ""),
        (132, 40, " 1-5  line    k  kick a player    r  restart the server    f  flood with junk    q  quit"),
        (COLUMNS, ROWS, " 1-5  line    k  kick    r  restart    f  flood    q  quit"),
    ] {
        demo.resize(columns, rows);
        let rows = usize::from(rows);
        let is_drawn = |screen: &[String]| screen[0].starts_with("Slipgate") && screen[rows - 1] == last;
        let screen = demo.wait_for("screen of the new size", is_drawn);
        println!("{}\n", screen.join("\n"));
        assert!(screen.iter().all(|row| row.chars().count() < usize::from(columns)), "{}", screen.join("\n"));
    }
    demo.press("\u{1b}");
    assert!(demo.wait_for_end().success() && demo.is_restored(), "{}", demo.screen().join("\n"));
}

#[test]
fn terminal_is_restored_after_signals_and_ctrl_c() {
    for end in ["-TERM", "-INT", "\u{3}"] {
        let mut demo = start(&["--clients", "2"]);
        assert!(!demo.is_restored(), "the live mode has started");
        match end.strip_prefix('-') {
            None => demo.press(end),
            Some(_) => {
                let killed = Command::new("kill").args([end, &demo.id().to_string()]).status().unwrap();
                assert!(killed.success());
            }
        }
        let status = demo.wait_for_end();
        let screen = demo.screen().join("\n");
        assert!(status.success() && demo.is_restored(), "{end:?}: {status}\n{screen}");
        assert!(screen.contains("SUCCESS") || screen.contains("ENDED EARLY"), "{end:?}:\n{screen}");
    }
}

#[test]
fn no_color_leaves_only_bold_dim_and_reversed_text() {
    let mut command = command(&["--clients", "2", "--for", "1s"]);
    command.env("NO_COLOR", "1");
    let mut demo = PseudoTerminal::start(command, COLUMNS, ROWS);
    assert!(demo.wait_for_end().success(), "{}", demo.screen().join("\n"));
    let raw = demo.raw();
    let styles: Vec<&str> = raw.split("\u{1b}[").filter_map(|rest| Some(rest.split_once('m')?.0)).collect();
    let styles: Vec<&str> =
        styles.into_iter().filter(|style| style.chars().all(|c| c.is_ascii_digit() || c == ';')).collect();
    assert!(styles.contains(&"1") && styles.iter().all(|style| ["0", "1", "2", "7"].contains(style)), "{styles:?}");
}
