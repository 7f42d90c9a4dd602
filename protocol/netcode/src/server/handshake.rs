//! The latest steps of handshakes, so that an application can log why a player did or did not get in.
//!
//! ```text
//!   a token opened ──────▶ up to 64 steps; the oldest makes room ─┐
//!   no token opened ─────▶ up to 16 steps; later ones are dropped ┴▶ NetcodeServer::poll_handshake
//! ```
//!
//! Strangers can fill only the second list, so they cannot hide what happens to players.

use alloc::collections::VecDeque;

#[cfg(doc)]
use super::NetcodeServer;
use super::pending::Pending;
use crate::address::Address;
use crate::discard::Discard;
use crate::ids::ClientId;
use crate::time::{UnixMillis, UnixSeconds};
use crate::token::redeem::{Redeemed, TokenAge};

/// The most steps of opened tokens that wait: more than the players that try to join in one turn.
const MAX_OPENED: usize = 64;
/// The most steps without an opened token that wait: enough to see which checks drop datagrams.
const MAX_UNOPENED: usize = 16;

/// One step of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandshakeStep {
    /// The sender's address. It is proven only if the outcome is [`HandshakeOutcome::Connected`] or
    /// [`HandshakeOutcome::AwaitsHistory`].
    pub address: Address,
    /// The client's token, if it opened with a key of this server.
    pub token: Option<OpenedToken>,
    /// The outcome of the datagram.
    pub outcome: HandshakeOutcome,
}

/// The claims of a token that opened with one of the server's keys, so the issuer wrote them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenedToken {
    /// The client id.
    pub client_id: ClientId,
    /// The time at which the token was minted, by the issuer's clock; `None` from other issuers than Slipgate's.
    pub minted: Option<UnixMillis>,
    /// The second from which on the token is refused.
    pub expires: UnixSeconds,
}

/// The outcome of a handshake datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HandshakeOutcome {
    /// A request was accepted, and a challenge is due.
    Challenged,
    /// A response was accepted, and the client has a slot.
    Connected,
    /// A response was accepted. The client gets its slot when the journal has recorded its token. Until then its
    /// requests and responses are dropped as [`Discard::HistoryUnavailable`].
    AwaitsHistory,
    /// All slots are taken, and a denial is due.
    DeniedFull,
    /// The server accepts no new clients, and a denial is due.
    DeniedClosed,
    /// The datagram was dropped.
    Dropped(Discard),
}

impl OpenedToken {
    pub(super) fn of(redeemed: &Redeemed) -> Self {
        let Redeemed { client_id, minted, expires, .. } = *redeemed;
        Self { client_id, minted, expires }
    }

    pub(super) fn of_pending(pending: &Pending) -> Self {
        Self::of_age(pending.bound.client_id, pending.age)
    }

    pub(super) const fn of_age(client_id: ClientId, age: TokenAge) -> Self {
        Self { client_id, minted: age.minted(), expires: age.expires() }
    }
}

/// The steps that wait to be taken.
pub(super) struct HandshakeLog {
    opened: VecDeque<HandshakeStep>,
    unopened: VecDeque<HandshakeStep>,
}

impl HandshakeLog {
    pub(super) fn new() -> Self {
        Self { opened: VecDeque::with_capacity(MAX_OPENED), unopened: VecDeque::with_capacity(MAX_UNOPENED) }
    }

    /// Adds the step of a client with an opened token. A client that repeats a datagram has one step for each outcome.
    pub(super) fn add_opened(&mut self, address: Address, token: OpenedToken, outcome: HandshakeOutcome) {
        let is_same = |step: &HandshakeStep| {
            step.outcome == outcome && step.token.is_some_and(|earlier| earlier.client_id == token.client_id)
        };
        if self.opened.iter().any(is_same) {
            return;
        }
        if self.opened.len() >= MAX_OPENED {
            self.opened.pop_front();
        }
        self.opened.push_back(HandshakeStep { address, token: Some(token), outcome });
    }

    /// Adds a dropped datagram without an opened token.
    #[inline]
    pub(super) fn add_unopened(&mut self, address: Address, reason: Discard) {
        if self.unopened.len() < MAX_UNOPENED {
            let outcome = HandshakeOutcome::Dropped(reason);
            self.unopened.push_back(HandshakeStep { address, token: None, outcome });
        }
    }

    pub(super) fn poll(&mut self) -> Option<HandshakeStep> {
        self.opened.pop_front().or_else(|| self.unopened.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        core::net::SocketAddr::from(([192, 0, 2, 1], port)).into()
    }

    fn token(client_id: u64) -> OpenedToken {
        OpenedToken { client_id: ClientId(client_id), minted: None, expires: UnixSeconds(60) }
    }

    #[test]
    fn strangers_cannot_push_out_the_steps_of_players() {
        let mut log = HandshakeLog::new();
        log.add_opened(address(1), token(42), HandshakeOutcome::Dropped(Discard::BeforeStart));
        for port in 0..1000 {
            log.add_unopened(address(port), Discard::TokenNotAuthentic);
        }
        let first = log.poll().unwrap();
        assert_eq!(first.token.unwrap().client_id, ClientId(42));
        assert_eq!(core::iter::from_fn(|| log.poll()).count(), MAX_UNOPENED);
    }

    #[test]
    fn step_has_the_mint_time_and_expiry_of_its_token() {
        let age = TokenAge::new(Some(UnixMillis(59_000)), UnixSeconds(60));
        let expected = OpenedToken { minted: Some(UnixMillis(59_000)), ..token(1) };
        assert_eq!(OpenedToken::of_age(ClientId(1), age), expected);
    }

    #[test]
    fn one_client_has_one_step_for_each_outcome() {
        let mut log = HandshakeLog::new();
        for _ in 0..100 {
            log.add_opened(address(1), token(1), HandshakeOutcome::Challenged);
            log.add_opened(address(1), token(1), HandshakeOutcome::Dropped(Discard::ChallengeExpired));
        }
        log.add_opened(address(1), token(2), HandshakeOutcome::Challenged);
        assert_eq!(core::iter::from_fn(|| log.poll()).count(), 3);
    }

    #[test]
    fn the_latest_steps_of_many_clients_are_kept() {
        let mut log = HandshakeLog::new();
        let capacity = log.opened.capacity();
        (0..1000).for_each(|id| log.add_opened(address(1), token(id), HandshakeOutcome::Connected));
        let ids: alloc::vec::Vec<_> =
            core::iter::from_fn(|| log.poll()).map(|step| step.token.unwrap().client_id.0).collect();
        assert_eq!(ids, (1000 - MAX_OPENED as u64..1000).collect::<alloc::vec::Vec<_>>());
        assert_eq!(log.opened.capacity(), capacity, "no allocation after the start");
    }
}
