//! Statistics as the reference implementation of reliable 1.0 measures them (§2.5), from what an endpoint sends and
//! receives: loss and bandwidths over the older half of its windows, smoothed each tick, and the round-trip time of
//! every acknowledged packet. The trace vectors compare with them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_session::wire::reliable::{
    Fragment, FragmentLimits, MAX_HEADER_BYTES, ReliableHeader, Sequence, is_fragment,
};

/// Two values nearer to each other than this, in per cent, kbit/s or ms, count as equal (§2.5).
const SAME: f64 = 0.00001;

/// The settings of the reference that its statistics depend on.
#[derive(Clone, Copy, Debug)]
pub struct ReferenceSettings {
    /// Share of the way that the round-trip time moves with each sample.
    pub rtt_smoothing: f64,
    /// Share of the way that the loss moves with each tick.
    pub loss_smoothing: f64,
    /// Share of the way that the bandwidths move with each tick.
    pub bandwidth_smoothing: f64,
    /// Packets in the window of sent packets.
    pub sent_window: u16,
    /// Packets in the window of received packets.
    pub received_window: u16,
    /// Samples of the round-trip time that minimum, maximum and jitter are taken from.
    pub rtt_history: u16,
    /// Bytes that each packet costs below this layer.
    pub lower_layer_bytes: u32,
    /// The limits of fragments.
    pub fragments: FragmentLimits,
}

/// A value that moves towards its target with each step; without a target it stays where it is.
#[derive(Clone, Copy, Default)]
struct Smoothed {
    value: f64,
    target: Option<f64>,
}

impl Smoothed {
    fn step(&mut self, factor: f64) {
        let Some(target) = self.target else { return };
        let off = target - self.value;
        self.value = if off.abs() > SAME { self.value + off * factor } else { target };
    }
}

#[derive(Clone, Copy)]
struct SentRecord {
    bytes: u32,
    at: Instant,
    is_acked: bool,
}

/// The statistics of one endpoint, in the reference's units: milliseconds, per cent and kbit/s.
pub struct ReferenceStatistics {
    settings: ReferenceSettings,
    /// Packets sent in all; the number of the next one, without the wrap.
    sent_total: u64,
    sent: VecDeque<SentRecord>,
    /// One more than the newest packet received, without the wrap.
    received_next: Sequence,
    received: BTreeMap<u16, (u32, Instant)>,
    /// Bytes of the packet header in the first fragment, by packet.
    embedded_headers: BTreeMap<u16, usize>,
    rtt: f64,
    rtt_history: VecDeque<f64>,
    loss: Smoothed,
    bandwidths: [Smoothed; 3],
}

impl ReferenceStatistics {
    /// The statistics of an endpoint that has neither sent nor received anything.
    #[must_use]
    pub fn new(settings: ReferenceSettings) -> Self {
        Self {
            settings,
            sent_total: 0,
            sent: VecDeque::new(),
            received_next: Sequence(0),
            received: BTreeMap::new(),
            embedded_headers: BTreeMap::new(),
            rtt: 0.0,
            rtt_history: VecDeque::new(),
            loss: Smoothed::default(),
            bandwidths: [Smoothed::default(); 3],
        }
    }

    /// Records a packet that was sent.
    pub fn on_sent(&mut self, payload_bytes: usize, now: Instant) {
        if self.sent.len() == usize::from(self.settings.sent_window) {
            self.sent.pop_front();
        }
        let bytes = payload_bytes as u32 + self.settings.lower_layer_bytes;
        self.sent.push_back(SentRecord { bytes, at: now, is_acked: false });
        self.sent_total += 1;
    }

    /// Records the first acknowledgement of a packet.
    pub fn on_acked(&mut self, sequence: Sequence, rtt: Duration) {
        let back = usize::from(Sequence(self.sent_total as u16) - sequence);
        if let Some(index) = self.sent.len().checked_sub(back) {
            self.sent[index].is_acked = true;
        }
        let millis = rtt.as_secs_f64() * 1000.0;
        let off = millis - self.rtt;
        // An average of zero means that there is none (§2.5).
        let is_start = self.rtt <= 0.0 || off.abs() < SAME;
        self.rtt = if is_start { millis } else { self.rtt + off * self.settings.rtt_smoothing };
        if self.rtt_history.len() == usize::from(self.settings.rtt_history) {
            self.rtt_history.pop_front();
        }
        self.rtt_history.push_back(millis);
    }

    /// Records a datagram that the endpoint accepted, and the packet that it completed, if it did: its number and the
    /// bytes of its payload.
    pub fn on_datagram(&mut self, datagram: &[u8], completed: Option<(Sequence, usize)>, now: Instant) {
        let mut bytes = datagram.len();
        if is_fragment(datagram) {
            let Ok(fragment) = Fragment::parse(datagram, self.settings.fragments) else { return };
            // The window moves with the first fragment, not only with the complete packet.
            self.advance(fragment.sequence);
            if let Some(header) = &fragment.header {
                self.embedded_headers.insert(fragment.sequence.0, emitted_bytes(header));
            }
            if let Some((sequence, payload_bytes)) = completed {
                bytes = self.embedded_headers.remove(&sequence.0).unwrap_or(0) + payload_bytes;
            }
        }
        let Some((sequence, _)) = completed else { return };
        self.advance(sequence);
        self.received.insert(sequence.0, (bytes as u32 + self.settings.lower_layer_bytes, now));
    }

