//! The cost of a rejected datagram, compared with receiving and dropping one of the same length.

use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::load::{TICK, TOKEN_SECONDS, address};
use crate::measures::echo::echo;
use crate::measures::{microseconds, not_applicable, row};
use crate::row::{Baseline, BenchRow, Cell, ColumnRole, FigureLimit};
use crate::runner::{Runner, Setup, TestBed};
use crate::server_thread::Cost;
use crate::subject::Workload;

/// The number of datagrams in a full round.
const DATAGRAMS: usize = 4096;
/// The number of datagrams in a burst, at most the budget of any server for one turn.
const BURST: usize = 512;
/// The prefix of a payload packet with a sequence number of eight bytes.
const PAYLOAD_PREFIX: u8 = 0x85;
/// The size of a sealed payload of 100 bytes.
pub(crate) const SEALED_BYTES: usize = 1 + 8 + 100 + 16;
const REQUEST_BYTES: usize = 1078;
/// The beginning of a request of another version of netcode.
const OTHER_VERSION: &[u8; 14] = b"\0NETCODE 1.01\0";
/// The maximum cost when the kernel drops the whole burst: an empty turn divided by the datagrams.
const NOTHING: FigureLimit = FigureLimit::AtMost(0.1);
/// The same cost relative to an empty turn of the same round, within the resolution of turns of a few microseconds.
const AS_EMPTY: FigureLimit = FigureLimit::AtMost(1.2);
/// One junk datagram of this many looks like a payload packet and passes the filter: half of all first bytes state 1 to
/// 8 sequence bytes, and 1 of 16 has its type.
const PASSES: f64 = 32.0;
/// The maximum cost of a rejected datagram, relative to a receive-and-drop.
const REJECTED: f64 = 1.1;
/// No client has an address from this one on.
const FIRST_UNKNOWN_ADDRESS: u32 = u32::from_be_bytes([127, 48, 0, 1]);

/// The kind of a hostile datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hostile {
    /// Random bytes.
    Junk,
    /// A request for another version of netcode.
    WrongVersion,
    /// A forged payload packet from an address without a client.
    UnknownAddress,
    /// A repeated packet of a client, from that client's address.
    ReplayedPacket,
    /// A forged packet from a client's address with a future sequence number.
    BadTag,
    /// A client's request, from another address.
    ReplayedToken,
}

impl Hostile {
    /// All kinds, in the order of the rows.
    pub const ALL: [Self; 6] =
        [Self::Junk, Self::WrongVersion, Self::UnknownAddress, Self::ReplayedPacket, Self::BadTag, Self::ReplayedToken];

    const fn name(self) -> &'static str {
        match self {
            Self::Junk => "junk",
            Self::WrongVersion => "wrong version",
            Self::UnknownAddress => "unknown address",
            Self::ReplayedPacket => "spoofed address, old packet",
            Self::BadTag => "spoofed address, bad tag",
            Self::ReplayedToken => "replayed token",
        }
    }

    /// Returns a hostile datagram for a client, and its source address.
    fn forge(self, test_bed: &mut TestBed, index: usize, number: u64) -> (Ipv4Addr, Vec<u8>) {
        let stranger = Ipv4Addr::from(FIRST_UNKNOWN_ADDRESS + (number % 60_000) as u32);
        match self {
            Self::Junk => (stranger, random(test_bed, SEALED_BYTES)),
            Self::WrongVersion => {
                let mut request = random(test_bed, REQUEST_BYTES);
                request.splice(..OTHER_VERSION.len(), *OTHER_VERSION);
                (stranger, request)
            }
            Self::UnknownAddress => (stranger, unsealed(test_bed, number)),
            Self::BadTag => (address(index), unsealed(test_bed, number)),
            Self::ReplayedPacket => {
                let old = test_bed.load.last(index).map(<[u8]>::to_vec);
                (address(index), old.unwrap_or_else(|| random(test_bed, SEALED_BYTES)))
            }
            Self::ReplayedToken => {
                let old = test_bed.load.request(index).map(<[u8]>::to_vec);
                (stranger, old.unwrap_or_else(|| random(test_bed, REQUEST_BYTES)))
            }
        }
    }
}

fn random(test_bed: &mut TestBed, bytes: usize) -> Vec<u8> {
    let mut datagram = vec![0; bytes];
    test_bed.load.fill(&mut datagram);
    datagram
}

/// Returns a forged payload packet with a new sequence number.
fn unsealed(test_bed: &mut TestBed, number: u64) -> Vec<u8> {
    let mut datagram = random(test_bed, SEALED_BYTES);
    give_form(&mut datagram, number);
    datagram
}

/// Gives random bytes the form of a payload packet with a new sequence number.
pub(crate) fn give_form(datagram: &mut [u8], number: u64) {
    let front = std::iter::once(PAYLOAD_PREFIX).chain(((1 << 32) + number).to_le_bytes());
    datagram.iter_mut().zip(front).for_each(|(byte, form)| *byte = form);
}

/// Reconnects the clients before their tokens expire, because an expired token would be rejected for another reason.
fn refresh(test_bed: &mut TestBed) -> io::Result<()> {
    if test_bed.subject.is_netcode() && test_bed.load.age() > Duration::from_secs(u64::from(TOKEN_SECONDS) / 3) {
        test_bed.load.disconnect_clients(&test_bed.server_thread)?;
        test_bed.load.connect_clients(test_bed.clients, &test_bed.server_thread)?;
    }
    Ok(())
}

