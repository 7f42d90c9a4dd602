//! Hostile players that stay just below the budgets, or come back with fresh tokens: the others lose nothing, their
//! messages are not late, and neither the work of a turn nor the memory grows.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_netcode::address::Address;
use slipgate_netcode::client::ClientState;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::ClientHandle;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_session::channel::transfer::Transfer;
use slipgate_session::channel::{ChannelId, ChannelViolation};
use slipgate_session::connection::{CloseKind, ConnectionConfig, Memory};
use slipgate_session::reject::Reject;
use slipgate_session::server::SessionEvent;
use slipgate_sim::Conditions;
use slipgate_tests::counting::peak;
use slipgate_tests::hostile::{FloodMix, FloodWriter, ORDERED, TRANSFERS, UNRELIABLE, flood_layout};
use slipgate_tests::netcode_world::address;
use slipgate_tests::raw_client::RawClient;
use slipgate_tests::scale::pick;
use slipgate_tests::session_world::{SessionWorld, TURN};

const PLAYERS: u64 = 8;
const HOSTILE: u64 = 100;
/// The one-way latency of the players: their messages arrive in the second or third turn.
const LATENCY: Duration = Duration::from_millis(20);
/// The turns in which each message must arrive.
const MAX_TURNS: u64 = 3;
/// The budget of a client: 100 ms of work a second with a fiftieth for its reserve, and 4 ms at once. A packet may
/// exceed it by its own work.
const BUDGET: Duration = Duration::from_millis(102);
const MAX_AT_ONCE: Duration = Duration::from_millis(6);

fn turns(time: Duration) -> u64 {
    (time.as_millis() / TURN.as_millis()) as u64
}

/// A hostile holder of a token.
struct HostileClient {
    raw: RawClient,
    from: Address,
    client: ClientHandle,
}

/// A server with eight players that send in each turn, as a hostile one does.
struct Arena {
    world: SessionWorld,
    /// The turns so far, and the number of the oldest message of each player that is on its way, for each channel.
    turn: u64,
    next: [[u64; 2]; PLAYERS as usize],
    max_late: u64,
    max_work: Duration,
    all_work: Duration,
}

impl Arena {
    fn new(slots: u32) -> Self {
        let mut world = SessionWorld::new(slots, &flood_layout(), &ConnectionConfig::default(), Memory::default());
        let path = Conditions { latency: LATENCY, ..Conditions::perfect() };
        for _ in 0..PLAYERS {
            world.join(path);
        }
        let next = [[1; 2]; PLAYERS as usize];
        Self { world, turn: 0, next, max_late: 0, max_work: Duration::ZERO, all_work: Duration::ZERO }
    }

    fn seconds(&self) -> u32 {
        (self.turn * TURN.as_millis() as u64 / 1000) as u32
    }

    /// Runs a turn, in which each player sends a message on two channels.
    fn turn(&mut self) {
        self.turn += 1;
        for id in 1..=PLAYERS {
            for channel in [UNRELIABLE, ORDERED].map(ChannelId) {
                self.world.send_to_server(id, channel, &self.turn.to_le_bytes()).unwrap();
            }
        }
        let before = self.world.server.stats().work_done;
        self.world.turn();
        let work = Duration::from_nanos(self.world.server.stats().work_done - before);
        (self.max_work, self.all_work) = (self.max_work.max(work), self.all_work + work);
        for (id, channel, message) in std::mem::take(&mut self.world.messages) {
            let number = u64::from_le_bytes(message.try_into().expect("the number of a turn"));
            let next = &mut self.next[id as usize - 1][usize::from(channel.0 == ORDERED)];
            assert_eq!(number, *next, "player {id} on {channel:?} has lost a message");
            *next += 1;
            self.max_late = self.max_late.max(self.turn - number);
        }
        self.world.replies.truncate(10_000);
        self.world.events.retain(|event| matches!(event, SessionEvent::Disconnected { .. }));
    }

