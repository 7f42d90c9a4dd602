//! Control messages: what the two ends of a connection negotiate and report besides the game's data (§3.5).
//!
//! They stand before all other frames of a packet; the connection decides in which packets. A reader skips messages of
//! unknown types by their length, and fields that a later version appends to known ones.

use core::fmt;

use crate::channel::close_code::CloseCode;
use crate::channel::layout::LayoutHash;
use crate::channel::violation::ChannelViolation;
use crate::channel::wire::frame::{CHANNEL_BITS, CONTROL, LAST, number_bytes, read_number};
use slipgate_netcode::wire::CONNECT_TOKEN_BYTES;
use slipgate_netcode::wire::cursor::{Reader, Writer};

/// The version of the frames that this module writes (§3.5).
pub const VERSION: u8 = 1;
/// The maximum bytes of a [`Bye`]'s text.
pub const MAX_TEXT_BYTES: usize = 256;
/// The bytes of the token in each [`RedirectPart`] but the last one, which may have fewer.
pub const PART_BYTES: usize = 400;

const HELLO: u8 = 1;
const BYE: u8 = 2;
const REDIRECT: u8 = 3;
const HELLO_BODY_BYTES: usize = 14;

/// The announcement of an end when the connection begins, in each packet until one of them is acked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The newest supported version of the frames.
    pub version: u8,
    /// The oldest supported version.
    pub oldest_version: u8,
    /// The digest of the layout. If the digests differ, neither end can parse the other's frames.
    pub layout: LayoutHash,
    /// The maximum bytes of a payload that the end receives.
    pub payload_bytes: u16,
    /// One bit for each feature that is used if both ends have it. None is defined.
    pub abilities: u16,
}

/// The last control message of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bye<'a> {
    /// The reason.
    pub code: CloseCode,
    /// A text for people, at most 256 bytes.
    pub text: &'a str,
}

impl fmt::Debug for Bye<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bye").field("code", &self.code.0).field("text", &self.text).finish()
    }
}

/// A part of the connect token for the server to which a client is redirected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RedirectPart<'a> {
    /// The bytes of the whole token, without the zeros at its end: 1 to 2,048.
    pub token_bytes: u16,
    /// The index of the part. It begins at this multiple of [`PART_BYTES`].
    pub index: u8,
    /// Its bytes of the token, which are secret.
    pub bytes: &'a [u8],
}

impl RedirectPart<'_> {
    /// Returns the number of bytes of the part with this index, `None` if the token has no such part.
    pub(crate) fn length(token_bytes: u16, index: u8) -> Option<usize> {
        let is_token = (1..=CONNECT_TOKEN_BYTES).contains(&token_bytes.into());
        let rest = usize::from(token_bytes).checked_sub(usize::from(index) * PART_BYTES)?;
        (is_token && rest > 0).then_some(rest.min(PART_BYTES))
    }
}

impl fmt::Debug for RedirectPart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token_bytes, index, .. } = self;
        f.debug_struct("RedirectPart").field("token_bytes", token_bytes).field("index", index).finish_non_exhaustive()
    }
}

