//! Conditions of paths that several tests use.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use slipgate_sim::{Conditions, Loss, Order, Reordering, Share};

/// The maximum additional latency of a reordered datagram.
const MAX_HOLD: Duration = Duration::from_millis(500);

/// Returns the random loss of this share of datagrams, in percent.
#[must_use]
pub fn loss(percent: f64) -> Loss {
    Loss::Random(Share::percent(percent))
}

/// Returns the reordering of this share of datagrams, in percent: each is delayed by up to half a second.
#[must_use]
pub fn reordering(percent: f64) -> Reordering {
    Reordering { share: Share::percent(percent), longest: MAX_HOLD }
}

/// Returns conditions that lose every datagram.
#[must_use]
pub fn cut() -> Conditions {
    Conditions { loss: Loss::Random(Share::ALL), ..Conditions::perfect() }
}

/// Returns random conditions, from good to bad.
#[must_use]
pub fn random(rng: &mut StdRng) -> Conditions {
    Conditions {
        latency: Duration::from_millis(rng.random_range(0..150)),
        jitter: Duration::from_millis(rng.random_range(0..80)),
        order: Order::Free,
        loss: loss(rng.random_range(0.0..25.0)),
        duplication: Share::percent(rng.random_range(0.0..15.0)),
        reordering: reordering(rng.random_range(0.0..30.0)),
        ..Conditions::perfect()
    }
}
