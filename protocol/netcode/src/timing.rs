//! The intervals of netcode 1.02, and the policy for the timeout in a token.

use core::time::Duration;

/// The interval of requests, responses and idle keep-alives: 10 per second (§1.2).
pub const SEND_INTERVAL: Duration = Duration::from_millis(100);

/// Disconnect packets sent in one burst, because none is acknowledged (§1.2).
pub const DISCONNECT_PACKETS: u8 = 10;

/// The shortest timeout that is accepted from a token.
pub const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest timeout that is accepted from a token. A longer one would keep the slots of clients that are gone.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// The policy for the timeout that a token requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimeoutPolicy {
    /// Clamps the timeout to 1..=60 s. A negative value, which requests none, becomes 60 s.
    #[default]
    Clamped,
    /// Clamps the timeout like `Clamped`, but a negative value disables it. Use it for debugger breakpoints only: on a
    /// public server every client could keep its slot forever.
    Development,
}

impl TimeoutPolicy {
    /// Returns the silence after which a connection ends, or `None` if it never does. `seconds` is the token's field.
    #[must_use]
    pub(crate) fn apply(self, seconds: i32) -> Option<Duration> {
        match u64::try_from(seconds) {
            Ok(seconds) => Some(Duration::from_secs(seconds).clamp(MIN_TIMEOUT, MAX_TIMEOUT)),
            Err(_) if self == Self::Development => None,
            // A client must not be able to keep its slot forever, whatever its token requests.
            Err(_) => Some(MAX_TIMEOUT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_timeout_is_clamped_unless_development_disables_it() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (requested, clamped, development) in [
            (i32::MIN, seconds(60), None),
            (-1, seconds(60), None),
            (0, seconds(1), seconds(1)),
            (1, seconds(1), seconds(1)),
            (5, seconds(5), seconds(5)),
            (60, seconds(60), seconds(60)),
            (i32::MAX, seconds(60), seconds(60)),
        ] {
            assert_eq!(TimeoutPolicy::Clamped.apply(requested), clamped, "{requested}");
            assert_eq!(TimeoutPolicy::Development.apply(requested), development, "{requested}");
        }
    }
}
