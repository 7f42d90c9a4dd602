use std::net::SocketAddr;

use super::*;

/// The datagrams of 60 bytes in 16 ms after which an address is sampled.
const MAX_JUNK: u32 = 1024;

fn at(millis: u64) -> Instant {
    Instant::from_start(Duration::from_millis(millis))
}

fn from(port: u16) -> Address {
    Address::from(SocketAddr::from(([192, 0, 2, 1], port)))
}

/// Sends until an action. Returns it, and how many datagrams were counted.
fn flood(guard: &mut FloodGuard, port: u16, excess: Excess, now: Instant) -> (FloodAction, u32) {
    guard.on_tick(now);
    let mut actions = (1..=300).map(|count| (guard.on_excess(from(port), excess, now), count));
    actions.find(|(action, _)| *action != FloodAction::Nothing).unwrap_or((FloodAction::Nothing, 300))
}

/// Returns the ports that the kernel blocks, and whether they are probed.
fn blocked(guard: &FloodGuard) -> Vec<(u16, bool)> {
    guard.blocked().iter().map(|sender| (sender.address.port(), sender.passing == Passing::OneIn64)).collect()
}

#[test]
fn blocks_double_and_after_two_seconds_the_session_ends() {
    let mut guard = FloodGuard::default();
    for turn in 0..100 {
        guard.on_tick(at(turn * 16));
        for _ in 0..MAX_FIRST_EXCESS - 1 {
            let action = guard.on_excess(from(1), Excess::Client, at(turn * 16));
            assert_eq!(action, FloodAction::Nothing, "below the limit in each window");
        }
    }
    let mut now = 2000;
    for block in [16, 32, 64, 128, 256, 512, 1024] {
        let max = if block == 16 { MAX_FIRST_EXCESS } else { MAX_EXCESS };
        assert_eq!(flood(&mut guard, 2, Excess::Client, at(now)), (FloodAction::Block, max), "{block} ms");
        assert_eq!(blocked(&guard), [(2, false)]);
        assert_eq!(guard.screen(from(2), &[], ONE_IN, at(now)), Screening::Dropped);
        assert_eq!(guard.screen(from(1), &[], ONE_IN, at(now)), Screening::Passes);
        assert!(!guard.end_blocks(at(now + block - 1)) && guard.end_blocks(at(now + block)));
        if block < 1024 {
            assert_eq!(blocked(&guard), [(2, true)]);
            assert_eq!(guard.screen(from(2), &[], ONE_IN, at(now + block)), Screening::Dropped);
            assert!(guard.end_blocks(at(now + block + 32)));
        }
        assert_eq!(blocked(&guard), []);
        assert_eq!(guard.screen(from(2), &[], ONE_IN, at(now + block + 32)), Screening::Passes);
        now += block + 33;
    }
    assert_eq!(flood(&mut guard, 2, Excess::Client, at(now)), (FloodAction::End, MAX_EXCESS));
    assert!(guard.end_blocks(at(now + 2048)) && blocked(&guard) == [(2, true)], "probed again after its end");
    assert_eq!(guard.dropped(), 13);
}

#[test]
fn probed_sender_that_goes_on_is_blocked_twice_as_long() {
    for (one_in, datagrams) in [(ONE_IN, MAX_PROBED), (1, MAX_PROBED * ONE_IN)] {
        let mut guard = FloodGuard::default();
        flood(&mut guard, 1, Excess::Client, at(1000));
        assert!(guard.end_blocks(at(1016)));
        // Forged datagrams may look the same, so the first block is not lengthened.
        for _ in 0..2 * datagrams {
            assert_eq!(guard.screen(from(1), &[], one_in, at(1017)), Screening::Dropped);
        }
        assert!(guard.end_blocks(at(1048)) && blocked(&guard).is_empty(), "freed as if nothing had come");
        assert_eq!(flood(&mut guard, 1, Excess::Client, at(1049)), (FloodAction::Block, MAX_EXCESS));
        assert!(guard.end_blocks(at(1081)));
        for _ in 1..datagrams {
            assert_eq!(guard.screen(from(1), &[], one_in, at(1082)), Screening::Dropped);
        }
        assert_eq!(guard.screen(from(1), &[], one_in, at(1082)), Screening::Blocks);
        assert_eq!(blocked(&guard), [(1, false)]);
        assert!(!guard.end_blocks(at(1145)) && guard.end_blocks(at(1146)));
    }
}

