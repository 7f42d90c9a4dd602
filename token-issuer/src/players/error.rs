//! Errors: of the settings and keys for players' tokens, and of a token.

use core::fmt;
use std::path::PathBuf;

/// The maximum number of keys of a set. Identity providers have a few.
pub const MAX_PLAYER_KEYS: usize = 64;

/// Why a player's token yields no client id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlayerRefusal {
    /// There are no keys: the URL has not been reached, or not for too long.
    NoKeys,
    /// The token is refused; the text follows "the player's JSON Web Token".
    Invalid(&'static str),
}

/// Why the settings or the keys for players' tokens are refused.
#[derive(Debug)]
#[non_exhaustive]
pub enum PlayersError {
    /// The issuer, the audiences or the claim are empty.
    Rules,
    /// The URL is none, has credentials, or is not encrypted and leads to another machine.
    Url,
    /// The key file cannot be read.
    File(PathBuf, std::io::Error),
    /// The file with the certificates of authorities cannot be read, or has none.
    Authorities(PathBuf, std::io::Error),
    /// Authorities are given, and the keys do not come from an `https` URL.
    UnusedAuthorities,
    /// The text is no JSON Web Key Set.
    NotAKeySet,
    /// The set has no key for EdDSA, ES256 or RS256.
    NoKeys,
    /// The set has more than [`MAX_PLAYER_KEYS`] keys.
    TooManyKeys,
    /// The system refuses a thread.
    Thread(std::io::Error),
}

impl fmt::Display for PlayersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules => f.write_str("an issuer, an audience, and the claim that names the player are needed"),
            Self::Url => f.write_str("the URL of the keys must be https without credentials, or http on loopback"),
            Self::File(path, error) => write!(f, "the key set {} cannot be read: {error}", path.display()),
            Self::Authorities(path, error) => write!(f, "the authorities {} cannot be read: {error}", path.display()),
            Self::UnusedAuthorities => f.write_str("authorities are for an https URL of the keys only"),
            Self::NotAKeySet => f.write_str("the keys are no JSON Web Key Set (RFC 7517)"),
            Self::NoKeys => f.write_str("the key set has no public key for EdDSA, ES256 or RS256"),
            Self::TooManyKeys => write!(f, "the key set has more than {MAX_PLAYER_KEYS} keys"),
            Self::Thread(error) => write!(f, "the keys cannot be fetched: {error}"),
        }
    }
}

impl core::error::Error for PlayersError {}
