//! Texts of close messages with characters that control a terminal, a log or the direction of writing.

use super::*;
use std::string::ToString;

const HOSTILE: &str =
    "\u{1b}[2J\u{1b}]0;owned\u{7}kicked\r\nWARN forged line\u{9b}31m \u{202e}gnp.exe\u{2066}\u{2028}\0";
const PLAIN: &str = "[2J]0;ownedkicked  WARN forged line31m gnp.exe ";

fn bye(text: &str) -> Vec<u8> {
    let mut buf = [0; 300];
    let bytes = control::write(&ControlMessage::Bye(Bye { code: CloseCode(300), text }), &mut buf);
    buf[..bytes].to_vec()
}

#[test]
fn texts_of_the_peer_lose_their_control_characters() {
    for role in [Role::Client, Role::Server] {
        let mut end = Connection::new(&ConnectionConfig::default(), layout(), role, None).unwrap();
        let frames = [hello(|_| ()), bye(HOSTILE)].concat();
        end.handle(&datagram(0, &frames), Duration::ZERO, Instant::default()).unwrap();
        let reason = end.close_reason().unwrap();
        assert_eq!((reason.by, reason.text.as_str()), (ClosedBy::Remote, PLAIN), "{role:?}");
        assert!(!reason.to_string().chars().any(char::is_control), "{reason}");
    }
}

#[test]
fn texts_of_this_side_lose_their_control_characters() {
    let mut pair = Pair::connected();
    pair.ends[0].close(CloseCode(300), HOSTILE);
    assert_eq!(pair.ends[0].close_reason().unwrap().text, PLAIN);
    let sent = pair.turn(0).concat();
    assert!(sent.windows(PLAIN.len()).any(|part| part == PLAIN.as_bytes()), "the plain text is on the wire");
    assert!(!sent.windows(4).any(|part| part == b"\x1b[2J"), "the original is not");
}

#[test]
fn a_text_of_controls_alone_is_empty() {
    let mut end = connection(&ConnectionConfig::default(), layout());
    let frames = [hello(|_| ()), bye(&"\u{202e}".repeat(80))].concat();
    end.handle(&datagram(0, &frames), Duration::ZERO, Instant::default()).unwrap();
    let reason = end.close_reason().unwrap();
    assert_eq!((reason.text.as_str(), reason.to_string()), ("", "You were removed from the game.".to_string()));
}
