//! Lists, kicks and drains of a server with channels, by real HTTP and UDP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::StdRng;
use slipgate_client::{Client, CloseCode};
use slipgate_netcode::crypto::key::{Key, KeyRing};
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::token::Servers;
use slipgate_os::clock::wall_clock;
use slipgate_server::{Channel, Clock, Inbox, Layout, Pace, ServerConfig, Sockets, Traffic};

use super::*;
use crate::Admin;

const MAX_WAIT: Duration = Duration::from_secs(60);
const KEY: [u8; 32] = [5; 32];

fn traffic() -> Traffic {
    let mut layout = Layout::builder();
    layout.add(Channel::reliable_ordered("chat"));
    Traffic::channels(layout.build().unwrap())
}

/// A server with channels on a thread of its own, which stops when this value is dropped.
struct RunningServer {
    address: SocketAddr,
    admin: Admin,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RunningServer {
    fn start() -> Self {
        let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let addresses = sockets.local_addresses();
        let (clock, config) = (Clock::start(), ServerConfig::new(1, 8, &addresses));
        let keys = KeyRing::new(&[Key::from(KEY)]).unwrap();
        let mut server = Server::new(sockets, config, keys, clock.now()).unwrap().with_traffic(traffic()).unwrap();
        let admin = Admin::start("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut publisher = admin.publisher(server.config(), clock);
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut inbox, mut pace) = (Inbox::default(), Pace::new(clock, Duration::from_millis(10)));
            while !is_stopped.load(Ordering::Relaxed) {
                let now = clock.now();
                server.begin_turn(now);
                while inbox.next(&mut server).is_some() {}
                server.end_turn();
                publisher.on_turn(&mut server, now);
                pace.rest(&mut server);
            }
        });
        Self { address: addresses[0], admin, stop, thread: Some(thread) }
    }

    fn request(&self, head: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.admin.address()).unwrap();
        stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
        let (host, length) = (self.admin.address(), body.len());
        let request = format!("{head} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n");
        write!(stream, "{request}Content-Length: {length}\r\n\r\n{body}").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let status = response.split(' ').nth(1).unwrap().parse().unwrap();
        (status, response.split_once("\r\n\r\n").unwrap().1.to_owned())
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

struct Player {
    client: Client,
    inbox: slipgate_client::Inbox,
    clock: Clock,
    reason: Option<slipgate_client::CloseReason>,
}

impl Player {
    fn new(client_id: u64, server: SocketAddr) -> Self {
        let servers = Servers::new(&[server]).unwrap();
        let claims = Claims {
            protocol_id: 1,
            client_id: client_id.into(),
            servers: &servers,
            internal_servers: None,
            lifetime_seconds: 30,
            timeout_seconds: 20,
            user_data: &[0; 256],
        };
        let token = issue(&claims, &Key::from(KEY), wall_clock(), &mut StdRng::seed_from_u64(client_id)).unwrap();
        let clock = Clock::start();
        let mut client = Client::new().unwrap().with_traffic(traffic()).unwrap();
        client.connect(token, clock.now()).unwrap();
        Self { client, inbox: slipgate_client::Inbox::default(), clock, reason: None }
    }

    fn until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < MAX_WAIT, "{:?}", self.client.state());
            self.client.wait(Duration::from_millis(10)).unwrap();
            self.client.begin_turn(self.clock.now());
            while let Some(event) = self.inbox.next(&mut self.client) {
                if let slipgate_client::Event::Ended { reason } = event {
                    self.reason = Some(reason);
                }
            }
            self.client.end_turn();
        }
    }

    fn join(client_id: u64, server: SocketAddr) -> Self {
        let mut player = Self::new(client_id, server);
        player.until(|player| player.client.state().is_connected());
        player
    }
}

#[test]
fn kicked_player_gets_the_text_without_control_characters() {
    let server = RunningServer::start();
    let mut player = Player::join(u64::MAX, server.address);
    let (status, list) = server.request("GET /clients", "");
    assert_eq!(status, 200, "{list}");
    for part in [r#""id":"18446744073709551615""#, r#""slot":0"#, r#""queued_messages":0"#, r#""packets_received":"#] {
        assert!(list.contains(part), "{part}: {list}");
    }
    let text = r#"{"text":"No rockets.\u001b[2J\nBye \u202eXD"}"#;
    let (status, kicked) = server.request("POST /clients/18446744073709551615/kick", text);
    let expected = r#"{"id":"18446744073709551615","shard":0,"slot":0,"text_sent":true}"#;
    assert_eq!((status, kicked.as_str()), (200, expected));
    player.until(|player| player.reason.is_some());
    let reason = player.reason.unwrap();
    assert_eq!((reason.code, reason.text.as_str()), (Some(CloseCode::KICKED), "No rockets.[2J Bye XD"));
    let (status, error) = server.request("POST /clients/18446744073709551615/kick", "");
    assert_eq!((status, error.contains("unknown_client")), (404, true), "{error}");
}

#[test]
fn drained_server_admits_no_new_player() {
    let server = RunningServer::start();
    let mut first = Player::join(1, server.address);
    assert!(!server.admin.is_draining());
    assert_eq!(server.request("POST /drain", "{}"), (200, r#"{"status":"draining"}"#.to_owned()));
    let (status, error) = server.request("POST /drain", "");
    assert_eq!((status, error.contains("already_draining")), (409, true), "{error}");
    assert!(server.admin.is_draining());
    let mut second = Player::new(2, server.address);
    second.until(|player| player.reason.is_some());
    assert_eq!(second.reason.unwrap().kind.name(), "connection_denied");
    first.until(|player| player.client.state().is_connected());
    assert_eq!(first.reason, None);
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

#[test]
fn full_queue_and_ended_server_refuse_a_command() {
    let run = |shards| block_on(execute_on_all(shards, Work::List(None))).unwrap_err();
    assert_eq!(run(Vec::new()), CommandError::NoServer);
    let (sender, receiver) = sync_channel(1);
    let (replies, _received) = mpsc::channel(1);
    sender.try_send(AdminCommand { work: Work::List(None), replies }).unwrap();
    assert_eq!(run(vec![sender.clone()]), CommandError::Busy);
    drop(receiver);
    assert_eq!(run(vec![sender]), CommandError::NoServer);
}

#[test]
fn command_without_a_reply_fails_and_is_not_executed_later() {
    let (sender, receiver) = sync_channel(1);
    assert_eq!(block_on(execute_on_all(vec![sender], Work::List(None))).unwrap_err(), CommandError::NoReply);
    assert!(receiver.recv().unwrap().replies.is_closed());
}
