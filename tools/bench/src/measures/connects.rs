//! Complete connects: request, challenge, response, slot.

use std::io;

use crate::measures::not_applicable;
use crate::row::{Baseline, BenchRow, FigureLimit};
use crate::runner::{Runner, Setup, TestBed};

/// The slots of the servers: the maximum that all subjects support.
const SLOTS: usize = 256;

fn connects(test_bed: &mut TestBed, clients: usize) -> io::Result<f64> {
    if !test_bed.subject.is_netcode() {
        return Err(not_applicable());
    }
    let cost = test_bed.load.connect_clients(clients, &test_bed.server_thread)?;
    test_bed.load.disconnect_clients(&test_bed.server_thread)?;
    Ok(1e9 / cost.nanoseconds_each(clients as u64))
}

/// Returns the row: connects per second of a core.
#[must_use]
pub fn measure(setup: &Setup) -> BenchRow {
    let mut runner = Runner::empty(setup, SLOTS);
    let clients = setup.effort.of(SLOTS * 4).clamp(8, SLOTS);
    let [cells] = runner.play(|test_bed| Ok([connects(test_bed, clients)?]));
    BenchRow { what: "connects".into(), unit: "per core-second", more_is_better: true, cells, targets: Vec::new() }
        .with_target(Baseline::BestPeer, FigureLimit::AtLeast(1.4))
}
