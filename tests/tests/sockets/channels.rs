//! Channels and acknowledged packets on real loopback sockets: a server and a client as a game has them.

use std::sync::Arc;

use super::channels_live::{Guest, Host, fetch_both, meet};
use serde::{Deserialize, Serialize};
use slipgate_client::{ClientState, EndReason};
use slipgate_server::block::{self, Block, ContentDigest};
use slipgate_server::typed::{Bincode, Postcard, TypedErrorKind};
use slipgate_server::{
    ChannelConfig, ChannelId, DisconnectReason, Fate, Kind, Layout, Memory, SendError, SendOptions, SendTypedError,
    Traffic,
};
use slipgate_session::reliability;
use slipgate_session::wire::reliable::Sequence;
use slipgate_tests::live::{run_for, until};

const CHAT: ChannelId = ChannelId(0);
const STATE: ChannelId = ChannelId(1);
const MAP: ChannelId = ChannelId(2);

fn channels() -> Traffic {
    Traffic::channels(layout(Kind::Sequenced))
}

/// The layout of these tests, with a kind for the second channel.
fn layout(state: Kind) -> Layout {
    // Here clients upload as well, which a server refuses by default.
    let blocks = block::Config { admission: block::Admission::Automatic, ..block::Config::default() };
    let channel = |kind, priority| ChannelConfig { priority, blocks: blocks.clone(), ..ChannelConfig::new(kind) };
    Layout::new(vec![channel(Kind::ReliableOrdered, 1), channel(state, 2), channel(Kind::Blocks, 0)])
        .expect("the settings are sound")
}

/// Bytes that look like chance and follow from a seed.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let word = |place: u64| (seed + place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23).to_le_bytes();
    (0..).flat_map(word).take(bytes).collect()
}

fn line(number: u32) -> Vec<u8> {
    format!("line {number}").into_bytes()
}

#[derive(Serialize, Deserialize, PartialEq, Clone, Debug)]
enum Talk {
    Hello { name: String, colour: (u8, u8, u8) },
    Move { at: [f32; 3] },
    Leave,
}

#[test]
fn chat_arrives_once_and_in_order_state_never_after_newer_state_and_blocks_whole() {
    let (mut host, mut guest) = meet(channels());
    let (map, avatar) = (content(1, 300_000), content(2, 40_000));
    host.server.send_block(host.client(), MAP, Block::new(map.clone()).expect("it is small"), 77).expect("sent");
    guest.client.send_block(MAP, Block::new(avatar.clone()).expect("it is small"), 78).expect("sent");
    for number in 0..200 {
        host.server.send_message(host.client(), CHAT, &line(number)).expect("the queue has room");
        host.server.send_message(host.client(), STATE, &number.to_le_bytes()).expect("the queue has room");
        guest.client.send_message(CHAT, &line(number)).expect("the queue has room");
        guest.client.send_message(STATE, &number.to_le_bytes()).expect("the queue has room");
        if number % 10 == 0 {
            fetch_both(&mut host, &mut guest);
        }
    }
    until(&mut (&mut host, &mut guest), "both blocks and all lines", |(host, guest)| {
        let all_lines = host.log.on(CHAT).count() == 200 && guest.log.on(CHAT).count() == 200;
        all_lines && [&host.log, &guest.log].iter().all(|log| log.received.len() == 1 && log.delivered == 1)
    });
    run_for(&mut (&mut host, &mut guest), std::time::Duration::from_millis(100));
    for (log, label, expected) in [(&host.log, 78, &avatar), (&guest.log, 77, &map)] {
        assert!(log.on(CHAT).eq((0..200).map(line)), "every line once, in order");
        let states: Vec<u32> = log.on(STATE).map(|bytes| u32::from_le_bytes(bytes[..].try_into().unwrap())).collect();
        assert!(states.is_sorted_by(|older, newer| older < newer), "{states:?}");
        assert_eq!(states.last(), Some(&199), "nothing is lost on a loopback that carries this little");
        assert_eq!(log.received, [(label, ContentDigest::of(expected))]);
    }
}

