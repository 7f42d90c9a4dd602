//! Value types of the conditioner's flags. Each parser refuses ambiguous values.

use std::str::FromStr;
use std::time::Duration;

use slipgate_cli::values::Span;
use slipgate_sim::{Buffer, Order, Rate, Rebinding};

/// The longest delay that a flag accepts.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// A delay: `40ms` or `1.5s`. A unit is required, because a bare number could mean seconds or milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Delay(pub(super) Duration);

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let has_unit = text == "0" || text.ends_with(|last: char| last.is_ascii_alphabetic());
        let span = Some(text).filter(|_| has_unit).and_then(|text| text.parse::<Span>().ok());
        let delay = span.filter(|span| span.0 <= MAX_DELAY).map(|span| Self(span.0));
        delay.ok_or_else(|| "a delay is written as 40ms or 1.5s, with its unit, and is at most 60s".to_owned())
    }
}

/// A range of delays: `50ms..250ms`, or `100ms` for a constant delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Delays {
    pub(super) shortest: Duration,
    pub(super) longest: Duration,
}

impl FromStr for Delays {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (shortest, longest) = text.split_once("..").unwrap_or((text, text));
        let (Delay(shortest), Delay(longest)) = (shortest.parse()?, longest.parse()?);
        if shortest > longest {
            return Err("a range starts with the shorter delay, as in 50ms..250ms".to_owned());
        }
        Ok(Self { shortest, longest })
    }
}

/// The average number of datagrams in a burst of losses: `1` to `1000000`, also fractions such as `2.5`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct BurstLength(pub(super) f64);

impl FromStr for BurstLength {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let length = text.parse().ok().filter(|length| (1.0..=1e6).contains(length));
        length.map(Self).ok_or_else(|| "a burst has 1 to 1000000 datagrams on average".to_owned())
    }
}

/// The size of a link's buffer: `64KiB`, `100kB`, `3000B`, or a time such as `250ms`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BufferSize(pub(super) Buffer);

/// The largest buffer in bytes, which exceeds the proxy's own bound for a client.
const MAX_BUFFER_BYTES: usize = 64 << 20;

impl FromStr for BufferSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("KiB", 1024), ("MiB", 1024 * 1024), ("kB", 1000), ("MB", 1_000_000), ("B", 1)];
        let bytes = units.into_iter().find_map(|(unit, factor)| {
            let digits = text.strip_suffix(unit).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
            digits.parse::<usize>().ok()?.checked_mul(factor).filter(|bytes| *bytes <= MAX_BUFFER_BYTES)
        });
        let time = || text.parse().ok().map(|Delay(time)| Buffer::Time(time));
        bytes.map(Buffer::Bytes).or_else(time).map(Self).ok_or_else(|| {
            "a buffer is written in bytes, as 64KiB, 100kB or 3000B (at most 64MiB), or as a time, as 250ms".to_owned()
        })
    }
}

/// The rate of a link, or the word `unlimited`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Speed {
    Limited(Rate),
    Unlimited,
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "unlimited" => Ok(Self::Unlimited),
            _ => text.parse().map(Self::Limited).map_err(|error| format!("{error}, or the word unlimited")),
        }
    }
}

/// The interval between two events, or the word `never`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StallInterval {
    Every(Duration),
    Never,
}

impl FromStr for StallInterval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "never" => Ok(Self::Never),
            _ => interval(text).map(Self::Every).map_err(|reason| format!("{reason}, or the word never")),
        }
    }
}

/// The interval at which a NAT assigns a new address: `30s`, or `~30s` for a random interval with this mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RebindInterval(pub(super) Rebinding);

impl FromStr for RebindInterval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let with_alternative = |reason| format!("{reason}, or as ~30s for random intervals");
        match text.strip_prefix('~') {
            Some(text) => interval(text).map(Rebinding::About).map_err(with_alternative),
            None => interval(text).map(Rebinding::Every).map_err(with_alternative),
        }
        .map(Self)
    }
}

/// Parses an interval of at least 10 ms, with its unit.
fn interval(text: &str) -> Result<Duration, &'static str> {
    let has_unit = text.ends_with(|last: char| last.is_ascii_alphabetic());
    let span = Some(text).filter(|_| has_unit).and_then(|text| text.parse::<Span>().ok());
    let reason = "an interval is written as 500ms, 30s or 5m, with its unit, and is at least 10ms";
    span.map(|span| span.0).filter(|interval| *interval >= Duration::from_millis(10)).ok_or(reason)
}

/// Parses the order of datagrams under jitter.
pub(super) fn order(text: &str) -> Result<Order, String> {
    match text {
        "kept" => Ok(Order::Kept),
        "free" => Ok(Order::Free),
        _ => Err("the order is kept or free".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn delay_has_a_unit_and_a_maximum() {
        let cases = [
            ("40ms", Some(40)),
            ("1.5s", Some(1500)),
            ("60s", Some(60_000)),
            ("0", Some(0)),
            ("40", None),
            ("61s", None),
            ("-1ms", None),
            ("", None),
        ];
        for (text, millis) in cases {
            assert_eq!(text.parse().ok(), millis.map(|millis| Delay(MILLI * millis)), "{text}");
        }
        let range = |shortest, longest| Some(Delays { shortest: MILLI * shortest, longest: MILLI * longest });
        for (text, expected) in
            [("50ms..250ms", range(50, 250)), ("1s", range(1000, 1000)), ("250ms..50ms", None), ("50..250ms", None)]
        {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
    }

    #[test]
    fn buffer_is_in_bytes_or_a_time() {
        let cases = [
            ("64KiB", Some(Buffer::Bytes(65_536))),
            ("100kB", Some(Buffer::Bytes(100_000))),
            ("3000B", Some(Buffer::Bytes(3000))),
            ("250ms", Some(Buffer::Time(250 * MILLI))),
            ("65MiB", None),
            ("18446744073709551615MiB", None),
            ("+1kB", None),
            ("64", None),
            ("kB", None),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse().ok(), expected.map(BufferSize), "{text}");
        }
    }

    #[test]
    fn invalid_intervals_bursts_and_rates_are_refused() {
        let seconds = Duration::from_secs;
        assert_eq!("30s".parse(), Ok(RebindInterval(Rebinding::Every(seconds(30)))));
        assert_eq!("~1m".parse(), Ok(RebindInterval(Rebinding::About(seconds(60)))));
        assert_eq!(("never".parse(), "2s".parse()), (Ok(StallInterval::Never), Ok(StallInterval::Every(seconds(2)))));
        for text in ["30", "0s", "1ms", "~", "~~1s", "often"] {
            assert!(text.parse::<RebindInterval>().is_err() && text.parse::<StallInterval>().is_err(), "{text}");
        }
        assert_eq!("2.5".parse(), Ok(BurstLength(2.5)));
        for text in ["0.5", "-3", "nan", "inf", "1e9", ""] {
            assert!(text.parse::<BurstLength>().is_err(), "{text}");
        }
        assert_eq!(("unlimited".parse(), "1M".parse()), (Ok(Speed::Unlimited), Ok(Speed::Limited(Rate::mbit(1)))));
        assert!("1000".parse::<Speed>().is_err_and(|reason| reason.ends_with("or the word unlimited")));
    }
}
