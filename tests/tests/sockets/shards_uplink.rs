//! A server of two shards on real sockets has one uplink, and each client has its share of it on any shard.

use std::time::{Duration, Instant};

use slipgate_client::Client;
use slipgate_server::keys::Key;
use slipgate_server::{ChannelConfig, ChannelId, Clock, Inbox, Kind, Layout, Server, ServerConfig, Sockets, Traffic};
use slipgate_session::congestion::{Algorithm, BytesPerSecond};
use slipgate_session::connection::ConnectionConfig;
use slipgate_tests::live::{DEADLINE, IPV4, PRIVATE_KEY, PROTOCOL_ID, TokenOrder};

const BULK: ChannelId = ChannelId(0);
const MESSAGE: [u8; 1000] = [7; 1000];
const RATE: f64 = 400_000.0;
const MEASURED: Duration = Duration::from_secs(2);

/// Returns one channel, and a path without limits: only the uplink is shared here.
fn traffic() -> Traffic {
    let bulk =
        ChannelConfig { queue_bytes: 1 << 18, queue_messages: 1024, ..ChannelConfig::from(Kind::ReliableUnordered) };
    let mut config = ConnectionConfig::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e7));
    Traffic::Channels(Layout::try_from(vec![bulk]).unwrap().into(), config)
}

struct Guest {
    client: Client,
    inbox: slipgate_client::Inbox,
    client_id: u64,
    received_bytes: usize,
}

struct Shards {
    shards: Vec<(Server, Inbox)>,
    guests: Vec<Guest>,
    clock: Clock,
}

impl Shards {
    fn new() -> Self {
        let clock = Clock::start();
        let sockets = Sockets::bind_shards(&[(IPV4, 0).into()], 2).unwrap();
        let config = ServerConfig::new(PROTOCOL_ID, 16, &[sockets[0].local_addresses()[0]]);
        let shards = Server::shards(sockets, config, Key::from(PRIVATE_KEY).into(), clock.now(), None).unwrap();
        let shards =
            shards.into_iter().map(|shard| (shard.with_traffic(traffic()).unwrap(), Inbox::default())).collect();
        Self { shards, guests: Vec::new(), clock }
    }

    /// Runs a turn of all programs, in which shards send their clients as much as their channels take.
    fn turn(&mut self) {
        for (server, inbox) in &mut self.shards {
            server.begin_turn(self.clock.now());
            while inbox.next(server).is_some() {}
            server.for_each_client(|mut client| while client.send_message(BULK, &MESSAGE).is_ok() {});
            server.end_turn();
        }
        for Guest { client, inbox, received_bytes, .. } in &mut self.guests {
            client.begin_turn(self.clock.now());
            while let Some(event) = inbox.next(client) {
                if let slipgate_client::Event::Message { bytes, .. } = event {
                    *received_bytes += bytes.len();
                }
            }
            client.end_turn();
        }
        std::thread::sleep(Duration::from_millis(2));
    }

    fn run_until(&mut self, what: &str, mut happened: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        while !happened(self) {
            assert!(start.elapsed() < DEADLINE, "{what}");
            self.turn();
        }
    }

    fn shard_of(&self, client_id: u64) -> Option<usize> {
        self.shards.iter().position(|(server, _)| server.find(client_id).is_some())
    }

    /// Connects clients from ports of the system's choice until each shard has the wanted number; surplus clients
    /// leave.
    fn fill(&mut self, wanted: [usize; 2]) {
        let address = self.shards[0].0.sockets().local_addresses()[0];
        let mut missing = wanted;
        for client_id in 1..=64 {
            if missing == [0, 0] {
                return;
            }
            let mut client = Client::new().unwrap().with_traffic(traffic()).unwrap();
            client.connect(TokenOrder::new(client_id, &[address]).mint().token, self.clock.now()).unwrap();
            self.guests.push(Guest { client, inbox: slipgate_client::Inbox::default(), client_id, received_bytes: 0 });
            self.run_until("a client connects", |shards_world| shards_world.shard_of(client_id).is_some());
            let shard = self.shard_of(client_id).unwrap();
            if missing[shard] > 0 {
                missing[shard] -= 1;
            } else {
                self.guests.pop().unwrap().client.disconnect();
                let (server, _) = &mut self.shards[shard];
                let client = server.find(client_id).unwrap();
                server.client(client).unwrap().disconnect().unwrap();
            }
        }
        panic!("no ports of 64 lead to the shards: {missing:?} are missing");
    }

    /// Returns the shares of all clients in the uplink, measured for some time, those of the first shard first.
    fn shares(&mut self) -> [Vec<f64>; 2] {
        let settle = Instant::now();
        self.run_until("time passes", |_| settle.elapsed() > MEASURED / 4);
        self.guests.iter_mut().for_each(|guest| guest.received_bytes = 0);
        let start = Instant::now();
        self.run_until("time passes", |_| start.elapsed() > MEASURED);
        let carried = RATE * start.elapsed().as_secs_f64();
        let mut shares = [Vec::new(), Vec::new()];
        for guest in &self.guests {
            let shard = self.shard_of(guest.client_id).expect("no client leaves");
            shares[shard].push(guest.received_bytes as f64 / carried);
        }
        shares
    }
}

/// Returns whether the shares of these clients are equal, and their sum is in a range.
fn are_fair(shares: &[f64], clients: usize, range: std::ops::Range<f64>) -> bool {
    let sum: f64 = shares.iter().sum();
    let is_equal = |share: &f64| (share / sum - 1.0 / clients as f64).abs() < 0.03;
    shares.len() == clients && range.contains(&sum) && shares.iter().all(is_equal)
}

/// Measures until the shares meet a condition. A machine that pauses changes those of a measurement.
#[track_caller]
fn once_in_ten(shards_world: &mut Shards, is_met: impl Fn(&[Vec<f64>; 2]) -> bool) {
    let mut misses = Vec::new();
    while misses.len() < 10 {
        let shares = shards_world.shares();
        if is_met(&shares) {
            return;
        }
        misses.push(shares);
    }
    panic!("shares of the uplink: {misses:?}");
}

#[test]
fn shards_share_one_uplink_fairly_between_all_clients() {
    let mut shards_world = Shards::new();
    shards_world.fill([1, 3]);
    shards_world.shards[0].0.set_uplink(Some(BytesPerSecond(RATE)));
    // It is all of the uplink with headers. A busy machine, with late turns, carries less, and no client may have more.
    once_in_ten(&mut shards_world, |shares| are_fair(&shares.concat(), 4, 0.5..1.0));
    // One shard uses what the other leaves; and the limit is shared, whichever shard sets it.
    shards_world.shards[1].0.set_uplink(Some(BytesPerSecond(2.0 * RATE)));
    let Shards { shards, guests, .. } = &mut shards_world;
    guests.retain(|guest| shards[1].0.find(guest.client_id).is_some());
    let gone = shards_world.shards[0].0.clients().collect::<Vec<_>>();
    gone.into_iter().for_each(|client| shards_world.shards[0].0.client(client).unwrap().disconnect().unwrap());
    once_in_ten(&mut shards_world, |[none, shares]| none.is_empty() && are_fair(shares, 3, 1.0..2.0));
}
