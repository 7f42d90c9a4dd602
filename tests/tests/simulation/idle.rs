//! Idle connections cost nothing: no turn visits them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slipgate_netcode::server::ClientHandle;
use slipgate_netcode::time::Instant;
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout};
use slipgate_session::congestion::{BytesPerSecond, Controller, Demand, Feedback};
use slipgate_session::connection::{ConnectionConfig, Memory, Traffic};
use slipgate_sim::Conditions;
use slipgate_tests::session_world::SessionWorld;

const CLIENTS: usize = 20;
const CHAT: ChannelId = ChannelId(0);

/// A controller with a fixed rate that counts its calls.
struct Counted(Arc<AtomicU64>);

impl Counted {
    fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Controller for Counted {
    fn on_sent(&mut self, _: u32, _: Instant) {
        self.note();
    }

    fn on_feedback(&mut self, _: &Feedback<'_>) {
        self.note();
    }

    fn on_tick(&mut self, _: u64, _: Instant) {
        self.note();
    }

    fn set_demand(&mut self, _: Demand) {
        self.note();
    }

    fn rate(&self, _: Instant) -> BytesPerSecond {
        self.note();
        BytesPerSecond(1e6)
    }

    fn window(&self, _: Instant) -> Option<u64> {
        self.note();
        None
    }
}

/// A world with idle players, and the counts of the server's connections, in the order of arrival.
struct Quiet {
    world: SessionWorld,
    clients: Vec<ClientHandle>,
    counts: Arc<Mutex<Vec<Arc<AtomicU64>>>>,
}

impl Quiet {
    fn new() -> Self {
        let layout = Arc::new(Layout::try_from(vec![ChannelConfig::from(Kind::ReliableOrdered)]).unwrap());
        let mut world = SessionWorld::new(CLIENTS as u32, &layout, &ConnectionConfig::default(), Memory::default());
        let counts: Arc<Mutex<Vec<Arc<AtomicU64>>>> = Arc::default();
        let made = Arc::clone(&counts);
        let make = move || -> Box<dyn Controller + Send> {
            let count = Arc::new(AtomicU64::new(0));
            made.lock().unwrap().push(Arc::clone(&count));
            Box::new(Counted(count))
        };
        let config = ConnectionConfig { controller: Some(Arc::new(make)), ..ConnectionConfig::default() };
        world.server.set_traffic(Traffic::Channels(layout, config)).unwrap();
        // The server created one connection to validate the settings.
        counts.lock().unwrap().clear();
        let path = Conditions { latency: Duration::from_millis(20), ..Conditions::perfect() };
        let clients = (0..CLIENTS).map(|_| world.join(path)).collect();
        // HELLOs are acknowledged, and unused memory is released.
        world.run_for(Duration::from_secs(30));
        Self { world, clients, counts }
    }

    /// Returns the number of visits to each connection during `meanwhile`.
    fn visits(&mut self, mut meanwhile: impl FnMut(&mut SessionWorld, &[ClientHandle])) -> Vec<u64> {
        let read = |counts: &Mutex<Vec<Arc<AtomicU64>>>| -> Vec<u64> {
            counts.lock().unwrap().iter().map(|count| count.load(Ordering::Relaxed)).collect()
        };
        let before = read(&self.counts);
        meanwhile(&mut self.world, &self.clients);
        read(&self.counts).iter().zip(before).map(|(after, before)| after - before).collect()
    }
}

#[test]
fn idle_connections_are_not_visited_in_a_thousand_turns() {
    let mut quiet = Quiet::new();
    let visits = quiet.visits(|world, _| world.run_for(Duration::from_secs(16)));
    assert_eq!(visits, [0; CLIENTS], "keep-alives of netcode do not visit them");
}

#[test]
fn active_connection_wakes_no_other() {
    let mut quiet = Quiet::new();
    let visits = quiet.visits(|world, clients| {
        for _ in 0..100 {
            world.send_to_client(clients[7], CHAT, b"well met").unwrap();
            world.send_to_server(12, CHAT, b"follow me").unwrap();
            world.turn();
        }
    });
    for (index, visits) in visits.into_iter().enumerate() {
        let is_awake = index == 7 || index == 11;
        assert_eq!(visits > 0, is_awake, "connection {index}: {visits}");
    }
}

#[test]
fn turn_checks_an_active_connection_only_a_few_times() {
    let mut quiet = Quiet::new();
    let visits = quiet.visits(|world, clients| {
        for _ in 0..1000 {
            world.send_to_client(clients[7], CHAT, b"well met").unwrap();
            world.turn();
        }
    });
    // Per turn: a tick, a sent packet, an acknowledgement, each with the rate and the window of that moment.
    assert!((1000..60_000).contains(&visits[7]), "{visits:?}");
}
