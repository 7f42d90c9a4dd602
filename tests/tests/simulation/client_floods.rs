//! One client with a valid token floods its server: the others notice nothing, and the flooder is disconnected.

use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::client::ClientState;
use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_session::channel::{ChannelId, ChannelViolation};
use slipgate_session::connection::{CloseKind, Connection, ConnectionConfig, Memory, Role};
use slipgate_session::reject::Reject;
use slipgate_session::server::SessionEvent;
use slipgate_sim::Conditions;
use slipgate_tests::counting::peak;
use slipgate_tests::hostile::{FloodMix, FloodWriter, ORDERED, UNRELIABLE, flood_layout};
use slipgate_tests::netcode_world::address;
use slipgate_tests::raw_client::RawClient;
use slipgate_tests::scale::pick;
use slipgate_tests::session_world::SessionWorld;

const PLAYERS: u64 = 8;
const FLOODER: u64 = 100;
const PACKETS_PER_TURN: usize = 120;
/// Turns of a flood: 2.4 s.
const TURNS: u32 = 150;

/// The mixes of which most packets of a turn exceed the work budget.
const COSTLY: [FloodMix; 2] = [FloodMix::EmptyUnreliable, FloodMix::EmptySequenced];

/// The mixes of the quick tests.
const QUICK: [FloodMix; 6] = [
    FloodMix::EmptyUnreliable,
    FloodMix::EmptySequenced,
    FloodMix::LastSlices,
    FloodMix::Controls,
    FloodMix::TransferLateStarts,
    FloodMix::TransferWithdrawals,
];

struct FloodWorld {
    world: SessionWorld,
    raw_client: RawClient,
    writer: FloodWriter,
    from: Address,
    sent: u64,
    /// Messages of the flooder that the server received.
    flood_messages: u64,
}

impl FloodWorld {
    fn new(mix: FloodMix) -> Self {
        let layout = flood_layout();
        let mut world = SessionWorld::new(16, &layout, &ConnectionConfig::default(), Memory::default());
        // The world counts messages of players; the flooder is the next one.
        let path = Conditions { latency: Duration::from_millis(20), ..Conditions::perfect() };
        for _ in 0..PLAYERS {
            world.join(path);
        }
        let (mut raw_client, from) = (RawClient::new(&world.token(FLOODER)), address("10.9.9.9:9"));
        world.present(from, raw_client.request());
        world.turn();
        let challenge = world.replies.iter().find_map(|(_, reply)| raw_client.challenge(reply)).expect("a challenge");
        world.present(from, raw_client.response(&challenge));
        world.turn();
        assert!(world.handle(FLOODER).is_some());
        Self { world, raw_client, writer: FloodWriter::new(mix, &layout), from, sent: 0, flood_messages: 0 }
    }

    /// Runs a turn with some packets of the flooder; every player sends a message on two channels.
    fn turn(&mut self, packets: usize) {
        let number = self.sent.to_le_bytes();
        for id in 1..=PLAYERS {
            for channel in [UNRELIABLE, ORDERED].map(ChannelId) {
                self.world.send_to_server(id, channel, &number).unwrap();
            }
        }
        self.sent += 1;
        for _ in 0..packets {
            let datagram = self.raw_client.seal(PacketKind::Payload, &self.writer.next_payload());
            self.world.incoming.push((self.from, datagram));
        }
        self.world.turn();
        self.flood_messages = self.world.incoming_messages;
        // The application drops what it received of transfers.
        self.world.events.retain(|event| matches!(event, SessionEvent::Disconnected { .. }));
    }

    fn end(&self) -> Option<CloseKind> {
        self.world.disconnects().into_iter().find(|(id, _)| *id == FLOODER).map(|(_, kind)| kind)
    }

    fn refused(&self) -> u64 {
        let client = self.world.handle(FLOODER).expect("connected");
        self.world.server.connection_stats(client, self.world.now()).unwrap().path.expect("channels").endpoint.rejects
            [Reject::OverBudget]
    }

