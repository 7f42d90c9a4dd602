//! A server and a client visit a connection only when something is due: no pending data may be forgotten.

use std::sync::Arc;
use std::time::Duration;

use slipgate_session::channel::transfer::{self, Transfer, TransferAdmission};
use slipgate_session::channel::{ChannelConfig, ChannelEvent, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::congestion::{Algorithm, BytesPerSecond};
use slipgate_session::connection::CloseCode;
use slipgate_session::connection::{CloseKind, CloseReason, ClosedBy, ConnectionConfig, Memory, SendError, Traffic};
use slipgate_session::{client, server};
use slipgate_sim::{Conditions, Loss, Share};
use slipgate_tests::netcode_world::VecOutbox;
use slipgate_tests::session_world::SessionWorld;

fn world(channel: ChannelConfig) -> SessionWorld {
    let layout = Arc::new(Layout::try_from(vec![channel]).unwrap());
    SessionWorld::new(2, &layout, &ConnectionConfig::default(), Memory::default())
}

fn path(loss: f64) -> Conditions {
    let loss = Loss::Random(Share::percent(loss));
    Conditions { latency: Duration::from_millis(10), loss, ..Conditions::perfect() }
}

#[test]
fn bytes_over_a_channel_limit_are_sent_in_later_ticks() {
    // One end at a time: a message of the other end would wake it.
    for up in [true, false] {
        let mut world =
            world(ChannelConfig { bytes_per_tick: Some(100), deadline: None, ..ChannelConfig::from(Kind::Unreliable) });
        let client = world.join(path(0.0));
        world.run_for(Duration::from_secs(1));
        for _ in 0..60 {
            if up {
                world.send_to_server(1, ChannelId(0), &[7; 100]).unwrap();
            } else {
                world.send_to_client(client, ChannelId(0), &[7; 100]).unwrap();
            }
        }
        // One acknowledgement in a turn of 16 ms.
        world.run_for(Duration::from_millis(1100));
        assert_eq!(world.messages.len() + world.player(1).messages.len(), 60, "up: {up}");
    }
}

#[test]
fn sleeping_client_wakes_once_per_channel_limit_interval() {
    let channel = ChannelConfig { bytes_per_tick: Some(500), deadline: None, ..ChannelConfig::from(Kind::Unreliable) };
    let layout = Arc::new(Layout::try_from(vec![channel]).unwrap());
    let mut config = ConnectionConfig::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e7));
    let mut world = SessionWorld::new(2, &layout, &config, Memory::default());
    world.join(path(0.0));
    world.run_for(Duration::from_secs(1));
    let start = world.now().monotonic;
    let core = &mut world.player(1).core;
    for _ in 0..100 {
        core.connection_mut().unwrap().send(ChannelId(0), &[7; 500], SendOptions::default(), start).unwrap();
    }
    let (mut now, mut wakes, mut bytes) = (start, 0, 0);
    while !now.reached(start, Duration::from_secs(1)) {
        core.tick(now);
        let mut outbox = VecOutbox::default();
        core.transmit(now, &mut outbox);
        bytes += outbox.datagrams.iter().map(|(_, datagram)| datagram.len()).sum::<usize>();
        wakes += 1;
        let next = core.next_deadline().expect("data is pending");
        assert!(next > now, "the deadline is not in the past");
        now = next;
    }
    assert!((25_000..=45_000).contains(&bytes) && wakes <= 130, "{bytes} bytes in {wakes} wakes");
}

/// Returns the bytes that a client with 500 bytes per tick sends in a second of 50 ticks, with this number of flushes
/// in each.
fn bytes_in_ticks(sends_per_tick: u32) -> u64 {
    let channel = ChannelConfig { bytes_per_tick: Some(500), deadline: None, ..ChannelConfig::from(Kind::Unreliable) };
    let layout = Arc::new(Layout::try_from(vec![channel]).unwrap());
    let mut config = ConnectionConfig::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e7));
    let mut world = SessionWorld::new(2, &layout, &config, Memory::default());
    world.join(path(0.0));
    world.run_for(Duration::from_secs(1));
    let mut now = world.now().monotonic;
    let core = &mut world.player(1).core;
    while core.connection_mut().unwrap().send(ChannelId(0), &[7; 100], SendOptions::default(), now).is_ok() {}
    for _ in 0..50 {
        core.tick(now);
        for _ in 0..sends_per_tick {
            core.transmit(now, &mut VecOutbox::default());
            now = now.after(Duration::from_millis(20) / sends_per_tick);
        }
    }
    core.connection().unwrap().channels.stats(ChannelId(0)).unwrap().frame_bytes
}

#[test]
fn frequent_flushes_do_not_raise_the_channel_limit() {
    let once = bytes_in_ticks(1);
    assert!((24_000..=25_600).contains(&once), "{once} bytes in 50 ticks");
    for sends in [2, 10, 40, 400] {
        let many = bytes_in_ticks(sends);
        // A tick right behind a visit to the connection skips it, and the next visit makes up for it.
        assert!(
            (once * 9 / 10..=once + 600).contains(&many),
            "{sends} flushes per tick: {many} bytes, and {once} with one"
        );
    }
}