    /// Connects a holder of a fresh token from this port. Returns `None` if the server gives it no slot.
    fn admit(&mut self, client_id: u64, port: u64) -> Option<HostileClient> {
        let token = self.world.token_for(client_id, 40 + self.seconds());
        let (mut raw, from) = (RawClient::new(&token), address(&format!("10.9.9.9:{port}")));
        self.world.replies.clear();
        self.world.present(from, raw.request());
        self.turn();
        let challenge = self.world.replies.iter().find_map(|(_, reply)| raw.challenge(reply))?;
        self.world.present(from, raw.response(&challenge));
        self.turn();
        Some(HostileClient { raw, from, client: self.world.handle(client_id)? })
    }

    /// Sends payloads of a hostile client in the next turn.
    fn send(&mut self, hostile: &mut HostileClient, writer: &mut FloodWriter, packets: u64) {
        for _ in 0..packets {
            let datagram = hostile.raw.seal(PacketKind::Payload, &writer.next_payload());
            self.world.incoming.push((hostile.from, datagram));
        }
    }

    /// Acknowledges what the server has sent to a hostile client.
    fn acknowledge(&mut self, hostile: &HostileClient, writer: &mut FloodWriter) {
        for (to, reply) in std::mem::take(&mut self.world.replies) {
            let Some(opened) = hostile.raw.open(&reply).filter(|_| to == hostile.from) else { continue };
            if opened.kind == PacketKind::Payload {
                writer.acknowledge(&opened.content);
            }
        }
    }

    fn over_budget(&self, client: ClientHandle) -> u64 {
        let stats = self.world.server.connection_stats(client, self.world.now()).expect("a connected client");
        stats.path.expect("channels").endpoint.rejects[Reject::OverBudget]
    }

    fn end_of(&self, client_id: u64) -> Option<CloseKind> {
        self.world.disconnects().into_iter().find(|(id, _)| *id == client_id).map(|(_, kind)| kind)
    }

    /// Asserts that no player lost a message or its connection, and that none was late.
    fn assert_players_unaffected(&mut self, what: &str) {
        (0..10).for_each(|_| self.turn());
        for (id, next) in (1..=PLAYERS).zip(self.next) {
            assert!(next.iter().all(|next| *next + MAX_TURNS > self.turn), "{what}: player {id} lost {next:?}");
            assert_eq!(self.world.player(id).core.netcode.state(), ClientState::Connected, "{what}");
        }
        assert!(self.max_late <= MAX_TURNS, "{what}: a message was {} turns late", self.max_late);
        assert!(self.world.disconnects().iter().all(|(id, _)| *id > PLAYERS), "{what}");
    }
}

/// The work of the players alone, in a turn.
fn quiet_work() -> Duration {
    let mut arena = Arena::new(16);
    (0..100).for_each(|_| arena.turn());
    arena.max_work
}

#[test]
fn drips_just_below_the_budget_cause_bounded_work() {
    let quick = [
        FloodMix::EmptyUnreliable,
        FloodMix::GapThenAll,
        FloodMix::TransferHoles,
        FloodMix::TransferLateStarts,
        FloodMix::Withdrawals,
    ];
    let quiet = quiet_work();
    // Minutes of the mixes whose packets are costly. Others send as many packets in seconds.
    let (max_time, max_packets) = pick((60, 12_000), (180, 60_000));
    for mix in pick(&quick[..], &FloodMix::EVERY[..]).iter().copied() {
        let mut arena = Arena::new(16);
        let mut hostile = arena.admit(HOSTILE, 9).expect("a slot");
        let mut writer = FloodWriter::new(mix, &flood_layout());
        let (mut packets, mut refused, mut sent) = (1, 0, 0);
        let (turn, before) = (arena.turn, arena.all_work);
        let ((), bytes) = peak(|| {
            while arena.turn < turn + turns(Duration::from_secs(max_time))
                && sent < max_packets
                && arena.end_of(HOSTILE).is_none()
            {
                arena.send(&mut hostile, &mut writer, packets);
                arena.turn();
                arena.acknowledge(&hostile, &mut writer);
                sent += packets;
                // It sends more until a packet is refused, and then half as many.
                let now_refused =
                    if arena.end_of(HOSTILE).is_none() { arena.over_budget(hostile.client) } else { refused };
                packets = if now_refused > refused { packets.div_ceil(2) } else { (packets + 1).min(256) };
                refused = now_refused;
            }
        });
        let end = arena.end_of(HOSTILE);
        let lasted = TURN * (arena.turn - turn) as u32;
        let (all, most) = (arena.all_work - before, arena.max_work);
        println!(
            "{mix:?}: {sent} packets in {lasted:?}, {refused} refused, {all:?} of work, {most:?} in a turn, {end:?}"
        );
        assert!(matches!(end, None | Some(CloseKind::Violation(_))), "{mix:?}: {end:?}");
        let budget = BUDGET.mul_f64(lasted.as_secs_f64()) + MAX_AT_ONCE + quiet * (arena.turn - turn) as u32;
        assert!(all <= budget, "{mix:?}: {all:?} of work in {lasted:?}");
        assert!(most <= MAX_AT_ONCE + quiet, "{mix:?}: {most:?} of work in a turn");
        assert!(bytes < 96 << 20, "{mix:?}: {bytes} bytes");
        arena.assert_players_unaffected(&format!("{mix:?}"));
    }
}

