//! The arena asks what a path carries before it writes a state: on a path that other messages fill, a state of all
//! figures is spread over several messages, and all of them arrive whole.

#[path = "../../../examples/arena/mod.rs"]
#[allow(dead_code, reason = "a client that only watches needs a part of it")]
mod rules;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use slipgate::client::{Client, Clock, Event, Inbox};
use slipgate::server::{ClientHandle, SendOptions, Sockets};
use slipgate::sync::{InputLog, MAX_INPUT_BYTES, Replica};
use slipgate_sim::proxy::{Proxy, ProxySettings};
use slipgate_sim::{Buffer, Conditions, Rate, RateLimit};
use slipgate_token_issuer::{Issuer, Key, Limits, TokenRequest, system_entropy, wall_clock};

use super::arena::Running;
use super::arena_server::Game;
use rules::{Channels, DEVELOPMENT_KEY, PROTOCOL_ID, SLOTS, channels, figures};

const MAX_TIME: Duration = Duration::from_secs(60);
/// Figures beside that of the client on the slow path. All of them take about 180 bytes, if nothing of them is known.
const OTHERS: u16 = 13;
/// The id of the client on the slow path.
const SLOW: u64 = 1;
/// The least room that the arena takes for a message.
const MIN_MESSAGE_BYTES: usize = 100;
/// The time in which the path is filled before the state is sent again.
const FILLING: Duration = Duration::from_secs(2);
/// The messages that fill the path in one turn at most: more than the pacer permits after a long pause.
const MAX_FILLING: usize = 50;
/// A time in which the path carries half of what a state of all figures takes.
const PAUSE: Duration = Duration::from_millis(50);

/// A client that stands still.
struct Watcher {
    client: Client,
    inbox: Inbox,
    clock: Clock,
    channels: Channels,
    replica: Replica,
    log: InputLog,
    /// The longest message of states so far.
    longest: usize,
}

impl Watcher {
    fn join(server: SocketAddr, id: u64) -> Self {
        let (clock, (channels, traffic)) = (Clock::start(), channels().unwrap());
        let issuer = Issuer::new(PROTOCOL_ID, Key::from(DEVELOPMENT_KEY).into(), &[server], Limits::default()).unwrap();
        let token = issuer.mint(&TokenRequest::new(id), wall_clock(), &mut system_entropy().unwrap()).unwrap().token;
        let mut client = Client::new().unwrap().with_traffic(traffic).unwrap();
        client.connect(token, clock.now()).unwrap();
        let (inbox, replica, log) = (Inbox::default(), Replica::new(figures().0, SLOTS), InputLog::new());
        Self { client, inbox, clock, channels, replica, log, longest: 0 }
    }

    /// Reads what has arrived, and asks the server to send everything again if its replica demands that.
    fn turn(&mut self) {
        self.client.begin_turn(self.clock.now());
        while let Some(event) = self.inbox.next(&mut self.client) {
            if let Event::Message { channel, bytes, .. } = event
                && channel == self.channels.state
            {
                self.longest = self.longest.max(bytes.len());
                // A message that was written before everything is sent again may have no baseline.
                let _ = self.replica.read(bytes);
            }
        }
        if self.replica.resync_request().is_some() {
            self.log.push(self.replica.newest_tick().unwrap_or(0), 0, None);
            let mut buf = [0; MAX_INPUT_BYTES];
            let length = self.log.write(self.replica.resync_request(), &mut buf);
            let _ = self.client.send_message(self.channels.inputs, &buf[..length]);
        }
        self.client.end_turn();
    }
}

/// The server, the client on the slow path, and all others.
struct Arena {
    game: Game,
    watcher: Watcher,
    others: Vec<Watcher>,
    /// The longest time between two turns.
    longest_pause: Duration,
    _forwarding: Running,
}

