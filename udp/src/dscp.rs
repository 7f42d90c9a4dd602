//! The DSCP of sent datagrams: the upper six bits of the traffic class byte, which states their urgency.

use std::fmt;
use std::io;
use std::str::FromStr;

use socket2::SockRef;

use super::address_family::AddressFamily;

/// A differentiated services code point (RFC 2474). Some routers honour it, mostly those in homes and offices, and
/// Wi-Fi access points.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Dscp(u8);

impl Dscp {
    /// Best effort, the default: code point 0.
    pub const DEFAULT: Self = Self(0);
    /// Expedited forwarding (RFC 3246), for small amounts of urgent traffic: code point 46, byte value 184.
    pub const EXPEDITED: Self = Self(46);

    /// Creates a DSCP from a code point; `None` unless it is below 64.
    #[must_use]
    pub const fn new(code_point: u8) -> Option<Self> {
        if code_point < 64 { Some(Self(code_point)) } else { None }
    }

    /// Returns the code point.
    #[must_use]
    pub const fn code_point(self) -> u8 {
        self.0
    }

    /// Returns the byte in the header of IPv4 (type of service) or IPv6 (traffic class). Its lower two bits, ECN's, are
    /// 0.
    #[must_use]
    pub const fn traffic_class(self) -> u8 {
        self.0 << 2
    }

    /// Sets the mark of a socket of this family.
    pub(super) fn mark(self, socket: &SockRef<'_>, family: AddressFamily) -> io::Result<()> {
        match family {
            AddressFamily::V4 => socket.set_tos_v4(self.traffic_class().into()),
            AddressFamily::V6 => mark_v6(socket, self.traffic_class().into()),
        }
    }
}

/// Which datagrams carry the mark that was set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[must_use]
pub enum Marking {
    /// All.
    All,
    /// Some only: the system does not support the mark for IPv6, as Windows, or for neither family. The others leave
    /// without a mark.
    Partly,
}

impl Marking {
    /// Converts the result of marking one socket. `Unsupported` becomes [`Partly`](Self::Partly) and is not an error.
    pub(super) fn from_result(marked: io::Result<()>) -> io::Result<Self> {
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

/// Parses `default`, `ef` or a code point from 0 to 63.
impl FromStr for Dscp {
    type Err = ParseDscpError;

    fn from_str(text: &str) -> Result<Self, ParseDscpError> {
        match text {
            "default" => Ok(Self::DEFAULT),
            "ef" => Ok(Self::EXPEDITED),
            _ => text.parse().ok().and_then(Self::new).filter(|_| !text.starts_with('+')).ok_or(ParseDscpError),
        }
    }
}

/// Writes the form that `from_str` parses.
impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::DEFAULT => f.write_str("default"),
            Self::EXPEDITED => f.write_str("ef"),
            Self(code_point) => code_point.fmt(f),
        }
    }
}

/// The text is not a DSCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseDscpError;

impl fmt::Display for ParseDscpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a DSCP is written as default, ef, or a number from 0 to 63")
    }
}

impl std::error::Error for ParseDscpError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expedited_forwarding_is_46_and_byte_184() {
        assert_eq!((Dscp::EXPEDITED.code_point(), Dscp::EXPEDITED.traffic_class()), (46, 184));
        assert_eq!(Dscp::DEFAULT.traffic_class(), 0);
    }

    #[test]
    fn unsupported_mark_is_no_error() {
        let marked = |kind: Option<io::ErrorKind>| Marking::from_result(kind.map_or(Ok(()), |kind| Err(kind.into())));
        for (kind, marking) in [
            (None, Some(Marking::All)),
            (Some(io::ErrorKind::Unsupported), Some(Marking::Partly)),
            (Some(io::ErrorKind::PermissionDenied), None),
        ] {
            assert_eq!(marked(kind).ok(), marking, "{kind:?}");
        }
        assert_eq!(Marking::All.max(Marking::Partly), Marking::Partly, "one family without the mark is enough");
    }

    #[test]
    fn dscp_text_round_trips() {
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
