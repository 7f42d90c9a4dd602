//! The codes of closing connections (§3.5).

use core::fmt;

/// Why a connection closes. Codes from 256 on belong to the application, which can also send 0 and
/// [`CloseCode::SHUTDOWN`]. Other codes of an application are sent as 0.
///
/// # Examples
/// ```
/// use slipgate_session::connection::CloseCode;
///
/// /// The game has a new version: the client shows where to get it.
/// const UPDATE: CloseCode = CloseCode(CloseCode::FIRST_OF_APPLICATION.0 + 1);
/// assert_eq!(UPDATE.to_string(), "257");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct CloseCode(pub u16);

impl CloseCode {
    /// The application closes the connection for the reason in the text: a client leaves, or the server kicks it.
    pub const KICKED: Self = Self(0);
    /// The layouts of the two ends differ.
    pub const LAYOUT_MISMATCH: Self = Self(1);
    /// The two ends have no common version.
    pub const VERSION_MISMATCH: Self = Self(2);
    /// The peer violated the protocol.
    pub const VIOLATION: Self = Self(3);
    /// The server shuts down, for the reason in the text.
    pub const SHUTDOWN: Self = Self(4);
    /// The first code of the application.
    pub const FIRST_OF_APPLICATION: Self = Self(256);

    /// Returns the code as an application may send it: 1 to 3, which belong to the connection, and 5 to 255, which are
    /// reserved, become [`Self::KICKED`]. 0, [`Self::SHUTDOWN`], and codes from [`Self::FIRST_OF_APPLICATION`] on stay.
    pub(crate) const fn of_application(self) -> Self {
        let is_allowed = self.0 == Self::SHUTDOWN.0 || self.0 >= Self::FIRST_OF_APPLICATION.0;
        if is_allowed { self } else { Self::KICKED }
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
