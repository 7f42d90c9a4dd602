//! A JSON Web Key Set (RFC 7517): the keys that can verify players' tokens, each with its only algorithm.

use std::sync::Arc;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use serde::Deserialize;
use serde_json::Value;

use super::error::{MAX_PLAYER_KEYS, PlayerRefusal, PlayersError};

/// The sizes of an RSA modulus, in bytes: 2048 to 8192 bits.
const RSA_BYTES: core::ops::RangeInclusive<usize> = 256..=1024;

/// A public key.
pub(super) struct PlayerKey {
    id: Option<String>,
    /// The algorithm of the signatures that the key verifies.
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// The usable keys of a set.
#[derive(Default)]
pub(super) struct PlayerKeySet(Vec<Arc<PlayerKey>>);

/// The form of a set. A key of an unknown form must not hide the others.
#[derive(Deserialize)]
struct RawSet {
    keys: Vec<Value>,
}

impl PlayerKeySet {
    /// Parses a set. Keys for encryption, of other algorithms and of unknown forms are left out.
    pub(super) fn parse(text: &[u8]) -> Result<Self, PlayersError> {
        let set: RawSet = serde_json::from_slice(text).map_err(|_| PlayersError::NotAKeySet)?;
        if set.keys.len() > MAX_PLAYER_KEYS {
            return Err(PlayersError::TooManyKeys);
        }
        let jwks = set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
        let keys: Vec<_> = jwks.filter_map(|jwk| PlayerKey::of(&jwk)).map(Arc::new).collect();
        if keys.is_empty() { Err(PlayersError::NoKeys) } else { Ok(Self(keys)) }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the key with this id. A token without one is for the only key of the set.
    pub(super) fn find(&self, id: Option<&str>) -> Result<Arc<PlayerKey>, PlayerRefusal> {
        match (id, self.0.as_slice()) {
            (None, [only]) => Ok(Arc::clone(only)),
            (None, _) => Err(PlayerRefusal::Invalid("has no key id")),
            (Some(_), keys) => keys.iter().find(|key| key.id.as_deref() == id).map(Arc::clone).ok_or(UNKNOWN_KEY),
        }
    }
}

/// The refusal of a token with a key id that the set does not have.
pub(super) const UNKNOWN_KEY: PlayerRefusal = PlayerRefusal::Invalid("has an unknown key id");

impl PlayerKey {
    /// Returns the key, if it is for signatures and of an algorithm that is supported.
    fn of(jwk: &Jwk) -> Option<Self> {
        let algorithm = algorithm(&jwk.algorithm)?;
        let named = jwk.common.key_algorithm;
        let is_named = named.is_none_or(|named| named == KeyAlgorithm::from(algorithm));
        let key = DecodingKey::from_jwk(jwk).ok()?;
        let is_usable = is_for_signatures(jwk) && is_named && has_right_size(algorithm, &key);
        is_usable.then(|| Self { id: jwk.common.key_id.clone(), algorithm, key })
    }
}

/// Returns the algorithm that a key of this kind is used with.
fn algorithm(parameters: &AlgorithmParameters) -> Option<Algorithm> {
    match parameters {
        AlgorithmParameters::RSA(_) => Some(Algorithm::RS256),
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Some(Algorithm::ES256),
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => Some(Algorithm::EdDSA),
        _ => None,
    }
}

fn is_for_signatures(jwk: &Jwk) -> bool {
    let common = &jwk.common;
    common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature)
        && common.key_operations.as_ref().is_none_or(|operations| operations.contains(&KeyOperations::Verify))
}

fn has_right_size(algorithm: Algorithm, key: &DecodingKey) -> bool {
    match (algorithm, key.kind()) {
        (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
            RSA_BYTES.contains(&n.len()) && (1..=4).contains(&e.len())
        }
        // The point has a byte for its form.
        (Algorithm::ES256, DecodingKeyKind::SecretOrDer(point)) => point.len() == 65,
        (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(point)) => point.len() == 32,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
    const Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";

    fn parse(keys: &[Value]) -> Result<PlayerKeySet, PlayersError> {
        PlayerKeySet::parse(json!({"keys": keys}).to_string().as_bytes())
    }

    /// Returns the text of a modulus with this number of digits and one more.
    fn modulus(digits: usize) -> String {
        format!("{}w", "_".repeat(digits))
    }

    fn p256(id: &str) -> Value {
        json!({"kty": "EC", "crv": "P-256", "x": X, "y": Y, "kid": id})
    }

    #[test]
    fn each_kind_of_key_has_one_algorithm() {
        let rsa = json!({"kty": "RSA", "n": modulus(341), "e": "AQAB", "kid": "r", "alg": "RS256", "use": "sig"});
        let ed = json!({"kty": "OKP", "crv": "Ed25519", "x": X, "kid": "d", "key_ops": ["verify"]});
        let set = parse(&[rsa, ed, p256("e")]).unwrap();
        for (id, algorithm) in [("r", Algorithm::RS256), ("d", Algorithm::EdDSA), ("e", Algorithm::ES256)] {
            assert_eq!(set.find(Some(id)).ok().unwrap().algorithm, algorithm);
        }
        assert!(set.find(Some("x")).is_err() && set.find(None).is_err());
    }

    #[test]
    fn unusable_keys_are_left_out() {
        let unusable = [
            json!({"kty": "oct", "k": "c2VjcmV0"}),
            json!({"kty": "EC", "crv": "P-384", "x": X, "y": Y}),
            json!({"kty": "EC", "crv": "secp256k1", "x": X, "y": Y}),
            json!({"kty": "EC", "crv": "P-256", "x": X, "y": "AA"}),
            json!({"kty": "EC", "crv": "P-256", "x": X, "y": "%"}),
            json!({"kty": "EC", "crv": "P-256", "x": X, "y": Y, "use": "enc"}),
            json!({"kty": "EC", "crv": "P-256", "x": X, "y": Y, "key_ops": ["sign"]}),
            json!({"kty": "EC", "crv": "P-256", "x": X, "y": Y, "alg": "HS256"}),
            json!({"kty": "EC", "crv": "P-256", "x": X, "y": Y, "alg": "unheard of"}),
            json!({"kty": "EC", "crv": "P-256", "x": X, "y": Y, "kid": 7}),
            json!({"kty": "RSA", "n": modulus(170), "e": "AQAB"}),
            json!({"kty": "RSA", "n": modulus(341), "e": "AQAB", "alg": "PS256"}),
            json!({"kty": "OKP", "crv": "Ed448", "x": X}),
            json!({"kty": "OKP", "crv": "X25519", "x": X}),
            json!(7),
        ];
        for key in unusable {
            assert!(matches!(parse(std::slice::from_ref(&key)), Err(PlayersError::NoKeys)), "{key}");
            let set = parse(&[key.clone(), p256("e")]).unwrap();
            assert_eq!(set.len(), 1, "{key}");
            assert!(set.find(None).is_ok(), "the only usable key");
        }
    }

    #[test]
    fn text_that_is_no_small_key_set_is_refused() {
        for text in ["", "[]", "{}", r#"{"keys": 7}"#, r#"{"keys": []"#] {
            assert!(matches!(PlayerKeySet::parse(text.as_bytes()), Err(PlayersError::NotAKeySet)), "{text}");
        }
        let keys: Vec<_> = (0..=MAX_PLAYER_KEYS).map(|id| p256(&id.to_string())).collect();
        assert!(matches!(parse(&keys), Err(PlayersError::TooManyKeys)));
        assert_eq!(parse(&keys[1..]).unwrap().len(), MAX_PLAYER_KEYS);
    }
}
