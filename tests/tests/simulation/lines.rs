//! A server and a client look at a connection only when something is due: nothing that waits may be forgotten.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::client::EndReason;
use slipgate_netcode::server::DisconnectReason;
use slipgate_session::channel::block::{self, Admission, Block};
use slipgate_session::channel::control::ByeCode;
use slipgate_session::channel::{ChannelConfig, ChannelEvent, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::congestion::{Algorithm, BytesPerSecond};
use slipgate_session::session::{Config, End, Memory};
use slipgate_session::{client, server};
use slipgate_sim::{Conditions, Loss, Share};
use slipgate_tests::hall::Hall;
use slipgate_tests::world::Collected;

fn hall(channel: ChannelConfig) -> Hall {
    let layout = Arc::new(Layout::new(vec![channel]).unwrap());
    Hall::new(2, &layout, &Config::default(), Memory::default())
}

fn path(loss: f64) -> Conditions {
    let loss = Loss::Random(Share::percent(loss));
    Conditions { latency: Duration::from_millis(10), loss, ..Conditions::perfect() }
}

#[test]
fn what_is_beyond_a_channels_bytes_per_tick_leaves_in_later_ticks() {
    // One end at a time: what the other one says would wake it.
    for up in [true, false] {
        let mut hall =
            hall(ChannelConfig { bytes_per_tick: Some(100), deadline: None, ..ChannelConfig::new(Kind::Unreliable) });
        let client = hall.join(path(0.0));
        hall.run_for(Duration::from_secs(1));
        for _ in 0..60 {
            if up {
                hall.say(1, ChannelId(0), &[7; 100]).unwrap();
            } else {
                hall.tell(client, ChannelId(0), &[7; 100]).unwrap();
            }
        }
        // One in a turn of 16 ms.
        hall.run_for(Duration::from_millis(1100));
        assert_eq!(hall.messages.len() + hall.player(1).messages.len(), 60, "up: {up}");
    }
}

#[test]
fn a_client_that_sleeps_wakes_for_a_channels_bytes_per_tick_as_often_as_a_game() {
    let channel = ChannelConfig { bytes_per_tick: Some(500), deadline: None, ..ChannelConfig::new(Kind::Unreliable) };
    let layout = Arc::new(Layout::new(vec![channel]).unwrap());
    let mut config = Config::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e7));
    let mut hall = Hall::new(2, &layout, &config, Memory::default());
    hall.join(path(0.0));
    hall.run_for(Duration::from_secs(1));
    let start = hall.now().monotonic;
    let core = &mut hall.player(1).core;
    for _ in 0..100 {
        core.send_message(ChannelId(0), &[7; 500], SendOptions::default(), start).unwrap();
    }
    let (mut now, mut wakes, mut bytes) = (start, 0, 0);
    while !now.reached(start, Duration::from_secs(1)) {
        core.tick(now);
        let mut outbox = Collected::default();
        core.transmit(now, &mut outbox);
        bytes += outbox.datagrams.iter().map(|(_, datagram)| datagram.len()).sum::<usize>();
        wakes += 1;
        let next = core.next_deadline().expect("something waits");
        assert!(next > now, "it would spin");
        now = next;
    }
    assert!((25_000..=45_000).contains(&bytes) && wakes <= 130, "{bytes} bytes in {wakes} wakes");
}

/// Bytes of messages that a client with 500 bytes per tick sends in a second of 50 ticks, in each of which so many times
/// everything that waits leaves.
fn bytes_in_ticks(sends_per_tick: u32) -> u64 {
    let channel = ChannelConfig { bytes_per_tick: Some(500), deadline: None, ..ChannelConfig::new(Kind::Unreliable) };
    let layout = Arc::new(Layout::new(vec![channel]).unwrap());
    let mut config = Config::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e7));
    let mut hall = Hall::new(2, &layout, &config, Memory::default());
    hall.join(path(0.0));
    hall.run_for(Duration::from_secs(1));
    let mut now = hall.now().monotonic;
    let core = &mut hall.player(1).core;
    while core.send_message(ChannelId(0), &[7; 100], SendOptions::default(), now).is_ok() {}
    for _ in 0..50 {
        core.tick(now);
        for _ in 0..sends_per_tick {
            core.transmit(now, &mut Collected::default());
            now = now.after(Duration::from_millis(20) / sends_per_tick);
        }
    }
    core.connection().unwrap().channels().stats(ChannelId(0)).unwrap().frame_bytes
}

#[test]
fn a_client_that_sends_what_waits_many_times_in_a_tick_has_no_more_bytes_per_tick() {
    let once = bytes_in_ticks(1);
    assert!((24_000..=25_600).contains(&once), "{once} bytes in 50 ticks");
    for sends in [2, 10, 40, 400] {
        let many = bytes_in_ticks(sends);
        // A tick that comes right behind a look at the line passes it over, and the next look makes up for it.
        assert!(
            (once * 9 / 10..=once + 600).contains(&many),
            "{sends} times in a tick: {many} bytes, and {once} by one"
        );
    }
}

#[test]
fn a_large_block_arrives_at_either_end_although_packets_get_lost() {
    let mut both_ways = ChannelConfig::new(Kind::Blocks);
    both_ways.blocks.admission = Admission::Automatic;
    let mut hall = hall(both_ways);
    let client = hall.join(path(2.0));
    let block = Block::new(vec![9; 6 << 20]).unwrap();
    hall.server.send_block(client, ChannelId(0), block.clone(), 1).unwrap();
    hall.player(1).core.send_block(ChannelId(0), block, 1).unwrap();
    let whole =
        |event: &ChannelEvent| matches!(event, ChannelEvent::Block { event: block::Event::Delivered { .. }, .. });
    for _ in 0..200 {
        hall.run_for(Duration::from_millis(500));
        let up = hall.events.iter().any(|event| matches!(event, server::Event::Channel { event, .. } if whole(event)));
        let down =
            hall.player(1).events.iter().any(|event| matches!(event, client::Event::Channel(event) if whole(event)));
        if up && down {
            return;
        }
    }
    let connection = hall.server.connection(client).unwrap();
    let blocks = connection.channels().blocks(ChannelId(0)).unwrap();
    panic!("sent {:?}, received {:?}", blocks.sending().collect::<Vec<_>>(), blocks.receiving().collect::<Vec<_>>());
}

#[test]
fn a_client_that_leaves_with_a_word_knows_that_it_left() {
    for with_a_word in [true, false] {
        let mut hall = hall(ChannelConfig::new(Kind::ReliableOrdered));
        let client = hall.join(path(0.0));
        hall.run_for(Duration::from_millis(500));
        let core = &mut hall.player(1).core;
        if with_a_word {
            core.leave(ByeCode(300), "good night");
        } else {
            core.disconnect();
        }
        hall.run_for(Duration::from_millis(500));
        let player = hall.player(1);
        let ended = matches!(player.events[..], [.., client::Event::Ended { reason: EndReason::Left }]);
        assert!(ended, "{:?}", player.events);
        let (code, text) = if with_a_word { (300, "good night") } else { (0, "") };
        let left = End::Left { code: ByeCode(code), text: text.into() };
        assert_eq!((player.core.end(), player.core.farewell()), (Some(&left), None));
        assert_eq!((hall.handle(1), hall.server.clients().count()), (None, 0));
        assert!(hall.server.connection(client).is_none());
        assert_eq!(hall.ends(), [(1, DisconnectReason::Left)]);
    }
}
