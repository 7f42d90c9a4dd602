//! Control messages: what the two ends of a session tell each other beside the game (§3.5).
//!
//! They stand before all other frames of a packet, and the session decides in which packets. A type that is not known
//! is passed over by its length, and so is what a later version puts behind the fields of a known one.

use core::fmt;

use super::frame::{CHANNEL_BITS, CONTROL, LAST, number_bytes, read_number};
use super::layout::LayoutHash;
use super::violation::Violation;
use slipgate_netcode::wire::cursor::{Reader, Writer};

/// The version of the frames that this module writes (§3.5).
pub const VERSION: u8 = 1;
/// The most bytes of the text of a [`Bye`].
pub const MAX_TEXT_BYTES: usize = 256;
/// The most bytes that [`write_hello`] takes.
pub const HELLO_BYTES: usize = 3 + HELLO_BODY_BYTES;
/// The most bytes that [`write_bye`] takes.
pub const MAX_BYE_BYTES: usize = 4 + 2 + MAX_TEXT_BYTES;

const HELLO: u8 = 1;
const BYE: u8 = 2;
const HELLO_BODY_BYTES: usize = 14;

/// What an end says of itself when the session begins: in each packet until one of them is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The newest version of the frames that it speaks.
    pub version: u8,
    /// The oldest one.
    pub oldest_version: u8,
    /// The digest of its layout: when the two differ, neither end can make sense of the other's frames.
    pub layout: LayoutHash,
    /// The most bytes of a payload that it is ready to receive.
    pub payload_bytes: u16,
    /// One bit for each ability that both must have to be used; none is known yet.
    pub abilities: u16,
}

/// Why a session ends. Codes from 256 on are the application's; those from 5 to 255 are kept for later versions of the
/// session, and nobody can give them: [`ByeCode::of_application`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ByeCode(pub u16);

impl ByeCode {
    /// The application ends it, for the reason in the text: a client leaves, or the server kicks it.
    pub const KICKED: Self = Self(0);
    /// The layouts of the two ends differ.
    pub const LAYOUT_MISMATCH: Self = Self(1);
    /// The two ends speak no common version.
    pub const VERSION_MISMATCH: Self = Self(2);
    /// The peer sent what no honest one sends.
    pub const VIOLATION: Self = Self(3);
    /// The server shuts down, for the reason in the text.
    pub const SHUTDOWN: Self = Self(4);
    /// The first code that is the application's.
    pub const FIRST_OF_APPLICATION: Self = Self(256);

    /// As an application may say it: the session's own reasons, 1 to 3, and those kept for later, 5 to 255, become
    /// [`Self::KICKED`]. What is left is 0, [`Self::SHUTDOWN`], and the application's own from
    /// [`Self::FIRST_OF_APPLICATION`] on.
    #[must_use]
    pub const fn of_application(self) -> Self {
        let may_be_said = self.0 == Self::SHUTDOWN.0 || self.0 >= Self::FIRST_OF_APPLICATION.0;
        if may_be_said { self } else { Self::KICKED }
    }
}

/// The last words of a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bye<'a> {
    /// Why.
    pub code: ByeCode,
    /// For people; at most 256 bytes.
    pub text: &'a str,
}

impl fmt::Debug for Bye<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bye").field("code", &self.code.0).field("text", &self.text).finish()
    }
}

/// A control message that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Control<'a> {
    /// The peer says what it is.
    Hello(Hello),
    /// The peer ends the session.
    Bye(Bye<'a>),
    /// A type of a later version, to be passed over.
    Unknown(u8),
}

/// Reads the control message at the front of a packet's frames, and answers how many bytes it takes; `None` if there is
/// none. Call it until then, each time with what is behind the last one.
///
/// # Errors
/// When it is malformed.
pub fn read(frames: &[u8]) -> Result<Option<(Control<'_>, usize)>, Violation> {
    let mut reader = Reader::new(frames);
    let Some(head) = reader.u8().filter(|head| head & CHANNEL_BITS == CONTROL) else { return Ok(None) };
    if head & !LAST != CONTROL {
        return Err(Violation::Reserved);
    }
    let kind = reader.u8().ok_or(Violation::Truncated)?;
    let bytes = if head == LAST { reader.rest().len() } else { read_number(&mut reader)? as usize };
    let (body, rest) = reader.rest().split_at_checked(bytes).ok_or(Violation::Truncated)?;
    let control = match kind {
        HELLO => Control::Hello(read_hello(body).ok_or(Violation::Control)?),
        BYE => Control::Bye(read_bye(body).ok_or(Violation::Control)?),
        kind => Control::Unknown(kind),
    };
    Ok(Some((control, frames.len() - rest.len())))
}

