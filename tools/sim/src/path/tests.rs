use super::*;
use crate::conditions::{Buffer, GilbertElliott, Loss, RateLimit, Reordering, Stalls};
use crate::units::{Rate, Share};

const MILLI: Duration = Duration::from_millis(1);
const FAR: Duration = Duration::from_secs(1_000_000);

fn at(millis: u32) -> Instant {
    Instant::from_start(MILLI * millis)
}

fn impaired() -> Conditions {
    Conditions {
        latency: 40 * MILLI,
        jitter: 30 * MILLI,
        order: Order::Free,
        loss: Loss::Bursts(GilbertElliott::bursts(Share::percent(5.0), 3.0).expect("bursts")),
        duplication: Share::percent(5.0),
        corruption: Share::percent(1.0),
        reordering: Reordering { share: Share::percent(2.0), longest: 100 * MILLI },
        rate: Some(RateLimit { rate: Rate::mbit(1), buffer: Buffer::Time(200 * MILLI) }),
        stalls: Some(Stalls { every: 500 * MILLI, shortest: 20 * MILLI, longest: 100 * MILLI }),
    }
}

/// Pushes numbered datagrams of this size, one every `gap`, and polls every `step`.
fn run(path: &mut Path, datagrams: u32, bytes: usize, gap: Duration, step: Duration) -> Vec<(Instant, Vec<u8>)> {
    let (mut arrivals, mut now) = (Vec::new(), Instant::default());
    let mut datagram = vec![0; bytes];
    for number in 0..datagrams {
        let next = Instant::default().after(gap * number);
        while now.after(step) < next {
            now = now.after(step);
            collect(path, now, &mut arrivals);
        }
        datagram[..4].copy_from_slice(&number.to_le_bytes());
        path.push(&datagram, next);
    }
    collect(path, now.after(FAR), &mut arrivals);
    arrivals
}

fn collect(path: &mut Path, now: Instant, arrivals: &mut Vec<(Instant, Vec<u8>)>) {
    while let Some(arrival) = path.pop_due(now) {
        assert!(arrival.at <= now);
        arrivals.push((arrival.at, arrival.bytes.to_vec()));
    }
}

fn numbers(arrivals: &[(Instant, Vec<u8>)]) -> Vec<u32> {
    arrivals.iter().map(|(_, bytes)| u32::from_le_bytes(bytes[..4].try_into().unwrap())).collect()
}

fn times(arrivals: &[(Instant, Vec<u8>)]) -> Vec<Instant> {
    arrivals.iter().map(|(at, _)| *at).collect()
}

#[test]
fn outcome_depends_on_the_seed_and_not_on_polling() {
    let arrivals_of = |seed, step| run(&mut Path::new(impaired(), seed), 2000, 200, 2 * MILLI, step);
    let once = arrivals_of(1, MILLI);
    assert!(once.len() > 1500, "{}", once.len());
    assert_eq!(once, arrivals_of(1, MILLI));
    assert_eq!(once, arrivals_of(1, 7 * MILLI));
    assert_eq!(once, arrivals_of(1, FAR));
    assert_ne!(once, arrivals_of(2, MILLI));
}

#[test]
fn polling_at_next_due_misses_nothing() {
    let mut path = Path::new(impaired(), 3);
    for number in 0..500_u32 {
        path.push(&number.to_le_bytes(), Instant::default());
    }
    let (mut last, mut arrived) = (Instant::default(), 0);
    while let Some(next) = path.next_due() {
        assert!(next >= last, "time never decreases");
        last = next;
        while let Some(arrival) = path.pop_due(next) {
            assert_eq!(arrival.at, next, "polled on time");
            arrived += 1;
        }
    }
    assert_eq!((arrived, path.in_transit()), (path.stats().delivered, 0));
}

#[test]
fn changing_one_condition_keeps_the_streams_of_others() {
    let lost_with = |jitter| {
        let conditions = Conditions { jitter, loss: Loss::Random(Share::percent(10.0)), ..Conditions::perfect() };
        numbers(&run(&mut Path::new(conditions, 4), 1000, 4, MILLI, MILLI))
    };
    assert_eq!(lost_with(Duration::ZERO), lost_with(50 * MILLI));
}