#[test]
fn who_asks_what_became_of_a_message_hears_it_once() {
    let (mut host, mut guest) = meet(channels());
    let client = host.client();
    let asking = |tag| SendOptions { receipt: Some(tag), ..SendOptions::default() };
    let long = content(8, 9000);
    for tag in 0..50 {
        for (channel, message) in [(CHAT, &line(tag as u32)), (STATE, &long)] {
            host.server.send_message_with(client, channel, message, asking(tag)).expect("the queue has room");
            guest.client.send_message_with(channel, message, asking(tag)).expect("the queue has room");
        }
        host.server.send_message(client, CHAT, b"nobody asks").expect("the queue has room");
        fetch_both(&mut host, &mut guest);
        until(&mut (&mut host, &mut guest), "the state has room", |(host, guest)| {
            host.server.free(client, STATE).bytes > 20_000 && guest.client.free(STATE).bytes > 20_000
        });
    }
    until(&mut (&mut host, &mut guest), "all receipts", |(host, guest)| {
        [&host.log, &guest.log].iter().all(|log| log.receipts.len() == 100)
    });
    let replaced = SendOptions { key: Some(1), ..asking(50) };
    let late = SendOptions { deadline: Some(std::time::Duration::ZERO), ..asking(51) };
    host.server.send_message_with(client, CHAT, b"the door is open", replaced).expect("sent");
    host.server
        .send_message_with(client, CHAT, b"the door is shut", SendOptions { receipt: Some(52), ..replaced })
        .expect("sent");
    host.server.send_message_with(client, STATE, b"was", late).expect("sent");
    until(&mut (&mut host, &mut guest), "three more", |(host, _)| host.log.receipts.len() == 103);
    run_for(&mut (&mut host, &mut guest), std::time::Duration::from_millis(100));
    let three = host.log.receipts.split_off(100);
    for expected in [(CHAT, 50, Fate::Superseded), (STATE, 51, Fate::Expired), (CHAT, 52, Fate::Arrived)] {
        assert!(three.contains(&expected), "{three:?}");
    }
    for (ours, theirs) in [(&host.log, &guest.log), (&guest.log, &host.log)] {
        assert_eq!(ours.receipts.len(), 100);
        for channel in [CHAT, STATE] {
            let of_it = ours.receipts.iter().filter(|(on, ..)| *on == channel).map(|(_, tag, fate)| (*tag, *fate));
            let mut told: Vec<_> = of_it.collect();
            // Of what one datagram tells the newest may come first.
            told.sort_by_key(|(tag, _)| *tag);
            assert!(told.iter().map(|(tag, _)| *tag).eq(0..50), "each once: {told:?}");
            let arrived = told.iter().filter(|(_, fate)| *fate == Fate::Arrived).count();
            let heard = theirs
                .on(channel)
                .filter(|message| !message.starts_with(b"nobody") && !message.starts_with(b"the door"));
            assert_eq!(arrived, heard.count(), "as many as were heard");
            assert!(arrived == 50 || channel == STATE, "{told:?}");
        }
    }
}

#[test]
fn what_a_client_flushes_leaves_before_its_turn_ends() {
    let (mut host, mut guest) = meet(channels());
    guest.client.begin_turn(guest.clock.now());
    for number in 0..3 {
        guest.client.send_message(CHAT, &line(number)).expect("the queue has room");
        guest.client.flush();
        until(&mut host, "it arrives", |host| host.log.on(CHAT).count() as u32 > number);
    }
    guest.client.end_turn();
    assert!(host.log.on(CHAT).eq((0..3).map(line)));
}

#[test]
fn values_arrive_as_they_were_sent_by_either_codec() {
    let (mut host, mut guest) = meet(channels());
    let hello = Talk::Hello { name: "Gyða".to_owned(), colour: (1, 2, 3) };
    let step = Talk::Move { at: [1.5, -2.25, 1e9] };
    guest.client.send_typed(CHAT, &hello).expect("sent");
    let postcard = Postcard::default();
    guest.client.send_typed_with(&postcard, CHAT, &step, SendOptions::default()).expect("sent");
    host.server.send_typed(host.client(), CHAT, &step).expect("sent");
    let client = host.client();
    host.server.send_typed_with(&postcard, client, CHAT, &Talk::Leave, SendOptions::default()).expect("sent");
    until(&mut (&mut host, &mut guest), "two messages each way", |(host, guest)| {
        host.log.messages.len() == 2 && guest.log.messages.len() == 2
    });
    let heard: Vec<_> = host.log.on(CHAT).collect();
    assert_eq!(slipgate_server::decode::<Talk>(client, CHAT, &heard[0]), Ok(hello));
    assert_eq!(slipgate_server::decode_with::<Talk>(&postcard, client, CHAT, &heard[1]), Ok(step.clone()));
    let heard: Vec<_> = guest.log.on(CHAT).collect();
    assert_eq!(slipgate_client::decode::<Talk>(CHAT, &heard[0]), Ok(step));
    assert_eq!(slipgate_client::decode_with::<Talk>(&postcard, CHAT, &heard[1]), Ok(Talk::Leave));
}

