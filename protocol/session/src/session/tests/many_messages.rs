//! More messages than ids go round in a minute: none waits for the ids of others to be forgotten.

use super::*;
use crate::congestion::{Algorithm, BytesPerSecond};

const THINGS: u64 = 40;

/// How many ticks in a row brought nothing, at most, while the state of forty things was sent in each.
fn longest_silence(kind: Kind) -> usize {
    let mut config = Config::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e6));
    let layout = Arc::new(Layout::new(vec![ChannelConfig::new(kind)]).unwrap());
    let mut pair = Pair::new();
    pair.ends = [(); 2].map(|()| connection(&config, Arc::clone(&layout)));
    pair.run(200);
    let (mut silence, mut longest) = (0, 0);
    for _ in 0..3000 {
        pair.pass(16);
        for thing in 0..THINGS {
            let options = SendOptions { key: Some(thing), ..SendOptions::default() };
            pair.ends[0].send(CHAT, &[thing as u8; 12], options, pair.now).unwrap();
        }
        pair.exchange();
        let got = pair.received.iter_mut().map(|received| core::mem::take(received).len()).sum::<usize>();
        silence = if got == 0 { silence + 1 } else { 0 };
        longest = longest.max(silence);
    }
    longest
}

#[test]
fn forty_things_at_sixty_hertz_are_never_silent_though_their_ids_go_round() {
    for kind in [Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered] {
        assert!(longest_silence(kind) <= 2, "{kind:?}: {} ticks", longest_silence(kind));
    }
}
