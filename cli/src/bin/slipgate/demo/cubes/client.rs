//! A client of the cubes in its thread: the connection, 60 frames a second, and the comparison with the server.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use slipgate_cli::Failure;
use slipgate_client::sockets::Sockets;
use slipgate_client::{Client, Clock, ConnectToken, Event, Inbox};
use slipgate_netcode::time::Instant;

use super::knobs::TICKS;
use super::messages::{INPUT, STATE, Unreadable, traffic};
use super::meter::difference;
use super::pane::{Pane, PaneCube};
use super::truth::Truth;
use super::views::view::{CubeView, MessageArrival};

/// Frames without a measurement after the first one: the world has to arrive.
const WARM_UP: u32 = 2 * TICKS;

/// The settings of a client.
pub(super) struct CubeClientSetup {
    pub(super) name: &'static str,
    pub(super) token: ConnectToken,
    pub(super) clock: Clock,
    pub(super) truth: Arc<Truth>,
    pub(super) pane: Arc<Pane>,
}

/// A running client.
pub(super) struct CubeClient {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl CubeClient {
    pub(super) fn start(setup: CubeClientSetup, view: Box<dyn CubeView>) -> Result<Self, Failure> {
        let stop = Arc::<AtomicBool>::default();
        let frames = FrameLoop::new(setup, view)?;
        let thread = {
            let stop = Arc::clone(&stop);
            std::thread::Builder::new()
                .name("cube-client".to_owned())
                .spawn(move || frames.run(&stop))
                .map_err(|error| Failure::run_time(format!("cannot start a thread: {error}")))?
        };
        Ok(Self { stop, thread: Some(thread) })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(Failure::run_time(error)),
            Some(Err(_)) => Err(Failure::run_time("a client's thread panicked")),
        }
    }
}

struct FrameLoop {
    setup: CubeClientSetup,
    client: Client,
    inbox: Inbox,
    view: Box<dyn CubeView>,
    next: Instant,
    frames: u32,
    positions: Vec<[f32; 3]>,
}

impl FrameLoop {
    fn new(setup: CubeClientSetup, view: Box<dyn CubeView>) -> Result<Self, Failure> {
        let client = Sockets::bind(&[(std::net::Ipv4Addr::LOCALHOST, 0).into()])
            .map(Client::with_sockets)
            .map_err(|error| Failure::run_time(format!("cannot open a socket: {error}")))?;
        let client = client.with_traffic(traffic()?).map_err(|error| Failure::run_time(error.to_string()))?;
        let (next, positions, inbox) = (setup.clock.monotonic(), Vec::new(), Inbox::default());
        Ok(Self { setup, client, inbox, view, next, frames: 0, positions })
    }

    fn run(mut self, stop: &AtomicBool) -> Result<(), String> {
        let token = self.setup.token.clone();
        self.client.connect(token, self.setup.clock.now()).map_err(|error| error.to_string())?;
        while !stop.load(Ordering::Relaxed) {
            self.turn().map_err(|error| format!("cannot wait for packets: {error}"))?;
            if let Some(reason) = self.client.close_reason().filter(|_| !stop.load(Ordering::Relaxed)) {
                return Err(format!("the client with {} was disconnected: {reason}", self.setup.name));
            }
        }
        self.client.disconnect();
        self.client.end_turn();
        Ok(())
    }

    fn turn(&mut self) -> io::Result<()> {
        let now = self.setup.clock.now();
        self.client.begin_turn(now);
        self.handle_events();
        if self.next <= now.monotonic {
            // Frames that a busy machine missed are left out.
            self.next = self.next.after(Duration::from_secs(1) / TICKS).max(now.monotonic);
            self.frame(now.monotonic);
            self.client.end_turn();
        } else {
            self.client.flush();
        }
        self.client.wait(self.next.since(self.setup.clock.monotonic()))
    }

    fn handle_events(&mut self) {
        let round_trip = self.client.path().and_then(|path| path.congestion.round_trip).unwrap_or_default();
        let Self { client, inbox, view, setup, .. } = self;
        while let Some(event) = inbox.next(client) {
            let Event::Message { channel: STATE, bytes, times } = event else { continue };
            let arrival = MessageArrival { at: times.arrived.since_start(), round_trip };
            if view.receive(bytes, arrival) == Err(Unreadable) {
                setup.pane.update_traffic(|traffic| traffic.unreadable += 1);
            }
        }
    }

    fn frame(&mut self, now: Instant) {
        if !self.client.state().is_connected() {
            return;
        }
        if let Some(inputs) = self.view.inputs(now.since_start()) {
            // The next message repeats the inputs of one that is not taken.
            let _ = self.client.send_message(INPUT, inputs);
        }
        let Some(shown) = self.view.frame(now.since_start()) else { return };
        self.frames = self.frames.saturating_add(1);
        let is_measured = self.frames > WARM_UP;
        let Self { setup, view, positions, .. } = self;
        if !setup.truth.read(shown.tick, positions) {
            // A prediction is ahead of the server.
            positions.clear();
        }
        let delay = (f64::from(setup.truth.newest()) - shown.tick) / f64::from(TICKS);
        setup.pane.show(|meter, cubes| {
            if is_measured {
                meter.add_frame(delay, shown.is_starved);
                view.compare(&setup.truth, meter);
            }
            view.cubes(&mut |id, pose, is_awake| {
                let truth = positions.get(id).filter(|_| is_measured);
                let error = truth.map_or(0.0, |truth| meter.add_cube(id, difference(pose.position, *truth)));
                cubes.push(PaneCube::new(pose.position, pose.rotation, is_awake, error));
            });
        });
    }
}
