//! A hostile server that closes the gaps of full windows with one packet, and a client with an inbox. Time is virtual.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use slipgate_client::{Client, ClientState, Clock, Event, Inbox};
use slipgate_netcode::time::{Now, UnixMillis};
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout, MAX_QUEUE_MESSAGES};
use slipgate_session::connection::{ConnectionConfig, Traffic};
use slipgate_tests::live::{IPV4, TokenOrder};
use slipgate_tests::malicious_peer::{MaliciousPeer, PeerPacket, whole};
use slipgate_tests::raw_server::{FromClient, RawServer};
use slipgate_udp::Sockets;

/// The messages of each window.
const WINDOW: u32 = MAX_QUEUE_MESSAGES as u32;
const CHANNELS: u8 = 2;

/// A client of a server that is a plain socket. Nothing happens between its turns, which advance the time.
struct Scene {
    start: Now,
    elapsed: Duration,
    client: Client,
    inbox: Inbox,
    socket: UdpSocket,
    server: RawServer,
    peer: MaliciousPeer,
    layout: Arc<Layout>,
    /// The channel and the content of each message.
    messages: Vec<(ChannelId, u32)>,
}

impl Scene {
    fn connected() -> Self {
        let socket = UdpSocket::bind((IPV4, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let token = TokenOrder::new(1, &[socket.local_addr().unwrap()]).mint().token;
        let server = RawServer::new(&token);
        let ordered =
            ChannelConfig { queue_messages: MAX_QUEUE_MESSAGES, ..ChannelConfig::from(Kind::ReliableOrdered) };
        let layout = Arc::new(Layout::try_from(vec![ordered; CHANNELS.into()]).unwrap());
        let traffic = Traffic::Channels(Arc::clone(&layout), ConnectionConfig::default());
        let client = Client::with_sockets(Sockets::bind(&[(IPV4, 0).into()]).unwrap());
        let (start, inbox) = (Clock::start().now(), Inbox::default());
        let (elapsed, messages, peer) = (Duration::ZERO, Vec::new(), MaliciousPeer::default());
        let client = client.with_traffic(traffic).unwrap();
        let mut scene = Self { start, elapsed, client, inbox, socket, server, peer, layout, messages };
        scene.client.connect(token, start).unwrap();
        for _ in 0..100 {
            scene.turn(100);
            scene.reply();
            if scene.client.state() == ClientState::Connected {
                return scene;
            }
        }
        panic!("the client did not connect");
    }

    /// Replies to a packet of the handshake.
    fn reply(&mut self) {
        let mut buf = [0; 1500];
        let Ok((bytes, from)) = self.socket.recv_from(&mut buf) else { return };
        match self.server.read(&buf[..bytes]) {
            Some(FromClient::Request) => self.send(from, |server| server.challenge(7)),
            Some(FromClient::Sealed(PacketKind::Response, ..)) => self.send(from, |server| server.keep_alive(0, 4)),
            _ => {}
        }
    }

    fn send(&mut self, to: SocketAddr, seal: impl FnOnce(&mut RawServer) -> Vec<u8>) {
        self.socket.send_to(&seal(&mut self.server), to).unwrap();
    }

    /// Sends message frames in one packet.
    fn send_frames(&mut self, frames: &[u8]) {
        let payload = self.peer.packet(PeerPacket::frames(self.layout.hash(), frames));
        let client = self.client.sockets().local_addresses()[0];
        self.send(client, |server| server.payload(&payload));
    }

    /// Advances the time, and runs a turn of the client. Returns the number of messages that it took.
    fn turn(&mut self, millis: u64) -> usize {
        self.elapsed += Duration::from_millis(millis);
        let unix = UnixMillis(self.start.unix.0 + self.elapsed.as_millis() as u64);
        self.client.begin_turn(Now { monotonic: self.start.monotonic.after(self.elapsed), unix });
        let before = self.messages.len();
        while let Some(event) = self.inbox.next(&mut self.client) {
            match event {
                Event::Message { channel, bytes, .. } => {
                    self.messages.push((channel, u32::from_le_bytes(bytes.try_into().unwrap())));
                }
                Event::Ended { reason } => panic!("{reason:?}"),
                _ => {}
            }
        }
        self.client.end_turn();
        self.messages.len() - before
    }
}

#[test]
fn closed_gaps_of_a_server_keep_turns_of_the_client_short() {
    let mut scene = Scene::connected();
    for channel in 0..CHANNELS {
        let ids: Vec<u32> = (1..WINDOW).collect();
        for ids in ids.chunks(160) {
            let deltas = ids.iter().map(|id| if *id == ids[0] { *id } else { 1 });
            let frames: Vec<_> =
                ids.iter().zip(deltas).map(|(id, delta)| whole(channel, Some(delta), &id.to_le_bytes())).collect();
            scene.send_frames(&frames.concat());
            assert_eq!(scene.turn(5), 0, "all wait behind the gap");
        }
    }
    let closing: Vec<_> = (0..CHANNELS).map(|channel| whole(channel, Some(0), &0_u32.to_le_bytes())).collect();
    scene.send_frames(&closing.concat());
    // It arrives while the others wait.
    scene.send_frames(&whole(1, Some(WINDOW), &WINDOW.to_le_bytes()));
    let all = (0..u32::from(CHANNELS))
        .flat_map(|channel| (0..WINDOW + channel).map(move |id| (ChannelId(channel as u8), id)));
    let expected: Vec<_> = all.collect();
    let mut most = 0;
    for turn in 0.. {
        assert!(turn < 200, "{} messages arrived", scene.messages.len());
        most = most.max(scene.turn(16));
        if scene.messages.len() == expected.len() {
            break;
        }
    }
    println!("at most {most} messages in a turn");
    // The work allowed at once is 4 ms, and a turn gains 1.6 ms, with 1.15 us for each message.
    assert!(most < 5000, "{most} messages in a turn");
    assert!(scene.messages == expected, "each message is delivered once, in order");
}
