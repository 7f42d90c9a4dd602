//! The signatures of `jsonwebtoken` by ring, which TLS and the packet cipher use already.
//!
//! Only EdDSA with Ed25519, ES256 and RS256 exist here. There is no HMAC and nothing that signs.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind, new_error};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(new_error(ErrorKind::UnsupportedAlgorithm)),
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes ring the provider of this process, unless the program has installed another one.
pub(super) fn install() {
    let _ = PROVIDER.install_default();
}

/// A key with its algorithm.
struct RingVerifier {
    algorithm: Algorithm,
    key: RingKey,
}

enum RingKey {
    Ed25519(UnparsedPublicKey<Vec<u8>>),
    P256(UnparsedPublicKey<Vec<u8>>),
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    // The family of the key must be that of the algorithm: no public key becomes the secret of an HMAC.
    if key.family() != algorithm.family() {
        return Err(new_error(ErrorKind::InvalidAlgorithm));
    }
    let key = match (algorithm, key.kind()) {
        (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(bytes)) => {
            RingKey::Ed25519(UnparsedPublicKey::new(&ED25519, bytes.clone()))
        }
        (Algorithm::ES256, DecodingKeyKind::SecretOrDer(bytes)) => {
            RingKey::P256(UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, bytes.clone()))
        }
        (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
            RingKey::Rsa(RsaPublicKeyComponents { n: n.clone(), e: e.clone() })
        }
        _ => return Err(new_error(ErrorKind::UnsupportedAlgorithm)),
    };
    Ok(Box::new(RingVerifier { algorithm: *algorithm, key }))
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match &self.key {
            RingKey::Ed25519(key) | RingKey::P256(key) => key.verify(message, signature),
            RingKey::Rsa(key) => key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

#[cfg(test)]
mod tests;
