//! Who would be one too many for a lock-step game's uplink is refused, and hears it as of a full server.
//!
//! The server is the relay of the example `lock_step`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::relay::Relay;
use slipgate_client::{Client, ClientState, EndReason, Now};
use slipgate_server::congestion::may_join;
use slipgate_server::{BytesPerSecond, Clock, Config, Inbox, Key, Server, Sockets};
use slipgate_tests::live::{DEADLINE, IPV4, Order, PRIVATE_KEY, PROTOCOL_ID};

const PLAYERS: usize = 200;
const SLOTS: u32 = 250;
const TICK: Duration = Duration::from_millis(10);
/// Carries the frames of a game in which nobody acts, which have 72 bytes with all headers, to 200 and not to 201.
const UPLINK: BytesPerSecond = BytesPerSecond(2_976_250.0);

/// A game, and those who play it.
struct Play {
    server: Server,
    relay: Relay,
    inbox: Inbox,
    address: SocketAddr,
    clock: Clock,
    /// How far the game's clock is ahead.
    ahead: Duration,
    players: Vec<(Client, slipgate_client::Inbox)>,
}

impl Play {
    fn new() -> Self {
        let sockets = Sockets::bind(&[SocketAddr::new(IPV4, 0)]).unwrap();
        let address = sockets.local_addresses()[0];
        let (config, clock) = (Config::new(PROTOCOL_ID, SLOTS, vec![address.into()]), Clock::start());
        let server = Server::new(sockets, config, Key::from_bytes(PRIVATE_KEY).into(), clock.now()).unwrap();
        let mut server = server.carrying(super::relay::traffic()).unwrap();
        let relay = Relay::new(&mut server, UPLINK, TICK);
        let mut play =
            Self { server, relay, inbox: Inbox::default(), address, clock, ahead: Duration::ZERO, players: Vec::new() };
        // Until the mean frame is one in which nobody acts.
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

    fn until(&mut self, what: &str, happened: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !happened(self) {
            assert!(start.elapsed() < DEADLINE, "{what}: {} are in", self.server.connected());
            self.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The next player begins to connect.
    fn knock(&mut self) {
        let mut client = Client::new().unwrap().carrying(super::relay::traffic()).unwrap();
        let player = self.players.len() as u64 + 1;
        client.connect(Order::new(player, &[self.address]).mint().token, self.now()).unwrap();
        self.players.push((client, slipgate_client::Inbox::default()));
    }

    fn state(&self, player: usize) -> ClientState {
        self.players[player].0.state()
    }

    fn frames(&self) -> u64 {
        let sent = |client| self.server.connection(client)?.channels().stats(super::relay::FRAMES);
        self.server.clients().filter_map(sent).map(|stats| stats.sent).max().unwrap_or(0)
    }
}

#[test]
fn the_201st_player_is_refused_where_the_uplink_carries_frames_to_200_and_the_others_play_on() {
    assert!(may_join(71, UPLINK, PLAYERS - 1, TICK) && !may_join(71, UPLINK, PLAYERS, TICK));
    let mut play = Play::new();
    for player in 0..PLAYERS {
        play.knock();
        // One after the other: the relay counts them once a frame.
        play.until("a player gets in", |play| play.state(player) == ClientState::Connected);
    }
    let frames = play.frames();
    play.until("it is a game of 200", |play| play.frames() > frames + 2);
    play.knock();
    play.until("the next one is answered", |play| !play.state(PLAYERS).is_active());
    let refused = &play.players[PLAYERS].0;
    assert_eq!((refused.state(), refused.end_reason()), (ClientState::Denied, Some(EndReason::Denied)));
    let frames = play.frames();
    play.until("the others play on", |play| play.frames() > frames + 5);
    assert_eq!(play.server.connected() as usize, PLAYERS);
    assert!((0..PLAYERS).all(|player| play.state(player) == ClientState::Connected), "nobody else is refused");

    play.players[7].0.disconnect();
    play.until("one leaves", |play| (play.server.connected() as usize) < PLAYERS);
    let frames = play.frames();
    play.until("the relay has counted", |play| play.frames() > frames + 2);
    play.knock();
    play.until("another one takes the place", |play| play.state(PLAYERS + 1) == ClientState::Connected);
}
