//! Connections with channels: start, end, and use of their paths.

use std::sync::Arc;
use std::time::Duration;

use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout};
use slipgate_session::connection::CloseCode;
use slipgate_session::connection::{CloseKind, CloseReason, ClosedBy, ConnectionConfig};
use slipgate_sim::{Conditions, Loss, Share};
use slipgate_tests::connection_world::ConnectionWorld;
use slipgate_tests::world::End;

const FRAME: Duration = Duration::from_micros(16_667);
const UNRELIABLE: ChannelId = ChannelId(0);
const SEQUENCED: ChannelId = ChannelId(1);
const UNORDERED: ChannelId = ChannelId(2);
const ORDERED: ChannelId = ChannelId(3);

fn layout() -> Arc<Layout> {
    let kinds = [Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered];
    Arc::new(Layout::try_from(kinds.map(ChannelConfig::from).to_vec()).unwrap())
}

fn latency(millis: u64) -> Conditions {
    Conditions { latency: Duration::from_millis(millis), ..Conditions::perfect() }
}

fn lossy(millis: u64, percent: f64) -> Conditions {
    Conditions { loss: Loss::Random(Share::percent(percent)), ..latency(millis) }
}

fn pair(conditions: Conditions) -> ConnectionWorld {
    ConnectionWorld::new(1, conditions, &layout())
}

#[test]
fn first_datagram_carries_a_message_of_each_channel() {
    let mut pair = pair(latency(20));
    for channel in [UNRELIABLE, SEQUENCED, UNORDERED, ORDERED] {
        pair.send(End::A, channel, &[channel.0; 100]).unwrap();
    }
    pair.run_for(Duration::from_millis(50), FRAME);
    assert_eq!(pair.sent(End::A).count, 1, "one datagram carries all messages");
    let mut arrived = pair.side(End::B).messages.clone();
    arrived.sort();
    let expected = [UNRELIABLE, SEQUENCED, UNORDERED, ORDERED].map(|channel| (channel, vec![channel.0; 100]));
    assert_eq!(arrived, expected);
}

#[test]
fn idle_connections_send_nothing() {
    let mut pair = pair(latency(20));
    pair.run_for(Duration::from_secs(2), FRAME);
    let before = [End::A, End::B].map(|end| pair.sent(end).count);
    assert!(before.iter().all(|sent| *sent <= 4), "a HELLO of each end, and their acknowledgements: {before:?}");
    pair.run_for(Duration::from_secs(10), FRAME);
    assert_eq!([End::A, End::B].map(|end| pair.sent(end).count), before);
}

#[test]
fn lost_hello_is_retransmitted_within_seconds() {
    let mut pair = pair(lossy(50, 100.0));
    pair.send(End::A, ORDERED, b"hello").unwrap();
    pair.run_for(Duration::from_millis(300), FRAME);
    let now = pair.now();
    pair.link.set_conditions(latency(50), latency(50), now);
    assert!(pair.run_until(Duration::from_millis(1500), FRAME, |pair| !pair.side(End::B).messages.is_empty()));
}

#[test]
fn different_layouts_close_both_ends_with_a_reason() {
    let other = Arc::new(Layout::try_from(vec![ChannelConfig::from(Kind::ReliableOrdered)]).unwrap());
    let (ours, theirs) = (layout().hash(), other.hash());
    let mut pair = ConnectionWorld::with(1, lossy(30, 20.0), [&layout(), &other], &ConnectionConfig::default());
    pair.send(End::A, ORDERED, b"never to be misread").unwrap();
    assert!(pair.run_until(Duration::from_secs(3), FRAME, |pair| {
        [End::A, End::B].iter().all(|end| pair.side(*end).connection.is_closed())
    }));
    assert!(pair.side(End::B).messages.is_empty());
    for (end, ours, theirs) in [(End::A, ours, theirs), (End::B, theirs, ours)] {
        let reason = pair.side(end).connection.close_reason().unwrap().clone();
        assert!(
            matches!(reason.kind, CloseKind::LayoutMismatch { local, remote, .. }
                if local == ours && remote.is_none_or(|remote| remote == theirs)),
            "{reason}"
        );
    }
}

#[test]
fn close_text_arrives_despite_packet_loss() {
    let mut pair = pair(lossy(30, 30.0));
    pair.run_for(Duration::from_secs(1), FRAME);
    pair.side(End::A).connection.close(CloseCode(300), "the match is over");
    assert!(
        pair.run_until(Duration::from_secs(2), FRAME, |pair| pair.side(End::B).connection.close_reason().is_some())
    );
    let close = pair.side(End::B).connection.close_reason().unwrap().clone();
    let (code, text) = (Some(CloseCode(300)), "the match is over".to_owned());
    assert_eq!(close, CloseReason { by: ClosedBy::Remote, kind: CloseKind::Kicked, code, text: text.clone() });
    assert_eq!(close.to_string(), "the match is over");
    assert!(pair.run_until(Duration::from_secs(2), FRAME, |pair| pair.side(End::A).connection.is_closed()));
    assert!(pair.side(End::B).connection.is_closed());
    let left = CloseReason { by: ClosedBy::Local, kind: CloseKind::Left, code, text };
    assert_eq!(pair.side(End::A).connection.close_reason(), Some(&left));
}

