//! Who never acknowledges anything is given up in the end. Honest peers never are, however bad their path is.

use std::sync::Arc;
use std::time::Duration;

use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout};
use slipgate_sim::{Conditions, Loss, Preset, Reordering, Share, Stalls};
use slipgate_tests::connected::{End, Pair};

const STATE: ChannelId = ChannelId(0);
const CHAT: ChannelId = ChannelId(1);
const STEP: Duration = Duration::from_millis(10);
const MINUTES: u64 = 5;

fn layout() -> Arc<Layout> {
    Arc::new(Layout::new([Kind::Unreliable, Kind::ReliableOrdered].map(ChannelConfig::new).to_vec()).unwrap())
}

fn paths() -> Vec<(&'static str, Conditions)> {
    let seconds = Duration::from_secs;
    let loss = |percent| Loss::Random(Share::percent(percent));
    let stalls = Some(Stalls { every: seconds(8), shortest: seconds(5), longest: seconds(10) });
    let reordering = Reordering { share: Share::percent(30.0), longest: seconds(2) };
    let perfect = Conditions::perfect();
    vec![
        ("a fifth is lost", Conditions { loss: loss(20.0), latency: seconds(1) / 10, ..perfect }),
        ("it stands still for up to ten seconds", Conditions { stalls, ..perfect }),
        ("both", Conditions { loss: loss(20.0), stalls, ..perfect }),
        (
            "packets come two seconds late, and twice",
            Conditions { reordering, duplication: Share::percent(20.0), ..perfect },
        ),
        ("to the moon", Conditions { latency: seconds(2), loss: loss(10.0), ..perfect }),
        ("a satellite", Preset::Satellite.up()),
        ("bad radio", Preset::WifiBad.up()),
    ]
}

/// Two ends that send a message each so often, for some minutes. Their connections' layer below never doubts that the other
/// one lives, even while nothing arrives at all.
fn talk(name: &str, conditions: Conditions, every: Duration, channel: ChannelId, seed: u64) {
    let mut pair = Pair::new(seed, conditions, &layout());
    let mut next = pair.now();
    for _ in 0..MINUTES * 60_000 / STEP.as_millis() as u64 {
        if pair.now() >= next {
            next = pair.now().after(every);
            for end in End::BOTH {
                let _ = pair.send(end, channel, b"are you there?");
            }
        }
        pair.turn(STEP);
        for end in End::BOTH {
            let now = pair.now();
            let connection = &pair.side(end).connection;
            assert_eq!(connection.end(), None, "{name}, a message each {every:?}, seed {seed}");
            assert_eq!(connection.stats(now).endpoint.counters.acks_of_unsent, 0, "{name}, seed {seed}");
        }
    }
}

#[test]
fn an_honest_peer_is_never_given_up() {
    for (seed, (name, conditions)) in (1..).zip(paths()) {
        for (millis, channel) in [(20, STATE), (1100, STATE), (3000, STATE), (200, CHAT), (1_000_000, CHAT)] {
            talk(name, conditions, Duration::from_millis(millis), channel, seed);
        }
    }
}
