//! The times of netcode 1.02, and what we make of the time-out in a token.

use core::time::Duration;

/// Requests, responses and idle keep-alives go out ten times a second (§1.2).
pub const SEND_INTERVAL: Duration = Duration::from_millis(100);

/// Disconnects sent in one go, because none is acknowledged (§1.2).
pub const DISCONNECT_PACKETS: u8 = 10;

/// The shortest time-out that we accept from a token.
pub const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest time-out that we accept from a token: longer ones keep the slots of players who are gone.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// What is done with the time-out that a token asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimeoutPolicy {
    /// Clamp it to 1..=60 s. A negative one, which asks for none, gets 60 s.
    #[default]
    Clamped,
    /// As `Clamped`, but a negative one switches time-outs off: for a debugger's breakpoints, never for the public.
    Development,
}

impl TimeoutPolicy {
    /// The silence that ends a connection, or `None` if none does.
    #[must_use]
    pub fn apply(self, seconds: i32) -> Option<Duration> {
        match u64::try_from(seconds) {
            Ok(seconds) => Some(Duration::from_secs(seconds).clamp(MIN_TIMEOUT, MAX_TIMEOUT)),
            Err(_) if self == Self::Development => None,
            Err(_) => Some(MAX_TIMEOUT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tokens_time_out_is_clamped_unless_development_allows_none() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (asked, clamped, development) in [
            (i32::MIN, seconds(60), None),
            (-1, seconds(60), None),
            (0, seconds(1), seconds(1)),
            (1, seconds(1), seconds(1)),
            (5, seconds(5), seconds(5)),
            (60, seconds(60), seconds(60)),
            (i32::MAX, seconds(60), seconds(60)),
        ] {
            assert_eq!(TimeoutPolicy::Clamped.apply(asked), clamped, "{asked}");
            assert_eq!(TimeoutPolicy::Development.apply(asked), development, "{asked}");
        }
    }
}
