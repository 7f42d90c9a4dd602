//! A window knows the length of each run of complete messages without visiting them.

use super::*;

const CHANNEL: ChannelId = ChannelId(0);
const MESSAGES: u32 = 40;

/// Returns the lengths of all runs, as they are stored in the first and the last slot of each.
fn stored(window: &MessageWindow) -> Vec<(u32, u32)> {
    runs(window).iter().map(|&(first, length)| (window.run_at(first), window.run_at(first + length - 1))).collect()
}

/// Returns the first slot and the length of all runs, found slot by slot.
fn runs(window: &MessageWindow) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for index in (0..).zip(&window.slots).filter(|(_, slot)| slot.run() > 0).map(|(index, _)| index) {
        match runs.last_mut() {
            Some((first, length)) if *first + *length == index => *length += 1,
            _ => runs.push((index, 1)),
        }
    }
    runs
}

#[test]
fn each_run_of_complete_messages_knows_its_length() {
    let mut state = 1_u64;
    let mut below = |end: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % end
    };
    let mut longest = 0;
    for kind in [Kind::ReliableOrdered, Kind::ReliableUnordered] {
        let config = ChannelConfig { queue_messages: MESSAGES as u16, ..ChannelConfig::from(kind) };
        let (mut window, mut pool) = (MessageWindow::new(), ChunkPool::new(None));
        for _ in 0..20_000 {
            // The oldest one comes seldom, so that runs grow.
            let ahead = if below(20) == 0 { 0 } else { 1 + below(MESSAGES - 1) };
            let (id, scratch) = (window.next.ahead(ahead), &mut Vec::new());
            let bytes = 2 * PIECE_BYTES as u32;
            let outcome = match below(4) {
                0 => window.withdrawn((CHANNEL, &config), id, &mut pool),
                1 => window.whole((CHANNEL, &config), id, &[7; 9], &mut pool),
                piece => {
                    let slice = (id, bytes, piece as u16 - 2);
                    window.slice((CHANNEL, &config), slice, &[7; PIECE_BYTES], &mut pool, scratch)
                }
            };
            outcome.unwrap();
            while window.pop(&mut pool, scratch) {}
            let runs = runs(&window);
            let expected: Vec<_> = runs.iter().map(|&(_, length)| (length, length)).collect();
            assert_eq!(stored(&window), expected, "{kind:?} {runs:?}");
            longest = longest.max(runs.iter().map(|&(_, length)| length).max().unwrap_or(0));
            let mut preview = WindowPreview::default();
            window.preview(kind, &FrameBody::Withdrawn { id: window.next }, &mut preview, &mut 0);
            assert_eq!(preview.settled, 1 + runs.first().filter(|run| run.0 == 1).map_or(0, |run| run.1));
        }
    }
    assert!(longest > MESSAGES / 2, "{longest}");
}
