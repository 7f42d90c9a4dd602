//! Which inputs a message has: those that the server has not confirmed, without a gap, of the present epoch.

use alloc::vec::Vec;

use crate::{InputBuffer, InputLog, InputReport, MAX_INPUT_BYTES, MAX_INPUTS};

/// Returns a log with the inputs of these ticks. The keys of a tick are its number.
fn log(ticks: core::ops::RangeInclusive<u32>) -> InputLog {
    let mut log = InputLog::new();
    ticks.for_each(|tick| log.push(tick, tick, None));
    log
}

/// Returns the ticks between 90 and 160 of which a message has inputs.
fn ticks_of_message(log: &InputLog) -> Vec<u32> {
    let (mut buffer, mut buf) = (InputBuffer::new(0), [0; MAX_INPUT_BYTES]);
    let length = log.write(None, &mut buf);
    buffer.read(&buf[..length], 115.0).unwrap();
    let has = |tick: &u32| {
        let found = buffer.keys(*tick);
        assert!(found.is_missing || found.keys == *tick, "{tick}: {found:?}");
        !found.is_missing
    };
    (90..160).filter(has).collect()
}

#[test]
fn message_has_what_is_not_confirmed() {
    let mut log = log(100..=110);
    // A confirmation that comes late, and one of an input that was never made, change nothing.
    for (confirmed, first) in [(103, 104), (101, 104), (111, 104), (108, 109), (110, 110)] {
        log.on_confirmed(confirmed);
        assert_eq!(ticks_of_message(&log), (first..=110).collect::<Vec<_>>(), "{confirmed}");
    }
}

#[test]
fn what_has_arrived_can_be_asked_for_in_any_order() {
    let (mut buffer, mut buf) = (InputBuffer::new(0), [0; MAX_INPUT_BYTES]);
    for ticks in [100..=101, 104..=105] {
        let length = log(ticks).write(None, &mut buf);
        buffer.read(&buf[..length], 103.0).unwrap();
    }
    let arrived = |buffer: &InputBuffer| [105, 0, 100, 102, 106, 104, 101].map(|tick| buffer.arrived(tick));
    let expected = [Some(105), None, Some(100), None, None, Some(104), Some(101)];
    assert_eq!((arrived(&buffer), buffer.missed()), (expected, 0));
    // The keys that are held are those of the last tick that was played.
    assert_eq!([100, 101, 102].map(|tick| buffer.keys(tick).keys), [100, 101, 101]);
    assert_eq!((arrived(&buffer), buffer.missed()), (expected, 1));
}

#[test]
fn report_confirms_inputs_of_its_epoch_within_its_range() {
    for (epoch, margin_quarters, is_present, first) in
        [(0, 5, true, 106), (0, -5, true, 106), (1, 5, false, 100), (0, i8::MIN, true, 100), (0, i8::MAX, true, 100)]
    {
        let mut log = log(100..=110);
        let report = InputReport { newest: 105, margin_quarters, epoch };
        assert_eq!(log.on_report(report), is_present, "{report:?}");
        assert_eq!(ticks_of_message(&log), (first..=110).collect::<Vec<_>>(), "{report:?}");
    }
}

#[test]
fn inputs_before_a_gap_are_forgotten() {
    for length in [1, 5, 40] {
        let mut log = log(131 - length..=130);
        let kept = length.min(MAX_INPUTS as u32);
        assert_eq!((log.keys(131 - kept), log.keys(130 - kept)), (Some(131 - kept), None), "{length} inputs");
        log.push(140, 140, None);
        assert_eq!((ticks_of_message(&log), log.keys(130)), (alloc::vec![140], None), "{length} inputs");
    }
}

#[test]
fn sixteenth_jump_back_starts_the_first_epoch_again() {
    let (mut log, mut buf) = (log(100..=100), [0; MAX_INPUT_BYTES]);
    let first = log.write(None, &mut buf);
    for jump in 1..=32 {
        log.push(100, 0, None);
        log.push(99, 0, None);
        log.push(98, 0, None);
        // Two jumps back in each round; the first epoch takes no bits.
        let is_first = 2 * jump % 16 == 0;
        assert_eq!(log.write(None, &mut buf) == first, is_first, "after {jump} rounds");
        log.push(99, 0, None);
        log.on_confirmed(99);
        log.push(100, 0, None);
        log.on_confirmed(100);
    }
}

#[test]
fn buffer_that_is_too_short_gets_nothing() {
    let (log, mut buf) = (log(100..=110), [0; MAX_INPUT_BYTES]);
    assert_eq!(log.write(None, &mut buf[..MAX_INPUT_BYTES - 1]), 0);
    assert!(log.write(None, &mut buf) > 0);
    assert_eq!(InputLog::new().write(None, &mut buf), 0);
}

/// The server knows what the client showed for the newest 64 frames.
#[test]
fn shown_ticks_of_a_second_are_known() {
    let (mut log, mut buffer, mut buf) = (InputLog::new(), InputBuffer::new(0), [0; MAX_INPUT_BYTES]);
    for tick in 100..163 {
        log.push(tick, 0, Some(f64::from(tick) - 5.0 - f64::from(tick % 4)));
        let length = log.write(None, &mut buf);
        buffer.read(&buf[..length], f64::from(tick) - 2.0).unwrap();
    }
    for tick in 100..163 {
        assert_eq!(buffer.shown(tick), f64::from(tick) - 5.0 - f64::from(tick % 4), "tick {tick}");
    }
}

/// Sends the inputs of these ticks to a server, with how far behind the client shows the world.
fn send(log: &mut InputLog, buffer: &mut InputBuffer, ticks: core::ops::RangeInclusive<u32>, behind: Option<f64>) {
    let mut buf = [0; MAX_INPUT_BYTES];
    for tick in ticks {
        log.push(tick, tick, behind.map(|behind| f64::from(tick) - behind));
        let length = log.write(None, &mut buf);
        buffer.read(&buf[..length], 100.0).unwrap();
    }
}

#[test]
fn views_of_inputs_that_are_made_again_are_forgotten() {
    for (behind, shown) in [(Some(3.0), [94.0, 102.0, 104.0]), (None, [94.0, 95.0, 97.0])] {
        let (mut log, mut buffer) = (InputLog::new(), InputBuffer::new(0));
        send(&mut log, &mut buffer, 100..=104, Some(10.0));
        send(&mut log, &mut buffer, 105..=110, Some(20.0));
        // A jump back of the clock: the inputs from the tick 105 on are made again.
        send(&mut log, &mut buffer, 105..=105, behind);
        assert_eq!([104, 105, 107].map(|tick| buffer.shown(tick)), shown, "{behind:?}");
    }
}

#[test]
fn ticks_without_an_input_are_counted() {
    let (mut log, mut buffer) = (InputLog::new(), InputBuffer::new(0));
    assert!(buffer.keys(0).is_missing, "there is no input of the first tick");
    send(&mut log, &mut buffer, 101..=102, None);
    (100..=104).for_each(|tick| _ = buffer.keys(tick));
    assert_eq!(buffer.missed(), 4);
}
