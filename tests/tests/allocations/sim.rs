//! A path with impairments does not allocate after warm-up, and releases the memory of a few large datagrams.

use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_sim::{Bounds, Conditions, Order, Path, Preset, Reordering, Share};
use slipgate_tests::counting::{allocations, held};

const GAP: Duration = Duration::from_millis(1);

fn path() -> Path {
    let conditions = Conditions {
        order: Order::Free,
        duplication: Share::percent(5.0),
        corruption: Share::percent(1.0),
        reordering: Reordering { share: Share::percent(5.0), longest: Duration::from_millis(100) },
        ..Preset::WifiBad.up()
    };
    Path::bounded(conditions, 1, Bounds { datagrams: 2000, bytes: 1 << 20 })
}

/// Sends datagrams of all sizes up to 1,200 bytes, one per millisecond.
fn talk(path: &mut Path, datagrams: std::ops::Range<u32>) {
    let datagram = [0xa5; 1200];
    for number in datagrams {
        let now = Instant::default().after(GAP * number);
        path.push(&datagram[..number as usize * 7 % 1201], now);
        while path.pop_due(now).is_some() {}
    }
}

#[test]
fn active_path_does_not_allocate() {
    let mut path = path();
    talk(&mut path, 0..40_000);
    let delivered = path.stats().delivered;
    let allocation_count = allocations(|| talk(&mut path, 40_000..80_000));
    assert!(path.stats().delivered > delivered + 35_000, "{:?}", path.stats());
    assert_eq!(allocation_count, 0);
}

#[test]
fn large_datagrams_release_their_memory() {
    let (path, bytes) = held(|| {
        let mut path = path();
        for number in 0..2000 {
            let now = Instant::default().after(GAP * number);
            path.push(&[0; 60_000], now);
            while path.pop_due(now).is_some() {}
        }
        while path.pop_due(Instant::NEVER).is_some() {}
        path
    });
    assert!(path.stats().delivered > 10 && path.stats().overflowed + path.stats().tail_dropped > 0);
    // The datagram that was borrowed last, and the tables.
    assert!(bytes < 512 << 10, "{bytes} bytes");
}
