//! What of a socket's drops was overflow: its receive buffer had no room.
//!
//! ```text
//!   dropped of one socket        = filter refused + checksum wrong + no room     (`SO_MEMINFO`)
//!   no room, of all UDP sockets  =                                   no room     (`/proc/net/snmp`)
//! ```
//!
//! Linux counts a socket's drops of all causes together (`sk_drops`, which `SO_MEMINFO`, `SO_RXQ_OVFL` and
//! `/proc/net/udp` tell), and buffers without room for all sockets of the network namespace together (`RcvbufErrors`,
//! and `MemErrors` where all sockets' memory was used up). Neither is the answer, but no overflow is outside of either:
//! the smaller one is the most that it can be. Where nothing else on the machine, or in the container, overflows, it is
//! what it was, if the kernel counts all of it: some releases dropped when all sockets' memory was used up, and counted
//! that for the socket alone.

use super::stats::SocketStats;

/// What the network namespace had counted at some moment: overflow since then is told by it.
///
/// [`Sockets`](super::Sockets) have one from when they were bound; that of the first shard is for all shards together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overflow {
    since: Option<u64>,
}

impl Overflow {
    /// From now on. It reads two files of `/proc`, which takes some 100 us.
    #[must_use]
    pub fn begin() -> Self {
        Self { since: no_room() }
    }

    /// The most of what was dropped since then, as these stats tell, that was dropped because a receive buffer had no
    /// room; `None` where the system does not tell. It reads two files if anything was dropped.
    #[must_use]
    pub fn at_most(&self, stats: &SocketStats) -> Option<u64> {
        match stats.dropped_by_system? {
            0 => Some(0),
            dropped => Some(no_room()?.saturating_sub(self.since?).min(dropped)),
        }
    }
}

/// Datagrams for which no UDP socket of this network namespace had room, both families together.
#[cfg(target_os = "linux")]
fn no_room() -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    // A machine without IPv6 has no such file.
    Some(of_v4(&read("snmp").ok()?)? + of_v6(&read("snmp6").unwrap_or_default()))
}

#[cfg(not(target_os = "linux"))]
const fn no_room() -> Option<u64> {
    None
}

/// A line of names, and a line of numbers: `Udp: InDatagrams NoPorts …`, `Udp: 12 3 …`. Kernels before 5.12 have no
/// `MemErrors`, and count those as the others.
#[cfg(target_os = "linux")]
fn of_v4(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, numbers) = (lines.next()?.split(' '), lines.next()?.split(' '));
    let counts = names.zip(numbers).filter(|(name, _)| ["RcvbufErrors", "MemErrors"].contains(name));
    counts.map(|(_, number)| number.parse::<u64>().ok()).reduce(|sum, number| Some(sum? + number?))?
}

/// A line for each: `Udp6RcvbufErrors   12`.
#[cfg(target_os = "linux")]
fn of_v6(snmp6: &str) -> u64 {
    let counts = snmp6.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let counts = counts.filter(|(name, _)| ["Udp6RcvbufErrors", "Udp6MemErrors"].contains(name));
    counts.filter_map(|(_, number)| number.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn buffers_without_room_are_read_by_name_wherever_they_stand() {
        let old =
            "Ip: Forwarding\nIp: 1\nUdp: InDatagrams InErrors RcvbufErrors InCsumErrors\nUdp: 9 70 5 2\nUdpLite: \n";
        let new = "Udp: NoPorts RcvbufErrors SndbufErrors IgnoredMulti MemErrors\nUdp: 1 40 3 4 2\n";
        for (snmp, count) in [(old, Some(5)), (new, Some(42)), ("", None), ("Udp: InErrors\nUdp: 4\n", None)] {
            assert_eq!(of_v4(snmp), count, "{snmp}");
        }
        let v6 = "Udp6InErrors    \t8\nUdp6RcvbufErrors   \t31\nUdp6MemErrors \t1\nUdpLite6RcvbufErrors \t64\n";
        assert_eq!((of_v6(v6), of_v6("")), (32, 0));
        assert!(no_room().is_some(), "this system tells");
    }

    #[test]
    fn overflow_is_never_more_than_what_was_dropped_and_nothing_where_nothing_was() {
        let dropped = |count| SocketStats { dropped_by_system: count, ..SocketStats::default() };
        let since_ever = Overflow { since: Some(0) };
        let now = no_room().unwrap();
        for (overflow, count, most) in [
            (since_ever, Some(0), Some(0)),
            (since_ever, None, None),
            (Overflow { since: None }, Some(1), None),
            (Overflow { since: Some(u64::MAX) }, Some(1), Some(0)),
        ] {
            assert_eq!(overflow.at_most(&dropped(count)), most);
        }
        assert!(since_ever.at_most(&dropped(Some(u64::MAX))).unwrap() >= now);
    }
}
