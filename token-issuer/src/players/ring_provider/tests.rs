//! The examples of the standards: RFC 7515, appendices A.2 and A.3, and RFC 8037, appendix A.4.

use serde::Deserialize;

use super::*;

/// A signature of a standard.
#[derive(Deserialize)]
struct StandardSignature {
    algorithm: Algorithm,
    jwk: jsonwebtoken::jwk::Jwk,
    message: String,
    signature: String,
}

impl StandardSignature {
    fn key(&self) -> DecodingKey {
        DecodingKey::from_jwk(&self.jwk).unwrap()
    }
}

fn examples() -> Vec<StandardSignature> {
    serde_json::from_str(include_str!("examples.json")).unwrap()
}

#[test]
fn signatures_of_the_standards_verify() {
    install();
    let examples = examples();
    assert_eq!(examples.len(), 3);
    for example in &examples {
        let algorithm = example.algorithm;
        let verify = |signature: &str, message: &str| {
            let verified = jsonwebtoken::crypto::verify(signature, message.as_bytes(), &example.key(), algorithm);
            verified.is_ok_and(|is_valid| is_valid)
        };
        let (message, signature) = (example.message.as_str(), example.signature.as_str());
        assert!(verify(signature, message), "{algorithm:?}");
        assert!(!verify(signature, &message.replace("eyJ", "eyK")), "{algorithm:?}");
        assert!(!verify(&signature[..signature.len() - 4], message), "{algorithm:?}");
        assert!(!verify("", message), "{algorithm:?}");
        for other in examples.iter().filter(|other| other.algorithm != algorithm) {
            assert!(verifier(&algorithm, &other.key()).is_err(), "{algorithm:?}");
        }
    }
}

#[test]
fn other_algorithms_have_no_verifier() {
    for algorithm in [Algorithm::HS256, Algorithm::RS384, Algorithm::PS256, Algorithm::ES384] {
        for example in examples() {
            assert!(verifier(&algorithm, &example.key()).is_err(), "{algorithm:?}");
        }
        assert!(verifier(&algorithm, &DecodingKey::from_secret(b"secret")).is_err(), "{algorithm:?}");
    }
}
