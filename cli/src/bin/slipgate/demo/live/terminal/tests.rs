//! A panic in live mode, in a pseudo-terminal.

use std::process::Command;

use self::pseudo_terminal::PseudoTerminal;
use super::super::row::Tone;
use super::*;

#[allow(dead_code, reason = "the programs' tests use the rest")]
#[path = "../../../../../../tests/programs/pseudo_terminal.rs"]
mod pseudo_terminal;

/// Not a test of its own: the next test runs it in a terminal.
#[test]
#[ignore = "panics on purpose"]
fn panics_in_live_mode() {
    let mut terminal = LiveTerminal::enter(Colours::On).expect("a terminal");
    terminal.draw(&[ScreenRow::new(Tone::Bold, "a live screen")]).expect("a terminal");
    let thread = std::thread::spawn(|| panic!("on purpose"));
    assert!(thread.join().is_err() && !terminal.is_live());
    panic!("again");
}

#[test]
fn panic_in_any_thread_restores_the_terminal_first() {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    let name = "demo::live::terminal::tests::panics_in_live_mode";
    command.args(["--ignored", "--exact", name, "--nocapture", "--test-threads=1"]);
    let mut program = PseudoTerminal::start(command, 80, 24);
    assert!(!program.wait_for_end().success(), "{}", program.raw());
    let raw = program.raw();
    let position = |text: &str| raw.find(text).unwrap_or_else(|| panic!("{text:?} is missing in {raw:?}"));
    assert!(position("a live screen") < position("\u{1b}[?1049l"), "{raw:?}");
    assert!(position("\u{1b}[?1049l") < position("on purpose"), "the message must stay visible: {raw:?}");
    assert_eq!(raw.matches("\u{1b}[?1049l").count(), 1, "restored once: {raw:?}");
    assert!(program.is_restored(), "{raw:?}");
}
