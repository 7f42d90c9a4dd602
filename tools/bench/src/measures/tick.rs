//! The tick of a game: packets of every client come in, then the game sends to every client.

use std::io;

use crate::arena::{Arena, Corner, Rig};
use crate::contestant::{Game, PAYLOAD_BYTES};
use crate::crowd::TICK;
use crate::measures::{microseconds, row};
use crate::row::Row;
use crate::stage::Spent;

/// Packet pairs of a full round.
const PAIRS: usize = 16_384;
/// Ticks of a second.
const RATE: f64 = 60.0;

/// So many ticks cost this; all packets must come back.
fn ticks(corner: &mut Corner, ticks: usize, copies: u32, burst: usize) -> io::Result<Spent> {
    let (mut spent, mut sent, mut heard) = (Spent::default(), 0, 0);
    for _ in 0..ticks {
        for place in (0..corner.clients).step_by((burst / copies as usize).max(1)) {
            let group = place..corner.clients.min(place + (burst / copies as usize).max(1));
            let asked = corner.crowd.speak(group, &[7; PAYLOAD_BYTES], copies)?;
            spent.add(corner.stage.turns(Game::Listen, asked, corner.crowd.now())?);
            sent += asked;
        }
        let now = corner.crowd.now();
        spent.add(corner.stage.measure(move |server| {
            server.say(copies, now);
            0
        })?);
        heard += corner.crowd.listen(0..corner.clients);
        corner.crowd.pass(TICK);
    }
    if heard * 10 < sent * 9 {
        return Err(io::Error::other(format!("of {sent} packets only {heard} were answered")));
    }
    Ok(spent)
}

/// Two rows: what a packet pair costs, and how much of a core 60 ticks a second take.
#[must_use]
pub fn measure(rig: &Rig, arena: &mut Arena, clients: usize, copies: u32) -> [Row; 2] {
    let pairs = clients * copies as usize;
    let (count, burst) = (rig.effort.of(PAIRS).div_ceil(pairs), rig.burst);
    let [each, share] = arena.play(|corner| {
        let spent = ticks(corner, count, copies, burst)?;
        let tick = spent.nanoseconds_each(count as u64);
        Ok([microseconds(tick / pairs as f64), tick * RATE / 1e9 * 100.0])
    });
    let what = format!("tick, {clients} clients, {copies} packets each way");
    [row(what.clone(), "us/pair", each), row(format!("{what}, 60 Hz"), "% of a core", share)]
}
