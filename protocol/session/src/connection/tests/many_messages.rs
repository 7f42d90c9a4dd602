//! Message ids wrap within a minute: no message waits until old ids are forgotten.

use super::*;
use crate::congestion::{Algorithm, BytesPerSecond};

const OBJECTS: u64 = 40;

/// Returns the maximum number of consecutive ticks without a message, while the state of forty objects is sent in each.
fn longest_silence(kind: Kind) -> usize {
    let mut config = ConnectionConfig::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e6));
    let layout = Arc::new(Layout::try_from(vec![ChannelConfig::from(kind)]).unwrap());
    let mut pair = Pair::new();
    pair.ends = [(); 2].map(|()| connection(&config, Arc::clone(&layout)));
    pair.run(200);
    let (mut silence, mut longest) = (0, 0);
    for _ in 0..3000 {
        pair.pass(16);
        for object in 0..OBJECTS {
            let options = SendOptions { key: Some(object), ..SendOptions::default() };
            pair.ends[0].send(CHAT, &[object as u8; 12], options, pair.now).unwrap();
        }
        pair.exchange();
        let got = pair.received.iter_mut().map(|received| core::mem::take(received).len()).sum::<usize>();
        silence = if got == 0 { silence + 1 } else { 0 };
        longest = longest.max(silence);
    }
    longest
}

#[test]
fn forty_objects_at_60_hz_are_never_silent_when_ids_wrap() {
    for kind in [Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered] {
        assert!(longest_silence(kind) <= 2, "{kind:?}: {} ticks", longest_silence(kind));
    }
}
