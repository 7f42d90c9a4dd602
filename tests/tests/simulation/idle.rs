//! Who has nothing to do costs nothing: connections at rest are not looked at, however many turns pass.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slipgate_netcode::server::ClientHandle;
use slipgate_netcode::time::Instant;
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout};
use slipgate_session::congestion::{BytesPerSecond, Controller, Demand, Feedback};
use slipgate_session::session::{Config, Memory, Traffic};
use slipgate_sim::Conditions;
use slipgate_tests::hall::Hall;

const CLIENTS: usize = 20;
const CHAT: ChannelId = ChannelId(0);

/// A rate that never changes, and a count of how often anybody asked or told anything.
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

/// A hall in which everybody has sat for a while, and the counts of the server's connections, in the order of arrival.
struct Quiet {
    hall: Hall,
    clients: Vec<ClientHandle>,
    counts: Arc<Mutex<Vec<Arc<AtomicU64>>>>,
}

impl Quiet {
    fn new() -> Self {
        let layout = Arc::new(Layout::new(vec![ChannelConfig::new(Kind::ReliableOrdered)]).unwrap());
        let mut hall = Hall::new(CLIENTS as u32, &layout, &Config::default(), Memory::default());
        let counts: Arc<Mutex<Vec<Arc<AtomicU64>>>> = Arc::default();
        let made = Arc::clone(&counts);
        let make = move || -> Box<dyn Controller + Send> {
            let count = Arc::new(AtomicU64::new(0));
            made.lock().unwrap().push(Arc::clone(&count));
            Box::new(Counted(count))
        };
        let config = Config { controller: Some(Arc::new(make)), ..Config::default() };
        hall.server.set_traffic(Traffic::Channels(layout, config)).unwrap();
        // One was made to see whether the settings are any.
        counts.lock().unwrap().clear();
        let path = Conditions { latency: Duration::from_millis(20), ..Conditions::perfect() };
        let clients = (0..CLIENTS).map(|_| hall.join(path)).collect();
        // Greetings are heard, and memory that nobody needs is given back.
        hall.run_for(Duration::from_secs(30));
        Self { hall, clients, counts }
    }

    /// How often each connection was asked or told anything meanwhile.
    fn visits(&mut self, mut meanwhile: impl FnMut(&mut Hall, &[ClientHandle])) -> Vec<u64> {
        let read = |counts: &Mutex<Vec<Arc<AtomicU64>>>| -> Vec<u64> {
            counts.lock().unwrap().iter().map(|count| count.load(Ordering::Relaxed)).collect()
        };
        let before = read(&self.counts);
        meanwhile(&mut self.hall, &self.clients);
        read(&self.counts).iter().zip(before).map(|(after, before)| after - before).collect()
    }
}

#[test]
fn connections_at_rest_are_not_looked_at_in_a_thousand_turns() {
    let mut quiet = Quiet::new();
    let visits = quiet.visits(|hall, _| hall.run_for(Duration::from_secs(16)));
    assert_eq!(visits, [0; CLIENTS], "netcode's own keep-alives do not concern them");
}

#[test]
fn one_who_speaks_wakes_nobody_else() {
    let mut quiet = Quiet::new();
    let visits = quiet.visits(|hall, clients| {
        for _ in 0..100 {
            hall.tell(clients[7], CHAT, b"well met").unwrap();
            hall.say(12, CHAT, b"follow me").unwrap();
            hall.turn();
        }
    });
    for (place, visits) in visits.into_iter().enumerate() {
        let is_awake = place == 7 || place == 11;
        assert_eq!(visits > 0, is_awake, "connection {place}: {visits}");
    }
}

#[test]
fn a_turn_costs_the_one_who_speaks_a_few_questions_and_no_more() {
    let mut quiet = Quiet::new();
    let visits = quiet.visits(|hall, clients| {
        for _ in 0..1000 {
            hall.tell(clients[7], CHAT, b"well met").unwrap();
            hall.turn();
        }
    });
    // Per turn: a tick, a packet out, an acknowledgement in, each with the rate and the window of that moment.
    assert!((1000..60_000).contains(&visits[7]), "{visits:?}");
}
