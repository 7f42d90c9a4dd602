//! What a datagram costs that must be rejected, beside receiving and dropping one of the same length.

use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::arena::{Arena, Corner, Rig};
use crate::contestant::Game;
use crate::crowd::{TICK, TOKEN_SECONDS, address};
use crate::measures::echo::echo;
use crate::measures::{microseconds, no_such_thing, row};
use crate::row::{Against, Cell, Limit, Role, Row};
use crate::stage::Spent;

/// Datagrams of a full round.
const DATAGRAMS: usize = 4096;
/// Datagrams of a burst: no server's budget for one turn is smaller.
const BURST: usize = 512;
/// The front of a payload packet with a sequence number of eight bytes.
const PAYLOAD_PREFIX: u8 = 0x85;
/// A payload of 100 bytes, sealed.
const SEALED_BYTES: usize = 1 + 8 + 100 + 16;
const REQUEST_BYTES: usize = 1078;
/// The front of a request that no server of netcode 1.02 heeds.
const OTHER_VERSION: &[u8; 14] = b"\0NETCODE 1.01\0";
/// What is left when a server sees nothing of a burst: its empty turn, divided by the datagrams. Whatever that is, it is
/// less than this.
const NOTHING: Limit = Limit::AtMost(0.1);
/// And it is what an empty turn of the same round costs, as far as turns of a few microseconds can be told apart.
const AS_EMPTY: Limit = Limit::AtMost(1.2);
/// Of junk, one datagram in so many looks like a payload packet and passes the filter: half of the first bytes tell of 1 to
/// 8 bytes of sequence, and a 16th are of its type.
const PASSES: f64 = 32.0;
/// What a rejected datagram may cost, in a bare receive-and-drop.
const REJECTED: f64 = 1.1;
/// No client has an address from here on.
const STRANGERS: u32 = u32::from_be_bytes([127, 48, 0, 1]);

/// What is wrong with a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hostile {
    /// Random bytes.
    Junk,
    /// The form of a request, for another version of netcode.
    WrongVersion,
    /// The form of a payload packet, from an address without a client.
    UnknownAddress,
    /// A client's packet, which arrived before, under that client's address.
    ReplayedPacket,
    /// A client's address and a sequence number of its future, but not sealed by it.
    BadTag,
    /// A client's request, from another address.
    ReplayedToken,
}

impl Hostile {
    /// All of them, in the order of the rows.
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

    /// A datagram about a client, and where it seems to come from.
    fn forge(self, corner: &mut Corner, place: usize, number: u64) -> (Ipv4Addr, Vec<u8>) {
        let stranger = Ipv4Addr::from(STRANGERS + (number % 60_000) as u32);
        match self {
            Self::Junk => (stranger, random(corner, SEALED_BYTES)),
            Self::WrongVersion => {
                let mut request = random(corner, REQUEST_BYTES);
                request.splice(..OTHER_VERSION.len(), *OTHER_VERSION);
                (stranger, request)
            }
            Self::UnknownAddress => (stranger, unsealed(corner, number)),
            Self::BadTag => (address(place), unsealed(corner, number)),
            Self::ReplayedPacket => {
                let old = corner.crowd.last(place).map(<[u8]>::to_vec);
                (address(place), old.unwrap_or_else(|| random(corner, SEALED_BYTES)))
            }
            Self::ReplayedToken => {
                let old = corner.crowd.request(place).map(<[u8]>::to_vec);
                (stranger, old.unwrap_or_else(|| random(corner, REQUEST_BYTES)))
            }
        }
    }
}

fn random(corner: &mut Corner, bytes: usize) -> Vec<u8> {
    let mut datagram = vec![0; bytes];
    corner.crowd.fill(&mut datagram);
    datagram
}

/// The form of a payload packet, with a sequence number that was never seen.
fn unsealed(corner: &mut Corner, number: u64) -> Vec<u8> {
    let mut datagram = random(corner, SEALED_BYTES);
    let front = [&[PAYLOAD_PREFIX][..], &((1 << 32) + number).to_le_bytes()].concat();
    datagram.splice(..front.len(), front);
    datagram
}

/// Lets the clients come in anew before their tokens expire: an expired one would be rejected for that.
fn refresh(corner: &mut Corner) -> io::Result<()> {
    if corner.contestant.is_netcode() && corner.crowd.age() > Duration::from_secs(u64::from(TOKEN_SECONDS) / 3) {
        corner.crowd.dismiss(&corner.stage)?;
        corner.crowd.admit(corner.clients, &corner.stage)?;
    }
    Ok(())
}

/// What is measured in turns with bursts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// What is left when the kernel drops all of a burst.
    EmptyTurns,
}