#[test]
fn bursts_after_pauses_cause_bounded_work_in_a_turn() {
    let quiet = quiet_work();
    // In phase with the server: all packets arrive right before those of the players, after pauses that fill a budget.
    for (pause, packets) in [(2_u32, 64), (10, 256), (60, 256), (300, 1024)] {
        let mut arena = Arena::new(16);
        let mut hostile = arena.admit(HOSTILE, 9).expect("a slot");
        let mut writer = FloodWriter::new(FloodMix::EmptyUnreliable, &flood_layout());
        for turn in 0..turns(Duration::from_secs(30)) {
            if turn % u64::from(pause) == 0 && arena.end_of(HOSTILE).is_none() {
                arena.send(&mut hostile, &mut writer, packets);
            }
            arena.turn();
            arena.acknowledge(&hostile, &mut writer);
        }
        let (end, most) = (arena.end_of(HOSTILE), arena.max_work);
        println!("{packets} packets each {pause} turns: {most:?} of work in a turn, {end:?}");
        assert!(most <= MAX_AT_ONCE + quiet, "{packets} packets each {pause} turns: {most:?} of work in a turn");
        let is_flood = end == Some(CloseKind::Violation(ChannelViolation::Flood));
        // A pause of more than two windows of 100 ms interrupts a flood.
        assert_eq!(
            is_flood,
            TURN * pause < Duration::from_millis(200),
            "{packets} packets each {pause} turns: {end:?}"
        );
        arena.assert_players_unaffected("bursts");
    }
}

#[test]
fn one_account_with_fresh_tokens_connects_a_few_times() {
    let mut arena = Arena::new(16);
    let mut admitted = 0;
    for port in 1..=turns(Duration::from_secs(20)) {
        if let Some(mut hostile) = arena.admit(HOSTILE, port) {
            admitted += 1;
            let mut writer = FloodWriter::new(FloodMix::EmptyUnreliable, &flood_layout());
            arena.send(&mut hostile, &mut writer, 64);
            let last = hostile.raw.seal(PacketKind::Disconnect, &[]);
            arena.world.incoming.push((hostile.from, last));
            arena.turn();
        }
    }
    let refused = arena.world.server.netcode.discards()[Discard::ClientIdTokens];
    println!("{admitted} connects, {refused} refused, {:?} of work in a turn", arena.max_work);
    assert_eq!(admitted, 8, "the tokens that one client id may have used");
    assert!(refused > 100, "{refused}");
    arena.assert_players_unaffected("one account");
}

#[test]
fn storm_of_connects_and_disconnects_delays_no_player() {
    let mut arena = Arena::new(64);
    let (mut hostile, mut admitted): (Vec<HostileClient>, u64) = (Vec::new(), 0);
    let ((), bytes) = peak(|| {
        for turn in 0..turns(Duration::from_secs(pick(10, 60))) {
            // Each account connects, and leaves in the turn after.
            for client in &mut hostile {
                let last = client.raw.seal(PacketKind::Disconnect, &[]);
                arena.world.incoming.push((client.from, last));
            }
            hostile.clear();
            for number in 0..3 {
                let id = 1000 + 3 * turn + number;
                hostile.extend(arena.admit(id, id));
            }
            admitted += hostile.len() as u64;
        }
    });
    println!("{admitted} connects, {bytes} bytes, {:?} of work in a turn", arena.max_work);
    assert!(admitted > 1000 && bytes < 16 << 20, "{admitted} connects, {bytes} bytes");
    arena.assert_players_unaffected("a storm of connects");
}

