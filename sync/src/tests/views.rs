//! Lag compensation at any number of frames and ticks in a second: the server finds what the client showed.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::{InputBuffer, InputLog, MAX_INPUT_BYTES};

/// How far the client shows the past, and how far its inputs are ahead of the server, in seconds.
const BEHIND: f64 = 0.11;
const AHEAD: f64 = 0.06;

/// Returns how wrong the shown ticks of 9 s are, in ticks: those of which a message arrived, and all others.
fn errors(frames: u32, ticks: u32, lost_percent: u32) -> (Vec<f64>, Vec<f64>) {
    let (mut log, mut buffer, mut truth) = (InputLog::new(), InputBuffer::new(0), BTreeMap::new());
    let (mut random, mut made, mut played) = (1_u32, 0, 0);
    let (mut of_messages, mut others) = (Vec::new(), Vec::new());
    for frame in 1..10 * frames {
        let now = f64::from(frame) / f64::from(frames) + 1.0;
        let shown = (now - BEHIND) * f64::from(ticks);
        let newest = ((now + AHEAD) * f64::from(ticks)) as u32;
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let arrives = (random >> 8) % 100 >= lost_percent;
        for tick in made.max(newest - 8) + 1..=newest {
            log.push(tick, 1, Some(shown));
            truth.insert(tick, (shown, false));
        }
        made = newest;
        let mut buf = [0; MAX_INPUT_BYTES];
        let length = log.write(None, &mut buf);
        if arrives {
            buffer.read(&buf[..length], now * f64::from(ticks)).unwrap();
            // The message has all inputs of the frame of its newest one.
            let frame = truth.get(&newest).map(|(shown, _)| *shown);
            let of_frame = truth.values_mut().filter(|(shown, _)| Some(*shown) == frame);
            of_frame.for_each(|(_, has_message)| *has_message = true);
        }
        for tick in played + 1..=(now * f64::from(ticks)) as u32 {
            // The first frame makes several inputs.
            if let Some((shown, has_message)) = truth.get(&tick).filter(|_| tick > 2 * ticks) {
                let errors = if *has_message { &mut of_messages } else { &mut others };
                errors.push((buffer.shown(tick) - shown).abs());
            }
            played = tick;
        }
    }
    (of_messages, others)
}

fn worst(errors: &[f64]) -> f64 {
    errors.iter().copied().fold(0.0, f64::max)
}

#[test]
fn server_finds_what_a_client_showed_at_any_frame_rate() {
    for (frames, ticks) in [(144, 60), (60, 60), (60, 20), (60, 30), (240, 20), (30, 60), (60, 128), (20, 60)] {
        for lost in [0, 5, 30] {
            let (of_messages, others) = errors(frames, ticks, lost);
            assert!(of_messages.len() as u32 > 5 * ticks, "{} of {ticks} ticks/s", of_messages.len());
            // A message has 64 parts of a tick.
            assert!(worst(&of_messages) <= 0.5 / 64.0 + 1e-9, "{frames} frames/s, {ticks} ticks/s, {lost} % lost");
            // The input of a tick is made in the first frame after its start.
            let frame = (f64::from(ticks) / f64::from(frames)).ceil();
            assert!(worst(&others) <= frame + 0.02, "{frames}, {ticks}, {lost} % lost: {}", worst(&others));
        }
    }
}
