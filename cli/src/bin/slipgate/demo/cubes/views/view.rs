//! The interface of all clients: messages go in, and frames come out.

use std::time::Duration;

use slipgate_sync::Pose;

use crate::demo::cubes::messages::Unreadable;
use crate::demo::cubes::meter::Meter;
use crate::demo::cubes::truth::Truth;

/// When a message arrived, since the start of the demo, and the round trip of the path.
#[derive(Clone, Copy, Debug)]
pub(in crate::demo::cubes) struct MessageArrival {
    pub(in crate::demo::cubes) at: Duration,
    pub(in crate::demo::cubes) round_trip: Duration,
}

/// The moment that a frame shows.
#[derive(Clone, Copy, Debug)]
pub(in crate::demo::cubes) struct ShownFrame {
    /// The server's tick, with its fraction.
    pub(in crate::demo::cubes) tick: f64,
    /// Whether it is later than the newest state.
    pub(in crate::demo::cubes) is_starved: bool,
}

/// A method by which a client shows the cubes.
pub(in crate::demo::cubes) trait CubeView: Send {
    /// Reads a message of the server.
    fn receive(&mut self, bytes: &[u8], arrival: MessageArrival) -> Result<(), Unreadable>;

    /// Returns the message with the inputs that are due.
    fn inputs(&mut self, _now: Duration) -> Option<&[u8]> {
        None
    }

    /// Moves on to a frame; `None` before the first state.
    fn frame(&mut self, now: Duration) -> Option<ShownFrame>;

    /// Measures what the server did only later.
    fn compare(&mut self, _truth: &Truth, _meter: &mut Meter) {}

    /// Calls a function for each cube that is shown: its number, its pose, and whether it is awake.
    fn cubes(&self, add: &mut dyn FnMut(usize, Pose, bool));
}