#[test]
fn a_malformed_message_is_an_error_with_channel_and_client_and_the_connection_lives_on() {
    let (mut host, mut guest) = meet(channels());
    let client = host.client();
    // A variant that there is not, a cut one, one with something behind it, and a list of far more than there is.
    let wrong: [(&[u8], _); 4] = [
        (&[9], TypedErrorKind::Malformed),
        (&[0, 4, b'G'], TypedErrorKind::CutOff),
        (&[2, 0], TypedErrorKind::Trailing),
        (&[0, 253, 255, 255, 255, 255, 255, 255, 255, 255], TypedErrorKind::TooLarge),
    ];
    for (bytes, _) in wrong {
        guest.client.send_message(CHAT, bytes).expect("sent");
        host.server.send_message(client, CHAT, bytes).expect("sent");
    }
    guest.client.send_typed(CHAT, &Talk::Leave).expect("sent");
    until(&mut (&mut host, &mut guest), "all messages", |(host, guest)| {
        host.log.messages.len() == 5 && guest.log.messages.len() == 4
    });
    for ((_, kind), bytes) in wrong.into_iter().zip(host.log.on(CHAT)) {
        let error = slipgate_server::decode::<Talk>(client, CHAT, &bytes).expect_err("it is wrong");
        assert_eq!((error.client, error.channel, error.kind), (client, CHAT, kind));
        assert_eq!(error.to_string(), format!("client in slot 0, channel 0: {kind}"));
    }
    for ((_, kind), bytes) in wrong.into_iter().zip(guest.log.on(CHAT)) {
        let error = slipgate_client::decode::<Talk>(CHAT, &bytes).expect_err("it is wrong");
        assert_eq!(error.to_string(), format!("channel 0: {kind}"));
    }
    let last = host.log.on(CHAT).last().expect("five messages");
    assert_eq!(slipgate_server::decode::<Talk>(client, CHAT, &last), Ok(Talk::Leave));
    assert_eq!((guest.client.state(), &host.ended[..]), (ClientState::Connected, &[][..]));
}

#[test]
fn a_value_that_makes_no_message_is_refused_and_nothing_is_sent() {
    let (mut host, mut guest) = meet(channels());
    let client = host.client();
    let essay = "x".repeat(20_000);
    let too_large = SendTypedError::Send(SendError::TooLarge);
    let (wide, options) = (Bincode::with_limit(64 * 1024), SendOptions::default());
    let sent = host.server.send_typed_with(&wide, client, CHAT, &essay, options);
    assert_eq!(sent, Err(too_large), "larger than the channel allows");
    let too_large = slipgate_client::SendTypedError::Send(SendError::TooLarge);
    assert_eq!(guest.client.send_typed_with(&wide, CHAT, &essay, options), Err(too_large));
    let error = guest.client.send_typed(CHAT, &essay);
    let Err(slipgate_client::SendTypedError::Value(error)) = error else { panic!("{error:?}") };
    assert_eq!(error.kind, TypedErrorKind::TooLarge, "larger than the codec's default");
    let narrow = Bincode::with_limit(100);
    let error = host.server.send_typed_with(&narrow, client, CHAT, &essay, SendOptions::default());
    let Err(SendTypedError::Value(error)) = error else { panic!("{error:?}") };
    assert_eq!((error.client, error.channel, error.kind), (client, CHAT, TypedErrorKind::TooLarge));
    let nowhere = Err(SendTypedError::Send(SendError::NoChannel));
    assert_eq!(host.server.send_typed(client, ChannelId(9), &1), nowhere);
    assert_eq!(guest.client.send_typed(MAP, &1), Err(slipgate_client::SendTypedError::Send(SendError::WrongKind)));
    guest.client.send_typed(CHAT, "the first").expect("sent");
    host.server.send_typed(client, CHAT, "the first").expect("sent");
    until(&mut (&mut host, &mut guest), "one message each way", |(host, guest)| {
        !host.log.messages.is_empty() && !guest.log.messages.is_empty()
    });
    for log in [&host.log, &guest.log] {
        assert!(log.on(CHAT).eq([b"\x09the first".to_vec()]));
    }
}