/// Writes a [`Hello`] at the front of `room`, and answers its bytes; 0 if it does not fit.
pub fn write_hello(hello: &Hello, room: &mut [u8]) -> usize {
    let mut writer = Writer::new(room);
    begin(&mut writer, HELLO, HELLO_BODY_BYTES);
    writer.u8(hello.version);
    writer.u8(hello.oldest_version);
    writer.bytes(&hello.layout.0);
    writer.u16(hello.payload_bytes);
    writer.u16(hello.abilities);
    writer.written().unwrap_or(0)
}

/// Writes a [`Bye`] at the front of `room`, and answers its bytes; 0 if it does not fit. A text over 256 bytes is cut at
/// the end of a character.
pub fn write_bye(bye: &Bye<'_>, room: &mut [u8]) -> usize {
    let end = bye.text.floor_char_boundary(MAX_TEXT_BYTES);
    let text = bye.text.as_bytes().get(..end).unwrap_or(&[]);
    let mut writer = Writer::new(room);
    begin(&mut writer, BYE, 2 + text.len());
    writer.u16(bye.code.0);
    writer.bytes(text);
    writer.written().unwrap_or(0)
}

fn begin(writer: &mut Writer<'_>, kind: u8, body: usize) {
    writer.u8(CONTROL);
    writer.u8(kind);
    if number_bytes(body as u32) > 1 {
        writer.u8(body as u8 | 0x80);
        writer.u8((body >> 7) as u8);
    } else {
        writer.u8(body as u8);
    }
}

fn read_hello(body: &[u8]) -> Option<Hello> {
    let mut body = Reader::new(body);
    let hello = Hello {
        version: body.u8()?,
        oldest_version: body.u8()?,
        layout: LayoutHash(*body.array()?),
        payload_bytes: body.u16()?,
        abilities: body.u16()?,
    };
    (hello.oldest_version <= hello.version).then_some(hello)
}

fn read_bye(body: &[u8]) -> Option<Bye<'_>> {
    let mut body = Reader::new(body);
    let code = ByeCode(body.u16()?);
    let text = core::str::from_utf8(body.rest()).ok().filter(|text| text.len() <= MAX_TEXT_BYTES)?;
    Some(Bye { code, text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;
    use std::vec::Vec;

    const PLAIN: Hello =
        Hello { version: 1, oldest_version: 1, layout: LayoutHash(*b"8 bytes."), payload_bytes: 1200, abilities: 0 };

    #[test]
    fn what_is_written_is_read_back_and_what_is_behind_it_stays() {
        let mut room = [0xee; 512];
        let hello = write_hello(&PLAIN, &mut room);
        assert_eq!(hello, HELLO_BYTES);
        let long = "ä".repeat(200);
        for text in ["", "kicked for idling", &long] {
            let bye = hello + write_bye(&Bye { code: ByeCode(300), text }, &mut room[hello..]);
            assert_eq!(read(&room).unwrap(), Some((Control::Hello(PLAIN), hello)));
            let cut: String = text.chars().take(128).collect();
            let read_back = read(&room[hello..]).unwrap();
            assert_eq!(read_back, Some((Control::Bye(Bye { code: ByeCode(300), text: &cut }), bye - hello)));
        }
        assert_eq!((read(&[0x01, 2, 3]), read(&[])), (Ok(None), Ok(None)));
    }

    #[test]
    fn what_later_versions_add_is_passed_over() {
        assert_eq!(read(&[0, 99, 2, 7, 7, 1]), Ok(Some((Control::Unknown(99), 5))));
        assert_eq!(read(&[0x80, 99, 2, 7]), Ok(Some((Control::Unknown(99), 4))));
        let mut room = [0; 64];
        let bytes = write_hello(&PLAIN, &mut room);
        room[2] += 5;
        assert_eq!(read(&room), Ok(Some((Control::Hello(PLAIN), bytes + 5))));
    }

    #[test]
    fn malformed_ones_are_violations() {
        for (frames, violation) in [
            (&[0][..], Violation::Truncated),
            (&[0, 1], Violation::Truncated),
            (&[0, 99, 3, 7, 7], Violation::Truncated),
            (&[0, 99, 0x80, 0], Violation::Number),
            (&[0x40, 99, 0], Violation::Reserved),
            (&[0, 1, 1, 1], Violation::Control),
            (&[0x80, 1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Violation::Control),
            (&[0, 2, 1, 0], Violation::Control),
            (&[0, 2, 3, 0, 0, 0xff], Violation::Control),
        ] {
            assert_eq!(read(frames), Err(violation), "{frames:?}");
        }
        let mut long: Vec<u8> = [0x80, 2, 0, 0].into();
        long.resize(4 + 257, b'a');
        assert_eq!(read(&long), Err(Violation::Control));
        assert!(read(&long[..260]).is_ok());
    }

    #[test]
    fn what_does_not_fit_is_not_written() {
        assert_eq!(write_hello(&PLAIN, &mut [0; HELLO_BYTES - 1]), 0);
        assert_eq!(write_bye(&Bye { code: ByeCode::KICKED, text: "no" }, &mut [0; 6]), 0);
    }
}
