//! A peer that never acknowledges is disconnected in the end. Honest peers never are, however bad their path is.

use std::sync::Arc;
use std::time::Duration;

use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout};
use slipgate_sim::{Conditions, Loss, Preset, Reordering, Share, Stalls};
use slipgate_tests::connection_world::ConnectionWorld;
use slipgate_tests::world::End;

const STATE: ChannelId = ChannelId(0);
const CHAT: ChannelId = ChannelId(1);
const STEP: Duration = Duration::from_millis(10);
const MINUTES: u64 = 5;

fn layout() -> Arc<Layout> {
    Arc::new(Layout::try_from([Kind::Unreliable, Kind::ReliableOrdered].map(ChannelConfig::from).to_vec()).unwrap())
}

fn paths() -> Vec<(&'static str, Conditions)> {
    let seconds = Duration::from_secs;
    let loss = |percent| Loss::Random(Share::percent(percent));
    let stalls = Some(Stalls { every: seconds(8), shortest: seconds(5), longest: seconds(10) });
    let reordering = Reordering { share: Share::percent(30.0), longest: seconds(2) };
    let perfect = Conditions::perfect();
    vec![
        ("20 % loss", Conditions { loss: loss(20.0), latency: seconds(1) / 10, ..perfect }),
        ("stalls of up to ten seconds", Conditions { stalls, ..perfect }),
        ("both", Conditions { loss: loss(20.0), stalls, ..perfect }),
        (
            "packets arrive two seconds late, and twice",
            Conditions { reordering, duplication: Share::percent(20.0), ..perfect },
        ),
        ("four seconds of round trip with loss", Conditions { latency: seconds(2), loss: loss(10.0), ..perfect }),
        ("a satellite", Preset::Satellite.up()),
        ("bad radio", Preset::WifiBad.up()),
    ]
}

/// Runs two ends that send a message every `every`, for some minutes. The layer below never times out, even while
/// nothing arrives.
fn talk(name: &str, conditions: Conditions, every: Duration, channel: ChannelId, seed: u64) {
    let mut pair = ConnectionWorld::new(seed, conditions, &layout());
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
            assert_eq!(connection.close_reason(), None, "{name}, a message every {every:?}, seed {seed}");
            assert_eq!(connection.stats(now).endpoint.counters.acks_of_unsent, 0, "{name}, seed {seed}");
        }
    }
}

#[test]
fn honest_peer_is_never_disconnected() {
    for (seed, (name, conditions)) in (1..).zip(paths()) {
        for (millis, channel) in [(20, STATE), (1100, STATE), (3000, STATE), (200, CHAT), (1_000_000, CHAT)] {
            talk(name, conditions, Duration::from_millis(millis), channel, seed);
        }
    }
}