#[test]
fn a_kicked_player_hears_why() {
    let (mut host, mut guest) = meet(channels());
    assert!(host.server.kick(host.client(), "the match is over, thank you"));
    until(&mut (&mut host, &mut guest), "the end", |(host, guest)| {
        !guest.ended.is_empty() && host.server.connected() == 0
    });
    assert_eq!(guest.client.farewell(), Some("the match is over, thank you"));
    assert_eq!((&guest.ended[..], &host.ended[..]), (&[EndReason::Kicked][..], &[DisconnectReason::Kicked][..]));
}

#[test]
fn ends_with_different_channels_part_and_both_know_why() {
    let mut host = Host::start(channels());
    let other = Traffic::channels(layout(Kind::Unreliable));
    let mut guest = Guest::connect(&host, other);
    until(&mut (&mut host, &mut guest), "both ends know", |(host, guest)| {
        !host.ended.is_empty() && !guest.ended.is_empty()
    });
    assert_eq!(guest.ended, [EndReason::LayoutMismatch]);
    assert_eq!(host.ended, [DisconnectReason::LayoutMismatch]);
    until(&mut (&mut host, &mut guest), "the slot is free", |(host, _)| host.server.connected() == 0);
}

/// Sends the next packet, if the path has room for it now.
fn send_next(
    payloads: &[Vec<u8>],
    numbers: &mut Vec<Sequence>,
    send: impl FnOnce(&[u8]) -> Result<Sequence, SendError>,
) {
    match payloads.get(numbers.len()).map(|payload| send(payload)) {
        None | Some(Err(SendError::Backlogged)) => {}
        Some(sent) => numbers.push(sent.expect("nothing else is wrong with it")),
    }
}

#[test]
fn acknowledged_packets_travel_both_ways_and_their_fate_is_told() {
    let (mut host, mut guest) = meet(Traffic::packets());
    let payloads = [content(3, 1), content(4, 1000), content(5, 9000)];
    let mut numbers = (Vec::new(), Vec::new());
    until(&mut (&mut host, &mut guest), "the path has room for all packets", |(host, guest)| {
        let client = host.client();
        send_next(&payloads, &mut numbers.0, |payload| host.server.send_packet(client, payload));
        send_next(&payloads, &mut numbers.1, |payload| guest.client.send_packet(payload));
        numbers.0.len() + numbers.1.len() == 2 * payloads.len()
    });
    until(&mut (&mut host, &mut guest), "all packets and their news", |(host, guest)| {
        [&host.log.packets, &guest.log.packets].iter().all(|packets| packets.len() == 3)
            && [&host.log.news, &guest.log.news].iter().all(|news| news.len() == 3)
    });
    for (packets, news, sent, theirs) in [
        (&host.log.packets, &host.log.news, &numbers.0, &numbers.1),
        (&guest.log.packets, &guest.log.news, &numbers.1, &numbers.0),
    ] {
        assert!(packets.iter().eq(theirs.iter().copied().zip(payloads.iter().cloned()).collect::<Vec<_>>().iter()));
        for number in sent {
            let is_acked = |event: &reliability::Event| matches!(event, reliability::Event::Acked { sequence, .. } if sequence == number);
            assert_eq!(news.iter().filter(|event| is_acked(event)).count(), 1, "{number:?}");
        }
    }
    assert_eq!(guest.client.send_message(CHAT, b"no channels"), Err(SendError::WrongTraffic));
}

#[test]
fn a_block_that_broke_off_goes_on_over_a_second_connection() {
    let map = Block::new(content(6, 6 << 20)).expect("it is small");
    let mut host = Host::start(channels());
    let mut guest = Guest::connect(&host, channels());
    host.on_arrival = Some((MAP, map.clone()));
    until(&mut (&mut host, &mut guest), "a third of the map", |(_, guest)| guest.arrived(MAP) > 2 << 20);
    guest.client.disconnect();
    until(&mut (&mut host, &mut guest), "both know of the end", |(host, guest)| {
        !guest.ended.is_empty() && !host.ended.is_empty()
    });
    let (channel, partial) = guest.log.partials.pop().expect("there was a part of the map");
    assert_eq!((channel, partial.digest()), (MAP, map.digest()));
    let had = partial.progress().bytes;
    assert!((2 << 20..6 << 20).contains(&had), "{had}");

    guest.to_keep = Some((MAP, partial));
    guest.again(&host);
    until(&mut (&mut host, &mut guest), "the map", |(host, guest)| {
        host.log.delivered == 1 && !guest.log.received.is_empty()
    });
    assert_eq!(guest.log.received, [(0, map.digest())]);
    let connection = host.server.connection(host.client()).expect("it is connected");
    let sent = connection.channels().stats(MAP).expect("the channel exists").frame_bytes;
    let rest = u64::from((6 << 20) - had);
    assert!((rest..rest + rest / 4 + 4096).contains(&sent), "{sent} bytes were sent for a rest of {rest}");
}