impl Arena {
    fn start() -> Self {
        let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let server = sockets.local_addresses()[0];
        let rate = RateLimit { rate: Rate::bits_per_second(16_000), buffer: Buffer::Time(Duration::from_millis(200)) };
        let down = Conditions { rate: Some(rate), ..Conditions::perfect() };
        let settings = ProxySettings::new("127.0.0.1:0".parse().unwrap(), server, 1);
        let mut proxy = Proxy::bind(ProxySettings { down, ..settings }).unwrap();
        let (slow, clock) = (proxy.local_address(), slipgate_os::clock::Clock::start());
        let forwarding = Running::start(move || {
            proxy.turn(clock.monotonic());
            proxy.wait(Duration::from_millis(5), clock.monotonic()).unwrap();
        });
        let game = Game::with_addresses(sockets, &[slow, server]).unwrap();
        let others = (0..OTHERS).map(|id| Watcher::join(server, SLOW + 1 + u64::from(id))).collect();
        Self {
            game,
            watcher: Watcher::join(slow, SLOW),
            others,
            longest_pause: Duration::ZERO,
            _forwarding: forwarding,
        }
    }

    fn run_until(&mut self, what: &str, mut happened: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        let mut last = start;
        while !happened(self) {
            self.longest_pause = self.longest_pause.max(last.elapsed());
            last = Instant::now();
            assert!(start.elapsed() < MAX_TIME, "{what}: {} figures", self.watcher.replica.objects().count());
            self.game.turn();
            self.others.iter_mut().chain([&mut self.watcher]).for_each(Watcher::turn);
        }
    }

    /// Lets the client demand all states, and waits until they have arrived while other messages fill the path.
    fn send_everything_again(&mut self, client: ClientHandle) {
        self.watcher.longest = 0;
        self.watcher.replica.read(&[]).unwrap_err();
        assert!(self.watcher.replica.resync_request().is_some());
        let since = self.watcher.replica.newest_tick();
        self.run_until("everything is sent again", |arena| {
            arena.fill(client);
            let is_new = |tick: u32| Some(tick) > since;
            let (replica, all) = (&arena.watcher.replica, usize::from(OTHERS) + 1);
            replica.resync_request().is_none()
                && replica.objects().filter(|figure| is_new(figure.tick())).count() == all
        });
    }

    /// Sends small messages to a client on the other channel, until its path carries little more now.
    ///
    /// A large message would wait until the pacer permits all of it, and the state may take what is saved for it.
    fn fill(&mut self, client: ClientHandle) {
        self.game.server.begin_turn(self.game.clock.now());
        for _ in 0..MAX_FILLING {
            let Some(mut client) = self.game.server.client(client) else { return };
            if client.budget().is_some_and(|budget| budget.max_message_bytes() < MIN_MESSAGE_BYTES / 2) {
                return;
            }
            let _ = client.send_message_with(self.watcher.channels.inputs, &[0], SendOptions::default());
            self.game.server.flush();
        }
    }
}

#[test]
fn arena_writes_no_more_than_the_path_carries() {
    let mut arena = Arena::start();
    let all = usize::from(OTHERS) + 1;
    arena.run_until("all figures appear", |arena| arena.watcher.replica.objects().count() == all);
    let watcher = arena.game.server.find(SLOW).unwrap();
    let start = Instant::now();
    arena.run_until("the path is full", |arena| {
        arena.fill(watcher);
        start.elapsed() > FILLING
    });
    // The path runs empty, and carries longer messages, while a busy machine stands still: such rounds do not count.
    let mut rounds = 0;
    for _ in 0..6 {
        arena.longest_pause = Duration::ZERO;
        arena.send_everything_again(watcher);
        println!("{} bytes at most, and a pause of {:?}", arena.watcher.longest, arena.longest_pause);
        let is_short = arena.watcher.longest <= MIN_MESSAGE_BYTES;
        assert!(is_short || arena.longest_pause >= PAUSE, "{} bytes", arena.watcher.longest);
        rounds += u32::from(is_short);
        if rounds == 3 {
            break;
        }
    }
    assert_eq!(rounds, 3, "rounds that count");
    assert!(arena.watcher.client.close_reason().is_none());
}
