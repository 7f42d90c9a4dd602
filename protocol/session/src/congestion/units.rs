//! The units of the congestion controller, so that a time is no number of bytes (Glide §2).

/// A time in seconds: a duration, or a moment since the start of the clock.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub(super) struct Seconds(pub(super) f64);

/// A number of bytes on the path: payload and every header.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub(super) struct Bytes(pub(super) f64);