/// Microseconds for each datagram; and of as many turns that find none, divided by as many datagrams.
fn rejects(
    corner: &mut Corner,
    hostile: Hostile,
    datagrams: usize,
    burst: usize,
    number: &mut u64,
    beside: Beside,
) -> io::Result<[f64; 2]> {
    if hostile == Hostile::ReplayedToken {
        refresh(corner)?;
    }
    let (mut spent, mut empty, mut sent) = (Spent::default(), Spent::default(), 0);
    while sent < datagrams {
        // Nothing is due then, and every budget is whole again.
        corner.crowd.pass(TICK * 3);
        echo(corner, corner.clients, burst)?;
        let begun = Instant::now();
        for _ in 0..BURST.min(burst) {
            *number += 1;
            let place = (*number % corner.clients.max(1) as u64) as usize;
            let (from, datagram) = hostile.forge(corner, place, *number);
            corner.crowd.forge(place, from, &datagram)?;
            sent += 1;
        }
        let pause = begun.elapsed();
        spent.add(corner.stage.turn(Game::Drop, corner.crowd.now())?);
        corner.crowd.listen(0..corner.clients);
        if beside == Beside::EmptyTurns {
            empty.add(empty_turn(corner, burst, pause)?);
        }
    }
    Ok([spent, empty].map(|spent| microseconds(spent.nanoseconds_each(sent as u64))))
}

/// A turn that finds nothing, after all that comes before one that finds a burst: its server has waited as long.
fn empty_turn(corner: &mut Corner, burst: usize, pause: Duration) -> io::Result<Spent> {
    corner.crowd.pass(TICK * 3);
    echo(corner, corner.clients, burst)?;
    let begun = Instant::now();
    while begun.elapsed() < pause {
        std::hint::spin_loop();
    }
    Ok(corner.stage.turn(Game::Drop, corner.crowd.now())?)
}

/// Whether the kernel drops junk before our server sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filter {
    /// It does, as is the default; only we and the plain server are measured.
    On,
    /// It does not.
    Off,
}

/// The row of one kind.
#[must_use]
pub fn measure(rig: &Rig, arena: &mut Arena, hostile: Hostile, filter: Filter) -> Row {
    let (datagrams, burst, on) = (rig.effort.of(DATAGRAMS), rig.burst, filter == Filter::On);
    let (mut number, mut empty) = (0, Vec::with_capacity(rig.rounds + 1));
    let [cells] = arena.play(|corner| {
        let role = corner.contestant.role;
        if role == Role::Channels || (on && role == Role::Peer) {
            return Err(no_such_thing());
        }
        let has_filter = corner.stage.ask(move |server| server.set_filter(on))?;
        if on && !has_filter && role == Role::Ours {
            return Err(io::Error::other("this system has no filter"));
        }
        let is_caught = on && role == Role::Ours && matches!(hostile, Hostile::Junk | Hostile::WrongVersion);
        let beside = if is_caught { Beside::EmptyTurns } else { Beside::Nothing };
        let [each, of_nothing] = rejects(corner, hostile, datagrams, burst, &mut number, beside)?;
        if is_caught {
            empty.push(of_nothing);
        }
        Ok([each])
    });
    // The first was to warm up.
    let empty: Vec<f64> = empty.into_iter().skip(1).collect();
    let what = format!("rejects: {}{}", hostile.name(), if on { ", with the filter" } else { "" });
    let limit = match (hostile, filter) {
        (Hostile::WrongVersion, Filter::On) => {
            let named = "an empty turn".into();
            return row(what, "us each", cells)
                .judged(Against::Itself, NOTHING)
                .judged(Against::Ours { named, rounds: empty }, AS_EMPTY);
        }
        (Hostile::Junk, Filter::On) => {
            let rounds = with_what_passes(rig, &cells, &empty);
            let named = format!("an empty turn and {REJECTED}x plain for 1 in {PASSES}");
            return row(what, "us each", cells)
                .judged(Against::Itself, NOTHING)
                .judged(Against::Ours { named, rounds }, AS_EMPTY);
        }
        (Hostile::BadTag, _) => 1.8,
        _ => REJECTED,
    };
    row(what, "us each", cells).judged(Against::Plain, Limit::AtMost(limit))
}

/// What junk may cost of which the filter lets one in so many pass: in each round an empty turn, and what these may cost.
fn with_what_passes(rig: &Rig, cells: &[Cell], empty: &[f64]) -> Vec<f64> {
    let plain = rig.contestants.iter().zip(cells).find(|(contestant, _)| contestant.role == Role::Plain);
    let plain = plain.map_or(&[][..], |(_, cell)| cell.rounds());
    empty.iter().zip(plain).map(|(empty, plain)| empty + plain * REJECTED / PASSES).collect()
}
