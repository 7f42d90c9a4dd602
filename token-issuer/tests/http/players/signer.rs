//! An identity provider's keys: they sign JSON Web Tokens, and their public halves are a key set.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};

/// A private key that signs tokens.
pub(super) struct Signer {
    pub(super) id: &'static str,
    pub(super) algorithm: &'static str,
    key: SigningKey,
}

enum SigningKey {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

pub(super) fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    pub(super) fn ed25519(id: &'static str) -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let key = SigningKey::Ed25519(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap());
        Self { id, algorithm: "EdDSA", key }
    }

    pub(super) fn p256(id: &'static str) -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
        Self { id, algorithm: "ES256", key: SigningKey::P256(key) }
    }

    /// Returns the signer with the RSA key of these tests: ring creates none.
    pub(super) fn rsa(id: &'static str) -> Self {
        let pem = include_str!("test_rsa_key.pem");
        let base64: String = pem.lines().filter(|line| !line.starts_with("---")).collect();
        let key = RsaKeyPair::from_pkcs8(&STANDARD.decode(base64).unwrap()).unwrap();
        Self { id, algorithm: "RS256", key: SigningKey::Rsa(key) }
    }

    /// Returns one signer of each algorithm.
    pub(super) fn all() -> [Self; 3] {
        [Self::ed25519("ed"), Self::p256("ec"), Self::rsa("rsa")]
    }

    /// Returns the public key as a JSON Web Key.
    pub(super) fn jwk(&self) -> Value {
        match &self.key {
            SigningKey::Ed25519(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": base64url(key.public_key()), "kid": self.id})
            }
            SigningKey::P256(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "x": base64url(x), "y": base64url(y), "kid": self.id})
            }
            SigningKey::Rsa(key) => {
                let PublicKeyComponents::<Vec<u8>> { n, e } = key.public().into();
                json!({"kty": "RSA", "n": base64url(n), "e": base64url(e), "kid": self.id, "use": "sig"})
            }
        }
    }

    /// Returns the header of this key's tokens.
    pub(super) fn header(&self) -> Value {
        json!({"typ": "JWT", "alg": self.algorithm, "kid": self.id})
    }

    pub(super) fn token(&self, claims: &Value) -> String {
        self.token_with(&self.header(), claims)
    }

    /// Returns a token with any header, signed by this key.
    pub(super) fn token_with(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", base64url(header.to_string()), base64url(claims.to_string()));
        format!("{message}.{}", base64url(self.sign(message.as_bytes())))
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.key {
            SigningKey::Ed25519(key) => key.sign(message).as_ref().to_vec(),
            SigningKey::P256(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            SigningKey::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
                signature
            }
        }
    }
}
