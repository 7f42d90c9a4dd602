//! The kernel filter of a server's sockets: a BPF program that drops invalid datagrams before they wake the server.
//!
//! ```text
//!                       ┌ first byte 0 ─▶ length of a request? version and protocol id ours? ──────────┐
//!  UDP header, datagram ┤                                                                              ├▶ accept
//!                       └ otherwise ────▶ 1 to 8 sequence bytes? a type for servers? its content's size? ┘
//! ```
//!
//! It refuses only datagrams that a server would discard. It checks the fields that are sent in the clear (§1.7 and
//! §1.8 of `specs/netcode-1.02.md`) and the size of each packet type. Linux runs such programs (classic BPF,
//! `SO_ATTACH_FILTER`) without privileges.

use std::io;
#[cfg(any(target_os = "android", target_os = "linux"))]
use std::net::IpAddr;
use std::net::SocketAddr;

use slipgate_netcode::wire::packet::{PacketKind, REQUEST_PREFIX};
use slipgate_netcode::wire::{MAX_PAYLOAD_BYTES, REQUEST_BYTES, TAG_BYTES, VERSION};

/// The settings of a kernel filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketFilter {
    /// The protocol id of the server.
    pub protocol_id: u64,
    /// The treatment of requests for other protocol ids.
    pub other_protocols: OtherProtocol,
}

/// The treatment of connection requests for another protocol id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OtherProtocol {
    /// They pass, so that the server can report them to its operator.
    Passes,
    /// They are dropped.
    Dropped,
}

/// A sender whose datagrams the kernel drops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockedSender {
    /// Its address.
    pub address: SocketAddr,
    /// Which of its datagrams pass all the same.
    pub passing: Passing,
}

/// The results of blocking senders, one for each address family. A family without senders can fail, too: the system
/// replaces its program.
#[derive(Debug)]
#[must_use]
pub struct BlockResults {
    /// The result for IPv4; `Ok` without a socket.
    pub v4: io::Result<()>,
    /// The result for IPv6; `Ok` without a socket.
    pub v6: io::Result<()>,
}

impl BlockResults {
    /// Returns one result for both families.
    ///
    /// # Errors
    /// The error of IPv4 if there is one, otherwise that of IPv6.
    pub fn both(self) -> io::Result<()> {
        self.v4.and(self.v6)
    }
}

/// Which datagrams of a blocked sender pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passing {
    /// The filter drops each datagram.
    Nothing,
    /// One of 64, at random, to find out whether the sender goes on.
    OneIn64,
    /// The same, and each encrypted packet with one of the [`NEXT_SEQUENCES`] sequence numbers from this one on, both
    /// modulo 2^16: those that a client at this address sends next. Of random numbers it is one of 64.
    Next {
        /// The first sequence number, modulo 2^16.
        first: u16,
    },
}

/// The sequence numbers of [`Passing::Next`]: a 64th of 2^16.
pub const NEXT_SEQUENCES: u16 = 1024;

/// Returns the sequence number of an encrypted packet modulo 2^16, `None` if the datagram is too short.
#[must_use]
pub fn sequence_of(datagram: &[u8]) -> Option<u16> {
    let (prefix, low) = (datagram.first()?, datagram.get(1)?);
    let high = if prefix >> 4 == 1 { &0 } else { datagram.get(2)? };
    Some(u16::from_le_bytes([*low, *high]))
}

/// An instruction of the classic BPF machine, like the kernel's `sock_filter`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BpfInstruction {
    /// The operation, one of [`code`].
    pub code: u16,
    /// The number of instructions to skip if a comparison is true.
    pub if_true: u8,
    /// The number of instructions to skip if it is false.
    pub if_false: u8,
    /// The operand.
    pub operand: u32,
}

/// The operation codes, with the kernel's names of their parts (linux/bpf_common.h).
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
    /// A := A << operand (`BPF_ALU | BPF_LSH | BPF_K`).
    pub const SHIFT_LEFT: u16 = 0x64;
    /// A := A >> operand (`BPF_ALU | BPF_RSH | BPF_K`).
    pub const SHIFT_RIGHT: u16 = 0x74;
    /// A := A - operand (`BPF_ALU | BPF_SUB | BPF_K`).
    pub const SUBTRACT: u16 = 0x14;
    /// A := A + X (`BPF_ALU | BPF_ADD | BPF_X`).
    pub const ADD_X: u16 = 0x0c;
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
    /// Ends: accepts the first operand bytes of the datagram, or drops it if the operand is 0 (`BPF_RET | BPF_K`).
    pub const END: u16 = 0x06;
}

