//! The order in which slices leave: at random within a span. It must not show which packet numbers were skipped.
//!
//! In ascending order, the slices of two packets around a missing number join if it was skipped, and leave a hole if a
//! packet was lost. A peer could then acknowledge lost packets alone.

/// The frames behind the first slice that waits of which one is drawn.
const SPAN: u64 = 32;

/// Draws how far ahead each frame of slices begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SliceOrder {
    secret: u64,
    draws: u64,
}

impl SliceOrder {
    /// Creates the order of a channel, from a number that the peer does not know.
    pub(crate) const fn new(secret: u64) -> Self {
        Self { secret, draws: 0 }
    }

    /// Returns how many frames behind the first slice that waits the next one begins.
    pub(super) const fn draw(&mut self) -> u32 {
        self.draws += 1;
        // SplitMix64. The peer sees at most five bits of each draw.
        let state = self.secret.wrapping_add(self.draws.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % SPAN) as u32
    }
}
