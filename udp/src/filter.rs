//! What a server's sockets let through: a program for the kernel, which drops the rest before it wakes the server.
//!
//! ```text
//!                       ┌ first byte 0 ─▶ length of a request? version and protocol id ours? ──────────┐
//!  UDP header, datagram ┤                                                                              ├▶ accept
//!                       └ otherwise ────▶ 1 to 8 sequence bytes? a type for servers? its content's size? ┘
//! ```
//!
//! It refuses nothing that a server would do something with: it asks only what is written in the clear (§1.7 and §1.8 of
//! `specs/netcode-1.02.md`), and the size that each type's content has. Linux runs such programs (classic BPF,
//! `SO_ATTACH_FILTER`) without asking for any rights.

use slipgate_netcode::wire::packet::{PacketKind, REQUEST_PREFIX};
use slipgate_netcode::wire::{MAX_PAYLOAD_BYTES, REQUEST_BYTES, TAG_BYTES, VERSION};

/// What a server's sockets let through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filter {
    /// The protocol id of the server.
    pub protocol_id: u64,
    /// What becomes of requests for other protocol ids.
    pub foreign: Foreign,
}

/// What becomes of connection requests for another protocol id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// They pass, so that the server can tell its operator of them.
    Passes,
    /// They are dropped.
    Dropped,
}

/// One instruction of the classic BPF machine, as the kernel's `sock_filter` has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// What is done.
    pub code: u16,
    /// How many instructions are skipped if a comparison is true.
    pub if_true: u8,
    /// How many if it is false.
    pub if_false: u8,
    /// The operand.
    pub operand: u32,
}

/// Instructions, with the kernel's names for what they are made of (linux/bpf_common.h).
pub mod code {
    /// A := the byte at the operand's offset (`BPF_LD | BPF_B | BPF_ABS`).
    pub const LOAD_BYTE: u16 = 0x30;
    /// A := the big-endian u16 there (`BPF_LD | BPF_H | BPF_ABS`).
    pub const LOAD_HALF: u16 = 0x28;
    /// A := the big-endian u32 there (`BPF_LD | BPF_W | BPF_ABS`).
    pub const LOAD_WORD: u16 = 0x20;
    /// A := the length, UDP header included (`BPF_LD | BPF_W | BPF_LEN`).
    pub const LOAD_LENGTH: u16 = 0x80;
    /// A := A & operand (`BPF_ALU | BPF_AND | BPF_K`).
    pub const AND: u16 = 0x54;
    /// A := A >> operand (`BPF_ALU | BPF_RSH | BPF_K`).
    pub const SHIFT_RIGHT: u16 = 0x74;
    /// A := A - operand (`BPF_ALU | BPF_SUB | BPF_K`).
    pub const SUBTRACT: u16 = 0x14;
    /// A := A - X (`BPF_ALU | BPF_SUB | BPF_X`).
    pub const SUBTRACT_X: u16 = 0x1c;
    /// X := A (`BPF_MISC | BPF_TAX`).
    pub const TO_X: u16 = 0x07;
    /// A := X (`BPF_MISC | BPF_TXA`).
    pub const FROM_X: u16 = 0x87;
    /// A == operand? (`BPF_JMP | BPF_JEQ | BPF_K`).
    pub const IS: u16 = 0x15;
    /// A > operand? (`BPF_JMP | BPF_JGT | BPF_K`).
    pub const IS_ABOVE: u16 = 0x25;
    /// Ends: so many bytes are accepted, or the datagram is dropped if none are (`BPF_RET | BPF_K`).
    pub const END: u16 = 0x06;
}

/// Where the datagram begins: the program sees the UDP header first.
const START: u32 = 8;
/// Bytes of an encrypted packet that are neither sequence nor content.
const AROUND_CONTENT: u32 = 1 + TAG_BYTES as u32;
/// All bytes of a datagram are accepted.
const ALL: u32 = u32::MAX;

impl Filter {
    /// The program, which ends whatever arrives, for it only goes forwards.
    #[must_use]
    pub fn program(&self) -> Vec<Instruction> {
        let encrypted = encrypted_packet();
        let mut program = Program::default();
        program.add(code::LOAD_BYTE, START);
        // A request's part follows that of encrypted packets.
        let past = encrypted.0.len() as u8;
        program.compare(code::IS, u32::from(REQUEST_PREFIX), past, 0);
        program.0.extend(encrypted.0);
        program.0.extend(self.request().0);
        program.0
    }

