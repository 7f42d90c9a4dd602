//! The games of one service: an issuer for each protocol id.

use core::fmt;

use crate::issuer::Issuer;

/// The maximum number of games of one service.
pub const MAX_GAMES: usize = 64;

/// The issuers of one service, each for another protocol id. A rolling update of a game needs two.
pub struct Games(Vec<Issuer>);

impl Games {
    /// Creates the list.
    ///
    /// # Errors
    /// [`GamesError::Count`] unless there are 1 to [`MAX_GAMES`] issuers, [`GamesError::ProtocolIdTwice`] if two have
    /// one protocol id.
    pub fn new(issuers: Vec<Issuer>) -> Result<Self, GamesError> {
        if !(1..=MAX_GAMES).contains(&issuers.len()) {
            return Err(GamesError::Count(issuers.len()));
        }
        for (index, issuer) in issuers.iter().enumerate() {
            if issuers.iter().take(index).any(|earlier| earlier.protocol_id() == issuer.protocol_id()) {
                return Err(GamesError::ProtocolIdTwice(issuer.protocol_id()));
            }
        }
        Ok(Self(issuers))
    }

    /// Returns all issuers, in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = &Issuer> {
        self.0.iter()
    }

    /// Returns the issuer of this game.
    #[must_use]
    pub fn get(&self, protocol_id: u64) -> Option<&Issuer> {
        self.0.iter().find(|issuer| issuer.protocol_id() == protocol_id)
    }

    /// Returns the issuer if there is only one.
    #[must_use]
    pub fn only(&self) -> Option<&Issuer> {
        if let [only] = self.0.as_slice() { Some(only) } else { None }
    }
}

impl From<Issuer> for Games {
    fn from(issuer: Issuer) -> Self {
        Self(vec![issuer])
    }
}

/// Why a list of games is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GamesError {
    /// The number of games is not 1 to 64; holds the number given.
    Count(usize),
    /// Two games have this protocol id.
    ProtocolIdTwice(u64),
}

impl fmt::Display for GamesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "an issuer has 1 to {MAX_GAMES} games, not {count}"),
            Self::ProtocolIdTwice(id) => write!(f, "two games have the protocol id {id:#x}"),
        }
    }
}

impl core::error::Error for GamesError {}
