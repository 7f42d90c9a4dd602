//! A turn in which nothing has arrived and nothing is due.

use std::io;
use std::time::Duration;

use crate::arena::{Arena, Corner, Rig};
use crate::contestant::Game;
use crate::measures::echo::echo;
use crate::measures::{microseconds, no_such_thing, row};
use crate::row::{Against, Limit, Row};

/// Turns of a round.
const TURNS: u32 = 40;
/// The time between them: all of it is shorter than what keep-alives wait for.
const BETWEEN: Duration = Duration::from_millis(1);

fn turns(corner: &mut Corner, burst: usize) -> io::Result<f64> {
    if !corner.contestant.is_netcode() {
        return Err(no_such_thing());
    }
    // Everyone has just been spoken to.
    echo(corner, corner.clients, burst)?;
    let start = corner.crowd.now();
    let spent = corner
        .stage
        .measure(move |server| (0..TURNS).map(|turn| server.turn(Game::Drop, start + BETWEEN * turn)).sum())?;
    corner.crowd.pass(BETWEEN * TURNS);
    Ok(microseconds(spent.nanoseconds_each(u64::from(TURNS))))
}

/// The row of so many clients.
#[must_use]
pub fn measure(rig: &Rig, arena: &mut Arena, clients: usize) -> Row {
    let burst = rig.burst;
    let [cells] = arena.play(|corner| Ok([turns(corner, burst)?]));
    let row = row(format!("idle turn, {clients} clients"), "us", cells);
    if clients == 10_000 { row.judged(Against::Itself, Limit::AtMost(50.0)) } else { row }
}
