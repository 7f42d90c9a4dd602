//! Clients whose messages the application does not take for a while.

use tracing::Level;

use super::*;
use crate::test_log::count_lines;

const CLIENTS: u64 = 3;
const MESSAGES: usize = 5;

/// A server with channels, its clients, and the messages of each client.
struct Scene {
    server: Server,
    to: SocketAddr,
    inbox: Inbox,
    clock: Clock,
    players: Vec<Player>,
    handles: Vec<ClientHandle>,
}

impl Scene {
    /// Connects the clients.
    fn new() -> Self {
        let layout = Layout::try_from(vec![ChannelConfig::from(Kind::ReliableOrdered)]).unwrap();
        let (traffic, clock) = (Traffic::channels(layout), Clock::start());
        let (server, to) = server();
        let server = server.with_traffic(traffic.clone()).unwrap();
        let players = (0..CLIENTS).map(|id| Player::with_traffic(traffic.clone(), id, to, clock.now())).collect();
        let mut scene = Self { server, to, inbox: Inbox::default(), clock, players, handles: Vec::new() };
        for _ in 0..5_000 {
            scene.players_turn(0);
            scene.turn(false);
            if scene.handles.len() == CLIENTS as usize {
                return scene;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("the clients did not connect in 5 s");
    }

    /// Sends this number of messages of each client, in one datagram.
    fn players_turn(&mut self, messages: usize) {
        for player in &mut self.players {
            player.client.begin_turn(self.clock.now());
            while player.inbox.next(&mut player.client).is_some() {}
            (0..messages).for_each(|_| player.client.send_message(ChannelId(0), b"moves").unwrap());
            player.client.end_turn();
        }
    }

    /// Runs a turn of the server, which may take no message of a client after its first one. Returns the number of
    /// messages.
    fn turn(&mut self, refuses: bool) -> usize {
        let mut messages = 0;
        self.server.begin_turn(self.clock.now());
        while let Some(event) = self.inbox.next(&mut self.server) {
            match event {
                crate::Event::Connected { client, .. } => self.handles.push(client),
                crate::Event::Message { client, .. } => {
                    messages += 1;
                    if refuses {
                        self.server.set_intake(client, Intake::Refused);
                    }
                }
                _ => {}
            }
        }
        self.server.end_turn();
        messages
    }
}

#[test]
fn full_turn_takes_what_the_application_kept_waiting() {
    let mut scene = Scene::new();
    scene.players_turn(MESSAGES);
    let mut taken = 0;
    for _ in 0..100 {
        taken += scene.turn(true);
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(taken, CLIENTS as usize, "one message of each client");
    scene.handles.clone().into_iter().for_each(|client| scene.server.set_intake(client, Intake::Open));
    // Junk uses up the limit of the turn.
    scene.server.set_read_limits(ReadLimits { max_time: Duration::ZERO, ..ReadLimits::default() });
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    (0..200).for_each(|_| assert_eq!(stranger.send_to(b"junk", scene.to).unwrap(), 4));
    thread::sleep(Duration::from_millis(5));
    assert_eq!(scene.turn(false), CLIENTS as usize * (MESSAGES - 1), "the rest of all clients");
    let totals = scene.server.totals();
    assert_eq!((totals.packets_over_budget, totals.turns_cut_short > 0), (0, true));
}

#[test]
fn log_counts_packets_of_clients_that_were_not_taken() {
    let mut scene = Scene::new();
    for _ in 0..100 {
        scene.players_turn(1);
        scene.turn(true);
        thread::sleep(Duration::from_millis(1));
    }
    let refused = scene.server.totals().packets_not_taken;
    assert!(refused > 0, "packets behind the first message of each client are refused");
    let field = format!("packets_not_taken={refused}").leak();
    assert_eq!(count_lines(Level::INFO, field, || scene.server.log_totals()).1, 1);
}
