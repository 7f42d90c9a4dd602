//! Connections with channels: how they begin and end, and what their paths let through.

use std::sync::Arc;
use std::time::Duration;

use slipgate_session::channel::control::ByeCode;
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout};
use slipgate_session::session::{Config, End as Reason};
use slipgate_sim::{Conditions, Loss, Share};
use slipgate_tests::connected::{End, Pair};

const FRAME: Duration = Duration::from_micros(16_667);
const UNRELIABLE: ChannelId = ChannelId(0);
const SEQUENCED: ChannelId = ChannelId(1);
const UNORDERED: ChannelId = ChannelId(2);
const ORDERED: ChannelId = ChannelId(3);

fn layout() -> Arc<Layout> {
    let kinds = [Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered];
    Arc::new(Layout::new(kinds.map(ChannelConfig::new).to_vec()).unwrap())
}

fn latency(millis: u64) -> Conditions {
    Conditions { latency: Duration::from_millis(millis), ..Conditions::perfect() }
}

fn lossy(millis: u64, percent: f64) -> Conditions {
    Conditions { loss: Loss::Random(Share::percent(percent)), ..latency(millis) }
}

fn pair(conditions: Conditions) -> Pair {
    Pair::new(1, conditions, &layout())
}

#[test]
fn a_message_on_each_channel_arrives_in_the_first_datagram() {
    let mut pair = pair(latency(20));
    for channel in [UNRELIABLE, SEQUENCED, UNORDERED, ORDERED] {
        pair.send(End::A, channel, &[channel.0; 100]).unwrap();
    }
    pair.run_for(Duration::from_millis(50), FRAME);
    assert_eq!(pair.side(End::A).sent.0, 1, "one datagram carries all of them");
    let mut arrived = pair.side(End::B).messages.clone();
    arrived.sort();
    let expected = [UNRELIABLE, SEQUENCED, UNORDERED, ORDERED].map(|channel| (channel, vec![channel.0; 100]));
    assert_eq!(arrived, expected);
}

#[test]
fn two_that_have_nothing_to_say_fall_silent() {
    let mut pair = pair(latency(20));
    pair.run_for(Duration::from_secs(2), FRAME);
    let before = [End::A, End::B].map(|end| pair.side(end).sent.0);
    assert!(before.iter().all(|sent| *sent <= 4), "a greeting each, and their acknowledgements: {before:?}");
    pair.run_for(Duration::from_secs(10), FRAME);
    assert_eq!([End::A, End::B].map(|end| pair.side(end).sent.0), before);
}

#[test]
fn a_greeting_that_gets_lost_is_said_again_within_the_seconds_that_a_path_takes() {
    let mut pair = pair(lossy(50, 100.0));
    pair.send(End::A, ORDERED, b"hello").unwrap();
    pair.run_for(Duration::from_millis(300), FRAME);
    let now = pair.now();
    pair.link.set_conditions(latency(50), latency(50), now);
    assert!(pair.run_until(Duration::from_millis(1500), FRAME, |pair| !pair.side(End::B).messages.is_empty()));
}

#[test]
fn different_channels_end_the_connection_with_a_clear_reason_at_both_ends() {
    let other = Arc::new(Layout::new(vec![ChannelConfig::new(Kind::ReliableOrdered)]).unwrap());
    let (ours, theirs) = (layout().hash(), other.hash());
    let mut pair = Pair::with(1, lossy(30, 20.0), [&layout(), &other], &Config::default());
    pair.send(End::A, ORDERED, b"never to be misread").unwrap();
    assert!(pair.run_until(Duration::from_secs(3), FRAME, |pair| {
        [End::A, End::B].iter().all(|end| pair.side(*end).connection.is_over())
    }));
    assert!(pair.side(End::B).messages.is_empty());
    for (end, ours, theirs) in [(End::A, ours, theirs), (End::B, theirs, ours)] {
        let reason = pair.side(end).connection.end().unwrap().clone();
        assert!(
            matches!(reason, Reason::LayoutMismatch { ours: here, theirs: there }
                if here == ours && there.is_none_or(|there| there == theirs)),
            "{reason}"
        );
    }
}

#[test]
fn a_farewell_is_heard_with_its_text_although_packets_get_lost() {
    let mut pair = pair(lossy(30, 30.0));
    pair.run_for(Duration::from_secs(1), FRAME);
    pair.side(End::A).connection.leave(ByeCode(300), "the match is over");
    assert!(pair.run_until(Duration::from_secs(2), FRAME, |pair| pair.side(End::B).connection.end().is_some()));
    let heard = pair.side(End::B).connection.end().unwrap().clone();
    assert_eq!(heard, Reason::Farewell { code: ByeCode(300), text: "the match is over".into() });
    assert_eq!(heard.to_string(), "the match is over");
    assert!(pair.run_until(Duration::from_secs(2), FRAME, |pair| pair.side(End::A).connection.is_over()));
    assert!(pair.side(End::B).connection.is_over());
    assert_eq!(
        pair.side(End::A).connection.end(),
        Some(&Reason::Left { code: ByeCode(300), text: "the match is over".into() })
    );
}

#[test]
fn a_farewell_to_nobody_ends_when_its_time_is_up() {
    let mut pair = pair(lossy(30, 100.0));
    pair.side(End::A).connection.leave(ByeCode::KICKED, "");
    pair.run_for(Duration::from_millis(900), FRAME);
    assert!(!pair.side(End::A).connection.is_over());
    pair.run_for(Duration::from_millis(200), FRAME);
    assert!(pair.side(End::A).connection.is_over());
    assert!(pair.side(End::A).sent.0 <= 12, "{} datagrams", pair.side(End::A).sent.0);
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
fn a_lost_message_is_sent_again_by_the_paths_round_trip_and_no_fixed_time() {
    for millis in [5, 50, 150] {
        let mut pair = pair(latency(millis));
        // Talk until the path is known.
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
        // There once more after a round trip, the time in which packets may overtake each other, and one way.
        let most = Duration::from_millis(3 * millis + millis) + 6 * FRAME;
        assert!(took <= most, "{took:?} at {millis} ms one way");
    }
}

#[test]
fn payloads_are_no_larger_than_configured_at_either_end() {
    for mine in [1200, 1186, 548, 508] {
        let config = Config { max_payload_bytes: mine, ..Config::default() };
        let mut pair = Pair::with(1, latency(20), [&layout(), &layout()], &config);
        for _ in 0..20 {
            pair.send(End::A, ORDERED, &[7; 3000]).unwrap();
        }
        assert!(pair.run_until(Duration::from_secs(10), FRAME, |pair| pair.side(End::B).messages.len() == 20));
        let largest = pair.side(End::A).largest;
        assert!(largest <= mine && largest > mine * 9 / 10, "{largest} of {mine}");
    }
}

#[test]
fn the_budget_is_known_before_a_tick_is_composed_and_falls_on_a_narrow_path() {
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
