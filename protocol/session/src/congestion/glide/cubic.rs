//! A window that gets its share beside TCP: CUBIC (RFC 9438), with its constants (Glide §9.2).

use super::super::units::{Bytes, Seconds};

/// The steepness of the curve, in packets per cubed second (RFC 9438, section 5).
const STEEPNESS: f64 = 0.4;
/// The factor of the window after a loss (RFC 9438, section 4.6).
const DECREASE: f64 = 0.7;
/// The factor of the remembered window if it was not reached again (RFC 9438, section 4.7).
const FAST_CONVERGENCE: f64 = 0.85;
/// The growth of a Reno window, in packets per window: 3 (1 - 0.7) / (1 + 0.7) (RFC 9438, section 4.3).
const RENO_GROWTH: f64 = 0.529;
/// The maximum of the curve as a multiple of the window (RFC 9438, section 4.4).
const MAX_GROWTH: f64 = 1.5;
/// Growth above the curve, in packets per window.
const MIN_GROWTH: f64 = 0.01;
/// The minimum window, in packets.
const MIN_PACKETS: f64 = 4.0;

/// The window.
#[derive(Clone, Debug)]
pub(super) struct CubicWindow {
    bytes: Bytes,
    packet: Bytes,
    /// Packets sent before this belong to a loss that was processed already.
    cut_at: Seconds,
    /// The window before the newest loss.
    before: Bytes,
    curve: Option<CubicCurve>,
    /// Slow start: the window doubles each round trip until the first loss.
    slow_start: bool,
}

#[derive(Clone, Copy, Debug)]
struct CubicCurve {
    since: Seconds,
    /// When the curve reaches the window before the loss.
    plateau: Seconds,
    reno: Bytes,
}

impl CubicWindow {
    pub(super) fn new(bytes: Bytes, packet: Bytes, now: Seconds) -> Self {
        let bytes = bytes.max(MIN_PACKETS * packet);
        Self { bytes, packet, cut_at: now, before: bytes, curve: None, slow_start: false }
    }

    /// Creates a window that doubles each round trip until a loss, like a new TCP connection (RFC 5681, section 3.1).
    pub(super) fn in_slow_start(bytes: Bytes, packet: Bytes, now: Seconds) -> Self {
        Self { slow_start: true, ..Self::new(bytes, packet, now) }
    }

    pub(super) fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Returns when the window was cut last. Losses of packets sent before belong to that cut.
    pub(super) fn cut_at(&self) -> Seconds {
        self.cut_at
    }

    /// Limits the window before the first loss.
    pub(super) fn limit_slow_start(&mut self, max: Bytes) {
        if self.slow_start {
            self.bytes = self.bytes.min(max.max(MIN_PACKETS * self.packet));
        }
    }

    /// Grows the window for acknowledged bytes of a full window.
    pub(super) fn grow(&mut self, acked: Bytes, base_round_trip: Seconds, now: Seconds) {
        if self.slow_start {
            // Each acknowledged byte adds one byte, which doubles the window per round trip.
            self.bytes += acked;
            return;
        }
        let mut curve = self.curve.unwrap_or_else(|| self.begin(now));
        // RFC 9438, section 4.2: the target is the curve one round trip ahead.
        let Seconds(since_plateau) = now - curve.since + base_round_trip - curve.plateau;
        let target = STEEPNESS * since_plateau * since_plateau * since_plateau * self.packet + self.before;
        // A short path gains more from Reno's growth than from the curve (RFC 9438, section 4.3).
        curve.reno += (RENO_GROWTH * self.packet).times(acked, self.bytes);
        // The curve is cubic around the plateau: fast far from the old maximum, flat near it.
        let growth = if target > self.bytes {
            target.min(MAX_GROWTH * self.bytes) - self.bytes
        } else {
            MIN_GROWTH * self.packet
        };
        self.bytes = (self.bytes + growth.times(acked, self.bytes)).max(curve.reno);
        self.curve = Some(curve);
    }

    /// Cuts the window after a loss.
    pub(super) fn cut(&mut self, now: Seconds) {
        // The window did not reach its old maximum, so the capacity has shrunk: remember less.
        self.before = if self.bytes < self.before { FAST_CONVERGENCE * self.bytes } else { self.bytes };
        self.bytes = (DECREASE * self.bytes).max(MIN_PACKETS * self.packet);
        self.cut_at = now;
        self.curve = None;
        self.slow_start = false;
    }

    fn begin(&mut self, now: Seconds) -> CubicCurve {
        // K of RFC 9438, section 4.2: the time until the curve reaches the former window.
        let missing = (self.before - self.bytes).max(Bytes(0.0)) / self.packet;
        self.before = self.before.max(self.bytes);
        CubicCurve { since: now, plateau: Seconds(libm::cbrt(missing / STEEPNESS)), reno: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full window each round trip of 50 ms.
    fn run(window: &mut CubicWindow, from: f64, seconds: f64) -> f64 {
        let mut now = from;
        while now < from + seconds {
            now += 0.05;
            window.grow(window.bytes(), Seconds(0.05), Seconds(now));
        }
        now
    }

    #[test]
    fn window_regrows_to_its_size_before_a_loss() {
        let mut window = CubicWindow::new(Bytes(200_000.0), Bytes(1200.0), Seconds(0.0));
        window.cut(Seconds(0.0));
        assert!((window.bytes().0 - 140_000.0).abs() < 1.0);
        let plateau = libm::cbrt(50.0 / 0.4);
        run(&mut window, 0.0, plateau);
        assert!((window.bytes().0 / 200_000.0 - 1.0).abs() < 0.05, "{:?}", window.bytes());
        run(&mut window, plateau, 5.0);
        assert!(window.bytes() > Bytes(250_000.0), "{:?}", window.bytes());
    }

    #[test]
    fn window_keeps_four_packets() {
        let mut window = CubicWindow::new(Bytes(0.0), Bytes(1200.0), Seconds(0.0));
        for _ in 0..10 {
            window.cut(Seconds(1.0));
        }
        assert!(window.bytes() >= Bytes(4800.0));
    }

    #[test]
    fn window_grows_like_reno_on_a_short_path() {
        let mut window = CubicWindow::new(Bytes(12_000.0), Bytes(1200.0), Seconds(0.0));
        window.cut(Seconds(0.0));
        let before = window.bytes();
        for round in 1..=100 {
            window.grow(window.bytes(), Seconds(0.002), Seconds(f64::from(round) * 0.002));
        }
        let packets = (window.bytes() - before) / Bytes(1200.0);
        assert!((40.0..60.0).contains(&packets), "{packets} packets in a hundred round trips");
    }
}
