//! The challenge: the proof that a client receives packets at the address that it sends from.
//!
//! The standard binds a challenge to nothing, so a challenge that an attacker earned at its own address admits a
//! spoofed one. This server's challenges carry their mint time and a keyed digest of their binding, in 20 plaintext
//! bytes that clients never read:
//!
//! ```text
//!  0         8                    264          268                284
//!  ├─────────┼────────────────────┼────────────┼──────────────────┤
//!  │client id│ user data          │ minted, ms │ digest           │
//!  └─────────┴────────────────────┴────────────┴──────────────────┘
//! ```

use core::time::Duration;

use crate::address::Address;
use crate::crypto::digest::{DIGEST_BYTES, Digest, DigestKey};
use crate::crypto::key::{Key, Seed};
use crate::crypto::lane::Lane;
use crate::crypto::sealed_token::{open_challenge, seal_challenge};
use crate::discard::Discard;
use crate::ids::ClientId;
use crate::time::Instant;
use crate::wire::cursor::{Reader, Writer};
use crate::wire::packet::Challenge;
use crate::wire::{CHALLENGE_TOKEN_BYTES, USER_DATA_BYTES, UserData};

/// The binding of a challenge. Each field must be the same when the challenge is returned.
#[derive(Clone, Copy)]
pub struct Binding {
    /// The address to which the challenge was sent.
    pub address: Address,
    /// The name of the token that was presented there.
    pub token: Digest,
    /// The number of the pending entry. It is never reused within one start.
    pub pending: u64,
    /// The client id in the token.
    pub client_id: ClientId,
}

/// Makes and verifies challenges. Its keys belong to one start of a server.
pub struct Challenger {
    key: Key,
    binding: DigestKey,
    lane: Lane,
}

impl Challenger {
    /// Returns the challenger of the start with this seed.
    #[must_use]
    pub fn new(seed: &Seed) -> Self {
        Self {
            key: Key::from(seed.derive("challenge key")),
            binding: DigestKey::from(&seed.derive("challenge binding")),
            lane: Lane::challenge_tokens(),
        }
    }

    /// Makes a new challenge. Returns `None` after 2^64 challenges.
    pub fn challenge(&mut self, bound: &Binding, user_data: &UserData, now: Instant) -> Option<Challenge> {
        // The sequence number is the nonce, so it must never repeat under the start's key.
        let sequence = self.lane.take()?;
        let minted = millis(now);
        let mut sealed = [0; CHALLENGE_TOKEN_BYTES];
        let mut writer = Writer::new(&mut sealed);
        writer.write::<u64>(bound.client_id.0);
        writer.bytes(user_data);
        writer.write::<u32>(minted);
        writer.bytes(&self.digest(bound, minted).0);
        seal_challenge(&self.key, sequence, &mut sealed);
        Some(Challenge { sequence, sealed })
    }

    /// Checks a returned challenge: it must be authentic, made for this binding, and at most `lifetime` old.
    ///
    /// # Errors
    /// - `ChallengeNotAuthentic` when it does not decrypt with this start's key.
    /// - `ChallengeForeign` when it was made for another binding.
    /// - `ChallengeExpired` when it is older than `lifetime`.
    pub fn verify(
        &self,
        mut challenge: Challenge,
        bound: &Binding,
        now: Instant,
        lifetime: Duration,
    ) -> Result<(), Discard> {
        let plain = open_challenge(&self.key, challenge.sequence, &mut challenge.sealed)
            .map_err(|_| Discard::ChallengeNotAuthentic)?;
        let mut reader = Reader::new(plain);
        let fields = (
            reader.read::<u64>(),
            reader.array::<USER_DATA_BYTES>(),
            reader.read::<u32>(),
            reader.array::<DIGEST_BYTES>(),
        );
        let (Some(client_id), Some(_), Some(minted), Some(digest)) = fields else {
            return Err(Discard::ChallengeNotAuthentic);
        };
        // The digest covers the client id too. The plain comparison is cheaper and comes first.
        if client_id != bound.client_id.0 || self.digest(bound, minted) != Digest(*digest) {
            return Err(Discard::ChallengeForeign);
        }
        // Wrapping: the 32-bit mint time overflows every 49 days.
        let age = Duration::from_millis(u64::from(millis(now).wrapping_sub(minted)));
        if age > lifetime { Err(Discard::ChallengeExpired) } else { Ok(()) }
    }

    fn digest(&self, bound: &Binding, minted: u32) -> Digest {
        // Every part has a fixed length, so no two bindings have the same bytes.
        self.binding.digest(&[
            &bound.address.to_bytes(),
            &bound.token.0,
            &bound.pending.to_le_bytes(),
            &bound.client_id.0.to_le_bytes(),
            &minted.to_le_bytes(),
        ])
    }
}

/// Returns the server's monotonic clock in milliseconds modulo 2^32 (49 days). A challenge lives at most 60 s.
fn millis(now: Instant) -> u32 {
    now.since_start().as_millis() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(5);

    fn bound() -> Binding {
        let address: core::net::SocketAddr = "192.0.2.1:4000".parse().unwrap();
        Binding { address: address.into(), token: Digest([1; 16]), pending: 7, client_id: ClientId(9) }
    }

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn challenge_with_any_other_binding_is_foreign() {
        let mut challenger = Challenger::new(&Seed::from([1; 32]));
        let challenge = challenger.challenge(&bound(), &[5; 256], at(0)).unwrap();
        assert_eq!(challenger.verify(challenge, &bound(), at(1), LIFETIME), Ok(()));
        let other_port: core::net::SocketAddr = "192.0.2.1:4001".parse().unwrap();
        let others = [
            Binding { address: other_port.into(), ..bound() },
            Binding { token: Digest([2; 16]), ..bound() },
            Binding { pending: 8, ..bound() },
            Binding { client_id: ClientId(10), ..bound() },
        ];
        for other in others {
            assert_eq!(challenger.verify(challenge, &other, at(1), LIFETIME), Err(Discard::ChallengeForeign));
        }
    }

    #[test]
    fn challenge_expires_even_if_the_clock_wraps() {
        let mut challenger = Challenger::new(&Seed::from([1; 32]));
        for start in [0, u64::from(u32::MAX) - 100] {
            let challenge = challenger.challenge(&bound(), &[5; 256], at(start)).unwrap();
            assert_eq!(challenger.verify(challenge, &bound(), at(start + 5000), LIFETIME), Ok(()));
            let late = challenger.verify(challenge, &bound(), at(start + 5001), LIFETIME);
            assert_eq!(late, Err(Discard::ChallengeExpired));
        }
    }

    #[test]
    fn challenge_of_another_start_is_not_authentic() {
        let mut before = Challenger::new(&Seed::from([1; 32]));
        let after = Challenger::new(&Seed::from([2; 32]));
        let challenge = before.challenge(&bound(), &[5; 256], at(0)).unwrap();
        assert_eq!(after.verify(challenge, &bound(), at(0), LIFETIME), Err(Discard::ChallengeNotAuthentic));
    }
}