#[test]
fn every_datagram_is_accounted_for() {
    for seed in 0..20 {
        let mut path = Path::bounded(impaired(), seed, Bounds { datagrams: 50, bytes: 8_000 });
        for turn in 0..3000 {
            path.push(&[7; 150], at(turn));
            if turn % 3 == 0 {
                path.push(&[7; 150], at(turn));
            }
            while path.pop_due(at(turn)).is_some() {}
            assert!(path.in_transit() <= 50, "seed {seed}");
            let stats = path.stats();
            let out = stats.delivered + stats.lost + stats.tail_dropped + stats.overflowed;
            assert_eq!(stats.pushed + stats.duplicated, out + path.in_transit() as u64, "seed {seed}: {stats:?}");
        }
        let stats = path.stats();
        let happened = [stats.lost, stats.duplicated, stats.corrupted, stats.held_back, stats.overtaken, stats.stalls];
        assert!(happened.into_iter().all(|count| count > 0), "seed {seed}: {stats:?}");
        assert!(stats.overflowed > 0, "seed {seed}: {stats:?}");
    }
}

#[test]
fn latency_is_exact_and_jitter_is_uniform() {
    let conditions = Conditions { latency: 40 * MILLI, jitter: 10 * MILLI, ..Conditions::perfect() };
    let arrivals = run(&mut Path::new(conditions, 5), 5000, 4, 20 * MILLI, MILLI);
    let delays: Vec<Duration> =
        arrivals.iter().zip(0..).map(|((arrived, _), number)| arrived.since(at(20 * number))).collect();
    let (least, most) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
    assert!((40 * MILLI..41 * MILLI).contains(least) && (49 * MILLI..=50 * MILLI).contains(most), "{least:?} {most:?}");
    let mean = delays.iter().sum::<Duration>() / 5000;
    assert!((mean.as_secs_f64() - 0.045).abs() < 0.000_3, "{mean:?}");
}

#[test]
fn jitter_keeps_the_order_unless_order_is_free() {
    for (order, sorted) in [(Order::Kept, true), (Order::Free, false)] {
        let conditions = Conditions { jitter: 30 * MILLI, order, ..Conditions::perfect() };
        let mut path = Path::new(conditions, 6);
        let arrived = numbers(&run(&mut path, 1000, 4, MILLI, MILLI));
        assert_eq!((arrived.len(), arrived.is_sorted()), (1000, sorted));
        assert_eq!(path.stats().overtaken == 0, sorted);
    }
}

#[test]
fn only_held_back_datagrams_are_overtaken() {
    let reordering = Reordering { share: Share::percent(10.0), longest: 50 * MILLI };
    let conditions = Conditions { latency: 20 * MILLI, reordering, ..Conditions::perfect() };
    let mut path = Path::new(conditions, 7);
    let arrivals = run(&mut path, 5000, 4, MILLI, MILLI);
    let late = |(arrived, number): &(Instant, u32)| arrived.since(at(*number)) > 20 * MILLI;
    let arrived: Vec<(Instant, u32)> = times(&arrivals).into_iter().zip(numbers(&arrivals)).collect();
    let (held_back, prompt): (Vec<_>, Vec<_>) = arrived.into_iter().partition(late);
    assert!(prompt.is_sorted_by_key(|(_, number)| *number), "all other datagrams keep their order");
    assert!((400..600).contains(&held_back.len()), "{}", held_back.len());
    let stats = path.stats();
    assert_eq!((stats.held_back, stats.delivered), (held_back.len() as u64, 5000));
    // A datagram that is held back for less than a millisecond of fifty may not be overtaken.
    assert!((held_back.len() as u64 * 9 / 10..=held_back.len() as u64).contains(&stats.overtaken), "{stats:?}");
}