/// Floods for a moment, then is silent for this many milliseconds after the block and the probe. Returns the time
/// after the pause, and the result of the flood.
fn flood_and_pause(guard: &mut FloodGuard, pause: u64, now: u64) -> (u64, FloodAction) {
    let (action, _) = flood(guard, 1, Excess::Client, at(now));
    let mut end = now;
    while let Some(next) = guard.next_end {
        assert!(guard.end_blocks(next));
        end = next.since_start().as_millis() as u64;
    }
    (end + pause, action)
}

#[test]
fn sender_with_long_pauses_begins_with_a_short_block_again() {
    let mut guard = FloodGuard::default();
    let mut now = 0;
    for _ in 0..MAX_BURST_BLOCKS {
        let start = now;
        let (next, action) = flood_and_pause(&mut guard, 500, now);
        assert_eq!((action, next - start), (FloodAction::Block, 16 + 32 + 500), "the shortest block");
        now = next;
    }
}

#[test]
fn pause_of_half_a_second_lowers_the_level_by_one_only() {
    // A pause of 50 ms forgave all levels at first, and a flood with such pauses never ended.
    let mut guard = FloodGuard::default();
    let mut now = 0;
    for block in [16, 32, 64, 128] {
        let (next, _) = flood_and_pause(&mut guard, 60, now);
        assert_eq!(next - now, block + 32 + 60);
        now = next;
    }
    for (pause, block) in [(500, 128), (1000, 64), (5000, 16)] {
        let start = now - 60 + pause;
        now = flood_and_pause(&mut guard, 60, start).0;
        assert_eq!(now - start, block + 32 + 60, "after {pause} ms");
    }
}

#[test]
fn flood_with_short_pauses_ends_within_seconds() {
    for pause in [0, 20, 49] {
        let mut guard = FloodGuard::default();
        let mut now = 0;
        loop {
            let (next, action) = flood_and_pause(&mut guard, pause, now);
            if action == FloodAction::End {
                break;
            }
            assert_eq!(action, FloodAction::Block);
            now = next;
        }
        assert!(now < 6000, "pauses of {pause} ms: ended after {now} ms");
    }
}

#[test]
fn flood_ends_at_a_server_with_slow_turns() {
    for millis in [16, 50, 100, 200, 250, 299, 500, 1000] {
        let mut guard = FloodGuard::default();
        let mut ends_at = |turn: u64| {
            let now = at(millis * turn);
            guard.end_blocks(now);
            let mut has_ended = false;
            // What the budget allows in this time, and as many more as are decrypted.
            for packet in 0..16 * millis + 1024 {
                match guard.screen(from(1), &[0; 60], 1, now) {
                    Screening::Passes => {}
                    Screening::Dropped | Screening::Blocks => continue,
                }
                let is_excess = packet >= 16 * millis;
                let outcome = if is_excess { DatagramResult::Excess(Excess::Client) } else { DatagramResult::Accepted };
                has_ended |= guard.on_handled(from(1), &[0; 60], outcome, || None, now) == FloodAction::End;
            }
            guard.on_tick(now);
            has_ended
        };
        let end = (1..1000).find(|turn| ends_at(*turn)).map(|turn| millis * turn);
        assert!(end.is_some_and(|end| (2000..=10_000).contains(&end)), "turns of {millis} ms: {end:?} ms");
    }
}

/// Floods in bursts with pauses until the session ends or `bursts` are over. Before each burst `accepted` packets
/// are within the budget. Returns the end, and the longest block in milliseconds.
fn bursts(accepted: &mut dyn FnMut(u32) -> u32, pause: u64, bursts: u32) -> (Option<u64>, u64) {
    let mut guard = FloodGuard::default();
    let (mut now, mut longest) = (0, 0);
    for burst in 0..bursts {
        (0..accepted(burst)).for_each(|_| {
            assert_eq!(
                guard.on_handled(from(1), &[0; 60], DatagramResult::Accepted, || None, at(now)),
                FloodAction::Nothing
            );
        });
        let (next, action) = flood_and_pause(&mut guard, pause, now);
        if action == FloodAction::End {
            return (Some(now), longest);
        }
        (now, longest) = (next, longest.max(next - now - pause - 32));
    }
    (None, longest)
}

