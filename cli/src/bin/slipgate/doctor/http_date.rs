//! The time of a `Date` header (RFC 9110, section 5.6.7), and what it says about a clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The names of the months in HTTP.
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Parses a date such as `Sun, 06 Nov 1994 08:49:37 GMT`. Returns seconds since 1970.
pub(super) fn parse_date(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once(", ")?;
    let mut parts = rest.strip_suffix(" GMT")?.split(' ');
    let day: u64 = parts.next()?.parse().ok().filter(|day| (1..=31).contains(day))?;
    let name = parts.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as u64 + 1;
    let year: u64 = parts.next()?.parse().ok().filter(|year| (1970..=9999).contains(year))?;
    let mut time = parts.next()?.split(':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let is_time = hour < 24 && minute < 60 && second <= 60 && parts.next().is_none();
    is_time.then(|| days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Returns the days since 1970 of a date of the Gregorian calendar. The year begins in March, so that the leap day is
/// its last one (H. Hinnant, "chrono-compatible low-level date algorithms", `days_from_civil`).
const fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Returns by how many seconds a clock is ahead of this machine's: at least, as far as the date's whole seconds and the
/// time of the request tell. Negative if it is behind.
pub(super) fn skew(date: u64, before: SystemTime, after: SystemTime) -> i64 {
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    // The other clock showed date to date + 1 s at some time of the request.
    let (earliest, latest) = (since(before), since(after));
    let date_end = Duration::from_secs(date.saturating_add(1));
    let date = Duration::from_secs(date);
    if date > latest {
        i64::try_from((date - latest).as_secs()).unwrap_or(i64::MAX)
    } else if date_end < earliest {
        i64::try_from((earliest - date_end).as_secs()).map_or(i64::MIN, |seconds| -seconds)
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_http_are_seconds_since_1970() {
        for (text, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Tue, 29 Feb 2000 23:59:60 GMT", Some(951_868_800)),
            ("Wed, 25 Nov 2026 22:51:30 GMT", Some(1_795_647_090)),
            ("Sun, 06 Nov 1994 08:49:37", None),
            ("Sun, 32 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Foo 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 24:49:37 GMT", None),
            ("", None),
        ] {
            assert_eq!(parse_date(text), expected, "{text}");
        }
    }

    #[test]
    fn whole_seconds_and_slow_requests_are_no_skew() {
        let at = |millis: u64| UNIX_EPOCH + Duration::from_millis(millis);
        for (date, before, after, expected) in [
            (100, 100_000, 100_100, 0),
            (100, 100_999, 101_000, 0),
            (103, 100_000, 100_500, 2),
            (100, 104_500, 104_600, -3),
            (105, 100_000, 110_000, 0),
        ] {
            assert_eq!(skew(date, at(before), at(after)), expected, "{date} {before} {after}");
        }
    }
}
