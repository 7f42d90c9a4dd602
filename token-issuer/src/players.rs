//! Players' own JSON Web Tokens as the source of client ids: which are accepted, and which client id each names.
//!
//! ```text
//!  player_jwt ─▶ header: kid, alg ─▶ key of the set ─▶ signature ─▶ exp, nbf, iss, aud ─▶ claim ─▶ client id
//!                                     ▲
//!               file or URL ─▶ key cache: read again on change, in intervals, and for an unknown kid
//! ```
//!
//! The key decides about the algorithm. The header of a token only has to agree, so a token without a signature, or one
//! that uses a public key as the secret of an HMAC, is refused.

mod client_id;
mod error;
mod key_cache;
mod key_set;
mod ring_provider;
mod settings;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};

pub use self::client_id::ClientIdMapping;
pub(crate) use self::error::PlayerRefusal;
pub use self::error::{MAX_PLAYER_KEYS, PlayersError};
use self::key_cache::KeyCache;
use self::key_set::PlayerKey;
pub use self::settings::{DEFAULT_LEEWAY, PlayerKeySource, PlayerSettings};

/// Verifies players' JSON Web Tokens.
pub struct Players {
    validation: Validation,
    claim: String,
    mapping: ClientIdMapping,
    keys: KeyCache,
}

impl Players {
    /// Reads the key file, or starts a thread that fetches the keys from their URL now and every five minutes.
    ///
    /// # Errors
    /// The errors of [`PlayersError`], but an unreachable URL is none: its keys are fetched again.
    pub fn new(settings: PlayerSettings) -> Result<Self, PlayersError> {
        if settings.issuer.is_empty() || settings.claim.is_empty() {
            return Err(PlayersError::Rules);
        }
        if settings.audiences.is_empty() || settings.audiences.iter().any(String::is_empty) {
            return Err(PlayersError::Rules);
        }
        ring_provider::install();
        Ok(Self {
            validation: validation(&settings),
            claim: settings.claim,
            mapping: settings.client_id,
            keys: KeyCache::open(settings.keys, settings.authorities)?,
        })
    }

    /// Reads the key file again, or asks for a fetch from the URL. The present keys stay if the file is wrong.
    ///
    /// # Errors
    /// [`PlayersError::File`], [`PlayersError::NotAKeySet`], [`PlayersError::NoKeys`] and [`PlayersError::TooManyKeys`]
    /// for the file.
    pub fn reload(&self) -> Result<(), PlayersError> {
        self.keys.reload()
    }

    /// Returns the number of usable keys. It is 0 before the first successful fetch, and when the last one is too old.
    #[must_use]
    pub fn key_count(&self) -> usize {
        self.keys.current().map_or(0, |keys| keys.len())
    }

    /// Returns the client id of the player that has this token.
    pub(crate) async fn client_id(&self, jwt: &str) -> Result<u64, PlayerRefusal> {
        let header = decode_header(jwt).map_err(|_| PlayerRefusal::Invalid("is malformed"))?;
        if header.crit.is_some() {
            return Err(PlayerRefusal::Invalid("requires an extension that is not supported"));
        }
        let key = self.keys.find(header.kid.as_deref()).await?;
        if key.algorithm != header.alg {
            return Err(PlayerRefusal::Invalid("has another algorithm than its key"));
        }
        let claims = self.verify(jwt, &key)?;
        let claim = claims.get(&self.claim).ok_or(PlayerRefusal::Invalid("lacks the claim that names the player"))?;
        self.mapping.client_id(claim)
    }

    /// Checks signature, times, issuer and audience. Returns the claims.
    fn verify(&self, jwt: &str, key: &PlayerKey) -> Result<Map<String, Value>, PlayerRefusal> {
        let validation = Validation { algorithms: vec![key.algorithm], ..self.validation.clone() };
        let key: &DecodingKey = &key.key;
        let verified = decode::<Map<String, Value>>(jwt, key, &validation);
        verified.map(|token| token.claims).map_err(|error| PlayerRefusal::Invalid(reason(error.kind())))
    }
}

fn validation(settings: &PlayerSettings) -> Validation {
    let mut validation = Validation::default();
    validation.set_required_spec_claims(&["exp", "iss", "aud"]);
    validation.set_issuer(&[&settings.issuer]);
    validation.set_audience(&settings.audiences);
    validation.validate_nbf = true;
    validation.leeway = settings.leeway.as_secs();
    validation
}

/// Returns what is wrong with a token, without its content.
fn reason(error: &ErrorKind) -> &'static str {
    match error {
        ErrorKind::ExpiredSignature => "has expired",
        ErrorKind::ImmatureSignature => "is not valid yet",
        ErrorKind::InvalidIssuer => "has another issuer",
        ErrorKind::InvalidAudience => "is for another audience",
        ErrorKind::MissingRequiredClaim(_) => "lacks the claim exp, iss or aud",
        ErrorKind::InvalidSignature => "has a wrong signature",
        _ => "is malformed",
    }
}
