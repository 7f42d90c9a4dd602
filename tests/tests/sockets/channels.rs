//! Channels and acknowledged packets on real loopback sockets: a server and a client as in a game.

use std::sync::Arc;

use super::channels_live::{Guest, Host, fetch_both, meet};
use serde::{Deserialize, Serialize};
use slipgate_client::ClientState;
use slipgate_server::config::Memory;
use slipgate_server::transfer::{self, ContentDigest, Transfer};
use slipgate_server::typed::{Bincode, Codec, Postcard, SendTypedError, TypedErrorKind};
use slipgate_server::{
    Channel, ChannelConfig, ChannelId, CloseKind, DeliveryStatus, Kind, Layout, SendError, SendOptions, Traffic,
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

/// Returns the layout of these tests, with this kind of second channel.
fn layout(state: Kind) -> Layout {
    // Clients upload here as well, which a server refuses by default.
    let transfers = transfer::TransferConfig {
        admission: transfer::TransferAdmission::Automatic,
        ..transfer::TransferConfig::default()
    };
    let channel =
        |kind, priority| ChannelConfig { priority, transfers: transfers.clone(), ..ChannelConfig::from(kind) };
    Layout::try_from(vec![channel(Kind::ReliableOrdered, 1), channel(state, 2), channel(Kind::Transfers, 0)])
        .expect("valid settings")
}

/// Returns pseudo-random bytes of a seed.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let word = |index: u64| (seed + index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23).to_le_bytes();
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
fn each_kind_of_channel_keeps_its_delivery_promise() {
    let (mut host, mut guest) = meet(channels());
    let (map, avatar) = (content(1, 300_000), content(2, 40_000));
    host.newest().send_transfer(MAP, Transfer::new(map.clone()).expect("the transfer is small"), 77).expect("sent");
    guest.client.send_transfer(MAP, Transfer::new(avatar.clone()).expect("the transfer is small"), 78).expect("sent");
    for number in 0..200 {
        host.server.send_message(host.client(), CHAT, &line(number)).expect("the queue has space");
        host.server.send_message(host.client(), STATE, &number.to_le_bytes()).expect("the queue has space");
        guest.client.send_message(CHAT, &line(number)).expect("the queue has space");
        guest.client.send_message(STATE, &number.to_le_bytes()).expect("the queue has space");
        if number % 10 == 0 {
            fetch_both(&mut host, &mut guest);
        }
    }
    until(&mut (&mut host, &mut guest), "both transfers and all lines", |(host, guest)| {
        let all_lines = host.log.on(CHAT).count() == 200 && guest.log.on(CHAT).count() == 200;
        all_lines && [&host.log, &guest.log].iter().all(|log| log.received.len() == 1 && log.delivered == 1)
    });
    run_for(&mut (&mut host, &mut guest), std::time::Duration::from_millis(100));
    for (log, label, expected) in [(&host.log, 78, &avatar), (&guest.log, 77, &map)] {
        assert!(log.on(CHAT).eq((0..200).map(line)), "every line once, in order");
        let states: Vec<u32> = log.on(STATE).map(|bytes| u32::from_le_bytes(bytes[..].try_into().unwrap())).collect();
        assert!(states.is_sorted_by(|older, newer| older < newer), "{states:?}");
        assert_eq!(states.last(), Some(&199), "the loopback interface loses nothing at this rate");
        assert_eq!(log.received, [(label, ContentDigest::of(expected))]);
    }
}

#[test]
fn receipt_reports_delivery_status_once() {
    let (mut host, mut guest) = meet(channels());
    let client = host.client();
    let asking = |tag| SendOptions { receipt: Some(tag), ..SendOptions::default() };
    let long = content(8, 9000);
    for tag in 0..50 {
        for (channel, message) in [(CHAT, &line(tag as u32)), (STATE, &long)] {
            host.at(client).send_message_with(channel, message, asking(tag)).expect("the queue has space");
            guest.client.send_message_with(channel, message, asking(tag)).expect("the queue has space");
        }
        host.server.send_message(client, CHAT, b"nobody asks").expect("the queue has space");
        fetch_both(&mut host, &mut guest);
        until(&mut (&mut host, &mut guest), "the channel has space", |(host, guest)| {
            host.newest().remaining(STATE).bytes > 20_000 && guest.remaining(STATE).bytes > 20_000
        });
    }
    until(&mut (&mut host, &mut guest), "all receipts", |(host, guest)| {
        [&host.log, &guest.log].iter().all(|log| log.receipts.len() == 100)
    });
    let replaced = SendOptions { key: Some(1), ..asking(50) };
    let late = SendOptions { deadline: Some(std::time::Duration::ZERO), ..asking(51) };
    host.at(client).send_message_with(CHAT, b"the door is open", replaced).expect("sent");
    host.at(client)
        .send_message_with(CHAT, b"the door is shut", SendOptions { receipt: Some(52), ..replaced })
        .expect("sent");
    host.at(client).send_message_with(STATE, b"was", late).expect("sent");
    until(&mut (&mut host, &mut guest), "three more", |(host, _)| host.log.receipts.len() == 103);
    run_for(&mut (&mut host, &mut guest), std::time::Duration::from_millis(100));
    let three = host.log.receipts.split_off(100);
    for expected in [
        (CHAT, 50, DeliveryStatus::Superseded),
        (STATE, 51, DeliveryStatus::Expired),
        (CHAT, 52, DeliveryStatus::Arrived),
    ] {
        assert!(three.contains(&expected), "{three:?}");
    }
    for (ours, theirs) in [(&host.log, &guest.log), (&guest.log, &host.log)] {
        assert_eq!(ours.receipts.len(), 100);
        for channel in [CHAT, STATE] {
            let of_it = ours.receipts.iter().filter(|(on, ..)| *on == channel).map(|(_, tag, status)| (*tag, *status));
            let mut reported: Vec<_> = of_it.collect();
            // The newest of several receipts of one datagram may come first.
            reported.sort_by_key(|(tag, _)| *tag);
            assert!(reported.iter().map(|(tag, _)| *tag).eq(0..50), "each receipt once: {reported:?}");
            let arrived = reported.iter().filter(|(_, status)| *status == DeliveryStatus::Arrived).count();
            let received = theirs
                .on(channel)
                .filter(|message| !message.starts_with(b"nobody") && !message.starts_with(b"the door"));
            assert_eq!(arrived, received.count(), "as many as the guest received");
            assert!(arrived == 50 || channel == STATE, "{reported:?}");
        }
    }
}

#[test]
fn client_flush_sends_before_the_turn_ends() {
    let (mut host, mut guest) = meet(channels());
    guest.client.begin_turn(guest.clock.now());
    for number in 0..3 {
        guest.client.send_message(CHAT, &line(number)).expect("the queue has space");
        guest.client.flush();
        until(&mut host, "the message arrives", |host| host.log.on(CHAT).count() as u32 > number);
    }
    guest.client.end_turn();
    assert!(host.log.on(CHAT).eq((0..3).map(line)));
}

#[test]
fn typed_values_arrive_unchanged_with_either_codec() {
    let (mut host, mut guest) = meet(channels());
    let hello = Talk::Hello { name: "Gyða".to_owned(), colour: (1, 2, 3) };
    let step = Talk::Move { at: [1.5, -2.25, 1e9] };
    guest.client.send_typed(CHAT, &hello).expect("sent");
    let postcard = Postcard::default();
    guest.client.send_typed_with(&postcard, CHAT, &step, SendOptions::default()).expect("sent");
    host.server.send_typed(host.client(), CHAT, &step).expect("sent");
    let client = host.client();
    host.at(client).send_typed_with(&postcard, CHAT, &Talk::Leave, SendOptions::default()).expect("sent");
    until(&mut (&mut host, &mut guest), "two messages each way", |(host, guest)| {
        host.log.messages.len() == 2 && guest.log.messages.len() == 2
    });
    let received: Vec<_> = host.log.on(CHAT).collect();
    assert_eq!(slipgate_server::decode::<Talk>(CHAT, &received[0]), Ok(hello));
    assert_eq!(postcard.decode::<Talk>(&received[1]), Ok(step.clone()));
    let received: Vec<_> = guest.log.on(CHAT).collect();
    assert_eq!(slipgate_client::decode::<Talk>(CHAT, &received[0]), Ok(step));
    assert_eq!(postcard.decode::<Talk>(&received[1]), Ok(Talk::Leave));
}

#[test]
fn malformed_message_is_an_error_and_keeps_the_connection() {
    let (mut host, mut guest) = meet(channels());
    let client = host.client();
    // An unknown variant, a truncated one, one with trailing bytes, and a list that claims more elements than bytes.
    let wrong: [(&[u8], _); 4] = [
        (&[9], TypedErrorKind::Malformed),
        (&[0, 4, b'G'], TypedErrorKind::CutOff),
        (&[2, 0], TypedErrorKind::Trailing),
        (&[0, 253, 255, 255, 255, 255, 255, 255, 255, 255], TypedErrorKind::Expands),
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
        let error = slipgate_server::decode::<Talk>(CHAT, &bytes).expect_err("the message is malformed");
        assert_eq!((error.channel, error.kind), (CHAT, kind));
        assert_eq!(error.to_string(), format!("channel 0: {kind}"));
    }
    for ((_, kind), bytes) in wrong.into_iter().zip(guest.log.on(CHAT)) {
        let error = slipgate_client::decode::<Talk>(CHAT, &bytes).expect_err("the message is malformed");
        assert_eq!(error.to_string(), format!("channel 0: {kind}"));
    }
    let last = host.log.on(CHAT).last().expect("five messages");
    assert_eq!(slipgate_server::decode::<Talk>(CHAT, &last), Ok(Talk::Leave));
    assert_eq!((guest.client.state(), &host.ended[..]), (ClientState::Connected, &[][..]));
}

#[test]
fn unencodable_value_is_refused_and_nothing_is_sent() {
    let (mut host, mut guest) = meet(channels());
    let client = host.client();
    let essay = "x".repeat(20_000);
    let too_large = SendTypedError::Send(SendError::TooLarge { channel: Some(CHAT), bytes: 20_003, limit: 16_384 });
    let (wide, options) = (Bincode::with_limit(64 * 1024), SendOptions::default());
    let sent = host.at(client).send_typed_with(&wide, CHAT, &essay, options);
    assert_eq!(sent, Err(too_large), "larger than the channel allows");
    assert_eq!(guest.client.send_typed_with(&wide, CHAT, &essay, options), Err(too_large));
    let error = guest.client.send_typed(CHAT, &essay);
    let Err(SendTypedError::Value(error)) = error else { panic!("{error:?}") };
    let by_default = TypedErrorKind::TooLarge { bytes: 20_003, limit: 16_384 };
    assert_eq!(error.kind, by_default, "larger than the codec's default");
    let narrow = Bincode::with_limit(100);
    let error = host.at(client).send_typed_with(&narrow, CHAT, &essay, SendOptions::default());
    let Err(SendTypedError::Value(error)) = error else { panic!("{error:?}") };
    assert_eq!((error.channel, error.kind), (CHAT, TypedErrorKind::TooLarge { bytes: 20_003, limit: 100 }));
    let unreachable = Err(SendTypedError::Send(SendError::NoChannel { channel: ChannelId(9), channels: 3 }));
    assert_eq!(host.server.send_typed(client, ChannelId(9), &1), unreachable);
    assert_eq!(guest.client.send_typed(MAP, &1), Err(SendTypedError::Send(SendError::WrongKind)));
    let error = host.server.broadcast_typed(CHAT, &essay);
    let Err(SendTypedError::Value(error)) = error else { panic!("{error:?}") };
    assert_eq!((error.channel, error.kind), (CHAT, by_default));
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
fn kicked_player_receives_the_reason() {
    let (mut host, mut guest) = meet(channels());
    host.server.kick(host.client(), "the match is over, thank you").expect("the client is connected");
    until(&mut (&mut host, &mut guest), "the guest ends", |(host, guest)| {
        !guest.ended.is_empty() && host.server.connected_count() == 0
    });
    assert_eq!(guest.client.close_reason().expect("it ended").text, "the match is over, thank you");
    assert_eq!((&guest.ended[..], &host.ended[..]), (&[CloseKind::Kicked][..], &[CloseKind::Kicked][..]));
}

#[test]
fn different_layouts_disconnect_both_ends_with_a_reason() {
    let mut host = Host::start(channels());
    let other = Traffic::channels(layout(Kind::Unreliable));
    let mut guest = Guest::connect(&host, other);
    until(&mut (&mut host, &mut guest), "both ends know the reason", |(host, guest)| {
        !host.ended.is_empty() && !guest.ended.is_empty()
    });
    for ended in [&guest.ended, &host.ended] {
        assert!(matches!(ended[..], [CloseKind::LayoutMismatch { .. }]), "{ended:?}");
    }
    until(&mut (&mut host, &mut guest), "the slot is free", |(host, _)| host.server.connected_count() == 0);
}

/// Sends the next packet, if the path has capacity now.
fn send_next(
    payloads: &[Vec<u8>],
    numbers: &mut Vec<Sequence>,
    send: impl FnOnce(&[u8]) -> Result<Sequence, SendError>,
) {
    match payloads.get(numbers.len()).map(|payload| send(payload)) {
        None | Some(Err(SendError::Backlogged)) => {}
        Some(sent) => numbers.push(sent.expect("the packet is valid")),
    }
}

#[test]
fn acknowledged_packets_report_delivery_in_both_directions() {
    let (mut host, mut guest) = meet(Traffic::packets());
    let payloads = [content(3, 1), content(4, 1000), content(5, 9000)];
    let mut numbers = (Vec::new(), Vec::new());
    until(&mut (&mut host, &mut guest), "the path has capacity for all packets", |(host, guest)| {
        let client = host.client();
        send_next(&payloads, &mut numbers.0, |payload| host.at(client).send_packet(payload));
        send_next(&payloads, &mut numbers.1, |payload| guest.client.send_packet(payload));
        numbers.0.len() + numbers.1.len() == 2 * payloads.len()
    });
    until(&mut (&mut host, &mut guest), "all packets and their events", |(host, guest)| {
        [&host.log.packets, &guest.log.packets].iter().all(|packets| packets.len() == 3)
            && [&host.log.news, &guest.log.news].iter().all(|news| news.len() == 3)
    });
    for (packets, news, sent, theirs) in [
        (&host.log.packets, &host.log.news, &numbers.0, &numbers.1),
        (&guest.log.packets, &guest.log.news, &numbers.1, &numbers.0),
    ] {
        assert!(packets.iter().eq(theirs.iter().copied().zip(payloads.iter().cloned()).collect::<Vec<_>>().iter()));
        for number in sent {
            let is_acked = |event: &reliability::PacketEvent| match event {
                reliability::PacketEvent::Acked { sequence, .. } => sequence == number,
                reliability::PacketEvent::Lost { .. } => false,
            };
            assert_eq!(news.iter().filter(|event| is_acked(event)).count(), 1, "{number:?}");
        }
    }
    assert_eq!(guest.client.send_message(CHAT, b"no channels"), Err(SendError::WrongTraffic));
}

#[test]
fn interrupted_transfer_resumes_over_a_second_connection() {
    let map = Transfer::new(content(6, 6 << 20)).expect("the transfer is small");
    let mut host = Host::start(channels());
    let mut guest = Guest::connect(&host, channels());
    host.on_arrival = Some((MAP, map.clone()));
    until(&mut (&mut host, &mut guest), "a third of the map", |(_, guest)| guest.arrived(MAP) > 2 << 20);
    guest.client.disconnect();
    until(&mut (&mut host, &mut guest), "both ends know the disconnect", |(host, guest)| {
        !guest.ended.is_empty() && !host.ended.is_empty()
    });
    let (channel, partial) = guest.log.partials.pop().expect("a partial transfer of the map");
    assert_eq!((channel, partial.digest()), (MAP, map.digest()));
    let had = partial.progress().bytes;
    assert!((2 << 20..6 << 20).contains(&had), "{had}");

    guest.to_keep = Some((MAP, partial));
    guest.again(&host);
    until(&mut (&mut host, &mut guest), "the map", |(host, guest)| {
        host.log.delivered == 1 && !guest.log.received.is_empty()
    });
    assert_eq!(guest.log.received, [(0, map.digest())]);
    let client = host.newest();
    let connection = client.connection().expect("the client is connected");
    let sent = connection.channels.stats(MAP).expect("the channel exists").frame_bytes;
    let rest = u64::from((6 << 20) - had);
    assert!((rest..rest + rest / 4 + 4096).contains(&sent), "{sent} bytes were sent for the remaining {rest}");
}

#[test]
fn server_keeps_a_partial_upload_for_resumption() {
    let replay = Transfer::new(content(7, 3 << 20)).expect("the transfer is small");
    let (mut host, mut guest) = meet(channels());
    guest.client.send_transfer(MAP, replay.clone(), 5).expect("sent");
    until(&mut (&mut host, &mut guest), "a third of the upload", |(host, _)| host.arrived(MAP) > 1 << 20);
    let client = host.client();
    host.server.kick(client, "once more").expect("the client is connected");
    until(&mut (&mut host, &mut guest), "the guest ends", |(host, guest)| {
        !guest.ended.is_empty() && host.server.connected_count() == 0
    });
    let (channel, partial) = host.log.partials.pop().expect("a partial upload");
    let had = partial.progress().bytes;
    host.to_keep = Some((channel, partial));
    guest.again(&host);
    until(&mut (&mut host, &mut guest), "a slot", |(_, guest)| guest.client.state().is_connected());
    guest.client.send_transfer(MAP, replay.clone(), 6).expect("sent");
    until(&mut (&mut host, &mut guest), "the upload", |(host, _)| !host.log.received.is_empty());
    assert_eq!(host.log.received, [(6, replay.digest())]);
    let sent = guest
        .client
        .connection()
        .expect("the client is connected")
        .channels
        .stats(MAP)
        .expect("the channel exists")
        .frame_bytes;
    let rest = u64::from((3 << 20) - had);
    assert!(sent < rest + rest / 4 + 4096, "{sent} bytes were sent for the remaining {rest}");
}

#[test]
fn server_transfer_memory_stays_within_its_budget() {
    const MAX_TRANSFER_MEMORY: usize = 200_000;
    let memory = Memory::new(64 << 10, MAX_TRANSFER_MEMORY);
    let mut host = Host::start(channels());
    host.server = host.server.with_memory(memory.clone());
    let mut guest = Guest::connect(&host, channels());
    until(&mut (&mut host, &mut guest), "a connection", |(_, guest)| guest.client.state().is_connected());
    let mut min_free = MAX_TRANSFER_MEMORY;
    for (label, bytes) in [(1, 300_000), (2, 40_000)] {
        guest
            .client
            .send_transfer(MAP, Transfer::new(content(label, bytes)).expect("the transfer is small"), label)
            .expect("sent");
        until(&mut (&mut host, &mut guest), "the guest ends", |(_, guest)| {
            min_free = min_free.min(memory.transfers.left());
            guest.log.refused.len() + guest.log.delivered == label as usize
        });
    }
    assert_eq!((&guest.log.refused[..], guest.log.delivered), (&[transfer::TransferReason::NoMemory][..], 1));
    assert_eq!(host.log.received, [(2, ContentDigest::of(&content(2, 40_000)))]);
    assert!(
        min_free < MAX_TRANSFER_MEMORY - 40_000,
        "{min_free} of {MAX_TRANSFER_MEMORY} bytes were left, so this memory was used"
    );
    assert_eq!(memory.transfers.left(), MAX_TRANSFER_MEMORY, "all of it was released");
}

#[test]
fn layout_can_be_shared_by_many_endpoints() {
    let layout = Arc::new(layout(Kind::Sequenced));
    let traffic = || Traffic::Channels(Arc::clone(&layout), slipgate_session::connection::ConnectionConfig::default());
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
    let mut received: Vec<_> = guests.iter().flat_map(|guest| guest.log.on(CHAT)).collect();
    received.sort();
    assert_eq!(received, (0..3).map(line).collect::<Vec<_>>());
}

#[test]
fn another_application_version_disconnects_both_ends() {
    // The channels are the same: only the game's version of its messages differs.
    let of_version = |version| {
        let mut layout = Layout::builder();
        layout.version = version;
        layout.add(Channel::reliable_ordered("chat"));
        layout.build().expect("valid settings")
    };
    let (old, new) = (of_version(3), of_version(4));
    let mut host = Host::start(Traffic::channels(new.clone()));
    let mut guest = Guest::connect(&host, Traffic::channels(old.clone()));
    until(&mut (&mut host, &mut guest), "both ends know the reason", |(host, guest)| {
        !host.ended.is_empty() && !guest.ended.is_empty()
    });
    for (ended, own, other) in [(&guest.ended, &old, &new), (&host.ended, &new, &old)] {
        let [CloseKind::LayoutMismatch { local, remote, .. }] = ended[..] else { panic!("{ended:?}") };
        // Whichever end learns it from the other's close message knows only its own layout.
        assert!(local == own.hash() && remote.is_none_or(|remote| remote == other.hash()), "{ended:?}");
    }
    let sentence = guest.client.close_reason().expect("it ended").to_string();
    assert_eq!(sentence, "Your game does not match this server. Please update your game.");
    assert_eq!(guest.client.state(), ClientState::Disconnected);
}

#[test]
fn a_typed_broadcast_reaches_the_client() {
    let (mut host, mut guest) = meet(channels());
    let hello = Talk::Hello { name: "all".to_owned(), colour: (1, 2, 3) };
    let report = host.server.broadcast_typed(CHAT, &hello).expect("sent");
    assert_eq!((report.queued, report.refused), (1, 0));
    until(&mut (&mut host, &mut guest), "the broadcast", |(_, guest)| !guest.log.messages.is_empty());
    let received: Vec<_> = guest.log.on(CHAT).collect();
    assert_eq!(slipgate_client::decode::<Talk>(CHAT, &received[0]), Ok(hello));
}
