//! Message ids: 16 bits, which wrap, counted by each channel for itself.

/// The number of a message on its channel. After 65535 comes 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub(super) struct MessageId(pub(super) u16);

/// Ids that lie further ahead than this lie behind.
const HALF: u16 = 1 << 15;
/// How many ids make a span: a quarter of all.
const SPAN_BITS: u32 = 14;

impl MessageId {
    /// The id `count` behind this one.
    pub(super) const fn ahead(self, count: u16) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// How many ids one counts up from `base` to this one; `None` if it lies behind `base`.
    pub(super) const fn ahead_of(self, base: Self) -> Option<u16> {
        let distance = self.0.wrapping_sub(base.0);
        if distance < HALF { Some(distance) } else { None }
    }

    /// Which quarter of the ids this one is in.
    pub(super) const fn span(self) -> usize {
        (self.0 >> SPAN_BITS) as usize
    }

    /// Whether the id is the first of its quarter.
    pub(super) const fn begins_span(self) -> bool {
        self.0 & ((1 << SPAN_BITS) - 1) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_compared_around_the_wrap() {
        for (id, base, ahead) in [
            (0, 0, Some(0)),
            (5, 3, Some(2)),
            (3, 5, None),
            (0, 65_535, Some(1)),
            (65_535, 0, None),
            (32_767, 0, Some(32_767)),
            (32_768, 0, None),
            (32_766, 65_535, Some(32_767)),
        ] {
            assert_eq!(MessageId(id).ahead_of(MessageId(base)), ahead, "{id} and {base}");
        }
    }
}