/// Whether empty turns are measured in turn with the bursts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EmptyTurnMode {
    Nothing,
    /// Empty turns, the remaining cost when the kernel drops the whole burst.
    EmptyTurns,
}

/// Returns the cost in microseconds for each datagram, and of as many empty turns divided by as many datagrams.
fn rejects(
    test_bed: &mut TestBed,
    hostile: Hostile,
    datagrams: usize,
    burst: usize,
    number: &mut u64,
    beside: EmptyTurnMode,
) -> io::Result<[f64; 2]> {
    if hostile == Hostile::ReplayedToken {
        refresh(test_bed)?;
    }
    let (mut cost, mut empty, mut sent) = (Cost::default(), Cost::default(), 0);
    while sent < datagrams {
        // Nothing is due then, and every budget is full again.
        test_bed.load.advance(TICK * 3);
        echo(test_bed, test_bed.clients, burst)?;
        let started_at = Instant::now();
        for _ in 0..BURST.min(burst) {
            *number += 1;
            let index = (*number % test_bed.clients.max(1) as u64) as usize;
            let (from, datagram) = hostile.forge(test_bed, index, *number);
            test_bed.load.send_from(index, from, &datagram)?;
            sent += 1;
        }
        let pause = started_at.elapsed();
        cost.add(test_bed.server_thread.turn(Workload::Drop, test_bed.load.now())?);
        test_bed.load.receive_messages(0..test_bed.clients);
        if beside == EmptyTurnMode::EmptyTurns {
            empty.add(empty_turn(test_bed, burst, pause)?);
        }
    }
    Ok([cost, empty].map(|cost| microseconds(cost.nanoseconds_each(sent as u64))))
}

/// Measures an empty turn after the same preparation as a turn with a burst, in which its server waits as long.
fn empty_turn(test_bed: &mut TestBed, burst: usize, pause: Duration) -> io::Result<Cost> {
    test_bed.load.advance(TICK * 3);
    echo(test_bed, test_bed.clients, burst)?;
    let started_at = Instant::now();
    while started_at.elapsed() < pause {
        std::hint::spin_loop();
    }
    Ok(test_bed.server_thread.turn(Workload::Drop, test_bed.load.now())?)
}

/// Whether the kernel filter is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filter {
    /// It is on, the default. Only Slipgate and the plain server are measured.
    On,
    /// It is off.
    Off,
}

/// Returns the row of one kind.
#[must_use]
pub fn measure(setup: &Setup, runner: &mut Runner, hostile: Hostile, filter: Filter) -> BenchRow {
    let (datagrams, burst, on) = (setup.effort.of(DATAGRAMS), setup.burst, filter == Filter::On);
    let (mut number, mut empty) = (0, Vec::with_capacity(setup.rounds + 1));
    let [cells] = runner.play(|test_bed| {
        let role = test_bed.subject.role;
        if role == ColumnRole::Channels || (on && role == ColumnRole::Peer) {
            return Err(not_applicable());
        }
        let has_filter = test_bed.server_thread.ask(move |server| server.set_filter(on))?;
        if on && !has_filter && role == ColumnRole::Ours {
            return Err(io::Error::other("this system has no filter"));
        }
        let is_caught = on && role == ColumnRole::Ours && matches!(hostile, Hostile::Junk | Hostile::WrongVersion);
        let beside = if is_caught { EmptyTurnMode::EmptyTurns } else { EmptyTurnMode::Nothing };
        let [each, of_nothing] = rejects(test_bed, hostile, datagrams, burst, &mut number, beside)?;
        if is_caught {
            empty.push(of_nothing);
        }
        Ok([each])
    });
    // The first round is a warm-up.
    let empty: Vec<f64> = empty.into_iter().skip(1).collect();
    targets(setup, hostile, filter, cells, empty)
}

/// Returns the row with its targets; `empty` holds the cost of empty turns in the same rounds.
fn targets(setup: &Setup, hostile: Hostile, filter: Filter, cells: Vec<Cell>, empty: Vec<f64>) -> BenchRow {
    let what = format!("rejects: {}{}", hostile.name(), if filter == Filter::On { ", with the filter" } else { "" });
    let (named, rounds) = match (hostile, filter) {
        (Hostile::WrongVersion, Filter::On) => ("an empty turn".into(), empty),
        (Hostile::Junk, Filter::On) => {
            let rounds = with_what_passes(setup, &cells, &empty);
            (format!("an empty turn and {REJECTED}x plain for 1 in {PASSES}"), rounds)
        }
        _ => {
            let limit = if hostile == Hostile::BadTag { 1.8 } else { REJECTED };
            return row(what, "us each", cells).with_target(Baseline::Plain, FigureLimit::AtMost(limit));
        }
    };
    row(what, "us each", cells)
        .with_target(Baseline::Itself, NOTHING)
        .with_target(Baseline::Ours { named, rounds }, AS_EMPTY)
}

/// Returns the maximum cost of junk when the filter passes one datagram in `PASSES`: an empty turn of the same round,
/// plus the cost of those that pass.
fn with_what_passes(setup: &Setup, cells: &[Cell], empty: &[f64]) -> Vec<f64> {
    let plain = setup.subjects.iter().zip(cells).find(|(subject, _)| subject.role == ColumnRole::Plain);
    let plain = plain.map_or(&[][..], |(_, cell)| cell.rounds());
    empty.iter().zip(plain).map(|(empty, plain)| empty + plain * REJECTED / PASSES).collect()
}