    /// Measures the windows, and moves every value one step.
    pub fn tick(&mut self) {
        if self.sent_total > 0 {
            let half = self.older_half_sent();
            let acked: Vec<&SentRecord> = half.iter().filter(|packet| packet.is_acked).collect();
            let lost = (half.len() - acked.len()) as f64;
            self.loss.target = Some(if half.is_empty() { 0.0 } else { 100.0 * lost / half.len() as f64 });
            self.bandwidths[0].target = kilobits_per_second(half.iter().map(|packet| (packet.bytes, packet.at)));
            self.bandwidths[2].target = kilobits_per_second(acked.iter().map(|packet| (packet.bytes, packet.at)));
        }
        if self.received_next != Sequence(0) || !self.received.is_empty() {
            let oldest = self.received_next - self.settings.received_window;
            let half =
                (0..self.settings.received_window / 2).filter_map(|ahead| self.received.get(&(oldest + ahead).0));
            self.bandwidths[1].target = kilobits_per_second(half.copied());
        }
        self.loss.step(self.settings.loss_smoothing);
        for bandwidth in &mut self.bandwidths {
            bandwidth.step(self.settings.bandwidth_smoothing);
        }
    }

    /// The smoothed round-trip time, in milliseconds; zero before the first sample.
    #[must_use]
    pub const fn rtt(&self) -> f64 {
        self.rtt
    }

    /// All other values under the names of the vectors.
    #[must_use]
    pub fn values(&self) -> [(&'static str, f64); 10] {
        let samples = &self.rtt_history;
        let count = samples.len().max(1) as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let min = samples.iter().copied().reduce(f64::min).unwrap_or(0.0);
        let max = samples.iter().copied().reduce(f64::max).unwrap_or(0.0);
        let variance = samples.iter().map(|sample| (sample - mean) * (sample - mean)).sum::<f64>() / count;
        let [sent, received, acked] = self.bandwidths;
        [
            ("rtt_min_ms", min),
            ("rtt_max_ms", max),
            ("rtt_avg_ms", mean),
            ("jitter_avg_vs_min_rtt_ms", mean - min),
            ("jitter_max_vs_min_rtt_ms", max - min),
            ("jitter_stddev_vs_avg_rtt_ms", variance.sqrt()),
            ("packet_loss_percent", self.loss.value),
            ("sent_bandwidth_kbps", sent.value),
            ("received_bandwidth_kbps", received.value),
            ("acked_bandwidth_kbps", acked.value),
        ]
    }

    fn older_half_sent(&self) -> Vec<SentRecord> {
        let newer_half = usize::from(self.settings.sent_window / 2);
        self.sent.iter().take(self.sent.len().saturating_sub(newer_half)).copied().collect()
    }

    fn advance(&mut self, sequence: Sequence) {
        let next = sequence + 1;
        if next.is_newer_than(self.received_next) {
            let window = self.settings.received_window;
            self.received_next = next;
            self.received.retain(|number, _| (1..=window).contains(&(next - Sequence(*number))));
        }
    }
}

/// The bandwidth of packets, unless all have the same time.
fn kilobits_per_second(packets: impl Iterator<Item = (u32, Instant)>) -> Option<f64> {
    let (bytes, earliest, latest) = packets
        .fold((0_u64, Instant::NEVER, Instant::default()), |(sum, earliest, latest), (bytes, at)| {
            (sum + u64::from(bytes), earliest.min(at), latest.max(at))
        });
    let seconds = latest.since(earliest).as_secs_f64();
    (seconds > 0.0).then(|| bytes as f64 * 8.0 / 1000.0 / seconds)
}

fn emitted_bytes(header: &ReliableHeader) -> usize {
    let mut buf = [0; MAX_HEADER_BYTES];
    let mut writer = Writer::new(&mut buf);
    header.emit(&mut writer);
    writer.written().expect("the buffer has room for every header")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_half_is_what_lies_behind_half_a_window() {
        let mut statistics = ReferenceStatistics::new(ReferenceSettings {
            rtt_smoothing: 0.0025,
            loss_smoothing: 0.1,
            bandwidth_smoothing: 0.1,
            sent_window: 16,
            received_window: 16,
            rtt_history: 16,
            lower_layer_bytes: 0,
            fragments: FragmentLimits { max_fragments: 16, fragment_bytes: 1024 },
        });
        for total in 0..100_u64 {
            let expected: Vec<u64> = (total.saturating_sub(16)..total.saturating_sub(8)).collect();
            let half: Vec<u64> = statistics.older_half_sent().iter().map(|packet| packet.bytes.into()).collect();
            assert_eq!(half, expected, "{total} sent");
            statistics.on_sent(total as usize, Instant::from_start(Duration::from_millis(total)));
        }
    }
}
