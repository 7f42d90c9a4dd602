//! Players' own JSON Web Tokens as the source of client ids.

use super::error::{ApiError, ErrorCode};

/// Verifies players' JSON Web Tokens, if the service is configured to.
#[derive(Default)]
pub(super) struct Players {}

impl Players {
    /// Returns the client id of a player.
    pub(super) async fn client_id(&self, _jwt: &str) -> Result<u64, ApiError> {
        let message = "this issuer accepts no JSON Web Tokens of players";
        Err(ApiError::of_field(ErrorCode::InvalidPlayerJwt, "player_jwt", message))
    }
}
