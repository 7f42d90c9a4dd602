//! A single packet that is lost on a long path.

use super::*;

const HALF: Duration = Duration::from_millis(900);

/// Returns a pair that has measured its path, with a round trip of 1.8 s.
fn long_path() -> Pair {
    let mut pair = Pair::new();
    for _ in 0..20 {
        pair.send(0, STATE, b"state");
        let up = pair.turn(0);
        pair.now = pair.now.after(HALF);
        up.iter().for_each(|datagram| pair.deliver(1, datagram).unwrap());
        let down = [pair.turn(1), {
            pair.now = pair.now.after(Duration::from_millis(30));
            pair.turn(1)
        }]
        .concat();
        pair.now = pair.now.after(HALF);
        down.iter().for_each(|datagram| pair.deliver(0, datagram).unwrap());
    }
    pair
}

#[test]
fn a_lone_lost_packet_on_a_long_path_has_few_deadlines() {
    let mut pair = long_path();
    assert!(pair.ends[0].stats(pair.now).endpoint.rtt.unwrap().smoothed > Duration::from_millis(1500));
    pair.send(0, STATE, b"lost");
    assert!(!pair.turn(0).is_empty());
    let (start, mut deadlines) = (pair.now, 0);
    while let Some(deadline) = pair.ends[0].next_deadline(pair.now)
        && !deadline.reached(start, Duration::from_secs(60))
    {
        deadlines += 1;
        assert!(deadlines <= 40, "{deadlines} deadlines in {:?}", pair.now.since(start));
        pair.now = deadline.max(pair.now);
        assert!(pair.turn(0).is_empty(), "nothing waits to be sent");
        assert!(
            pair.ends[0].next_deadline(pair.now).is_none_or(|next| next > pair.now),
            "a deadline that has passed would spin"
        );
    }
    assert!(pair.ends[0].stats(pair.now).endpoint.counters.lost > 0);
}
