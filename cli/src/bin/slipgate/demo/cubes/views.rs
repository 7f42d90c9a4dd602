//! The clients' views of the cubes: the thesis's two methods, and those of `slipgate-sync`.

mod our_snapshots;
mod our_states;
mod predicted;
mod thesis_snapshots;
mod thesis_states;
pub(super) mod view;

use std::sync::Arc;

use slipgate_sync::TickRate;

use self::our_snapshots::OurSnapshots;
use self::our_states::OurStates;
use self::predicted::PredictedCube;
use self::thesis_snapshots::ThesisSnapshots;
use self::thesis_states::ThesisStates;
use self::view::CubeView;
use super::keyboard::Keyboard;
use super::knobs::{Knobs, TICKS};
use super::pane::PaneKind;

/// Returns the view of a client.
pub(super) fn view_of(kind: PaneKind, knobs: Knobs, keyboard: &Arc<Keyboard>) -> Box<dyn CubeView> {
    let rate = TickRate { per_second: TICKS, between_states: knobs.between_states() };
    match kind {
        PaneKind::ThesisSnapshots => Box::new(ThesisSnapshots::new(knobs.objects)),
        PaneKind::OurSnapshots => Box::new(OurSnapshots::new(knobs.objects, rate, knobs.snapshot_schema().0)),
        PaneKind::ThesisStates => Box::new(ThesisStates::new(knobs.objects, knobs.rate)),
        PaneKind::OurStates => Box::new(OurStates::new(knobs.objects, rate)),
        PaneKind::Predicted | PaneKind::Server => Box::new(PredictedCube::new(knobs.objects, Arc::clone(keyboard))),
    }
}