/// A parsed control message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ControlMessage<'a> {
    /// The peer's announcement.
    Hello(Hello),
    /// The peer closes the connection.
    Bye(Bye<'a>),
    /// The server closes the connection, and sends a part of a token for another server.
    Redirect(RedirectPart<'a>),
    /// A message of a later version, which is skipped.
    Unknown(u8),
}

/// Parses the control message at the start of a packet's frames. Returns it with its bytes, or `None` if there is none.
/// Call it until `None`, each time with the rest.
///
/// # Errors
/// [`ChannelViolation::Truncated`], [`ChannelViolation::Number`] or [`ChannelViolation::Control`] when the message is
/// malformed, and [`ChannelViolation::Reserved`] when reserved bits are set.
pub fn read(frames: &[u8]) -> Result<Option<(ControlMessage<'_>, usize)>, ChannelViolation> {
    let mut reader = Reader::new(frames);
    let Some(head) = reader.read::<u8>().filter(|head| head & CHANNEL_BITS == CONTROL) else { return Ok(None) };
    // The slice bit is reserved in control messages.
    if head & !LAST != CONTROL {
        return Err(ChannelViolation::Reserved);
    }
    let kind = reader.read::<u8>().ok_or(ChannelViolation::Truncated)?;
    // A last frame has no length and extends to the packet's end.
    let bytes = if head == LAST { reader.rest().len() } else { read_number(&mut reader)? as usize };
    let (body, rest) = reader.rest().split_at_checked(bytes).ok_or(ChannelViolation::Truncated)?;
    let control = match kind {
        HELLO => ControlMessage::Hello(read_hello(body).ok_or(ChannelViolation::Control)?),
        BYE => ControlMessage::Bye(read_bye(body).ok_or(ChannelViolation::Control)?),
        REDIRECT => ControlMessage::Redirect(read_part(body).ok_or(ChannelViolation::Control)?),
        kind => ControlMessage::Unknown(kind),
    };
    Ok(Some((control, frames.len() - rest.len())))
}

/// Writes a control message at the start of `buf`. Returns its bytes, or 0 if it does not fit. A text of more than 256
/// bytes is cut at the end of a character. An unknown message has no known body, and is not written.
pub fn write(control: &ControlMessage<'_>, buf: &mut [u8]) -> usize {
    match control {
        ControlMessage::Hello(hello) => write_hello(hello, buf),
        ControlMessage::Bye(bye) => write_bye(bye, buf),
        ControlMessage::Redirect(part) => write_part(part, buf),
        ControlMessage::Unknown(_) => 0,
    }
}

fn write_hello(hello: &Hello, buf: &mut [u8]) -> usize {
    let mut writer = Writer::new(buf);
    begin(&mut writer, HELLO, HELLO_BODY_BYTES);
    writer.write::<u8>(hello.version);
    writer.write::<u8>(hello.oldest_version);
    writer.bytes(&hello.layout.0);
    writer.write::<u16>(hello.payload_bytes);
    writer.write::<u16>(hello.abilities);
    writer.written().unwrap_or(0)
}

fn write_bye(bye: &Bye<'_>, buf: &mut [u8]) -> usize {
    // Cut at a character, or the peer would refuse the text as invalid UTF-8.
    let end = bye.text.floor_char_boundary(MAX_TEXT_BYTES);
    let text = bye.text.as_bytes().get(..end).unwrap_or(&[]);
    let mut writer = Writer::new(buf);
    begin(&mut writer, BYE, 2 + text.len());
    writer.write::<u16>(bye.code.0);
    writer.bytes(text);
    writer.written().unwrap_or(0)
}

fn write_part(part: &RedirectPart<'_>, buf: &mut [u8]) -> usize {
    let mut writer = Writer::new(buf);
    begin(&mut writer, REDIRECT, 3 + part.bytes.len());
    writer.write::<u16>(part.token_bytes);
    writer.write::<u8>(part.index);
    writer.bytes(part.bytes);
    writer.written().unwrap_or(0)
}

fn begin(writer: &mut Writer<'_>, kind: u8, body: usize) {
    writer.write::<u8>(CONTROL);
    writer.write::<u8>(kind);
    // A body has at most 403 bytes: its length takes one or two bytes.
    if number_bytes(body as u32) > 1 {
        writer.write::<u8>(body as u8 | 0x80);
        writer.write::<u8>((body >> 7) as u8);
    } else {
        writer.write::<u8>(body as u8);
    }
}

fn read_hello(body: &[u8]) -> Option<Hello> {
    let mut body = Reader::new(body);
    let hello = Hello {
        version: body.read()?,
        oldest_version: body.read()?,
        layout: LayoutHash(*body.array()?),
        payload_bytes: body.read()?,
        abilities: body.read()?,
    };
    // Fields behind these belong to a later version (§3.5).
    (hello.oldest_version <= hello.version).then_some(hello)
}

fn read_bye(body: &[u8]) -> Option<Bye<'_>> {
    let mut body = Reader::new(body);
    let code = CloseCode(body.read()?);
    let text = core::str::from_utf8(body.rest()).ok().filter(|text| text.len() <= MAX_TEXT_BYTES)?;
    Some(Bye { code, text })
}

