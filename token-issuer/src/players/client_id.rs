//! Maps the claim that names a player to a client id of 64 bits.

use core::str::FromStr;

use ring::digest::{SHA256, digest};
use serde_json::Value;

use super::error::PlayerRefusal;

/// The longest claim that is mapped, in bytes: the limit of `sub` in OpenID Connect.
const MAX_CLAIM_BYTES: usize = 255;

/// How a claim becomes a client id. A deployment uses one of them: with both, a player with a chosen name could take
/// the number of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientIdMapping {
    /// The first 8 bytes of the SHA-256 of the claim's text, in network order. Two of a million players share a client
    /// id with a probability of 1 in 37 million.
    Hash,
    /// The claim is the client id itself: a JSON number, or a decimal string without leading zeros.
    Number,
}

impl ClientIdMapping {
    /// Returns the client id of a claim.
    pub(super) fn client_id(self, claim: &Value) -> Result<u64, PlayerRefusal> {
        match self {
            Self::Hash => hash(claim).ok_or(PlayerRefusal::Invalid("names the player by no text of 1 to 255 bytes")),
            Self::Number => number(claim).ok_or(PlayerRefusal::Invalid("names the player by no number of 64 bits")),
        }
    }
}

fn hash(claim: &Value) -> Option<u64> {
    let text = claim.as_str().filter(|text| (1..=MAX_CLAIM_BYTES).contains(&text.len()))?;
    digest(&SHA256, text.as_bytes()).as_ref().first_chunk().copied().map(u64::from_be_bytes)
}

fn number(claim: &Value) -> Option<u64> {
    match claim {
        Value::Number(number) => number.as_u64(),
        // Otherwise "7" and "07", which may be two players, would be one client id.
        Value::String(text) => text.parse().ok().filter(|number: &u64| number.to_string() == *text),
        _ => None,
    }
}

impl FromStr for ClientIdMapping {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "hash" => Ok(Self::Hash),
            "number" => Ok(Self::Number),
            _ => Err("a client id is the `hash` of the claim, or its `number`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The expected values were computed by another implementation (Python's `hashlib`).
    #[test]
    fn text_maps_to_the_first_8_bytes_of_its_sha_256() {
        for (text, id) in [
            ("auth0|5f7c8ec7c33c6c004bbafe82", 0x41aa_4878_87e3_c45c),
            ("7", 0x7902_699b_e42c_8a8e),
            ("é", 0x4a99_557e_4033_c353),
        ] {
            assert_eq!(ClientIdMapping::Hash.client_id(&json!(text)), Ok(id), "{text}");
        }
        for claim in [json!(""), json!("x".repeat(256)), json!(7), json!(null), json!(["7"])] {
            assert!(ClientIdMapping::Hash.client_id(&claim).is_err(), "{claim}");
        }
    }

    #[test]
    fn number_is_the_client_id_in_one_form_only() {
        for (claim, id) in [(json!(7), 7), (json!("7"), 7), (json!("0"), 0), (json!(u64::MAX.to_string()), u64::MAX)] {
            assert_eq!(ClientIdMapping::Number.client_id(&claim), Ok(id), "{claim}");
        }
        for claim in ["07", "+7", "-7", "7.0", " 7", "", "18446744073709551616", "x"].map(Value::from) {
            assert!(ClientIdMapping::Number.client_id(&claim).is_err(), "{claim}");
        }
        for claim in [json!(-7), json!(7.5), json!(null), json!([7])] {
            assert!(ClientIdMapping::Number.client_id(&claim).is_err(), "{claim}");
        }
    }
}