#[test]
fn garbage_responses_from_many_ports_delay_no_join() {
    const PENDING: u64 = 400;
    let (mut arena, mut chance) = (Arena::new(64), StdRng::seed_from_u64(1));
    let mut pending = Vec::new();
    for port in 1..=PENDING {
        let raw = RawClient::new(&arena.world.token_for(1000 + port, 40));
        let from = address(&format!("10.9.{}.{}:7", port / 200, port % 200 + 1));
        arena.world.present(from, raw.request());
        pending.push((raw, from));
        if port % 50 == 0 {
            arena.turn();
        }
    }
    let token = arena.world.token_for(PLAYERS + 1, 40);
    let joining = arena.world.begin_connect(Conditions { latency: LATENCY, ..Conditions::perfect() }, token);
    let begin = arena.turn;
    while arena.world.player(joining).core.netcode.state() != ClientState::Connected {
        assert!(arena.turn < begin + turns(Duration::from_secs(1)), "the new client is not connected");
        for (raw, from) in &mut pending {
            for _ in 0..8 {
                let mut response = raw.seal(PacketKind::Response, &[0; 308]);
                // Half of them do not even open.
                if chance.random() {
                    *response.last_mut().expect("a tag") ^= 1;
                }
                arena.world.incoming.push((*from, response));
            }
        }
        arena.turn();
    }
    let discards = arena.world.server.netcode.discards();
    println!("connected after {} turns; {} over the budget", arena.turn - begin, discards[Discard::PendingBudget]);
    assert!(discards[Discard::PendingBudget] > 1000 && discards[Discard::ChallengeNotAuthentic] > 1000);
    arena.assert_players_unaffected("garbage responses");
}

#[test]
fn transfers_that_are_never_answered_hold_bounded_memory() {
    let mut arena = Arena::new(16);
    let mut hostile = arena.admit(HOSTILE, 9).expect("a slot");
    let mut writer = FloodWriter::new(FloodMix::FullPackets, &flood_layout());
    arena.send(&mut hostile, &mut writer, 1);
    arena.turn();
    let map = Transfer::new(vec![7; 1 << 20]).unwrap();
    let ((), bytes) = peak(|| {
        for _ in 0..turns(Duration::from_secs(pick(40, 120))) {
            // The game offers its map again and again, and the client acknowledges every packet.
            if let Ok(connection) = arena.world.server.connection_mut(hostile.client) {
                let _ = connection.channels.send_transfer(ChannelId(TRANSFERS), map.clone(), 1);
            }
            if arena.end_of(HOSTILE).is_none() {
                arena.send(&mut hostile, &mut writer, 1);
            }
            arena.turn();
            arena.acknowledge(&hostile, &mut writer);
        }
    });
    println!("{:?}, {bytes} bytes", arena.end_of(HOSTILE));
    assert!(bytes < 4 << 20, "{bytes} bytes");
    arena.assert_players_unaffected("transfers");
}

#[test]
fn flood_of_keep_alives_is_cut_by_the_budget_of_its_client() {
    let mut arena = Arena::new(16);
    let mut hostile = arena.admit(HOSTILE, 9).expect("a slot");
    for _ in 0..turns(Duration::from_secs(10)) {
        for _ in 0..2000 {
            let datagram = hostile.raw.keep_alive();
            arena.world.incoming.push((hostile.from, datagram));
        }
        arena.turn();
    }
    let refused = arena.world.server.netcode.discards()[Discard::ClientBudget];
    println!("{refused} over the budget, {:?}", arena.end_of(HOSTILE));
    assert!(refused > 600 * 1700, "{refused}");
    arena.assert_players_unaffected("keep-alives");
}
