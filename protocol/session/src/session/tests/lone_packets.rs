use super::*;

const HALF: Duration = Duration::from_millis(900);

/// A second of talk on a path of a long round trip, so that its measure is known.
fn far_apart() -> Pair {
    let mut pair = Pair::new();
    for _ in 0..20 {
        pair.say(0, STATE, b"here I am");
        let there = pair.turn(0);
        pair.now = pair.now.after(HALF);
        there.iter().for_each(|datagram| pair.give(1, datagram).unwrap());
        let back = [pair.turn(1), {
            pair.now = pair.now.after(Duration::from_millis(30));
            pair.turn(1)
        }]
        .concat();
        pair.now = pair.now.after(HALF);
        back.iter().for_each(|datagram| pair.give(0, datagram).unwrap());
    }
    pair
}

#[test]
fn a_lone_packet_that_is_lost_on_a_long_path_wakes_its_sender_now_and_then_until_it_is_known() {
    let mut pair = far_apart();
    assert!(pair.ends[0].stats(pair.now).endpoint.rtt.unwrap().smoothed > Duration::from_millis(1500));
    pair.say(0, STATE, b"lost");
    assert!(!pair.turn(0).is_empty());
    let (start, mut wakes) = (pair.now, 0);
    while let Some(deadline) = pair.ends[0].next_deadline(pair.now)
        && !deadline.reached(start, Duration::from_secs(60))
    {
        wakes += 1;
        assert!(wakes <= 40, "it woke {wakes} times in {:?}", pair.now.since(start));
        pair.now = deadline.max(pair.now);
        assert!(pair.turn(0).is_empty(), "there is nothing to say");
        assert!(pair.ends[0].next_deadline(pair.now).is_none_or(|next| next > pair.now), "it would spin");
    }
    assert!(pair.ends[0].stats(pair.now).endpoint.counters.lost > 0);
}
