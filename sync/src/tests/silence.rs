//! Games in which nothing changes for a while: clients go on showing the world without a longer delay.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::{is_silent, pair, written};
use crate::{InputLog, InputReport, MAX_INPUT_BYTES, ObjectId, PlayoutClock, ReplicaChange, ResyncRequest, TickRate};

const RATE: TickRate = TickRate { per_second: 60, between_states: 3 };
const ID: ObjectId = ObjectId(1);

/// Runs a minute with a change each time after this number of states. Returns the delay of the timeline.
fn delay_with_a_change_each(states: u32) -> Duration {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    replicator.spawn(ID, cube).unwrap();
    let (mut clock, mut on_the_way) = (PlayoutClock::new(RATE), VecDeque::<(u64, Vec<u8>, u64)>::new());
    for millis in (0..60_000_u64).step_by(10) {
        if millis % 50 == 0 {
            let state = (millis / 50) as u32 + 1;
            if state.is_multiple_of(states) {
                let x = (state % 100) as f32 / 10.0;
                replicator.object(ID).unwrap().set_vector(0, [x, 0.0, 0.0]).unwrap();
            }
            replicator.commit(state * RATE.between_states).unwrap();
            if let Some((bytes, tag)) = written(&mut replicator, viewer, 200) {
                on_the_way.push_back((millis + 50, bytes, tag));
            }
        }
        while let Some((_, bytes, tag)) = on_the_way.pop_front_if(|(at, ..)| *at <= millis) {
            let header = replica.read(&bytes).unwrap();
            clock.on_message(header, Duration::from_millis(millis));
            replicator.on_acknowledged(viewer, tag);
        }
        clock.advance(Duration::from_millis(millis));
    }
    clock.delay()
}

#[test]
fn silence_does_not_count_as_loss() {
    for states in [1, 3, 8, 100] {
        let delay = delay_with_a_change_each(states);
        assert!(delay < Duration::from_millis(65), "{delay:?} with a change each {states} states");
    }
}

#[test]
fn each_commit_has_one_message_without_objects_at_most() {
    let (mut replicator, mut replica, viewer, _) = pair();
    assert_eq!(written(&mut replicator, viewer, 100), None, "there is no state yet");
    replicator.commit(7).unwrap();
    let (bytes, tag) = written(&mut replicator, viewer, 100).unwrap();
    assert_eq!((bytes.len(), written(&mut replicator, viewer, 100)), (6, None));
    assert_eq!(replica.read(&bytes).map(|header| (header.tick, header.report)), Ok((7, None)));
    replicator.on_acknowledged(viewer, tag);
    replicator.commit(8).unwrap();
    assert_eq!(written(&mut replicator, viewer, 3), None, "the header does not fit");
    assert_eq!(written(&mut replicator, viewer, 4).map(|(bytes, _)| bytes.len()), Some(4));
}

#[test]
fn report_is_in_the_next_message_and_in_no_other() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    replicator.spawn(ID, cube).unwrap();
    let cases = [(70_000, 70_004, -3, 0), (70_003, 69_990, 127, 15), (70_006, 40_000, -128, 0)];
    for (tick, newest, margin_quarters, epoch) in cases {
        let report = InputReport { newest, margin_quarters, epoch };
        // Epochs are counted modulo 16.
        replicator.set_report(viewer, Some(InputReport { epoch: epoch + 16, ..report }));
        replicator.commit(tick).unwrap();
        let (bytes, tag) = written(&mut replicator, viewer, 100).unwrap();
        assert_eq!(replica.read(&bytes).unwrap().report, Some(report));
        replicator.on_acknowledged(viewer, tag);
        replicator.commit(tick + 1).unwrap();
        let (bytes, _) = written(&mut replicator, viewer, 100).unwrap();
        assert_eq!(replica.read(&bytes).unwrap().report, None);
    }
}

/// The transport acknowledges a message that the replica refused, and the request gets lost for a while.
#[test]
fn request_is_repeated_until_everything_is_sent_again() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    let mut log = InputLog::new();
    replicator.spawn(ID, cube).unwrap();
    replicator.commit(1).unwrap();
    let (mut bytes, tag) = written(&mut replicator, viewer, 100).unwrap();
    bytes.truncate(9);
    replica.read(&bytes).unwrap_err();
    replicator.on_acknowledged(viewer, tag);
    let (mut inputs, mut resyncs) = (crate::InputBuffer::new(0), 0);
    for tick in 2..200 {
        replicator.commit(tick).unwrap();
        let (bytes, tag) = written(&mut replicator, viewer, 100).unwrap();
        if replica.read(&bytes).is_ok() {
            replicator.on_acknowledged(viewer, tag);
        }
        log.push(tick, 0, None);
        let mut buf = [0; MAX_INPUT_BYTES];
        let length = log.write(replica.resync_request(), &mut buf);
        if tick > 50 {
            let request = inputs.read(&buf[..length], f64::from(tick)).unwrap();
            resyncs += request.map_or(0, |request| u32::from(replicator.resync(viewer, request)));
        } else {
            assert!(replica.resync_request().is_some(), "tick {tick}");
        }
    }
    assert_eq!((resyncs, replica.resync_request()), (1, None));
    assert_eq!(replica.poll(), Some(ReplicaChange::Appeared { id: ID, kind: cube }));
    assert!(is_silent(&mut replicator, viewer, 100));
}

#[test]
fn acknowledgements_of_messages_before_a_resync_do_not_end_it() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    replicator.spawn(ID, cube).unwrap();
    replicator.commit(1).unwrap();
    let (bytes, tag) = written(&mut replicator, viewer, 100).unwrap();
    replica.read(&bytes[..9]).unwrap_err();
    assert!(replicator.resync(viewer, ResyncRequest(0)));
    replicator.on_acknowledged(viewer, tag);
    replicator.commit(2).unwrap();
    let (bytes, _) = written(&mut replicator, viewer, 100).unwrap();
    replica.read(&bytes).unwrap();
    assert_eq!((replica.resync_request(), replica.objects().count()), (None, 1));
}