    /// For a datagram whose first byte is that of a request.
    fn request(&self) -> Program {
        let mut front = vec![REQUEST_PREFIX];
        front.extend(VERSION);
        if self.foreign == Foreign::Dropped {
            front.extend(self.protocol_id.to_le_bytes());
        }
        let mut program = Program::default();
        program.add(code::LOAD_LENGTH, 0);
        program.go_on_if_it_is(START + REQUEST_BYTES as u32);
        let mut offset = START;
        // Its parts are words and, at the end, a half word, for 14 and 22 bytes are such.
        for part in front.chunks(4) {
            let number = part.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
            program.add(if part.len() == 4 { code::LOAD_WORD } else { code::LOAD_HALF }, offset);
            program.go_on_if_it_is(number);
            offset += part.len() as u32;
        }
        program.add(code::END, ALL);
        program
    }
}

/// For a datagram whose first byte, which is in A, is not that of a request.
fn encrypted_packet() -> Program {
    let mut program = Program::default();
    program.add(code::SHIFT_RIGHT, 4);
    // Sequence bytes, in X when they are at least one and at most eight.
    program.compare(code::IS, 0, 1, 0);
    program.compare(code::IS_ABOVE, 8, 0, 1);
    program.add(code::END, 0);
    program.add(code::TO_X, 0);
    // The content's bytes, in X. A datagram that is too short has very many: the difference wraps.
    program.add(code::LOAD_LENGTH, 0);
    program.add(code::SUBTRACT, START + AROUND_CONTENT);
    program.add(code::SUBTRACT_X, 0);
    program.add(code::TO_X, 0);
    program.add(code::LOAD_BYTE, START);
    program.add(code::AND, 0x0f);
    for kind in PacketKind::TO_SERVER {
        let sizes = content_sizes(*kind);
        program.compare(code::IS, *kind as u32, 0, sizes.0.len() as u8);
        program.0.extend(sizes.0);
    }
    program.add(code::END, 0);
    program
}

/// Accepts if X, the content's bytes, is what contents of the kind have; those sizes have no gaps.
fn content_sizes(kind: PacketKind) -> Program {
    let allowed = || (0..=MAX_PAYLOAD_BYTES as u32).filter(|bytes| kind.allows_content(*bytes as usize));
    let (least, most) = (allowed().min().unwrap_or(0), allowed().max().unwrap_or(0));
    let mut program = Program::default();
    program.add(code::FROM_X, 0);
    program.add(code::SUBTRACT, least);
    program.compare(code::IS_ABOVE, most - least, 0, 1);
    program.add(code::END, 0);
    program.add(code::END, ALL);
    program
}

/// Instructions in the making.
#[derive(Default)]
struct Program(Vec<Instruction>);

impl Program {
    fn add(&mut self, code: u16, operand: u32) {
        self.compare(code, operand, 0, 0);
    }

    fn compare(&mut self, code: u16, operand: u32, if_true: u8, if_false: u8) {
        self.0.push(Instruction { code, if_true, if_false, operand });
    }

    /// Drops unless A is a number.
    fn go_on_if_it_is(&mut self, number: u32) {
        self.compare(code::IS, number, 1, 0);
        self.add(code::END, 0);
    }
}

#[cfg(any(target_os = "android", target_os = "linux"))]
mod kernel {
    use std::io;

    use socket2::{SockFilter, SockRef};

    use super::{Filter, Instruction};

    pub(crate) fn set(socket: &SockRef<'_>, filter: Option<&Filter>) -> io::Result<()> {
        let Some(filter) = filter else {
            return match socket.detach_filter() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                result => result,
            };
        };
        let instruction =
            |Instruction { code, if_true, if_false, operand }| SockFilter::new(code, if_true, if_false, operand);
        socket.attach_filter(&filter.program().into_iter().map(instruction).collect::<Vec<_>>())
    }
}

#[cfg(not(any(target_os = "android", target_os = "linux")))]
mod kernel {
    use std::io;

    use socket2::SockRef;

    use super::Filter;

    pub(crate) fn set(_: &SockRef<'_>, filter: Option<&Filter>) -> io::Result<()> {
        filter.map_or(Ok(()), |_| Err(io::ErrorKind::Unsupported.into()))
    }
}

pub(super) use self::kernel::set;
