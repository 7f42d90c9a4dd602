//! Samples of several objects with one id, at the ticks at which these are removed, and samples that come twice.

use crate::{ObjectId, PlayoutSamples, Pose, PoseSample, ShownBy, TickRate};

const RATE: TickRate = TickRate { per_second: 60, between_states: 3 };
const ID: ObjectId = ObjectId(0);
const OTHER: ObjectId = ObjectId(1);

/// Returns a sample at as many metres as its tick has.
fn sample(tick: u32) -> PoseSample {
    let pose = Pose { position: [tick as f32, 0.0, 0.0], ..Pose::ORIGIN };
    PoseSample { tick, pose, velocity: None, is_at_rest: false, teleports: 0 }
}

fn shown(samples: &PlayoutSamples, at: f64) -> Option<f32> {
    samples.shown(ID, at, 60).map(|(pose, _)| pose.position[0])
}

/// Returns samples of another object, so that the first tick of all is no exception.
fn samples() -> PlayoutSamples {
    let mut samples = PlayoutSamples::new(2, RATE);
    samples.add(OTHER, sample(3));
    samples
}

#[test]
fn late_samples_belong_to_the_object_that_had_the_id() {
    let mut samples = samples();
    samples.add(ID, sample(33));
    samples.remove(ID, 36);
    samples.add(ID, sample(30));
    samples.add(ID, sample(39));
    let ticks = [29.0, 30.0, 31.5, 37.0, 39.0];
    assert_eq!(ticks.map(|at| shown(&samples, at)), [None, Some(30.0), Some(31.5), None, Some(39.0)]);
    // One at the tick of the removal is of the next object, also when that is gone, too.
    samples.add(ID, sample(36));
    let ticks = [36.0, 37.5, 39.0];
    assert_eq!(ticks.map(|at| shown(&samples, at)), [Some(36.0), Some(37.5), Some(39.0)]);
    samples.remove(ID, 45);
    assert_eq!(ticks.map(|at| shown(&samples, at)), [Some(36.0), Some(37.5), Some(39.0)]);
}

#[test]
fn removed_object_does_not_move_to_where_the_next_one_is() {
    let mut samples = samples();
    samples.add(ID, sample(33));
    samples.remove(ID, 36);
    [39, 42, 45].into_iter().for_each(|tick| samples.add(ID, sample(tick)));
    samples.remove(ID, 45);
    assert_eq!([41.0, 44.0, 45.0].map(|at| shown(&samples, at)), [Some(41.0), Some(42.0), None]);
    assert_eq!(samples.newest(ID), Some(&sample(42)));
    // The removal of an earlier object is reported late.
    samples.remove(ID, 38);
    samples.add(ID, sample(48));
    assert_eq!(shown(&samples, 48.0), Some(48.0));
}

#[test]
fn sample_of_the_first_tick_of_all_counts_and_comes_once() {
    let mut samples = PlayoutSamples::new(1, RATE);
    assert_eq!(samples.newest(ID), None);
    samples.add(ID, sample(0));
    assert_eq!(samples.newest(ID), Some(&sample(0)));
    samples.add(ID, PoseSample { is_at_rest: true, ..sample(0) });
    assert_eq!(samples.newest(ID), Some(&sample(0)));
    samples.add(ID, sample(3));
    assert_eq!(samples.newest(ID), Some(&sample(3)));
    samples.add(ID, sample(6));
    assert_eq!(samples.shown(ID, 8.0, 6).map(|(pose, _)| pose.position[0]), Some(8.0), "it moves on");
    assert_eq!(samples.shown(ID, 6.0, 6).map(|(_, how)| how), Some(ShownBy::Samples));
}

#[test]
fn rate_without_ticks_between_states_has_samples() {
    let mut samples = PlayoutSamples::new(1, TickRate { per_second: 60, between_states: 0 });
    (0..40).for_each(|tick| samples.add(ID, sample(tick)));
    assert_eq!(samples.newest(ID), Some(&sample(39)));
}