/// The offset of the datagram: the program sees the UDP header first.
const START: u32 = 8;
/// The bytes of an encrypted packet besides its sequence number and content.
const AROUND_CONTENT: u32 = 1 + TAG_BYTES as u32;
/// Accepts all bytes of a datagram.
const ALL: u32 = u32::MAX;

impl SocketFilter {
    /// Returns the program. It always terminates, because it jumps only forwards.
    #[must_use]
    pub fn program(&self) -> Vec<BpfInstruction> {
        let encrypted = encrypted_packet();
        let mut program = BpfProgram::default();
        program.add(code::LOAD_BYTE, START);
        // The part for requests follows the part for encrypted packets.
        let skip = encrypted.0.len() as u8;
        program.compare(code::IS, u32::from(REQUEST_PREFIX), skip, 0);
        program.0.extend(encrypted.0);
        program.0.extend(self.request().0);
        program.0
    }

    /// Returns the part for datagrams with the first byte of a request.
    fn request(&self) -> BpfProgram {
        let mut prefix = vec![REQUEST_PREFIX];
        prefix.extend(VERSION);
        if self.other_protocols == OtherProtocol::Dropped {
            prefix.extend(self.protocol_id.to_le_bytes());
        }
        let mut program = BpfProgram::default();
        program.add(code::LOAD_LENGTH, 0);
        program.require_equal(START + REQUEST_BYTES as u32);
        let mut offset = START;
        // The compared prefix of 14 or 22 bytes consists of words and a half word.
        for part in prefix.chunks(4) {
            let number = part.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
            program.add(if part.len() == 4 { code::LOAD_WORD } else { code::LOAD_HALF }, offset);
            program.require_equal(number);
            offset += part.len() as u32;
        }
        program.add(code::END, ALL);
        program
    }
}

/// Returns the part for all other datagrams. It expects the first byte in A.
fn encrypted_packet() -> BpfProgram {
    let mut program = BpfProgram::default();
    program.add(code::SHIFT_RIGHT, 4);
    // The number of sequence bytes goes to X. It must be from 1 to 8.
    program.compare(code::IS, 0, 1, 0);
    program.compare(code::IS_ABOVE, 8, 0, 1);
    program.add(code::END, 0);
    program.add(code::TO_X, 0);
    // The length of the content goes to X. The subtraction wraps for datagrams that are too short, which gives a huge
    // length.
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

/// Returns the part that accepts a datagram if X, the length of its content, is valid for this kind. Valid lengths are
/// contiguous.
fn content_sizes(kind: PacketKind) -> BpfProgram {
    let allowed = || (0..=MAX_PAYLOAD_BYTES as u32).filter(|bytes| kind.allows_content(*bytes as usize));
    let (min, max) = (allowed().min().unwrap_or(0), allowed().max().unwrap_or(0));
    let mut program = BpfProgram::default();
    program.add(code::FROM_X, 0);
    program.add(code::SUBTRACT, min);
    program.compare(code::IS_ABOVE, max - min, 0, 1);
    program.add(code::END, 0);
    program.add(code::END, ALL);
    program
}

/// The offset of the IP header, the kernel's `SKF_NET_OFF`: loads from there on reach before the UDP header.
#[cfg(any(target_os = "android", target_os = "linux"))]
const NETWORK_HEADER: u32 = 0xfff0_0000;

/// The offset that loads a random number, the kernel's `SKF_AD_OFF + SKF_AD_RANDOM`.
#[cfg(any(target_os = "android", target_os = "linux"))]
const RANDOM: u32 = 0xffff_f000 + 56;

/// Returns the part in front of all others that drops the datagrams of these senders, on a socket of their family.
#[cfg(any(target_os = "android", target_os = "linux"))]
fn blocked_senders(blocked: &[BlockedSender]) -> BpfProgram {
    let mut program = BpfProgram::default();
    for BlockedSender { address: sender, passing } in blocked {
        let passing = passing_part(*passing);
        let end = passing.0.len() as u8;
        // The offset of the source in an IP header, and its words.
        let (offset, octets) = match sender.ip() {
            IpAddr::V4(ip) => (12, ip.octets().to_vec()),
            IpAddr::V6(ip) => (8, ip.octets().to_vec()),
        };
        // Each comparison skips the rest of its sender: the words that follow, the port and the end.
        let mut left = octets.len() as u8 / 4;
        for (offset, word) in (offset..).step_by(4).zip(octets.chunks(4)) {
            left -= 1;
            program.add(code::LOAD_WORD, NETWORK_HEADER + offset);
            program.compare(
                code::IS,
                word.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)),
                0,
                2 * left + 2 + end,
            );
        }
        program.add(code::LOAD_HALF, 0);
        program.compare(code::IS, sender.port().into(), 0, end);
        program.0.extend(passing.0);
    }
    program
}