#[test]
fn excess_of_an_upload_is_blocked_but_ends_no_session() {
    // An honest upload on a path that is faster than its budget was ended by such excesses. A third of its blocks
    // look like those of a flood in bursts.
    for pause in [50, 60, 100, 250, 400, 499] {
        let mut accepted = |burst| if burst % 3 == 0 { 600 } else { 2000 };
        assert_eq!(bursts(&mut accepted, pause, 300), (None, 256), "pauses of {pause} ms");
    }
}

#[test]
fn flood_in_bursts_ends_after_sixteen_of_them() {
    // The budget of a turn is accepted each time.
    for (pause, seconds) in [(50, 6), (100, 7), (250, 8), (500, 10), (1000, 18), (5000, 90)] {
        let (end, longest) = bursts(&mut |_| 256, pause, 300);
        assert!(end.is_some_and(|end| end < seconds * 1000), "pauses of {pause} ms: {end:?}");
        assert!(longest <= 256, "{longest} ms");
    }
    assert_eq!(bursts(&mut |_| 256, 10_000, 300).0, None, "rare bursts are harmless");
}

#[test]
fn slow_loop_may_find_the_excess_of_four_ticks() {
    for (millis, ticks) in [(10, 1), (16, 1), (33, 2), (50, 3), (200, 4), (60_000, 4)] {
        let mut guard = FloodGuard::default();
        guard.on_tick(at(1000));
        let now = at(1000 + millis);
        for _ in 1..MAX_FIRST_EXCESS * ticks {
            assert_eq!(guard.on_excess(from(1), Excess::Client, now), FloodAction::Nothing, "{millis} ms");
        }
        assert_eq!(guard.on_excess(from(1), Excess::Client, now), FloodAction::Block, "{millis} ms");
    }
}

#[test]
fn junk_of_an_address_is_sampled_while_it_goes_on() {
    for outcome in [DatagramResult::Junk, DatagramResult::Excess(Excess::Stranger)] {
        let mut guard = FloodGuard::default();
        for _ in 1..MAX_JUNK {
            assert_eq!(guard.on_handled(from(1), &[0; 60], outcome, || None, at(1000)), FloodAction::Nothing);
        }
        assert_eq!(guard.on_handled(from(1), &[0; 60], outcome, || None, at(1000)), FloodAction::Block);
        for second in 1..5 {
            assert_eq!(blocked(&guard), [(1, true)], "a sample passes");
            // The kernel has dropped the others, and the server handles these.
            for _ in 0..400 {
                assert_eq!(guard.screen(from(1), &[], ONE_IN, at(1000 * second)), Screening::Passes);
                assert_eq!(
                    guard.on_handled(from(1), &[0; 60], outcome, || None, at(1000 * second)),
                    FloodAction::Nothing
                );
            }
            assert!(guard.end_blocks(at(1000 + 1000 * second)));
        }
        // A client at 15,000 a second is not sampled again.
        for _ in 0..15_000 / ONE_IN {
            assert_eq!(guard.screen(from(1), &[], ONE_IN, at(5500)), Screening::Passes);
        }
        assert!(guard.end_blocks(at(6000)) && blocked(&guard).is_empty());
        assert_eq!(guard.on_excess(from(1), Excess::Client, at(6100)), FloodAction::Nothing, "no level is raised");
    }
}

#[test]
fn server_takes_the_sample_where_the_kernel_has_no_filter() {
    let mut guard = FloodGuard::default();
    for _ in 0..MAX_JUNK {
        guard.on_handled(from(1), &[0; 60], DatagramResult::Junk, || None, at(1000));
    }
    let passed = (0..6400).filter(|_| guard.screen(from(1), &[], 1, at(1001)) == Screening::Passes).count();
    assert_eq!((passed, guard.dropped()), (100, 6300));
    assert_eq!(guard.screen(from(2), &[], 1, at(1001)), Screening::Passes);
}

/// Returns an encrypted packet with this sequence number, as far as its header.
fn packet(sequence: u16) -> [u8; 3] {
    let [low, high] = sequence.to_le_bytes();
    [0x25, low, high]
}

