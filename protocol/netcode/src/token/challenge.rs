//! The challenge: proof that a client receives at the address it writes from, with the token it presented there.
//!
//! The standard ties a challenge to nothing, so one earned at an attacker's own address admits a spoofed one. Ours
//! carries, in 20 plaintext bytes that clients never read, its mint time and a keyed digest of all it stands for:
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
use crate::time::Instant;
use crate::wire::cursor::{Reader, Writer};
use crate::wire::packet::Challenge;
use crate::wire::{CHALLENGE_TOKEN_BYTES, USER_DATA_BYTES, UserData};

/// What a challenge stands for: all of it must be the same when it comes back.
#[derive(Clone, Copy)]
pub struct Binding {
    /// Where it was sent.
    pub address: Address,
    /// The token that was presented there.
    pub token: Digest,
    /// The pending client for which it was made: a number that is never used twice in one start.
    pub pending: u64,
    /// The client whom the token names.
    pub client_id: u64,
}

/// Makes challenges and recognises them; its keys are those of one start of a server.
pub struct Challenger {
    key: Key,
    binding: DigestKey,
    lane: Lane,
}

impl Challenger {
    /// The challenger of this start.
    #[must_use]
    pub fn new(seed: &Seed) -> Self {
        Self {
            key: Key::from_bytes(seed.derive("challenge key")),
            binding: DigestKey::new(&seed.derive("challenge binding")),
            lane: Lane::challenge_tokens(),
        }
    }

    /// A new challenge, or `None` after 2^64 of them.
    pub fn challenge(&mut self, bound: &Binding, user_data: &UserData, now: Instant) -> Option<Challenge> {
        let sequence = self.lane.take()?;
        let minted = millis(now);
        let mut sealed = [0; CHALLENGE_TOKEN_BYTES];
        let mut writer = Writer::new(&mut sealed);
        writer.u64(bound.client_id);
        writer.bytes(user_data);
        writer.u32(minted);
        writer.bytes(&self.digest(bound, minted).0);
        seal_challenge(&self.key, sequence, &mut sealed);
        Some(Challenge { sequence, sealed })
    }

    /// Whether a returned challenge is ours, was made for this binding, and is at most `lifetime` old.
    ///
    /// # Errors
    /// `ChallengeNotAuthentic`, `ChallengeForeign` or `ChallengeExpired`.
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
        let fields = (reader.u64(), reader.array::<USER_DATA_BYTES>(), reader.u32(), reader.array::<DIGEST_BYTES>());
        let (Some(client_id), Some(_), Some(minted), Some(digest)) = fields else {
            return Err(Discard::ChallengeNotAuthentic);
        };
        if client_id != bound.client_id || self.digest(bound, minted) != Digest(*digest) {
            return Err(Discard::ChallengeForeign);
        }
        let age = Duration::from_millis(u64::from(millis(now).wrapping_sub(minted)));
        if age > lifetime { Err(Discard::ChallengeExpired) } else { Ok(()) }
    }

    fn digest(&self, bound: &Binding, minted: u32) -> Digest {
        self.binding.digest(&[
            &bound.address.to_bytes(),
            &bound.token.0,
            &bound.pending.to_le_bytes(),
            &bound.client_id.to_le_bytes(),
            &minted.to_le_bytes(),
        ])
    }
}

/// Milliseconds of the server's clock, modulo 2^32 (49 days): a pending client does not live nearly as long.
fn millis(now: Instant) -> u32 {
    now.since_start().as_millis() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(5);

    fn bound() -> Binding {
        let address: core::net::SocketAddr = "192.0.2.1:4000".parse().unwrap();
        Binding { address: address.into(), token: Digest([1; 16]), pending: 7, client_id: 9 }
    }

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn a_challenge_is_worth_nothing_for_another_address_token_pending_client_or_client_id() {
        let mut challenger = Challenger::new(&Seed::from_bytes([1; 32]));
        let challenge = challenger.challenge(&bound(), &[5; 256], at(0)).unwrap();
        assert_eq!(challenger.verify(challenge, &bound(), at(1), LIFETIME), Ok(()));
        let elsewhere: core::net::SocketAddr = "192.0.2.1:4001".parse().unwrap();
        let others = [
            Binding { address: elsewhere.into(), ..bound() },
            Binding { token: Digest([2; 16]), ..bound() },
            Binding { pending: 8, ..bound() },
            Binding { client_id: 10, ..bound() },
        ];
        for other in others {
            assert_eq!(challenger.verify(challenge, &other, at(1), LIFETIME), Err(Discard::ChallengeForeign));
        }
    }

    #[test]
    fn a_challenge_expires_and_the_clock_may_wrap_meanwhile() {
        let mut challenger = Challenger::new(&Seed::from_bytes([1; 32]));
        for start in [0, u64::from(u32::MAX) - 100] {
            let challenge = challenger.challenge(&bound(), &[5; 256], at(start)).unwrap();
            assert_eq!(challenger.verify(challenge, &bound(), at(start + 5000), LIFETIME), Ok(()));
            let late = challenger.verify(challenge, &bound(), at(start + 5001), LIFETIME);
            assert_eq!(late, Err(Discard::ChallengeExpired));
        }
    }

    #[test]
    fn a_challenge_of_another_start_does_not_open() {
        let mut before = Challenger::new(&Seed::from_bytes([1; 32]));
        let after = Challenger::new(&Seed::from_bytes([2; 32]));
        let challenge = before.challenge(&bound(), &[5; 256], at(0)).unwrap();
        assert_eq!(after.verify(challenge, &bound(), at(0), LIFETIME), Err(Discard::ChallengeNotAuthentic));
    }
}