#[test]
fn duplicates_arrive_twice_and_unchanged() {
    let conditions = Conditions { duplication: Share::percent(20.0), ..Conditions::perfect() };
    let mut path = Path::new(conditions, 8);
    let arrived = numbers(&run(&mut path, 5000, 4, MILLI, MILLI));
    let twice = arrived.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert!((900..1100).contains(&twice), "{twice}");
    assert_eq!((arrived.len(), path.stats().duplicated), (5000 + twice, twice as u64));
}

#[test]
fn a_corrupted_datagram_differs_in_one_bit() {
    let conditions = Conditions { corruption: Share::ALL, ..Conditions::perfect() };
    let mut path = Path::new(conditions, 9);
    let mut flipped = [0_u32; 32];
    for _ in 0..1000 {
        path.push(&[0; 4], at(0));
        let arrival = path.pop_due(at(0)).unwrap();
        let word = u32::from_le_bytes(arrival.bytes.try_into().unwrap());
        assert_eq!(word.count_ones(), 1);
        flipped[word.trailing_zeros() as usize] += 1;
    }
    assert!(flipped.into_iter().all(|count| count > 0), "every bit is hit: {flipped:?}");
    path.push(&[], at(1));
    assert_eq!(path.pop_due(at(1)).unwrap().bytes, [0; 0]);
    assert_eq!(path.stats().corrupted, 1000, "an empty datagram has no bits");
}

#[test]
fn link_transmits_datagrams_in_turn_at_its_rate() {
    // A datagram of 125 bytes takes 1 ms.
    let rate = Some(RateLimit { rate: Rate::mbit(1), buffer: Buffer::Bytes(10_000) });
    let mut path = Path::new(Conditions { latency: 5 * MILLI, rate, ..Conditions::perfect() }, 10);
    for _ in 0..4 {
        path.push(&[0; 125], at(0));
    }
    path.push(&[0; 250], at(2));
    assert_eq!((path.queued_bytes(), path.queue_delay(at(2))), (500, 4 * MILLI), "two have departed");
    // The link has been idle for 4 ms.
    path.push(&[0; 125], at(10));
    let mut arrivals = Vec::new();
    collect(&mut path, at(100), &mut arrivals);
    assert_eq!(times(&arrivals), [at(6), at(7), at(8), at(9), at(11), at(16)]);
    assert_eq!((path.queued_bytes(), path.queue_delay(at(100))), (0, Duration::ZERO));
}

#[test]
fn full_buffer_drops_at_its_tail() {
    for buffer in [Buffer::Bytes(1000), Buffer::Time(8 * MILLI)] {
        let rate = Some(RateLimit { rate: Rate::mbit(1), buffer });
        let mut path = Path::new(Conditions { rate, ..Conditions::perfect() }, 11);
        for number in 0..20_u8 {
            path.push(&[number; 125], at(0));
        }
        assert_eq!((path.queued_bytes(), path.stats().tail_dropped), (1000, 12));
        path.push(&[20; 125], at(1));
        let mut arrivals = Vec::new();
        collect(&mut path, at(100), &mut arrivals);
        let first: Vec<u8> = arrivals.iter().map(|(_, bytes)| bytes[0]).collect();
        assert_eq!(first, [0, 1, 2, 3, 4, 5, 6, 7, 20], "{buffer:?}");
        assert_eq!(*times(&arrivals).last().unwrap(), at(9));
    }
}

#[test]
fn one_datagram_always_fits_into_the_buffer() {
    let rate = Some(RateLimit { rate: Rate::mbit(1), buffer: Buffer::Bytes(0) });
    let mut path = Path::new(Conditions { rate, ..Conditions::perfect() }, 12);
    path.push(&[0; 1250], at(0));
    path.push(&[0; 1], at(9));
    path.push(&[0; 1], at(10));
    let mut arrivals = Vec::new();
    collect(&mut path, at(20), &mut arrivals);
    assert_eq!((arrivals.len(), path.stats().tail_dropped), (2, 1));
}