/// Returns the part that drops a datagram of a blocked sender, unless it passes.
#[cfg(any(target_os = "android", target_os = "linux"))]
fn passing_part(passing: Passing) -> BpfProgram {
    let mut program = BpfProgram::default();
    if let Passing::Next { first } = passing {
        // The number of sequence bytes. A is 0 if it is 1, and otherwise the second byte of the number.
        program.add(code::LOAD_BYTE, START);
        program.add(code::AND, 0xf0);
        program.add(code::SUBTRACT, 0x10);
        program.compare(code::IS, 0, 1, 0);
        program.add(code::LOAD_BYTE, START + 2);
        program.add(code::SHIFT_LEFT, 8);
        program.add(code::TO_X, 0);
        program.add(code::LOAD_BYTE, START + 1);
        program.add(code::ADD_X, 0);
        program.add(code::SUBTRACT, first.into());
        program.add(code::AND, 0xffff);
        // The next three instructions are the random sample.
        program.compare(code::IS_ABOVE, u32::from(NEXT_SEQUENCES) - 1, 0, 3);
    }
    if passing != Passing::Nothing {
        program.add(code::LOAD_WORD, RANDOM);
        program.compare(code::IS_ABOVE, u32::MAX / 64, 0, 1);
    }
    program.add(code::END, 0);
    program
}

/// A program under construction.
#[derive(Default)]
struct BpfProgram(Vec<BpfInstruction>);

impl BpfProgram {
    fn add(&mut self, code: u16, operand: u32) {
        self.compare(code, operand, 0, 0);
    }

    fn compare(&mut self, code: u16, operand: u32, if_true: u8, if_false: u8) {
        self.0.push(BpfInstruction { code, if_true, if_false, operand });
    }

    /// Drops the datagram unless A is this number.
    fn require_equal(&mut self, number: u32) {
        self.compare(code::IS, number, 1, 0);
        self.add(code::END, 0);
    }
}

#[cfg(any(target_os = "android", target_os = "linux"))]
mod kernel {
    use std::io;

    use socket2::{SockFilter, SockRef};

    use super::{BlockedSender, BpfInstruction, SocketFilter, blocked_senders};

    pub(crate) fn set(
        socket: &SockRef<'_>,
        filter: Option<&SocketFilter>,
        blocked: &[BlockedSender],
    ) -> io::Result<()> {
        let Some(filter) = filter else {
            return match socket.detach_filter() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                result => result,
            };
        };
        let instruction =
            |BpfInstruction { code, if_true, if_false, operand }| SockFilter::new(code, if_true, if_false, operand);
        let program = blocked_senders(blocked).0.into_iter().chain(filter.program());
        socket.attach_filter(&program.map(instruction).collect::<Vec<_>>())
    }
}

#[cfg(not(any(target_os = "android", target_os = "linux")))]
mod kernel {
    use std::io;

    use socket2::SockRef;

    use super::{BlockedSender, SocketFilter};

    pub(crate) fn set(_: &SockRef<'_>, filter: Option<&SocketFilter>, _: &[BlockedSender]) -> io::Result<()> {
        filter.map_or(Ok(()), |_| Err(io::ErrorKind::Unsupported.into()))
    }
}

pub(super) use self::kernel::set;