#[test]
fn sample_passes_the_next_packets_of_the_client() {
    let mut guard = FloodGuard::default();
    let next = 65_000;
    for _ in 0..MAX_JUNK {
        guard.on_handled(from(1), &[0; 60], DatagramResult::Junk, || Some(next), at(1000));
    }
    let passing = |guard: &FloodGuard| guard.blocked().first().map(|sender| sender.passing);
    assert_eq!(passing(&guard), Some(Passing::Next { first: 65_000 }));
    let mut passes = |sequence: u64| guard.screen(from(1), &packet(sequence as u16), 1, at(1001)) == Screening::Passes;
    assert!((0..1024).all(|ahead| passes(next + ahead)), "beyond 2^16, too");
    assert!(!passes(next - 1) && !passes(next + 1024) && !passes(900));
    // The window follows the client at intervals.
    for (ahead, action) in [(1, FloodAction::Nothing), (255, FloodAction::Nothing), (256, FloodAction::Block)] {
        assert_eq!(
            guard.on_handled(from(1), &packet((next + ahead - 1) as u16), DatagramResult::Accepted, || None, at(1002)),
            action
        );
    }
    assert_eq!(passing(&guard), Some(Passing::Next { first: 65_256 }));
    // A packet of the random sample shows that the client is far ahead.
    guard.on_handled(from(1), &packet((next + 4999) as u16), DatagramResult::Accepted, || None, at(1003));
    assert_eq!(passing(&guard), Some(Passing::Next { first: (next + 5000) as u16 }));
    // A late one does not move it back.
    guard.on_handled(from(1), &packet((next + 4000) as u16), DatagramResult::Accepted, || None, at(1004));
    assert_eq!(passing(&guard), Some(Passing::Next { first: (next + 5000) as u16 }));
}

#[test]
fn junk_with_the_next_numbers_is_sampled_at_random() {
    // The pause before the read, the length of each datagram, and the maximum of datagrams.
    for (pause, bytes, max) in [(1, 60, 1600), (4, 60, 1600), (4, 1200, 535), (16, 60, 6400), (1000, 60, 6400)] {
        let mut guard = FloodGuard::default();
        let mut junk = |at_millis| guard.on_handled(from(1), &[0; 60], DatagramResult::Junk, || Some(9), at(at_millis));
        for _ in 0..MAX_JUNK {
            junk(1000);
        }
        (0..20).for_each(|read| guard.on_read(at(1958 + 2 * read)));
        guard.on_read(at(1998));
        guard.on_read(at(1998 + pause));
        let now = at(1998 + pause);
        let mut junk = |next| guard.on_handled(from(1), &[0; 1200][..bytes], DatagramResult::Junk, || Some(next), now);
        for _ in 1..max {
            assert_eq!(junk(10), FloodAction::Nothing, "{pause} ms");
        }
        // At first the window moves behind the packets that are repeated.
        assert_eq!(junk(10), FloodAction::Block);
        for _ in 1..max {
            assert_eq!(junk(10), FloodAction::Nothing);
        }
        assert_eq!(junk(10), FloodAction::Block);
        assert_eq!(blocked(&guard), [(1, true)], "a random sample");
    }
}

#[test]
fn stranger_is_blocked_only_if_it_was_a_hostile_client() {
    let mut guard = FloodGuard::default();
    assert_eq!(flood(&mut guard, 1, Excess::Stranger, at(0)).0, FloodAction::Nothing);
    assert_eq!(flood(&mut guard, 1, Excess::Client, at(0)).0, FloodAction::Block);
    assert!(guard.end_blocks(at(16)) && guard.end_blocks(at(48)));
    guard.on_violation(from(2), at(50));
    let mut now = 50;
    for seconds in [1, 2, 4, 8, 16, 16, 16] {
        for port in [1, 2] {
            assert_eq!(flood(&mut guard, port, Excess::Stranger, at(now)).0, FloodAction::Block);
        }
        assert!(!guard.end_blocks(at(now + 1000 * seconds - 1)), "{seconds} s");
        now += 1000 * seconds;
        assert!(guard.end_blocks(at(now)) && blocked(&guard) == [(1, true), (2, true)]);
        now += 32;
        assert!(guard.end_blocks(at(now)) && blocked(&guard).is_empty());
    }
}

