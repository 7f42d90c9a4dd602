//! The name by which a client remembers a used token.

use crate::token::ConnectToken;
use crate::wire::TAG_BYTES;

/// The name of a token: the tag of its private part, unique to each token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenName([u8; TAG_BYTES]);

impl From<&ConnectToken> for TokenName {
    fn from(token: &ConnectToken) -> Self {
        // The tag ends the sealed part, and differs for each token because the nonce does.
        Self(token.request().sealed.last_chunk().copied().unwrap_or_default())
    }
}
