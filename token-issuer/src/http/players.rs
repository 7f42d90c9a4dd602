//! Players' own JSON Web Tokens as the source of client ids, if the service accepts them.

#[cfg(feature = "player-jwt")]
use std::sync::Arc;
#[cfg(feature = "player-jwt")]
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::error::{ApiError, ErrorCode};
use super::request::PLAYER_JWT;
#[cfg(feature = "player-jwt")]
use crate::players::{PlayerRefusal, Players};

/// The verifier of players' tokens. By default there is none, and all are refused.
#[derive(Clone, Default)]
pub(super) struct PlayerIdentity {
    #[cfg(feature = "player-jwt")]
    players: Option<Arc<Players>>,
}

#[cfg(not(feature = "player-jwt"))]
impl PlayerIdentity {
    /// Refuses each token.
    pub(super) async fn client_id(&self, _jwt: &str) -> Result<u64, ApiError> {
        Err(accepts_none())
    }

    /// Returns that no key is missing.
    pub(super) const fn is_available(&self) -> bool {
        true
    }

    pub(super) const fn key_count(&self) -> usize {
        0
    }
}

#[cfg(feature = "player-jwt")]
impl PlayerIdentity {
    /// Accepts tokens that this verifies.
    pub(super) const fn new(players: Arc<Players>) -> Self {
        Self { players: Some(players) }
    }

    /// Returns the client id of a player.
    pub(super) async fn client_id(&self, jwt: &str) -> Result<u64, ApiError> {
        let players = self.players.as_ref().ok_or_else(accepts_none)?;
        // `jsonwebtoken` panics at such a time.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_err(|_| ApiError::new(ErrorCode::Internal, "the issuer's clock is before 1970"))?;
        players.client_id(jwt).await.map_err(ApiError::from)
    }

    /// Returns whether players' tokens can be verified, or are not accepted.
    pub(super) fn is_available(&self) -> bool {
        self.players.as_ref().is_none_or(|players| players.key_count() > 0)
    }

    /// Returns the number of usable keys.
    pub(super) fn key_count(&self) -> usize {
        self.players.as_ref().map_or(0, |players| players.key_count())
    }
}

fn accepts_none() -> ApiError {
    let message = "this issuer accepts no JSON Web Tokens of players";
    ApiError::of_field(ErrorCode::InvalidPlayerJwt, PLAYER_JWT, message)
}

#[cfg(feature = "player-jwt")]
impl From<PlayerRefusal> for ApiError {
    fn from(refusal: PlayerRefusal) -> Self {
        match refusal {
            PlayerRefusal::Invalid(reason) => {
                let message = format!("the player's JSON Web Token {reason}");
                Self::of_field(ErrorCode::InvalidPlayerJwt, PLAYER_JWT, message)
            }
            PlayerRefusal::NoKeys => {
                let message = "the keys that verify players' JSON Web Tokens cannot be fetched";
                Self::new(ErrorCode::PlayerKeysUnavailable, message).with_retry_after(Duration::from_secs(10))
            }
        }
    }
}