#[test]
fn many_senders_do_not_free_a_blocked_one() {
    let mut guard = FloodGuard::default();
    // The first one is blocked for longer each time.
    for (now, block) in [(0, 16), (50, 32), (120, 64), (220, 128)] {
        assert_eq!(flood(&mut guard, 1, Excess::Client, at(now)).0, FloodAction::Block);
        assert!(guard.end_blocks(at(now + block)) && guard.end_blocks(at(now + block + 32)));
    }
    assert_eq!(flood(&mut guard, 1, Excess::Client, at(381)).0, FloodAction::Block);
    for port in 2..1000 {
        flood(&mut guard, port, Excess::Client, at(381 + u64::from(port) / 10));
        assert!(guard.senders.len() <= MAX_SENDERS && guard.blocked().len() <= MAX_SENDERS);
        assert!(blocked(&guard).contains(&(1, false)) && blocked(&guard).contains(&(port, false)), "{port}");
    }
    // Single datagrams over a budget, without a block.
    let mut guard = FloodGuard::default();
    flood(&mut guard, 1, Excess::Client, at(0));
    (2..1000).for_each(|port| assert_eq!(guard.on_excess(from(port), Excess::Client, at(1)), FloodAction::Nothing));
    assert_eq!(blocked(&guard), [(1, false)]);
}

#[test]
fn junk_of_many_addresses_does_not_erase_a_history() {
    let mut guard = FloodGuard::default();
    assert_eq!(flood(&mut guard, 1, Excess::Client, at(0)).0, FloodAction::Block);
    assert!(guard.end_blocks(at(16)) && guard.end_blocks(at(48)));
    guard.on_violation(from(2), at(48));
    for port in 3..1003 {
        for _ in 0..MAX_JUNK {
            guard.on_handled(from(port), &[0; 60], DatagramResult::Junk, || None, at(49));
        }
        assert!(guard.senders.len() <= MAX_SENDERS && blocked(&guard).contains(&(port, true)), "{port}");
    }
    // A client that was blocked a moment ago may exceed its budget by less.
    assert_eq!(flood(&mut guard, 1, Excess::Client, at(50)), (FloodAction::Block, MAX_EXCESS));
    assert_eq!(flood(&mut guard, 2, Excess::Stranger, at(50)).0, FloodAction::Block, "its session was ended");
}

#[test]
fn blocked_senders_come_before_sampled_ones() {
    let mut guard = FloodGuard::default();
    for port in 1..21 {
        for _ in 0..MAX_JUNK {
            guard.on_handled(from(port), &[0; 60], DatagramResult::Junk, || None, at(0));
        }
    }
    for port in [30, 31] {
        assert_eq!(flood(&mut guard, port, Excess::Client, at(1)).0, FloodAction::Block);
    }
    assert!(guard.end_blocks(at(17)), "both are probed");
    assert_eq!(flood(&mut guard, 40, Excess::Client, at(18)).0, FloodAction::Block);
    let ports: Vec<_> = blocked(&guard).into_iter().map(|(port, _)| port).collect();
    assert_eq!((ports.len(), ports[0], ports[1].min(ports[2]), ports[1].max(ports[2])), (23, 40, 30, 31));
}

#[test]
fn datagrams_of_a_sender_that_the_kernel_refused_count_once() {
    let mut guard = FloodGuard::default();
    for port in [1, 2] {
        for _ in 0..MAX_JUNK {
            guard.on_handled(from(port), &[0; 60], DatagramResult::Junk, || None, at(1000));
        }
    }
    let second = guard.blocked().into_iter().filter(|sender| sender.address.port() == 2).collect::<Vec<_>>();
    guard.set_refused(&second);
    let mut passed =
        |port| (0..640).filter(|_| guard.screen(from(port), &[], ONE_IN, at(1001)) == Screening::Passes).count();
    assert_eq!((passed(1), passed(2)), (640, 10), "the server takes the sample of the second one");
    guard.set_refused(&[]);
    assert_eq!(guard.screen(from(2), &[], ONE_IN, at(1002)), Screening::Passes);
}