#[test]
fn large_transfer_arrives_at_either_end_despite_loss() {
    let mut both_ways = ChannelConfig::from(Kind::Transfers);
    both_ways.transfers.admission = TransferAdmission::Automatic;
    let mut world = world(both_ways);
    let client = world.join(path(2.0));
    let transfer = Transfer::new(vec![9; 6 << 20]).unwrap();
    world.server.connection_mut(client).unwrap().channels.send_transfer(ChannelId(0), transfer.clone(), 1).unwrap();
    world.player(1).core.connection_mut().unwrap().channels.send_transfer(ChannelId(0), transfer, 1).unwrap();
    let whole = |event: &ChannelEvent| {
        matches!(event, ChannelEvent::Transfer { event: transfer::TransferEvent::Delivered { .. }, .. })
    };
    for _ in 0..200 {
        world.run_for(Duration::from_millis(500));
        let up = world
            .events
            .iter()
            .any(|event| matches!(event, server::SessionEvent::Channel { event, .. } if whole(event)));
        let down = world
            .player(1)
            .events
            .iter()
            .any(|event| matches!(event, client::ClientSessionEvent::Channel(event) if whole(event)));
        if up && down {
            return;
        }
    }
    let connection = world.server.connection(client).unwrap();
    let transfers = connection.channels.transfers(ChannelId(0)).unwrap();
    panic!(
        "sent {:?}, received {:?}",
        transfers.sending().collect::<Vec<_>>(),
        transfers.receiving().collect::<Vec<_>>()
    );
}

#[test]
fn leaving_client_reports_a_local_close() {
    for with_a_word in [true, false] {
        let mut world = world(ChannelConfig::from(Kind::ReliableOrdered));
        let client = world.join(path(0.0));
        world.run_for(Duration::from_millis(500));
        let core = &mut world.player(1).core;
        if with_a_word {
            core.leave(CloseCode(300), "good night");
        } else {
            core.disconnect();
        }
        world.run_for(Duration::from_millis(500));
        let player = world.player(1);
        let [.., client::ClientSessionEvent::Ended { reason }] = &player.events[..] else {
            panic!("{:?}", player.events)
        };
        let (code, text) = if with_a_word { (300, "good night") } else { (0, "") };
        let left =
            CloseReason { by: ClosedBy::Local, kind: CloseKind::Left, code: Some(CloseCode(code)), text: text.into() };
        assert_eq!((reason, player.core.close_reason()), (&left, Some(&left)));
        assert_eq!((world.handle(1), world.server.clients().count()), (None, 0));
        assert!(world.server.connection(client).is_none());
        assert_eq!(world.disconnects(), [(1, CloseKind::Left)]);
    }
}

#[test]
fn broadcast_reaches_every_client_but_the_excepted_one() {
    let mut world = world(ChannelConfig::from(Kind::ReliableOrdered));
    let clients = [(); 2].map(|()| world.join(path(0.0)));
    world.run_for(Duration::from_millis(500));
    let (now, options) = (world.now(), SendOptions::default());
    let report = world.server.broadcast(ChannelId(0), &b"round"[..], Some(clients[0]), options, now).unwrap();
    assert_eq!((report.queued, report.refused), (1, 0));
    let unknown = world.server.broadcast(ChannelId(9), &b"round"[..], None, options, now);
    assert_eq!(unknown, Err(SendError::NoChannel { channel: ChannelId(9), channels: 1 }));
    world.run_for(Duration::from_millis(500));
    assert!(world.player(1).messages.is_empty());
    assert_eq!(world.player(2).messages, [(ChannelId(0), b"round".to_vec())]);
    let next = |after| world.server.next_client(after);
    assert_eq!(
        [next(None), next(Some(clients[0])), next(Some(clients[1]))],
        [Some(clients[0]), Some(clients[1]), None]
    );
}

#[test]
fn broadcast_skips_clients_with_other_traffic_and_checks_first() {
    let layout = Layout::try_from(vec![ChannelConfig::from(Kind::ReliableOrdered)]).unwrap();
    let mut world = SessionWorld::new(4, &Arc::new(layout), &ConnectionConfig::default(), Memory::default());
    let first = world.traffic.clone();
    let two = [Kind::ReliableOrdered, Kind::Transfers].map(ChannelConfig::from);
    let second = Traffic::channels(Layout::try_from(two.to_vec()).unwrap());
    let send = |world: &mut SessionWorld, channel, message: &[u8]| {
        let (now, options) = (world.now(), SendOptions::default());
        world.server.broadcast(channel, message, None, options, now)
    };
    // The checks do not need a client.
    assert_eq!(send(&mut world, ChannelId(0), b"round"), Ok(server::BroadcastReport { queued: 0, refused: 0 }));
    assert_eq!(
        send(&mut world, ChannelId(1), b"round"),
        Err(SendError::NoChannel { channel: ChannelId(1), channels: 1 })
    );
    let too_large = SendError::TooLarge { channel: Some(ChannelId(0)), bytes: 20_000, limit: 16_384 };
    assert_eq!(send(&mut world, ChannelId(0), &[0; 20_000]), Err(too_large));
    // Three clients in the order of their slots: channels, payloads, channels.
    for traffic in [first.clone(), Traffic::Payloads, first.clone()] {
        world.server.set_traffic(traffic.clone()).unwrap();
        world.traffic = traffic;
        world.join(path(0.0));
    }
    assert_eq!(send(&mut world, ChannelId(0), b"round"), Ok(server::BroadcastReport { queued: 2, refused: 1 }));
    world.run_for(Duration::from_millis(500));
    let received: Vec<_> = (1..=3).map(|id| world.player(id).messages.len()).collect();
    assert_eq!(received, [1, 0, 1], "a client that cannot take it does not stop the others");
    world.server.set_traffic(second).unwrap();
    assert_eq!(send(&mut world, ChannelId(1), b"round"), Err(SendError::WrongKind));
    world.server.set_traffic(Traffic::Payloads).unwrap();
    assert_eq!(send(&mut world, ChannelId(0), b"round"), Err(SendError::WrongTraffic));
}