#[test]
fn a_server_keeps_the_part_of_an_upload_as_well() {
    let replay = Block::new(content(7, 3 << 20)).expect("it is small");
    let (mut host, mut guest) = meet(channels());
    guest.client.send_block(MAP, replay.clone(), 5).expect("sent");
    until(&mut (&mut host, &mut guest), "a third of the upload", |(host, _)| host.arrived(MAP) > 1 << 20);
    let client = host.client();
    assert!(host.server.kick(client, "once more"));
    until(&mut (&mut host, &mut guest), "the end", |(host, guest)| {
        !guest.ended.is_empty() && host.server.connected() == 0
    });
    let (channel, partial) = host.log.partials.pop().expect("there was a part of the upload");
    let had = partial.progress().bytes;
    host.to_keep = Some((channel, partial));
    guest.again(&host);
    until(&mut (&mut host, &mut guest), "a slot", |(_, guest)| guest.client.state().is_connected());
    guest.client.send_block(MAP, replay.clone(), 6).expect("sent");
    until(&mut (&mut host, &mut guest), "the upload", |(host, _)| !host.log.received.is_empty());
    assert_eq!(host.log.received, [(6, replay.digest())]);
    let sent =
        guest.client.connection().expect("it is connected").channels().stats(MAP).expect("it exists").frame_bytes;
    let rest = u64::from((3 << 20) - had);
    assert!(sent < rest + rest / 4 + 4096, "{sent} bytes were sent for a rest of {rest}");
}

#[test]
fn a_server_takes_no_more_memory_for_blocks_than_it_was_given() {
    const MOST: usize = 100_000;
    let memory = Memory::new(64 << 10, MOST);
    let mut host = Host::start(channels());
    host.server = host.server.with_memory(memory.clone());
    let mut guest = Guest::connect(&host, channels());
    until(&mut (&mut host, &mut guest), "a connection", |(_, guest)| guest.client.state().is_connected());
    let mut least = MOST;
    for (label, bytes) in [(1, 300_000), (2, 40_000)] {
        guest.client.send_block(MAP, Block::new(content(label, bytes)).expect("it is small"), label).expect("sent");
        until(&mut (&mut host, &mut guest), "its end", |(_, guest)| {
            least = least.min(memory.blocks.left());
            guest.log.refused.len() + guest.log.delivered == label as usize
        });
    }
    assert_eq!((&guest.log.refused[..], guest.log.delivered), (&[block::Reason::NoMemory][..], 1));
    assert_eq!(host.log.received, [(2, ContentDigest::of(&content(2, 40_000)))]);
    assert!(least < MOST - 40_000, "{least} of {MOST} bytes were left: it is this memory that was taken");
    assert_eq!(memory.blocks.left(), MOST, "and all of it was given back");
}

#[test]
fn a_layout_may_be_shared_by_many_ends() {
    let layout = Arc::new(layout(Kind::Sequenced));
    let traffic = || Traffic::Channels(Arc::clone(&layout), slipgate_session::session::Config::default());
    let mut host = Host::start(traffic());
    let mut guests: Vec<_> = (0..3).map(|_| Guest::connect(&host, traffic())).collect();
    let [one, two, three] = &mut guests[..] else { panic!("three guests") };
    let mut ends = (&mut host, (one, two, three));
    until(&mut ends, "three players", |(host, _)| host.log.connected.len() == 3);
    let clients = ends.0.log.connected.clone();
    for (number, client) in (0..).zip(clients) {
        ends.0.server.send_message(client, CHAT, &line(number)).expect("sent");
    }
    until(&mut ends, "a line for each", |(_, (one, two, three))| {
        [one, two, three].iter().all(|guest| guest.log.messages.len() == 1)
    });
    let mut heard: Vec<_> = guests.iter().flat_map(|guest| guest.log.on(CHAT)).collect();
    heard.sort();
    assert_eq!(heard, (0..3).map(line).collect::<Vec<_>>());
}
