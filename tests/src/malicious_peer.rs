//! A peer with valid keys that breaks the protocol: it composes session payloads byte by byte.

use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_session::channel::LayoutHash;
use slipgate_session::channel::control::{Bye, ControlMessage, Hello, PART_BYTES, RedirectPart, VERSION, read, write};
use slipgate_session::channel::transfer::frame::TransferFrame;
use slipgate_session::connection::CloseCode;
use slipgate_session::wire::reliable::{Acks, ReliableHeader, Sequence};
use slipgate_session::wire::session_frame::{AckNonces, SessionFrame, Timestamp};

/// The content of a malicious packet; the remainder is as in the first packet of an honest peer.
#[derive(Clone, Copy)]
pub struct PeerPacket<'a> {
    /// The acknowledgements in its header.
    pub acks: Acks,
    /// The session frame behind the header.
    pub frame: SessionFrame<'a>,
    /// The layout in its HELLO, if it sends one.
    pub hello: Option<LayoutHash>,
    /// The frames of its messages.
    pub frames: &'a [u8],
}

impl<'a> PeerPacket<'a> {
    /// Returns the content of a packet with a HELLO and these frames.
    #[must_use]
    pub const fn frames(layout: LayoutHash, frames: &'a [u8]) -> Self {
        let nonces = AckNonces { own: 0, sum: 0 };
        let frame = SessionFrame { sent: Timestamp(0), nonces, arrived: None, extended_acks: &[] };
        Self { acks: Acks::NONE, frame, hello: Some(layout), frames }
    }
}

/// Counts the packets of a malicious peer; the test chooses their content.
#[derive(Default)]
pub struct MaliciousPeer {
    next: u16,
}

impl MaliciousPeer {
    /// Returns the next packet.
    pub fn packet(&mut self, content: PeerPacket<'_>) -> Vec<u8> {
        let payload = written(|writer| {
            content.frame.emit(writer);
            if let Some(layout) = content.hello {
                writer.bytes(&hello(VERSION, layout));
            }
            writer.bytes(content.frames);
        });
        self.header(content.acks, &payload)
    }

    /// Returns the number of the next packet.
    #[must_use]
    pub const fn next_number(&self) -> u16 {
        self.next
    }

    /// Leaves out this many packet numbers.
    pub const fn skip(&mut self, packets: u16) {
        self.next = self.next.wrapping_add(packets);
    }

    /// Returns the next packet with any payload.
    pub fn header(&mut self, acks: Acks, payload: &[u8]) -> Vec<u8> {
        self.next = self.next.wrapping_add(1);
        let header = ReliableHeader { sequence: Sequence(self.next.wrapping_sub(1)), acks };
        written(|writer| {
            header.emit(writer);
            writer.bytes(payload);
        })
    }
}

/// Returns the written bytes, cut to the maximum payload.
fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut buf = [0; 1 << 14];
    let mut writer = Writer::new(&mut buf);
    write(&mut writer);
    let bytes = writer.written().expect("the buffer is large enough");
    buf[..bytes.min(MAX_PAYLOAD_BYTES)].to_vec()
}

/// Returns a HELLO message.
#[must_use]
pub fn hello(version: u8, layout: LayoutHash) -> Vec<u8> {
    let hello = Hello { version, oldest_version: version, layout, payload_bytes: 1200, abilities: 0 };
    let mut buf = vec![0; 64];
    let bytes = write(&ControlMessage::Hello(hello), &mut buf);
    buf.truncate(bytes);
    buf
}

/// Returns a BYE message.
#[must_use]
pub fn bye(code: CloseCode, text: &str) -> Vec<u8> {
    let mut buf = vec![0; 300];
    let bytes = write(&ControlMessage::Bye(Bye { code, text }), &mut buf);
    buf.truncate(bytes);
    buf
}

/// Returns the control messages that redirect to the servers of a token, one for each part.
#[must_use]
pub fn redirect(token: &[u8]) -> Vec<Vec<u8>> {
    let part = |(index, bytes)| redirect_part(token.len() as u16, index, bytes);
    (0..).zip(token.chunks(PART_BYTES)).map(part).collect()
}

/// Returns one part of a redirect.
#[must_use]
pub fn redirect_part(token_bytes: u16, index: u8, bytes: &[u8]) -> Vec<u8> {
    let mut buf = vec![0; 2100];
    let bytes = write(&ControlMessage::Redirect(RedirectPart { token_bytes, index, bytes }), &mut buf);
    buf.truncate(bytes);
    buf
}

/// Encodes a number with seven bits per byte.
#[must_use]
pub fn number(mut value: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Returns the frame of a whole message. Messages of unreliable channels have no id. Behind a frame of the same channel
/// the number is the distance to the id of that frame.
#[must_use]
pub fn whole(channel: u8, id: Option<u32>, data: &[u8]) -> Vec<u8> {
    let id = id.map_or_else(Vec::new, number);
    [&[channel + 1], &id[..], &number(data.len() as u32), data].concat()
}

/// Returns the frame of a slice of a message of `bytes` bytes, with an id as in [`whole`].
#[must_use]
pub fn slice(channel: u8, id: u32, bytes: u32, first: u32, data: &[u8]) -> Vec<u8> {
    let head = [(channel + 1) | 0x40];
    [&head[..], &number(id), &number(bytes), &number(first), &number(data.len() as u32), data].concat()
}

/// Returns the frame of a transfer.
///
/// # Panics
/// If the frame is too long.
#[must_use]
pub fn transfer(channel: u8, frame: &TransferFrame<'_>) -> Vec<u8> {
    let mut buf = [0; 1400];
    let bytes = frame.write(&mut buf).expect("the frame fits");
    whole(channel, None, &buf[..bytes])
}

/// Returns the code of the BYE message in a payload, if it holds one.
#[must_use]
pub fn received_close_code(payload: &[u8]) -> Option<CloseCode> {
    let (_, payload) = ReliableHeader::parse(payload).ok()?;
    let (_, mut rest) = SessionFrame::parse(payload).ok()?;
    while let Ok(Some((control, bytes))) = read(rest) {
        if let ControlMessage::Bye(bye) = control {
            return Some(bye.code);
        }
        rest = &rest[bytes..];
    }
    None
}

/// Returns the timestamp of a moment of the malicious peer.
#[must_use]
pub fn stamp(millis: u64) -> Timestamp {
    Timestamp::from(Instant::from_start(Duration::from_millis(millis)))
}
