//! Full connects: request, challenge, response, slot.

use std::io;

use crate::arena::{Arena, Corner, Rig};
use crate::measures::no_such_thing;
use crate::row::{Against, Limit, Row};

/// Slots of the servers: the most that all contestants have.
const SLOTS: usize = 256;

fn connects(corner: &mut Corner, clients: usize) -> io::Result<f64> {
    if !corner.contestant.is_netcode() {
        return Err(no_such_thing());
    }
    let spent = corner.crowd.admit(clients, &corner.stage)?;
    corner.crowd.dismiss(&corner.stage)?;
    Ok(1e9 / spent.nanoseconds_each(clients as u64))
}

/// The row: how many clients connect in a second of a core.
#[must_use]
pub fn measure(rig: &Rig) -> Row {
    let mut arena = Arena::empty(rig, SLOTS);
    let clients = rig.effort.of(SLOTS * 4).clamp(8, SLOTS);
    let [cells] = arena.play(|corner| Ok([connects(corner, clients)?]));
    Row { what: "connects".into(), unit: "per core-second", more_is_better: true, cells, targets: Vec::new() }
        .judged(Against::BestPeer, Limit::AtLeast(1.4))
}