#[test]
fn unanswered_close_ends_at_its_deadline() {
    let mut pair = pair(lossy(30, 100.0));
    pair.side(End::A).connection.close(CloseCode::KICKED, "");
    pair.run_for(Duration::from_millis(900), FRAME);
    assert!(!pair.side(End::A).connection.is_closed());
    pair.run_for(Duration::from_millis(200), FRAME);
    assert!(pair.side(End::A).connection.is_closed());
    assert!(pair.sent(End::A).count <= 12, "{} datagrams", pair.sent(End::A).count);
}

#[test]
fn reliable_messages_arrive_once_and_in_order_on_a_lossy_path() {
    let mut pair = pair(lossy(40, 20.0));
    let (mut next, count) = ([0_u32; 2], 2000);
    let done = pair.run_until(Duration::from_secs(120), FRAME, |pair| {
        for (end, next) in [End::A, End::B].into_iter().zip(&mut next) {
            while *next < count && pair.send(end, ORDERED, &next.to_le_bytes()).is_ok() {
                pair.send(end, UNORDERED, &next.to_le_bytes()).unwrap();
                *next += 1;
            }
        }
        [End::A, End::B].iter().all(|end| pair.side(*end).messages.len() == 2 * count as usize)
    });
    assert!(done, "{:?} messages", [End::A, End::B].map(|end| pair.side(end).messages.len()));
    let all: Vec<Vec<u8>> = (0..count).map(|number| number.to_le_bytes().to_vec()).collect();
    for end in [End::A, End::B] {
        assert_eq!(pair.side(end).on(ORDERED), all);
        let mut unordered = pair.side(end).on(UNORDERED);
        unordered.sort_by_key(|bytes| u32::from_le_bytes((*bytes).try_into().unwrap()));
        assert_eq!(unordered, all);
    }
}

#[test]
fn lost_message_is_resent_after_a_time_based_on_rtt() {
    for millis in [5, 50, 150] {
        let mut pair = pair(latency(millis));
        // Exchange messages until the path is known.
        for _ in 0..120 {
            pair.send(End::A, UNRELIABLE, &[1; 50]).unwrap();
            pair.send(End::B, UNRELIABLE, &[1; 50]).unwrap();
            pair.turn(FRAME);
        }
        let now = pair.now();
        pair.link.up.set_conditions(lossy(millis, 100.0), now);
        pair.send(End::A, ORDERED, b"lost").unwrap();
        pair.turn(FRAME);
        let lost_at = pair.now();
        pair.link.up.set_conditions(latency(millis), lost_at);
        assert!(pair.run_until(Duration::from_secs(3), FRAME, |pair| {
            pair.send(End::A, UNRELIABLE, &[1; 50]).unwrap();
            pair.send(End::B, UNRELIABLE, &[1; 50]).unwrap();
            !pair.side(End::B).on(ORDERED).is_empty()
        }));
        let took = pair.now().since(lost_at);
        // The retransmission takes a round trip, the loss delay, and one way.
        let limit = Duration::from_millis(3 * millis + millis) + 6 * FRAME;
        assert!(took <= limit, "{took:?} at {millis} ms one way");
    }
}

#[test]
fn payloads_do_not_exceed_the_configured_size() {
    for mine in [1200, 1186, 548, 508] {
        let config = ConnectionConfig { max_payload_bytes: mine, ..ConnectionConfig::default() };
        let mut pair = ConnectionWorld::with(1, latency(20), [&layout(), &layout()], &config);
        for _ in 0..20 {
            pair.send(End::A, ORDERED, &[7; 3000]).unwrap();
        }
        assert!(pair.run_until(Duration::from_secs(10), FRAME, |pair| pair.side(End::B).messages.len() == 20));
        let largest = pair.sent(End::A).largest;
        assert!(largest <= mine && largest > mine * 9 / 10, "{largest} of {mine}");
    }
}

#[test]
fn send_budget_is_known_before_a_tick_and_falls_on_slow_paths() {
    use slipgate_sim::{Buffer, Rate, RateLimit};
    let narrow = Conditions {
        rate: Some(RateLimit {
            rate: Rate::bits_per_second(500_000),
            buffer: Buffer::Time(Duration::from_millis(500)),
        }),
        ..latency(30)
    };
    let mut pair = pair(narrow);
    let mut sent = 0;
    for _ in 0..1200 {
        let now = pair.now();
        let budget = pair.side(End::A).connection.budget(now);
        let bytes = budget.bytes.min(16_000);
        if bytes > 0 && pair.send(End::A, UNRELIABLE, &vec![3; bytes]).is_ok() {
            sent += bytes;
        }
        pair.send(End::B, UNRELIABLE, &[1; 20]).unwrap();
        pair.turn(FRAME);
    }
    let now = pair.now();
    let stats = pair.side(End::A).connection.stats(now);
    assert!(stats.congestion.rate.0 < 100_000.0, "{stats:?}");
    let delay = pair.link.up.queue_delay(pair.now());
    assert!(delay < Duration::from_millis(100), "{delay:?} in the queue");
    let rate = sent as f64 * 8.0 / 20.0;
    assert!((250_000.0..=520_000.0).contains(&rate), "{rate} bit/s offered");
}
