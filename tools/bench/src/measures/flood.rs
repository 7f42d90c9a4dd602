//! Junk beside one player, in real time: how many of its packets are answered, how long it hears nothing, and what that
//! costs.

use std::io;
use std::net::Ipv4Addr;
use std::sync::mpsc::TryRecvError;
use std::thread;
use std::time::{Duration, Instant};

use crate::arena::{Arena, Corner, Effort, Rig};
use crate::contestant::{Game, PAYLOAD_BYTES};
use crate::crowd::TICK;
use crate::measures::{no_such_thing, row};
use crate::row::{Against, Limit, Role, Row};
use crate::{cpu, stage};

/// Datagrams of junk in a second.
const RATE: u64 = 100_000;
/// Different datagrams of junk. One of 32 looks like a payload packet, passes the kernel filter and wakes the server: of a
/// few datagrams it would be chance how many do.
const KINDS_OF_JUNK: usize = 2048;
/// The driver sends no more than this without looking at its player.
const MOST_AT_ONCE: u64 = 400;
/// After the last packet its answer has this long.
const AFTERWARDS: Duration = Duration::from_millis(100);
const STRANGERS: u32 = u32::from_be_bytes([127, 64, 0, 1]);

/// What the player saw.
struct Seen {
    sent: u64,
    heard: u64,
    gap: Duration,
    junk: u64,
}

impl Seen {
    fn share(&self) -> f64 {
        100.0 * self.heard as f64 / self.sent.max(1) as f64
    }
}

/// Plays for some time and answers the share that was heard in percent, the longest gap in milliseconds, and the server's
/// share of its core in percent.
fn flood(corner: &mut Corner, time: Duration) -> io::Result<[f64; 3]> {
    if !corner.contestant.is_netcode() || corner.contestant.role == Role::Channels {
        // It would answer junk, too; or it is nothing else than another column.
        return Err(no_such_thing());
    }
    let base = corner.crowd.now();
    let whole = time + AFTERWARDS;
    let server = corner.stage.begin(move |server| {
        let (start, cpu) = (Instant::now(), cpu::thread_time());
        while start.elapsed() < whole {
            server.turn(Game::Echo, base + start.elapsed());
            server.rest();
        }
        cpu::thread_time().saturating_sub(cpu).as_secs_f64() / start.elapsed().as_secs_f64()
    })?;
    let seen = drive(corner, base, time)?;
    let load = loop {
        match server.try_recv() {
            Ok(load) => break load,
            Err(TryRecvError::Empty) => thread::sleep(Duration::from_millis(1)),
            Err(TryRecvError::Disconnected) => return Err(stage::Ended.into()),
        }
    };
    if seen.junk * 10 < RATE * time.as_millis() as u64 / 1000 * 9 {
        return Err(io::Error::other("the driver could not send so much junk"));
    }
    Ok([seen.share(), seen.gap.as_secs_f64() * 1000.0, load * 100.0])
}

fn drive(corner: &mut Corner, base: Duration, time: Duration) -> io::Result<Seen> {
    let mut junk = vec![0; KINDS_OF_JUNK * PAYLOAD_BYTES];
    corner.crowd.fill(&mut junk);
    let start = Instant::now();
    let mut seen = Seen { sent: 0, heard: 0, gap: Duration::ZERO, junk: 0 };
    let (mut last, mut next) = (Duration::ZERO, Duration::ZERO);
    loop {
        let elapsed = start.elapsed();
        if elapsed >= time + AFTERWARDS {
            break;
        }
        corner.crowd.pass((base + elapsed).saturating_sub(corner.crowd.now()));
        if elapsed < time && elapsed >= next {
            seen.sent += corner.crowd.speak(0..1, &[7; PAYLOAD_BYTES], 1)?;
            next += TICK;
        }
        let heard = corner.crowd.listen(0..1);
        if heard > 0 {
            seen.heard += heard;
            seen.gap = seen.gap.max(elapsed - last);
            last = elapsed;
        }
        let due = (RATE * elapsed.min(time).as_micros() as u64 / 1_000_000).saturating_sub(seen.junk);
        for _ in 0..due.min(MOST_AT_ONCE) {
            let datagram = junk.chunks(PAYLOAD_BYTES).nth(seen.junk as usize % KINDS_OF_JUNK).unwrap_or_default();
            let from = Ipv4Addr::from(STRANGERS + (seen.junk % 60_000) as u32);
            corner.crowd.forge(0, from, datagram)?;
            seen.junk += 1;
        }
        if due == 0 {
            thread::sleep(Duration::from_micros(200));
        }
    }
    seen.gap = seen.gap.max(time.saturating_sub(last));
    Ok(seen)
}

/// Three rows.
#[must_use]
pub fn measure(rig: &Rig) -> [Row; 3] {
    let time = Duration::from_millis(match rig.effort {
        Effort::Smoke => 300,
        Effort::Quick => 500,
        Effort::Full => 2000,
    });
    let mut arena = Arena::full(rig, 1);
    let [share, gap, load] = arena.play(|corner| flood(corner, time));
    let what = "junk, 100,000/s, beside a client at 60 Hz";
    let mut share = row(format!("{what}: its packets answered"), "%", share);
    share.more_is_better = true;
    [
        share.judged(Against::Itself, Limit::AtLeast(95.0)),
        row(format!("{what}: longest gap"), "ms", gap).judged(Against::Itself, Limit::AtMost(100.0)),
        row(format!("{what}: CPU"), "% of a core", load),
    ]
}