    /// Asserts that every message of every player arrived once.
    fn assert_players_unaffected(&mut self, what: &str) {
        (0..20).for_each(|_| self.world.turn());
        for id in 1..=PLAYERS {
            for channel in [UNRELIABLE, ORDERED].map(ChannelId) {
                let arrived = self.world.messages.iter().filter(|(from, on, _)| (*from, *on) == (id, channel)).count();
                assert_eq!(arrived as u64, self.sent, "{what}: player {id} on {channel:?}");
            }
            assert_eq!(self.world.player(id).core.netcode.state(), ClientState::Connected, "{what}");
        }
    }
}

#[test]
fn flooding_client_does_not_affect_the_others() {
    for mix in pick(&QUICK[..], &FloodMix::EVERY[..]).iter().copied() {
        let mut scene = FloodWorld::new(mix);
        let ((), bytes) = peak(|| (0..TURNS).for_each(|_| scene.turn(PACKETS_PER_TURN)));
        let end = scene.end();
        println!("{mix:?}: {end:?}, {} messages, {bytes} bytes", scene.flood_messages);
        // 100 ms of work a second, of which each message takes 1.25 us with its frame, and a burst of 4 ms.
        assert!(scene.flood_messages < 85_000 * 12 / 5, "{mix:?}: {} messages", scene.flood_messages);
        assert!(bytes < 96 << 20, "{mix:?}: {bytes} bytes");
        if COSTLY.contains(&mix) {
            assert_eq!(end, Some(CloseKind::Violation(ChannelViolation::Flood)), "{mix:?}");
        }
        scene.assert_players_unaffected(&format!("{mix:?}"));
    }
}

#[test]
fn fifteen_thousand_full_packets_a_second_are_taken() {
    let mut scene = FloodWorld::new(FloodMix::FullPackets);
    let turns: u64 = 40;
    (0..turns).for_each(|_| scene.turn(240));
    assert_eq!((scene.refused(), scene.flood_messages, scene.end()), (0, 240 * turns, None));
    scene.assert_players_unaffected("full packets");
}

#[test]
fn refused_packets_have_no_effect_and_are_counted() {
    let mut scene = FloodWorld::new(FloodMix::EmptyUnreliable);
    scene.turn(40);
    // 0.75 ms of work and 1.6 ms that the turn took: 1.25 us for each of 570 messages, and the packet that exceeds it.
    let granted = scene.flood_messages / 560;
    assert!((3..=5).contains(&granted), "{} messages", scene.flood_messages);
    assert_eq!(scene.refused(), 40 - granted);
    let client = scene.world.handle(FLOODER).unwrap();
    scene.world.run_for(Duration::from_secs(1));
    let before = scene.flood_messages;
    scene.turn(1);
    assert!(scene.flood_messages > before, "a later packet is taken");
    assert!(scene.world.server.connection(client).unwrap().close_reason().is_none());
}

#[test]
fn client_takes_a_bounded_number_of_messages_per_turn() {
    let layout = flood_layout();
    let mut writer = FloodWriter::new(FloodMix::EmptyUnreliable, &layout);
    let mut connection = Connection::new(&ConnectionConfig::default(), layout, Role::Client, None).unwrap();
    let (mut scratch, mut most, mut ended_at) = (Vec::new(), 0, None);
    // A hostile server sends 15,000 packets a second, each with 560 messages.
    for turn in 0..200 {
        let now = Instant::from_start(Duration::from_millis(1000 + 16 * turn));
        let mut messages = 0;
        for _ in 0..240 {
            let payload = writer.next_payload();
            let Ok(Some(mut cursor)) = connection.handle(&payload, Duration::ZERO, now) else { continue };
            while connection.next_message(&payload, &mut cursor, &mut scratch, now).is_some() {
                messages += 1;
            }
        }
        connection.tick(now);
        most = most.max(messages);
        ended_at = ended_at.or_else(|| connection.close_reason().map(|_| turn));
    }
    println!("at most {most} messages in a turn, ended in turn {ended_at:?}");
    // 0.75 ms of work at 1.25 us for each message, and one packet beyond it; without a budget 134,400.
    assert!((1000..2300).contains(&most), "{most} messages in a turn");
    let kind = connection.close_reason().map(|reason| reason.kind);
    assert_eq!(kind, Some(CloseKind::Violation(ChannelViolation::Flood)));
}
