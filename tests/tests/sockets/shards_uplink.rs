//! The uplink of a server of two shards on real sockets: it is one, and each client has its part of it on whatever shard.

use std::time::{Duration, Instant};

use slipgate_client::Client;
use slipgate_server::{ChannelConfig, ChannelId, Clock, Config, Inbox, Key, Kind, Layout, Server, Sockets, Traffic};
use slipgate_session::congestion::{Algorithm, BytesPerSecond};
use slipgate_session::session;
use slipgate_tests::live::{DEADLINE, IPV4, Order, PRIVATE_KEY, PROTOCOL_ID};

const BULK: ChannelId = ChannelId(0);
const MESSAGE: [u8; 1000] = [7; 1000];
const RATE: f64 = 400_000.0;
const MEASURED: Duration = Duration::from_secs(2);

/// One channel, and a path that carries everything: what is shared here is the uplink.
fn traffic() -> Traffic {
    let bulk =
        ChannelConfig { queue_bytes: 1 << 18, queue_messages: 1024, ..ChannelConfig::new(Kind::ReliableUnordered) };
    let mut config = session::Config::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e7));
    Traffic::Channels(Layout::new(vec![bulk]).unwrap().into(), config)
}

struct Guest {
    client: Client,
    inbox: slipgate_client::Inbox,
    client_id: u64,
    heard: usize,
}

struct Place {
    shards: Vec<(Server, Inbox)>,
    guests: Vec<Guest>,
    clock: Clock,
}

impl Place {
    fn new() -> Self {
        let clock = Clock::start();
        let sockets = Sockets::bind_shards(&[(IPV4, 0).into()], 2).unwrap();
        let config = Config::new(PROTOCOL_ID, 16, vec![sockets[0].local_addresses()[0].into()]);
        let shards = Server::shards(sockets, config, Key::from_bytes(PRIVATE_KEY).into(), clock.now()).unwrap();
        let shards = shards.into_iter().map(|shard| (shard.carrying(traffic()).unwrap(), Inbox::default())).collect();
        Self { shards, guests: Vec::new(), clock }
    }

    /// A turn of everybody, in which shards send their clients what their channels take.
    fn turn(&mut self) {
        for (server, inbox) in &mut self.shards {
            server.begin_turn(self.clock.now());
            while inbox.next(server).is_some() {}
            for client in server.clients().collect::<Vec<_>>() {
                while server.send_message(client, BULK, &MESSAGE).is_ok() {}
            }
            server.end_turn();
        }
        for Guest { client, inbox, heard, .. } in &mut self.guests {
            client.begin_turn(self.clock.now());
            while let Some(event) = inbox.next(client) {
                if let slipgate_client::Event::Message { bytes, .. } = event {
                    *heard += bytes.len();
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

    /// Clients come from ports of the system's choice until so many are on each shard; whoever is too many leaves.
    fn fill(&mut self, wanted: [usize; 2]) {
        let address = self.shards[0].0.local_addresses()[0];
        let mut missing = wanted;
        for client_id in 1..=64 {
            if missing == [0, 0] {
                return;
            }
            let mut client = Client::new().unwrap().carrying(traffic()).unwrap();
            client.connect(Order::new(client_id, &[address]).mint().token, self.clock.now()).unwrap();
            self.guests.push(Guest { client, inbox: slipgate_client::Inbox::default(), client_id, heard: 0 });
            self.run_until("a client gets in", |place| place.shard_of(client_id).is_some());
            let shard = self.shard_of(client_id).unwrap();
            if missing[shard] > 0 {
                missing[shard] -= 1;
            } else {
                self.guests.pop().unwrap().client.disconnect();
                let (server, _) = &mut self.shards[shard];
                server.disconnect(server.find(client_id).unwrap());
            }
        }
        panic!("no ports of 64 lead to the shards: {missing:?} are missing");
    }

    /// What every client hears in some time, as shares of what the uplink carries in it, those of the first shard first.
    fn shares(&mut self) -> [Vec<f64>; 2] {
        let settle = Instant::now();
        self.run_until("time passes", |_| settle.elapsed() > MEASURED / 4);
        self.guests.iter_mut().for_each(|guest| guest.heard = 0);
        let start = Instant::now();
        self.run_until("time passes", |_| start.elapsed() > MEASURED);
        let carried = RATE * start.elapsed().as_secs_f64();
        let mut shares = [Vec::new(), Vec::new()];
        for guest in &self.guests {
            let shard = self.shard_of(guest.client_id).expect("nobody leaves");
            shares[shard].push(guest.heard as f64 / carried);
        }
        shares
    }
}

#[test]
fn the_uplink_of_two_shards_is_one_and_no_client_has_less_for_the_company_on_its_shard() {
    let mut place = Place::new();
    place.fill([1, 3]);
    place.shards[0].0.set_uplink(Some(BytesPerSecond(RATE)));
    let shares = place.shares();
    let sum: f64 = shares.iter().flatten().sum();
    // With headers it is all of it. A busy machine, whose turns come late, carries less, and nobody is to have more.
    assert!((0.5..1.0).contains(&sum), "{sum} of the uplink: {shares:?}");
    for share in shares.iter().flatten() {
        assert!((share / sum - 0.25).abs() < 0.03, "{shares:?}");
    }
    // What one shard leaves, the other has; and whichever is told, the limit is everybody's.
    place.shards[1].0.set_uplink(Some(BytesPerSecond(2.0 * RATE)));
    let Place { shards, guests, .. } = &mut place;
    guests.retain(|guest| shards[1].0.find(guest.client_id).is_some());
    let gone = place.shards[0].0.clients().collect::<Vec<_>>();
    gone.into_iter().for_each(|client| assert!(place.shards[0].0.disconnect(client)));
    let [none, shares] = place.shares();
    let sum: f64 = shares.iter().sum();
    assert!(none.is_empty() && (1.0..2.0).contains(&sum), "{sum} of the uplink: {shares:?}");
    for share in shares {
        assert!((share / sum - 1.0 / 3.0).abs() < 0.03, "{share} of {sum}");
    }
}