fn read_part(body: &[u8]) -> Option<RedirectPart<'_>> {
    let mut body = Reader::new(body);
    let (token_bytes, index) = (body.read()?, body.read()?);
    let bytes = body.rest().get(..RedirectPart::length(token_bytes, index)?)?;
    Some(RedirectPart { token_bytes, index, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;
    use std::vec::Vec;

    const PLAIN: Hello =
        Hello { version: 1, oldest_version: 1, layout: LayoutHash(*b"8 bytes."), payload_bytes: 1200, abilities: 0 };

    #[test]
    fn written_messages_are_parsed_and_the_rest_is_kept() {
        let mut buf = [0xee; 512];
        let hello = write_hello(&PLAIN, &mut buf);
        assert_eq!(hello, 3 + HELLO_BODY_BYTES);
        let long = "ä".repeat(200);
        for text in ["", "kicked for idling", &long] {
            let bye = hello + write_bye(&Bye { code: CloseCode(300), text }, &mut buf[hello..]);
            assert_eq!(read(&buf).unwrap(), Some((ControlMessage::Hello(PLAIN), hello)));
            let cut: String = text.chars().take(128).collect();
            let read_back = read(&buf[hello..]).unwrap();
            assert_eq!(read_back, Some((ControlMessage::Bye(Bye { code: CloseCode(300), text: &cut }), bye - hello)));
        }
        assert_eq!((read(&[0x01, 2, 3]), read(&[])), (Ok(None), Ok(None)));
    }

    #[test]
    fn parts_of_a_token_are_written_and_read() {
        let (mut buf, token) = ([0xee; 512], [7; 1164]);
        for (index, bytes) in (0..).zip(token.chunks(PART_BYTES)) {
            let part = RedirectPart { token_bytes: 1164, index, bytes };
            let written = write(&ControlMessage::Redirect(part), &mut buf);
            assert_eq!(written, 4 + 3 + bytes.len());
            assert_eq!(read(&buf), Ok(Some((ControlMessage::Redirect(part), written))));
            assert!(!std::format!("{part:?}").contains('['), "the bytes are secret");
        }
    }

    #[test]
    fn additions_of_later_versions_are_skipped() {
        assert_eq!(read(&[0, 99, 2, 7, 7, 1]), Ok(Some((ControlMessage::Unknown(99), 5))));
        assert_eq!(read(&[0x80, 99, 2, 7]), Ok(Some((ControlMessage::Unknown(99), 4))));
        let mut buf = [0; 64];
        let bytes = write_hello(&PLAIN, &mut buf);
        buf[2] += 5;
        assert_eq!(read(&buf), Ok(Some((ControlMessage::Hello(PLAIN), bytes + 5))));
    }

    #[test]
    fn malformed_messages_are_violations() {
        for (frames, violation) in [
            (&[0][..], ChannelViolation::Truncated),
            (&[0, 1], ChannelViolation::Truncated),
            (&[0, 99, 3, 7, 7], ChannelViolation::Truncated),
            (&[0, 99, 0x80, 0], ChannelViolation::Number),
            (&[0x40, 99, 0], ChannelViolation::Reserved),
            (&[0, 1, 1, 1], ChannelViolation::Control),
            (&[0x80, 1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], ChannelViolation::Control),
            (&[0, 2, 1, 0], ChannelViolation::Control),
            (&[0, 2, 3, 0, 0, 0xff], ChannelViolation::Control),
            // No bytes, no token, a token that is too long, a part behind its end, and a part that is too short.
            (&[0, 3, 2, 1, 0], ChannelViolation::Control),
            (&[0, 3, 4, 0, 0, 0, 9], ChannelViolation::Control),
            (&[0, 3, 4, 1, 8, 5, 9], ChannelViolation::Control),
            (&[0, 3, 4, 144, 1, 1, 9], ChannelViolation::Control),
            (&[0, 3, 4, 0, 8, 255, 9], ChannelViolation::Control),
            (&[0, 3, 4, 2, 0, 0, 9], ChannelViolation::Control),
        ] {
            assert_eq!(read(frames), Err(violation), "{frames:?}");
        }
        let mut long: Vec<u8> = [0x80, 2, 0, 0].into();
        long.resize(4 + 257, b'a');
        assert_eq!(read(&long), Err(ChannelViolation::Control));
        assert!(read(&long[..260]).is_ok());
    }

    #[test]
    fn message_that_does_not_fit_is_not_written() {
        assert_eq!(write_hello(&PLAIN, &mut [0; 2 + HELLO_BODY_BYTES]), 0);
        assert_eq!(write_bye(&Bye { code: CloseCode::KICKED, text: "no" }, &mut [0; 6]), 0);
    }
}
