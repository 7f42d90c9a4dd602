//! Overflow: the part of a socket's drops that a full receive buffer caused.
//!
//! ```text
//!   dropped of one socket        = filter refused + checksum wrong + no room     (`SO_MEMINFO`)
//!   no room, of all UDP sockets  =                                   no room     (`/proc/net/snmp`)
//! ```
//!
//! Linux counts the drops of a socket for all causes together (`sk_drops`, reported by `SO_MEMINFO`, `SO_RXQ_OVFL` and
//! `/proc/net/udp`). It counts full buffers for all sockets of the network namespace together (`RcvbufErrors`, and
//! `MemErrors` if the memory of all sockets was used up). Every overflow is in both counts, so the smaller one is an
//! upper bound. The bound is exact if no other socket of the machine or container overflows and the kernel counts every
//! case: some releases counted drops for lack of socket memory at the socket only.

use super::stats::SocketStats;

/// The count of the network namespace at some moment: the baseline of later overflow.
///
/// [`Sockets`](super::Sockets) take it when they are bound. The one of the first shard serves all shards together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overflow {
    since: Option<u64>,
}

impl Overflow {
    /// Takes the baseline now. Reads two files of `/proc`, which takes about 100 us.
    #[must_use]
    pub fn begin() -> Self {
        Self { since: buffer_errors() }
    }

    /// Returns an upper bound of the drops since the baseline, in these counters, that a full receive buffer caused;
    /// `None` where the system does not report it. Reads two files if anything was dropped.
    #[must_use]
    pub fn at_most(&self, stats: &SocketStats) -> Option<u64> {
        match stats.dropped_by_system? {
            0 => Some(0),
            dropped => Some(buffer_errors()?.saturating_sub(self.since?).min(dropped)),
        }
    }
}

/// Returns the datagrams that were dropped for full receive buffers in this network namespace, both families together.
#[cfg(target_os = "linux")]
fn buffer_errors() -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    // A machine without IPv6 does not have this file.
    Some(parse_v4(&read("snmp").ok()?)? + parse_v6(&read("snmp6").unwrap_or_default()))
}

#[cfg(not(target_os = "linux"))]
const fn buffer_errors() -> Option<u64> {
    None
}

/// Parses a line of names and a line of numbers: `Udp: InDatagrams NoPorts …`, `Udp: 12 3 …`. Kernels before 5.12 have
/// no `MemErrors` and count those as `RcvbufErrors`.
#[cfg(target_os = "linux")]
fn parse_v4(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, numbers) = (lines.next()?.split(' '), lines.next()?.split(' '));
    let counts = names.zip(numbers).filter(|(name, _)| ["RcvbufErrors", "MemErrors"].contains(name));
    counts.map(|(_, number)| number.parse::<u64>().ok()).reduce(|sum, number| Some(sum? + number?))?
}

/// Parses lines such as `Udp6RcvbufErrors   12`.
#[cfg(target_os = "linux")]
fn parse_v6(snmp6: &str) -> u64 {
    let counts = snmp6.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let counts = counts.filter(|(name, _)| ["Udp6RcvbufErrors", "Udp6MemErrors"].contains(name));
    counts.filter_map(|(_, number)| number.trim().parse::<u64>().ok()).sum()
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_errors_are_found_by_name() {
        let old =
            "Ip: Forwarding\nIp: 1\nUdp: InDatagrams InErrors RcvbufErrors InCsumErrors\nUdp: 9 70 5 2\nUdpLite: \n";
        let new = "Udp: NoPorts RcvbufErrors SndbufErrors IgnoredMulti MemErrors\nUdp: 1 40 3 4 2\n";
        for (snmp, count) in [(old, Some(5)), (new, Some(42)), ("", None), ("Udp: InErrors\nUdp: 4\n", None)] {
            assert_eq!(parse_v4(snmp), count, "{snmp}");
        }
        let v6 = "Udp6InErrors    \t8\nUdp6RcvbufErrors   \t31\nUdp6MemErrors \t1\nUdpLite6RcvbufErrors \t64\n";
        assert_eq!((parse_v6(v6), parse_v6("")), (32, 0));
        assert!(buffer_errors().is_some(), "this system reports it");
    }

    #[test]
    fn overflow_never_exceeds_drops() {
        let dropped = |count| SocketStats { dropped_by_system: count, ..SocketStats::default() };
        let since_ever = Overflow { since: Some(0) };
        let now = buffer_errors().unwrap();
        for (overflow, count, bound) in [
            (since_ever, Some(0), Some(0)),
            (since_ever, None, None),
            (Overflow { since: None }, Some(1), None),
            (Overflow { since: Some(u64::MAX) }, Some(1), Some(0)),
        ] {
            assert_eq!(overflow.at_most(&dropped(count)), bound);
        }
        assert!(since_ever.at_most(&dropped(Some(u64::MAX))).unwrap() >= now);
    }
}