#[test]
fn a_lost_datagram_has_used_the_link() {
    let rate = Some(RateLimit { rate: Rate::mbit(1), buffer: Buffer::Bytes(1000) });
    let lossy = Conditions { rate, loss: Loss::Random(Share::percent(50.0)), ..Conditions::perfect() };
    let mut path = Path::new(lossy, 13);
    let arrivals = run(&mut path, 1000, 125, MILLI, MILLI);
    for ((arrived, _), number) in arrivals.iter().zip(numbers(&arrivals)) {
        assert_eq!(*arrived, at(number + 1));
    }
    assert!((400..600).contains(&arrivals.len()));
}

#[test]
fn new_rate_applies_to_waiting_datagrams_only() {
    let limited = |mbit| Conditions {
        latency: 10 * MILLI,
        rate: Some(RateLimit { rate: Rate::mbit(mbit), buffer: Buffer::Bytes(10_000) }),
        ..Conditions::perfect()
    };
    let mut path = Path::new(limited(1), 14);
    for _ in 0..6 {
        path.push(&[0; 1250], at(0));
    }
    // The first departed at 10 ms; the second is in transmission.
    path.set_conditions(limited(10), at(15));
    let mut arrivals = Vec::new();
    collect(&mut path, at(100), &mut arrivals);
    assert_eq!(times(&arrivals), [at(20), at(30), at(31), at(32), at(33), at(34)]);
    assert_eq!(path.conditions(), &limited(10));
}

#[test]
fn datagrams_leave_in_order_after_a_stall() {
    let stalls = Some(Stalls { every: 200 * MILLI, shortest: 50 * MILLI, longest: 50 * MILLI });
    let mut path = Path::new(Conditions { stalls, ..Conditions::perfect() }, 15);
    let arrivals = run(&mut path, 10_000, 4, MILLI, MILLI);
    assert!(numbers(&arrivals).into_iter().eq(0..10_000));
    let delay = |((arrived, _), number): (&(Instant, _), u32)| arrived.since(at(number));
    let delays: Vec<Duration> = arrivals.iter().zip(0..).map(delay).collect();
    assert!(*delays.iter().max().unwrap() <= 50 * MILLI);
    // One stall of 50 ms follows 200 ms of work on average.
    assert!((36..=44).contains(&path.stats().stalls), "{}", path.stats().stalls);
    let waited = delays.iter().filter(|delay| **delay > Duration::ZERO).count();
    assert!((1800..2200).contains(&waited), "a fifth of them: {waited}");
}

#[test]
fn a_stalled_link_keeps_its_queue_and_drops_the_tail() {
    let rate = Some(RateLimit { rate: Rate::mbit(1), buffer: Buffer::Bytes(1000) });
    let mut path = Path::new(Conditions { rate, ..Conditions::perfect() }, 16);
    path.hold(30 * MILLI, at(0));
    // A second hold that ends no later changes nothing.
    path.hold(10 * MILLI, at(5));
    for number in 0..20 {
        path.push(&[0; 125], at(number));
    }
    assert_eq!(path.queue_delay(at(20)), 18 * MILLI);
    let mut arrivals = Vec::new();
    collect(&mut path, at(100), &mut arrivals);
    assert!(times(&arrivals).into_iter().eq((31..39).map(at)));
    assert_eq!(path.stats().tail_dropped, 12);
}

#[test]
fn a_link_without_a_rate_can_be_held_too() {
    let mut path = Path::new(Conditions::perfect(), 17);
    path.push(b"before", at(0));
    path.hold(20 * MILLI, at(0));
    path.push(b"during", at(10));
    path.hold(30 * MILLI, at(10));
    path.push(b"after", at(50));
    let mut arrivals = Vec::new();
    collect(&mut path, at(100), &mut arrivals);
    assert_eq!(times(&arrivals), [at(0), at(40), at(50)]);
}

#[test]
fn a_tag_arrives_with_its_datagram() {
    let mut path: Path<(u8, u8)> = Path::new(impaired(), 18);
    for number in 0..100 {
        path.push_tagged((number, !number), &[number], at(0));
    }
    while let Some(arrival) = path.pop_due(at(10_000)) {
        assert_eq!(arrival.tag.0, !arrival.tag.1);
        let differing = (arrival.bytes[0] ^ arrival.tag.0).count_ones();
        assert!(differing <= 1);
    }
    assert!(path.stats().delivered > 50);
}
