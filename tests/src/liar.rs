//! A peer that holds valid keys and keeps no rules: it composes the payloads of a session byte by byte.

use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_session::channel::LayoutHash;
use slipgate_session::channel::block::frame::Frame as BlockFrame;
use slipgate_session::channel::control::{Bye, ByeCode, Control, Hello, VERSION, read, write_bye, write_hello};
use slipgate_session::wire::reliable::{Acks, Header, Sequence};
use slipgate_session::wire::session::{Frame, Stamp};

/// What a liar says in a packet; the rest is as an honest peer's first packet.
#[derive(Clone, Copy)]
pub struct Says<'a> {
    /// What its header acknowledges.
    pub acks: Acks,
    /// What stands behind the header.
    pub frame: Frame<'a>,
    /// Its layout, if it greets.
    pub greets: Option<LayoutHash>,
    /// The frames of its messages.
    pub frames: &'a [u8],
}

impl<'a> Says<'a> {
    /// A greeting and these frames.
    #[must_use]
    pub const fn frames(layout: LayoutHash, frames: &'a [u8]) -> Self {
        let frame = Frame { sent: Stamp(0), arrived: None, acks_behind: &[] };
        Self { acks: Acks::NONE, frame, greets: Some(layout), frames }
    }
}

/// Counts packets; what is in them is the test's affair.
#[derive(Default)]
pub struct Liar {
    next: u16,
}

impl Liar {
    /// The next packet.
    pub fn packet(&mut self, says: Says<'_>) -> Vec<u8> {
        let payload = written(|writer| {
            says.frame.emit(writer);
            if let Some(layout) = says.greets {
                writer.bytes(&hello(VERSION, layout));
            }
            writer.bytes(says.frames);
        });
        self.header(says.acks, &payload)
    }

    /// The next packet with any payload.
    pub fn header(&mut self, acks: Acks, payload: &[u8]) -> Vec<u8> {
        self.next = self.next.wrapping_add(1);
        let header = Header { sequence: Sequence(self.next.wrapping_sub(1)), acks };
        written(|writer| {
            header.emit(writer);
            writer.bytes(payload);
        })
    }
}

/// Bytes that are written, cut where a payload must end.
fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut room = [0; 1 << 14];
    let mut writer = Writer::new(&mut room);
    write(&mut writer);
    let bytes = writer.written().expect("room enough");
    room[..bytes.min(MAX_PAYLOAD_BYTES)].to_vec()
}

/// A greeting.
#[must_use]
pub fn hello(version: u8, layout: LayoutHash) -> Vec<u8> {
    let hello = Hello { version, oldest_version: version, layout, payload_bytes: 1200, abilities: 0 };
    let mut room = vec![0; 64];
    let bytes = write_hello(&hello, &mut room);
    room.truncate(bytes);
    room
}

/// A farewell.
#[must_use]
pub fn bye(code: ByeCode, text: &str) -> Vec<u8> {
    let mut room = vec![0; 300];
    let bytes = write_bye(&Bye { code, text }, &mut room);
    room.truncate(bytes);
    room
}

/// A number of seven bits a byte.
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

/// The frame of a whole message; one of an unreliable channel has no id. Behind a frame of the same channel the number is
/// the distance from that one's id.
#[must_use]
pub fn whole(channel: u8, id: Option<u32>, data: &[u8]) -> Vec<u8> {
    let id = id.map_or_else(Vec::new, number);
    [&[channel + 1], &id[..], &number(data.len() as u32), data].concat()
}

/// The frame of a slice of a message of so many bytes; with an id as that of [`whole`].
#[must_use]
pub fn slice(channel: u8, id: u32, bytes: u32, first: u32, data: &[u8]) -> Vec<u8> {
    let head = [(channel + 1) | 0x40];
    [&head[..], &number(id), &number(bytes), &number(first), &number(data.len() as u32), data].concat()
}

/// A frame of a block.
///
/// # Panics
/// When it is too long.
#[must_use]
pub fn block(channel: u8, frame: &BlockFrame<'_>) -> Vec<u8> {
    let mut room = [0; 1400];
    let bytes = frame.write(&mut room).expect("it fits");
    whole(channel, None, &room[..bytes])
}

/// The farewell in a payload, if there is one.
#[must_use]
pub fn farewell(payload: &[u8]) -> Option<ByeCode> {
    let (_, payload) = Header::parse(payload).ok()?;
    let (_, mut rest) = Frame::parse(payload).ok()?;
    while let Ok(Some((control, bytes))) = read(rest) {
        if let Control::Bye(bye) = control {
            return Some(bye.code);
        }
        rest = &rest[bytes..];
    }
    None
}

/// The stamp of a moment of the liar's own.
#[must_use]
pub fn stamp(millis: u64) -> Stamp {
    Stamp::of(Instant::from_start(Duration::from_millis(millis)))
}
