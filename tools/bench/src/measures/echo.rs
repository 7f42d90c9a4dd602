//! The echo: one datagram in, one out, from every client in turn.
//!
//! The driver sends a burst, the server does its turns under the clock, the driver collects the answers. So the server
//! finds what it finds on a busy port, the driver's speed does not matter, and nobody waits under the clock.

use std::io;

use crate::arena::{Arena, Corner, Rig};
use crate::contestant::{Game, PAYLOAD_BYTES};
use crate::crowd::TICK;
use crate::measures::{microseconds, row};
use crate::ours::OURS;
use crate::row::{Against, Limit, Role, Row};
use crate::stage::Spent;

/// Pairs of a full round.
const PAIRS: usize = 16_384;
/// Fewer clients than this make bursts so short that fewer pairs must do.
const FEW: usize = 64;

/// So many pairs cost this, and so many answers were heard.
///
/// # Errors
/// When the server ends, or answers get lost.
pub fn echo(corner: &mut Corner, pairs: usize, burst: usize) -> io::Result<(Spent, u64)> {
    let (mut spent, mut sent, mut heard, mut place) = (Spent::default(), 0, 0, 0);
    while sent < pairs as u64 {
        let group = place..corner.clients.min(place + burst);
        let asked = corner.crowd.speak(group.clone(), &[7; PAYLOAD_BYTES], 1)?;
        spent.add(corner.stage.turns(Game::Echo, asked, corner.crowd.now())?);
        sent += asked;
        heard += corner.crowd.listen(group.clone());
        place = group.end;
        if place >= corner.clients {
            place = 0;
            corner.crowd.pass(TICK);
        }
    }
    if heard * 10 < sent * 9 {
        return Err(io::Error::other(format!("of {sent} answers only {heard} came")));
    }
    Ok((spent, heard))
}

fn pairs(rig: &Rig, clients: usize) -> usize {
    let full = if clients < FEW { PAIRS / 8 } else { PAIRS };
    rig.effort.of(full).max(clients)
}

/// The row of so many clients.
#[must_use]
pub fn measure(rig: &Rig, arena: &mut Arena, clients: usize) -> Row {
    let (pairs, burst) = (pairs(rig, clients), rig.burst);
    let [cells] = arena.play(|corner| {
        let (spent, heard) = echo(corner, pairs, burst)?;
        Ok([microseconds(spent.nanoseconds_each(heard))])
    });
    let row = row(format!("echo, {clients} clients"), "us/pair", cells);
    if clients != 256 {
        return row;
    }
    row.judged(Against::Plain, Limit::AtMost(1.0)).judged(Against::BestPeer, Limit::AtMost(0.5))
}

/// The row of so many clients, of whom ours are judged by what fewer cost us in the same rounds.
///
/// # Errors
/// When the fewer do not get in.
pub fn measure_beside(rig: &Rig, arena: &mut Arena, clients: usize, fewer: usize) -> io::Result<Row> {
    let burst = rig.burst;
    let mut beside = Corner::full(rig, OURS, fewer)?;
    let mut rounds = Vec::with_capacity(rig.rounds + 1);
    let [cells] = arena.play(|corner| {
        let (spent, heard) = echo(corner, pairs(rig, clients), burst)?;
        if corner.contestant.role == Role::Ours {
            let (spent, heard) = echo(&mut beside, pairs(rig, fewer), burst)?;
            rounds.push(microseconds(spent.nanoseconds_each(heard)));
        }
        Ok([microseconds(spent.nanoseconds_each(heard))])
    });
    // The first was to warm up.
    let rounds = rounds.into_iter().skip(1).collect();
    let named = format!("echo, {fewer} clients");
    Ok(row(format!("echo, {clients} clients"), "us/pair", cells)
        .judged(Against::Ours { named, rounds }, Limit::AtMost(1.25)))
}

/// How often memory is asked for by an echo.
#[must_use]
pub fn allocations(rig: &Rig, arena: &mut Arena, clients: usize) -> Row {
    let (pairs, burst, counted) = (pairs(rig, clients), rig.burst, rig.probe.is_some());
    let cells = arena.once(|corner| {
        if !counted {
            return Err(io::Error::other(super::memory::UNCOUNTED));
        }
        let (spent, heard) = echo(corner, pairs, burst)?;
        Ok(spent.allocations as f64 / heard.max(1) as f64)
    });
    row(format!("allocations of an echo, {clients} clients"), "each", cells).judged(Against::Itself, Limit::AtMost(0.0))
}
