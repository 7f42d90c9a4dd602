//! Which JSON Web Tokens of players are accepted, and where the keys that verify them come from.

use core::str::FromStr;
use std::path::PathBuf;
use std::time::Duration;

use super::client_id::ClientIdMapping;
use super::error::PlayersError;

/// The tolerance for the clocks of this machine and of the identity provider, unless configured otherwise.
pub const DEFAULT_LEEWAY: Duration = Duration::from_secs(30);

/// Which JSON Web Tokens of players are accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlayerSettings {
    /// The source of the public keys, a JSON Web Key Set.
    pub keys: PlayerKeySource,
    /// A file with the certificates of authorities, in PEM. An `https` URL of the keys needs a certificate of one of
    /// them. It is read for each fetch. `None`: the public authorities.
    pub authorities: Option<PathBuf>,
    /// The required claim `iss`.
    pub issuer: String,
    /// The claim `aud` must have one of these.
    pub audiences: Vec<String>,
    /// The claim that names the player.
    pub claim: String,
    /// How that claim becomes a client id.
    pub client_id: ClientIdMapping,
    /// The tolerance for `exp` and `nbf`, in whole seconds.
    pub leeway: Duration,
}

impl PlayerSettings {
    /// Creates the settings for one issuer and audience, with the claim `sub` and the default leeway.
    #[must_use]
    pub fn new(keys: PlayerKeySource, issuer: &str, audience: &str) -> Self {
        Self {
            keys,
            authorities: None,
            issuer: issuer.to_owned(),
            audiences: vec![audience.to_owned()],
            claim: "sub".to_owned(),
            client_id: ClientIdMapping::Hash,
            leeway: DEFAULT_LEEWAY,
        }
    }
}

/// The source of the public keys that verify players' tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlayerKeySource {
    /// A file with a JSON Web Key Set.
    File(PathBuf),
    /// The URL of a JSON Web Key Set: `https`, or `http` on loopback.
    Url(String),
}

impl FromStr for PlayerKeySource {
    type Err = PlayersError;

    /// Parses a URL, or takes the text as a path.
    fn from_str(text: &str) -> Result<Self, PlayersError> {
        if text.is_empty() {
            return Err(PlayersError::NoKeys);
        }
        if !text.contains("://") {
            return Ok(Self::File(text.into()));
        }
        let url = text.parse::<ureq::http::Uri>().map_err(|_| PlayersError::Url)?;
        let host = url.host().unwrap_or_default();
        // Credentials of a URL would be in logs.
        if host.is_empty() || text.contains('@') {
            return Err(PlayersError::Url);
        }
        match url.scheme_str() {
            Some("https") => Ok(Self::Url(text.to_owned())),
            Some("http") if is_loopback(host) => Ok(Self::Url(text.to_owned())),
            _ => Err(PlayersError::Url),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<core::net::IpAddr>();
    address.map_or_else(|_| host.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
}
