//! A fingerprint of all events, to verify that a seed repeats a run.

use slipgate_netcode::time::Instant;

/// The fingerprint of a run: 64-bit FNV-1a (draft-eastlake-fnv) over every event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trace(u64);

impl Default for Trace {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Trace {
    /// Adds an event.
    pub fn note(&mut self, what: u8, flow: usize, packet: u16, now: Instant) {
        let mut note = |bytes: &[u8]| {
            for byte in bytes {
                self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
            }
        };
        note(&[what, flow as u8]);
        note(&packet.to_le_bytes());
        note(&(now.since_start().as_nanos() as u64).to_le_bytes());
    }

    /// Returns the fingerprint.
    #[must_use]
    pub const fn fingerprint(self) -> u64 {
        self.0
    }
}
