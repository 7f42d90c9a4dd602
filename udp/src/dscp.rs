//! How urgent the network may take packets to be: their DSCP, in the upper six bits of the traffic class byte.

use std::fmt;
use std::io;
use std::str::FromStr;

use socket2::SockRef;

use super::Family;

/// A differentiated services code point (RFC 2474): what routers that heed it, mostly those of homes and offices, and
/// Wi-Fi access points go by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Dscp(u8);

impl Dscp {
    /// As everything else: code point 0.
    pub const DEFAULT: Self = Self(0);
    /// Expedited forwarding (RFC 3246), for little that is urgent: code point 46, which is the byte 184.
    pub const EXPEDITED: Self = Self(46);

    /// A code point below 64.
    #[must_use]
    pub const fn new(code_point: u8) -> Option<Self> {
        if code_point < 64 { Some(Self(code_point)) } else { None }
    }

    /// The code point.
    #[must_use]
    pub const fn code_point(self) -> u8 {
        self.0
    }

    /// The byte in the header of IPv4 (type of service) and of IPv6 (traffic class). Its lower two bits are ECN's, and 0.
    #[must_use]
    pub const fn traffic_class(self) -> u8 {
        self.0 << 2
    }

    /// Marks what a socket of the family sends from now on.
    pub(super) fn mark(self, socket: &SockRef<'_>, family: Family) -> io::Result<()> {
        match family {
            Family::V4 => socket.set_tos_v4(self.traffic_class().into()),
            Family::V6 => mark_v6(socket, self.traffic_class().into()),
        }
    }
}

/// Which packets bear the mark that was set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[must_use]
pub enum Marking {
    /// All.
    All,
    /// Not all: the system has no such mark for IPv6, as Windows, or for neither family. The others leave unmarked.
    Partly,
}

impl Marking {
    /// What came of marking one socket: a mark that does not exist is no refusal.
    pub(super) fn settle(marked: io::Result<()>) -> io::Result<Self> {
        match marked {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(Self::Partly),
            result => result.map(|()| Self::All),
        }
    }
}

#[cfg(any(
    target_os = "android",
    target_os = "dragonfly",
    target_os = "freebsd",
    target_os = "illumos",
    target_os = "linux",
    target_os = "macos",
    target_os = "netbsd",
    target_os = "openbsd",
))]
fn mark_v6(socket: &SockRef<'_>, traffic_class: u32) -> io::Result<()> {
    socket.set_tclass_v6(traffic_class)
}

#[cfg(not(any(
    target_os = "android",
    target_os = "dragonfly",
    target_os = "freebsd",
    target_os = "illumos",
    target_os = "linux",
    target_os = "macos",
    target_os = "netbsd",
    target_os = "openbsd",
)))]
fn mark_v6(_: &SockRef<'_>, traffic_class: u32) -> io::Result<()> {
    if traffic_class == 0 { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

/// `default`, `ef`, or a code point from 0 to 63.
impl FromStr for Dscp {
    type Err = NotADscp;

    fn from_str(text: &str) -> Result<Self, NotADscp> {
        match text {
            "default" => Ok(Self::DEFAULT),
            "ef" => Ok(Self::EXPEDITED),
            _ => text.parse().ok().and_then(Self::new).filter(|_| !text.starts_with('+')).ok_or(NotADscp),
        }
    }
}

/// As it is read.
impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::DEFAULT => f.write_str("default"),
            Self::EXPEDITED => f.write_str("ef"),
            Self(code_point) => code_point.fmt(f),
        }
    }
}

/// The text is no DSCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotADscp;

impl fmt::Display for NotADscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a DSCP is written as default, ef, or a number from 0 to 63")
    }
}

impl std::error::Error for NotADscp {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expedited_forwarding_is_46_and_184_on_the_wire() {
        assert_eq!((Dscp::EXPEDITED.code_point(), Dscp::EXPEDITED.traffic_class()), (46, 184));
        assert_eq!(Dscp::DEFAULT.traffic_class(), 0);
    }

    #[test]
    fn a_mark_that_a_system_does_not_have_is_no_refusal() {
        let marked = |kind: Option<io::ErrorKind>| Marking::settle(kind.map_or(Ok(()), |kind| Err(kind.into())));
        for (kind, marking) in [
            (None, Some(Marking::All)),
            (Some(io::ErrorKind::Unsupported), Some(Marking::Partly)),
            (Some(io::ErrorKind::PermissionDenied), None),
        ] {
            assert_eq!(marked(kind).ok(), marking, "{kind:?}");
        }
        assert_eq!(Marking::All.max(Marking::Partly), Marking::Partly, "one family is enough");
    }

    #[test]
    fn a_dscp_is_a_word_or_a_number_below_64_and_is_told_as_it_is_read() {
        for (text, expected) in [
            ("default", Some(0)),
            ("0", Some(0)),
            ("ef", Some(46)),
            ("46", Some(46)),
            ("63", Some(63)),
            ("64", None),
            ("256", None),
            ("-1", None),
            ("+1", None),
            ("EF", None),
            ("", None),
        ] {
            let dscp = text.parse::<Dscp>().ok();
            assert_eq!(dscp.map(Dscp::code_point), expected, "{text}");
            assert!(dscp.is_none_or(|dscp| dscp.to_string().parse() == Ok(dscp)), "{text}");
        }
    }
}
