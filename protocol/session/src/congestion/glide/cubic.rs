//! A window that holds its own against TCP: CUBIC (RFC 9438), whose constants these are.

/// How steep the curve is, in packets per cubed second (RFC 9438, section 5).
const STEEPNESS: f64 = 0.4;
/// What is left of the window after a loss (RFC 9438, section 4.6).
const DECREASE: f64 = 0.7;
/// What is left of its memory when it had not been reached again (RFC 9438, section 4.7).
const FAST_CONVERGENCE: f64 = 0.85;
/// How fast TCP's older window would grow, in packets per window: 3 (1 - 0.7) / (1 + 0.7) (RFC 9438, section 4.3).
const RENO_GROWTH: f64 = 0.529;
/// The curve asks for no more than this multiple of the window (RFC 9438, section 4.4).
const MOST_GROWTH: f64 = 1.5;
/// Above its curve the window grows by this part of a packet for each window.
const LEAST_GROWTH: f64 = 0.01;
/// It holds at least so many packets.
const LEAST_PACKETS: f64 = 4.0;

/// The window, in bytes; times in seconds.
#[derive(Clone, Debug)]
pub(super) struct Window {
    bytes: f64,
    packet: f64,
    /// Packets that left before this belong to a loss that was answered.
    cut_at: f64,
    /// The window before the newest loss.
    before: f64,
    curve: Option<Curve>,
    /// It doubles each round trip, for no loss was met yet.
    slow_start: bool,
}

#[derive(Clone, Copy, Debug)]
struct Curve {
    since: f64,
    /// When it reaches the window before the loss.
    plateau: f64,
    reno: f64,
}

impl Window {
    pub(super) fn new(bytes: f64, packet: f64, now: f64) -> Self {
        let bytes = bytes.max(LEAST_PACKETS * packet);
        Self { bytes, packet, cut_at: now, before: bytes, curve: None, slow_start: false }
    }

    /// A window that doubles each round trip until a loss, as that of any new TCP (RFC 5681, section 3.1).
    pub(super) fn in_slow_start(bytes: f64, packet: f64, now: f64) -> Self {
        Self { slow_start: true, ..Self::new(bytes, packet, now) }
    }

    pub(super) fn bytes(&self) -> f64 {
        self.bytes
    }

    /// Packets that left after this are no part of a loss that was answered.
    pub(super) fn cut_at(&self) -> f64 {
        self.cut_at
    }

    /// Before the first loss it holds no more than so many bytes.
    pub(super) fn limit_slow_start(&mut self, most: f64) {
        if self.slow_start {
            self.bytes = self.bytes.min(most.max(LEAST_PACKETS * self.packet));
        }
    }

    /// So many bytes of a full window were acknowledged.
    pub(super) fn grow(&mut self, acked: f64, base_round_trip: f64, now: f64) {
        if self.slow_start {
            self.bytes += acked;
            return;
        }
        let mut curve = self.curve.unwrap_or_else(|| self.begin(now));
        let since_plateau = now - curve.since + base_round_trip - curve.plateau;
        let target = STEEPNESS * since_plateau * since_plateau * since_plateau * self.packet + self.before;
        curve.reno += RENO_GROWTH * self.packet * acked / self.bytes;
        let growth = if target > self.bytes {
            target.min(MOST_GROWTH * self.bytes) - self.bytes
        } else {
            LEAST_GROWTH * self.packet
        };
        self.bytes = (self.bytes + growth * acked / self.bytes).max(curve.reno);
        self.curve = Some(curve);
    }

    /// Packets of this window were lost.
    pub(super) fn cut(&mut self, now: f64) {
        self.before = if self.bytes < self.before { FAST_CONVERGENCE * self.bytes } else { self.bytes };
        self.bytes = (DECREASE * self.bytes).max(LEAST_PACKETS * self.packet);
        self.cut_at = now;
        self.curve = None;
        self.slow_start = false;
    }

    fn begin(&mut self, now: f64) -> Curve {
        let missing = (self.before - self.bytes).max(0.0) / self.packet;
        self.before = self.before.max(self.bytes);
        Curve { since: now, plateau: libm::cbrt(missing / STEEPNESS), reno: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full window each round trip of 50 ms.
    fn run(window: &mut Window, from: f64, seconds: f64) -> f64 {
        let mut now = from;
        while now < from + seconds {
            now += 0.05;
            window.grow(window.bytes(), 0.05, now);
        }
        now
    }

    #[test]
    fn after_a_loss_the_window_is_seven_tenths_and_grows_back_to_where_it_was() {
        let mut window = Window::new(200_000.0, 1200.0, 0.0);
        window.cut(0.0);
        assert!((window.bytes() - 140_000.0).abs() < 1.0);
        let plateau = libm::cbrt(50.0 / 0.4);
        run(&mut window, 0.0, plateau);
        assert!((window.bytes() / 200_000.0 - 1.0).abs() < 0.05, "{}", window.bytes());
        run(&mut window, plateau, 5.0);
        assert!(window.bytes() > 250_000.0, "{}", window.bytes());
    }

    #[test]
    fn it_never_shrinks_below_four_packets() {
        let mut window = Window::new(0.0, 1200.0, 0.0);
        for _ in 0..10 {
            window.cut(1.0);
        }
        assert!(window.bytes() >= 4800.0);
    }

    #[test]
    fn on_a_short_path_it_grows_as_older_tcp_would() {
        let mut window = Window::new(12_000.0, 1200.0, 0.0);
        window.cut(0.0);
        let before = window.bytes();
        for round in 1..=100 {
            window.grow(window.bytes(), 0.002, f64::from(round) * 0.002);
        }
        let packets = (window.bytes() - before) / 1200.0;
        assert!((40.0..60.0).contains(&packets), "{packets} packets in a hundred round trips");
    }
}
