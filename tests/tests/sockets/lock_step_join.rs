//! A player too many for the uplink of a lock-step game is refused, as by a full server.
//!
//! The server is the relay of the example `lock_step`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::relay::Relay;
use slipgate_client::{Client, ClientState, CloseKind, Now};
use slipgate_server::congestion::BytesPerSecond;
use slipgate_server::keys::Key;
use slipgate_server::scheduling::can_join;
use slipgate_server::{Clock, Inbox, Server, ServerConfig, Sockets};
use slipgate_tests::live::{DEADLINE, IPV4, PRIVATE_KEY, PROTOCOL_ID, TokenOrder};

const PLAYERS: usize = 200;
const SLOTS: u32 = 250;
const TICK: Duration = Duration::from_millis(10);
/// Carries the frames of a game without actions, which have 72 bytes with all headers, to 200 players and not to 201.
const UPLINK: BytesPerSecond = BytesPerSecond(2_976_250.0);

/// A game and its players.
struct Play {
    server: Server,
    relay: Relay,
    inbox: Inbox,
    address: SocketAddr,
    clock: Clock,
    /// The advance of the clock of the game.
    ahead: Duration,
    players: Vec<(Client, slipgate_client::Inbox)>,
}

impl Play {
    fn new() -> Self {
        let sockets = Sockets::bind(&[SocketAddr::new(IPV4, 0)]).unwrap();
        let address = sockets.local_addresses()[0];
        let (config, clock) = (ServerConfig::new(PROTOCOL_ID, SLOTS, &[address]), Clock::start());
        let server = Server::new(sockets, config, Key::from(PRIVATE_KEY).into(), clock.now()).unwrap();
        let mut server = server.with_traffic(super::relay::traffic()).unwrap();
        let relay = Relay::new(&mut server, UPLINK, TICK);
        let mut play =
            Self { server, relay, inbox: Inbox::default(), address, clock, ahead: Duration::ZERO, players: Vec::new() };
        // Until the mean frame is one without actions.
        for _ in 0..500 {
            play.ahead += TICK;
            play.turn();
        }
        play
    }

    fn now(&self) -> Now {
        let now = self.clock.now();
        Now { monotonic: now.monotonic.after(self.ahead), ..now }
    }

    fn turn(&mut self) {
        let now = self.now();
        self.relay.turn(&mut self.server, &mut self.inbox, now);
        for (client, inbox) in &mut self.players {
            client.begin_turn(now);
            while inbox.next(client).is_some() {}
            client.end_turn();
        }
    }

    fn until(&mut self, what: &str, mut happened: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !happened(self) {
            assert!(start.elapsed() < DEADLINE, "{what}: {} are connected", self.server.connected_count());
            self.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Starts to connect the next player.
    fn begin_connect(&mut self) {
        let mut client = Client::new().unwrap().with_traffic(super::relay::traffic()).unwrap();
        let player = self.players.len() as u64 + 1;
        client.connect(TokenOrder::new(player, &[self.address]).mint().token, self.now()).unwrap();
        self.players.push((client, slipgate_client::Inbox::default()));
    }

    fn state(&self, player: usize) -> ClientState {
        self.players[player].0.state()
    }

    fn frames(&mut self) -> u64 {
        let mut max = 0;
        self.server.for_each_client(|client| {
            let stats = client.connection().and_then(|connection| connection.channels.stats(super::relay::FRAMES));
            max = max.max(stats.map_or(0, |stats| stats.sent));
        });
        max
    }
}

#[test]
fn player_201_is_refused_on_an_uplink_for_200() {
    assert!(can_join(71, UPLINK, PLAYERS - 1, TICK) && !can_join(71, UPLINK, PLAYERS, TICK));
    let mut play = Play::new();
    for player in 0..PLAYERS {
        play.begin_connect();
        // One after the other: the relay counts them once per frame.
        play.until("a player connects", |play| play.state(player) == ClientState::Connected);
    }
    let frames = play.frames();
    play.until("the game has 200 players", |play| play.frames() > frames + 2);
    play.begin_connect();
    play.until("the next player gets a reply", |play| !play.state(PLAYERS).is_active());
    let refused = &play.players[PLAYERS].0;
    let reason = refused.close_reason().map(|reason| reason.kind);
    assert_eq!((refused.state(), reason), (ClientState::Denied, Some(CloseKind::Denied)));
    let frames = play.frames();
    play.until("the others play on", |play| play.frames() > frames + 5);
    assert_eq!(play.server.connected_count() as usize, PLAYERS);
    assert!((0..PLAYERS).all(|player| play.state(player) == ClientState::Connected), "no other player is refused");

    play.players[7].0.disconnect();
    play.until("one player leaves", |play| (play.server.connected_count() as usize) < PLAYERS);
    let frames = play.frames();
    play.until("the relay has counted", |play| play.frames() > frames + 2);
    play.begin_connect();
    play.until("another player takes the slot", |play| play.state(PLAYERS + 1) == ClientState::Connected);
}
