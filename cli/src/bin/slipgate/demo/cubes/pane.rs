//! A pane: what a view shows in its newest frame, its figures, and how the page gets them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use slipgate_worlds::CubeState;

use super::meter::{Meter, PaneFigures};
use super::packed_pose::PackedPose;

/// The panes: the server, and its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PaneKind {
    Server,
    ThesisSnapshots,
    OurSnapshots,
    Predicted,
    ThesisStates,
    OurStates,
}

impl PaneKind {
    /// All panes in the order in which the page shows them.
    pub(super) const ALL: [Self; 6] =
        [Self::Server, Self::ThesisSnapshots, Self::OurSnapshots, Self::Predicted, Self::ThesisStates, Self::OurStates];
    /// The panes of clients.
    pub(super) const CLIENTS: [Self; 5] =
        [Self::ThesisSnapshots, Self::OurSnapshots, Self::Predicted, Self::ThesisStates, Self::OurStates];

    /// Returns the id of the client, by which the server knows what it gets.
    pub(super) const fn client_id(self) -> u64 {
        self as u64
    }

    /// Returns the name in tables and JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::ThesisSnapshots => "thesis, snapshots",
            Self::OurSnapshots => "slipgate-sync, snapshots",
            Self::Predicted => "slipgate-sync, own cube predicted",
            Self::ThesisStates => "thesis, states",
            Self::OurStates => "slipgate-sync, states",
        }
    }
}

/// A cube as the page draws it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PaneCube {
    pose: PackedPose,
    is_awake: bool,
    /// The error in half centimetres, at most 255.
    error: u8,
}

impl PaneCube {
    pub(super) fn new(position: [f32; 3], rotation: [f32; 4], is_awake: bool, error: f32) -> Self {
        Self { pose: PackedPose::new(position, rotation), is_awake, error: (error * 200.0).min(255.0) as u8 }
    }

    pub(super) fn of_server(state: &CubeState) -> Self {
        Self::new(state.position, state.rotation, !state.is_at_rest, 0.0)
    }
}

/// The figures of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct PaneTraffic {
    /// The rate from the server, in kbit/s, with IP and UDP headers.
    pub(super) kilobits: f64,
    /// Messages that the client refused.
    pub(super) unreadable: u64,
}

/// How many frames a pane shows in a second of real time: 60 if the machine is quick enough.
#[derive(Default)]
struct FramePace {
    /// When the frames of the present second began. `None` before the first frame.
    since: Option<Instant>,
    frames: u32,
    /// The frames of the second before.
    per_second: Option<f64>,
}

impl FramePace {
    const WINDOW: Duration = Duration::from_secs(1);

    fn on_frame(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        if now.duration_since(since) >= Self::WINDOW {
            self.per_second = Some(f64::from(self.frames) / now.duration_since(since).as_secs_f64());
            (self.since, self.frames) = (Some(now), 0);
        }
        self.frames += 1;
    }

    fn per_second(&self, now: Instant) -> Option<f64> {
        let passed = now.duration_since(self.since?);
        // A pane that has stopped has no frame that ends its second.
        if passed >= 2 * Self::WINDOW { Some(f64::from(self.frames) / passed.as_secs_f64()) } else { self.per_second }
    }
}

pub(super) struct Pane(Mutex<PaneContent>);

struct PaneContent {
    cubes: Vec<PaneCube>,
    meter: Meter,
    traffic: PaneTraffic,
    pace: FramePace,
}

impl Pane {
    pub(super) fn new() -> Self {
        let (cubes, traffic, pace) = (Vec::new(), PaneTraffic::default(), FramePace::default());
        Self(Mutex::new(PaneContent { cubes, meter: Meter::new(), traffic, pace }))
    }

    fn with<R>(&self, act: impl FnOnce(&mut PaneContent) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shows a frame, for which `fill` measures and adds the cubes.
    pub(super) fn show(&self, fill: impl FnOnce(&mut Meter, &mut Vec<PaneCube>)) {
        self.with(|content| {
            content.cubes.clear();
            content.pace.on_frame(Instant::now());
            fill(&mut content.meter, &mut content.cubes);
        });
    }

    /// Changes what is known of the connection.
    pub(super) fn update_traffic(&self, change: impl FnOnce(&mut PaneTraffic)) {
        self.with(|content| change(&mut content.traffic));
    }

    pub(super) fn reset(&self) {
        self.with(|content| content.meter.reset());
    }

    pub(super) fn figures(&self) -> (PaneFigures, PaneTraffic) {
        self.with(|content| (content.meter.figures(), content.traffic))
    }

    /// Returns how many frames it showed in the last second, if it has shown any for a second.
    fn frames_per_second(&self) -> Option<f64> {
        self.with(|content| content.pace.per_second(Instant::now()))
    }

    /// Adds the newest frame for the page: the number of cubes, and 12 bytes for each.
    pub(super) fn write_frame(&self, bytes: &mut Vec<u8>) {
        self.with(|content| {
            bytes.extend((content.cubes.len() as u16).to_le_bytes());
            for cube in &content.cubes {
                bytes.extend(cube.pose.0);
                bytes.extend([u8::from(cube.is_awake), cube.error]);
            }
        });
    }
}

/// The panes, in the order of [`PaneKind::ALL`].
pub(super) type Panes = [Arc<Pane>; PaneKind::ALL.len()];

/// Returns the frames of the last second of the pane that showed the fewest: less than 60 on a machine that is too slow
/// for the cubes.
pub(super) fn fewest_frames(panes: &Panes) -> Option<f64> {
    panes.iter().filter_map(|pane| pane.frames_per_second()).reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_is_that_of_the_last_second_also_of_a_pane_that_stops() {
        let (mut pace, start) = (FramePace::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(pace.per_second(at(0)), None);
        (0..=60).for_each(|frame| pace.on_frame(at(frame * 1000 / 60)));
        assert_eq!(pace.per_second(at(1000)), Some(60.0));
        (1..=25).for_each(|frame| pace.on_frame(at(1000 + frame * 40)));
        assert_eq!(pace.per_second(at(2100)), Some(25.0));
        assert_eq!(pace.per_second(at(12_000)), Some(0.1));
    }
}
