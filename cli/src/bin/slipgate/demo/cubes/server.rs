//! The server of the cubes: simulates them 60 times a second, and sends each client what its method needs.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use slipgate_cli::Failure;
use slipgate_lab::sync::cube_fields;
use slipgate_netcode::crypto::key::KeyRing;
use slipgate_netcode::time::Instant;
use slipgate_server::{ClientHandle, Clock, Event, Inbox, SendOptions, Server, ServerConfig, Sockets};
use slipgate_sync::{InputBuffer, ObjectKind, Schema};
use slipgate_worlds::{CubeWorld, PLAYERS, PlayerInput, RandomPlayers};

use super::cube_messages::{CubeMessages, Outlet};
use super::knobs::{Knobs, TICKS};
use super::messages::{INPUT, STATE, traffic};
use super::pane::{PaneCube, PaneKind, Panes};
use super::truth::Truth;

/// The most ticks that a server simulates at once after a pause of the machine.
const MAX_STEPS: u32 = 15;
/// The headers of a datagram in front of its payload: IPv4 and UDP.
const IP_AND_UDP_BYTES: u64 = 28;
/// The seed of the players' keys.
const SEED: u64 = 1;

/// The settings of a server.
pub(super) struct CubeServerSetup {
    /// The address that the clients' tokens list.
    pub(super) advertised: SocketAddr,
    pub(super) keys: KeyRing,
    pub(super) protocol_id: u64,
    pub(super) clock: Clock,
    pub(super) knobs: Knobs,
    pub(super) truth: Arc<Truth>,
    pub(super) panes: Arc<Panes>,
}

/// A running server.
pub(super) struct CubeServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl CubeServer {
    pub(super) fn start(sockets: Sockets, setup: CubeServerSetup, slots: u32) -> Result<Self, Failure> {
        let traffic = traffic()?;
        let config = ServerConfig::new(setup.protocol_id, slots, &[setup.advertised]);
        let server = Server::new(sockets, config, setup.keys.clone(), setup.clock.now())
            .and_then(|server| server.with_traffic(traffic))
            .map_err(|error| Failure::run_time(error.to_string()))?;
        let stop = Arc::<AtomicBool>::default();
        let game = CubeGame::new(server, setup);
        let thread = {
            let stop = Arc::clone(&stop);
            std::thread::Builder::new()
                .name("cube-server".to_owned())
                .spawn(move || game.run(&stop))
                .map_err(|error| Failure::run_time(format!("cannot start a thread: {error}")))?
        };
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Returns whether the thread has ended by itself.
    pub(super) fn has_failed(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(Failure::run_time(format!("the server could not wait for packets: {error}"))),
            Some(Err(_)) => Err(Failure::run_time("the server's thread panicked")),
        }
    }
}

impl Outlet for Server {
    fn room(&mut self, client: ClientHandle) -> usize {
        self.client(client).and_then(|client| client.budget()).map_or(0, |budget| budget.max_message_bytes())
    }

    fn post(&mut self, client: ClientHandle, message: &[u8], tag: Option<u64>) -> bool {
        let Some(mut client) = self.client(client) else { return false };
        let options = SendOptions::default();
        let options = if let Some(tag) = tag { options.receipt(tag) } else { options };
        client.send_message_with(STATE, message, options).is_ok()
    }
}

struct CubeGame {
    server: Server,
    inbox: Inbox,
    setup: CubeServerSetup,
    world: CubeWorld,
    /// What messages can say of a cube.
    precision: (Arc<Schema>, ObjectKind),
    players: RandomPlayers,
    /// The keys of the first player, which come from the client with its own cube.
    own: InputBuffer,
    sending: CubeMessages,
    tick: u32,
    /// When the next tick is due.
    next: Instant,
}

impl CubeGame {
    fn new(server: Server, setup: CubeServerSetup) -> Self {
        let world = CubeWorld::new(setup.knobs.objects.into());
        let sending = CubeMessages::new(setup.knobs);
        let precision = cube_fields::simulated();
        let (players, own, next) = (RandomPlayers::new(SEED), InputBuffer::new(0), setup.clock.monotonic());
        Self { server, inbox: Inbox::default(), setup, world, precision, players, own, sending, tick: 0, next }
    }

    fn run(mut self, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let now = self.setup.clock.now();
            self.server.begin_turn(now);
            self.handle_events(now.monotonic);
            if now.monotonic < self.next {
                self.server.flush();
            } else {
                self.catch_up(now.monotonic);
                self.server.end_turn();
            }
            self.server.wait(self.next.since(self.setup.clock.monotonic()))?;
        }
        self.server.stop("The demo is over.");
        self.server.end_turn();
        Ok(())
    }

    fn handle_events(&mut self, now: Instant) {
        let Self { server, inbox, own, sending, next, tick, .. } = self;
        // The tick of this moment with its fraction: the next one is due in less than a tick.
        let present = f64::from(*tick + 1) - next.since(now).as_secs_f64() * f64::from(TICKS);
        while let Some(event) = inbox.next(server) {
            match event {
                Event::Connected { client, client_id } => sending.on_connected(client, client_id.0),
                Event::Disconnected { client, .. } => sending.on_disconnected(client),
                Event::Message { client, channel: INPUT, bytes, .. } if sending.owns_cube(client) => {
                    // A refused message has no effect: the client repeats its inputs.
                    if let Ok(Some(request)) = own.read(bytes, present) {
                        sending.resync(client, request);
                    }
                }
                Event::Channel { client, event } => sending.on_receipt(client, &event),
                _ => {}
            }
        }
    }

    /// Simulates the ticks that are due.
    fn catch_up(&mut self, now: Instant) {
        let length = Duration::from_secs(1) / TICKS;
        for _ in 0..MAX_STEPS {
            if self.next > now {
                return;
            }
            self.next = self.next.after(length);
            self.tick();
        }
        // The machine has stood still for longer: the world did, too.
        self.next = now.after(length);
    }

    fn tick(&mut self) {
        self.tick += 1;
        let mut inputs = self.players.next_inputs();
        let [first, ..] = &mut inputs;
        *first = PlayerInput(self.own.keys(self.tick).keys);
        debug_assert_eq!(inputs.len(), PLAYERS);
        self.world.step(&inputs);
        // The client that predicts does the same, so that both continue alike from a state on the wire.
        cube_fields::round(&mut self.world, &self.precision.0, self.precision.1);
        self.setup.truth.publish(self.tick, self.world.states());
        if let Some(pane) = self.setup.panes.get(PaneKind::Server as usize) {
            pane.show(|_, cubes| cubes.extend(self.world.states().map(|state| PaneCube::of_server(&state))));
        }
        if self.tick.is_multiple_of(TICKS) {
            self.measure_rates();
        }
        self.sending.on_tick(self.tick, &self.world, &inputs);
        self.sending.send(self.tick, &self.world, &mut self.own, &mut self.server);
    }

    /// Measures what went to each client in the last second, with the headers of IP and UDP.
    fn measure_rates(&mut self) {
        for (client, kind, before) in self.sending.sent_bytes() {
            let Some(activity) = self.server.client(client).map(|client| client.activity()) else { continue };
            let bytes = activity.bytes_sent + IP_AND_UDP_BYTES * activity.packets_sent;
            let rate = (bytes - *before) as f64 * 8.0 / 1000.0;
            *before = bytes;
            if let Some(pane) = self.setup.panes.get(kind as usize) {
                pane.update_traffic(|traffic| traffic.kilobits = rate);
            }
        }
    }
}
