//! Datagrams of a session that no honest peer sends.

use slipgate_netcode::wire::cursor::Writer;
use slipgate_session::channel::LayoutHash;
use slipgate_session::channel::control::{self, Bye, ControlMessage, Hello, RedirectPart};
use slipgate_session::connection::CloseCode;
use slipgate_session::wire::reliable::{Acks, ReliableHeader, Sequence};
use slipgate_session::wire::session_frame::{AckNonces, ArrivalEcho, SessionFrame, Timestamp};

use crate::Input;

/// Texts of a BYE: some control a terminal, forge a line of a log, or change the direction of text.
const TEXTS: [&str; 4] =
    ["bye", "\u{1b}[2J\r\nWARN forged", "\u{202e}exe.txt\u{2066}\u{2069}\u{61c}", "\0\u{2028}\u{9b}1m\u{7f}"];

/// Returns a datagram with a header, a frame, and bytes of the input. Bit 0 of `how` adds an arrival echo, bit 1 a
/// HELLO (of `layout`, unless bit 3 is set), bits 2 and 3 together a BYE, bits 4 and 5 a part of a redirect.
#[must_use]
pub fn invented_datagram(how: u8, sequence: u16, layout: LayoutHash, input: &mut Input<'_>) -> Vec<u8> {
    let mut buf = [0; 1400];
    let mut writer = Writer::new(&mut buf);
    let acks = Acks { ack: Sequence(u16::from(input.u8())), bits: u32::from_le_bytes(input.array()) };
    ReliableHeader { sequence: Sequence(sequence), acks }.emit(&mut writer);
    let extended: Vec<u8> = (0..input.u8() % 29).map(|_| input.u8()).collect();
    let arrived =
        (how & 1 != 0).then(|| ArrivalEcho { at: Timestamp(u16::from_le_bytes(input.array())), late: input.u8() });
    let sent = Timestamp(u16::from_le_bytes(input.array()));
    // The rarest bits of `how` beside those of the content: some sums are right.
    let nonces = AckNonces { own: how >> 6, sum: how >> 5 };
    SessionFrame { sent, nonces, arrived, extended_acks: &extended }.emit(&mut writer);
    if how & 2 != 0 {
        let layout = if how & 8 == 0 { layout } else { LayoutHash(input.array()) };
        let payload_bytes = u16::from_le_bytes(input.array());
        let hello = Hello { version: 1, oldest_version: 1, layout, payload_bytes, abilities: 0 };
        let mut bytes = [0; 64];
        let written = control::write(&ControlMessage::Hello(hello), &mut bytes);
        writer.bytes(&bytes[..written]);
    }
    if how & 48 == 48 {
        let (mut bytes, token_bytes, index) = ([0; 512], u16::from_le_bytes(input.array()) & 0xfff, input.u8() & 7);
        let part = RedirectPart { token_bytes, index, bytes: &[index; 400] };
        let written = control::write(&ControlMessage::Redirect(part), &mut bytes);
        writer.bytes(&bytes[..written]);
    }
    if how & 12 == 12 {
        let mut bytes = [0; 64];
        let code = input.u8();
        let bye = Bye { code: CloseCode(code.into()), text: TEXTS[usize::from(code) % TEXTS.len()] };
        let written = control::write(&ControlMessage::Bye(bye), &mut bytes);
        writer.bytes(&bytes[..written]);
    }
    for _ in 0..input.u8() & 63 {
        writer.write::<u8>(input.u8());
    }
    let written = writer.written().unwrap_or_default();
    buf[..written].to_vec()
}
