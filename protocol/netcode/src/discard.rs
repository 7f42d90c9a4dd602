//! The reasons for which a datagram is dropped, and a counter for each.
//!
//! A bad datagram is counted here. It is never an error and never a log line, because any sender could then fill the
//! disk.

/// Defines an enum of reasons and a table of counters for them.
#[doc(hidden)]
#[macro_export]
macro_rules! discard_reasons {
    (
        $(#[doc = $enum_doc:literal])+ $reason:ident;
        $(#[doc = $counters_doc:literal])+ $counters:ident;
        $($(#[doc = $doc:literal])+ $variant:ident => $name:literal,)+
    ) => {
        $(#[doc = $enum_doc])+
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum $reason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl $reason {
            /// Every reason, in the order of the counters.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// The number of reasons.
            pub const COUNT: usize = Self::ALL.len();

            /// Returns the reason as a stable `snake_case` word, for metrics and logs.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }

        impl core::fmt::Display for $reason {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }

        $(#[doc = $counters_doc])+
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct $counters([u64; $reason::COUNT]);

        impl Default for $counters {
            fn default() -> Self {
                Self([0; $reason::COUNT])
            }
        }

        impl $counters {
            /// Returns the number of datagrams dropped for any reason.
            #[must_use]
            pub fn total(&self) -> u64 {
                // Saturating like the counters themselves, so that a flood cannot wrap the sum.
                self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
            }

            /// Returns the reasons that occurred, with their counts.
            pub fn iter(&self) -> impl Iterator<Item = ($reason, u64)> + '_ {
                $reason::ALL.iter().map(|reason| (*reason, self[*reason])).filter(|(_, count)| *count > 0)
            }
        }

        impl core::ops::Index<$reason> for $counters {
            type Output = u64;

            /// Returns the number of datagrams dropped for this reason.
            fn index(&self, reason: $reason) -> &u64 {
                // Each variant has a counter. The fallback only avoids a panic path.
                self.0.get(reason as usize).unwrap_or(&0)
            }
        }

        impl core::ops::AddAssign<$reason> for $counters {
            /// Counts one dropped datagram.
            #[inline]
            fn add_assign(&mut self, reason: $reason) {
                // The array has one counter for each variant, so the lookup always succeeds.
                if let Some(count) = self.0.get_mut(reason as usize) {
                    *count = count.saturating_add(1);
                }
            }
        }

        impl core::ops::AddAssign<&Self> for $counters {
            /// Adds the counts of another set of counters, for a sum over shards.
            fn add_assign(&mut self, other: &Self) {
                // Saturating: a sum over shards must not wrap when one of them has saturated.
                self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count = count.saturating_add(more));
            }
        }

        impl core::fmt::Debug for $counters {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_map().entries(self.iter().map(|(reason, count)| (reason.name(), count))).finish()
            }
        }
    };
}

discard_reasons! {
    /// Why a datagram was dropped. The order is that of the checks: any packet, requests, tokens, responses, budgets.
    Discard;
    /// A counter for each reason. Counters saturate and are never reset.
    ///
    /// # Examples
    /// ```
    /// use slipgate_netcode::discard::{Discard, Discards};
    ///
    /// let mut discards = Discards::default();
    /// discards += Discard::TokenUsed;
    /// assert_eq!(discards[Discard::TokenUsed], 1);
    /// assert_eq!(discards.iter().collect::<Vec<_>>(), [(Discard::TokenUsed, 1)]);
    /// ```
    Discards;
    /// An empty datagram. It carries nothing, and must not end a receive loop.
    Empty => "empty",
    /// Too short for its kind.
    TooShort => "too_short",
    /// Longer than any packet of the protocol.
    TooLong => "too_long",
    /// A packet type that does not exist (low nibble 7 to 15).
    UnknownType => "unknown_type",
    /// A packet type that this side never accepts.
    UnexpectedType => "unexpected_type",
    /// A prefix with 0 or more than 8 sequence bytes.
    SequenceLength => "sequence_length",
    /// An encrypted packet from an address for which there is no key.
    UnknownSender => "unknown_sender",
    /// An encrypted packet from the address of a connection that has just ended, such as a repeated disconnect.
    ConnectionEnded => "connection_ended",
    /// A sequence number that was received before, or lies behind the replay window.
    Replayed => "replayed",
    /// A packet that does not decrypt with the sender's key.
    NotAuthentic => "not_authentic",
    /// An authentic packet with the wrong content size for its type.
    ContentSize => "content_size",
    /// An authentic packet of a type that the present state does not expect.
    WrongState => "wrong_state",
    /// An authentic keep-alive that assigns a slot at or above the server's number of slots.
    SlotOutOfRange => "slot_out_of_range",
    /// A connection request that is not exactly 1078 bytes long.
    RequestLength => "request_length",
    /// A connection request of another protocol version.
    RequestVersion => "request_version",
    /// A connection request for another game (protocol id).
    RequestProtocol => "request_protocol",
    /// The connect token has expired.
    TokenExpired => "token_expired",
    /// The connect token has not expired, but one with its expiry may have been used and forgotten before the wall
    /// clock was stepped back.
    ClockStepped => "clock_stepped",
    /// The connect token expires later than the configured maximum lifetime permits.
    TokenLifetimeTooLong => "token_lifetime_too_long",
    /// The connect token was already used for a connection.
    TokenUsed => "token_used",
    /// The token history is full of unexpired tokens, so a new token is refused.
    HistoryFull => "history_full",
    /// The client id has used its maximum of connect tokens that have not expired, so another one is refused.
    ClientIdTokens => "client_id_tokens",
    /// The token history could not be written to its storage, so the connection is refused.
    HistoryUnavailable => "history_unavailable",
    /// The source (IPv4 /32, IPv6 /64) used up its budget of token decryptions.
    SourceBudget => "source_budget",
    /// All sources together used up the budget of token decryptions.
    GlobalBudget => "global_budget",
    /// The private part of the connect token does not decrypt with any of the server's keys.
    TokenNotAuthentic => "token_not_authentic",
    /// The private part decrypts, but its content is malformed.
    TokenMalformed => "token_malformed",
    /// A valid token that lists none of this server's advertised addresses.
    AddressNotListed => "address_not_listed",
    /// A token that was, or may have been, minted before this server started.
    BeforeStart => "before_start",
    /// A request or response from an address that already has a slot.
    AddressConnected => "address_connected",
    /// A request or response for a client id that already has a slot.
    ClientIdConnected => "client_id_connected",
    /// A request from an address at which another client's token is pending.
    AddressPending => "address_pending",
    /// The token is pending at the maximum number of addresses for one token.
    TokenAddresses => "token_addresses",
    /// Another token for the same client id is pending, and the new one is not newer.
    ClientIdPending => "client_id_pending",
    /// The table of pending clients is full.
    PendingFull => "pending_full",
    /// The challenge token in a response does not decrypt.
    ChallengeNotAuthentic => "challenge_not_authentic",
    /// The challenge was made for another address, token or pending client.
    ChallengeForeign => "challenge_foreign",
    /// The challenge is older than the configured lifetime.
    ChallengeExpired => "challenge_expired",
    /// The connection requests of unknown senders used up their budget of this turn.
    StrangerBudget => "stranger_budget",
    /// The responses of pending clients, or forged ones under this address, used up their budget of this turn.
    PendingBudget => "pending_budget",
    /// A connected client used up its budget of this turn.
    ClientBudget => "client_budget",
    /// Forged packets under the addresses of connected clients used up their budget of this turn.
    ForgeryBudget => "forgery_budget",
    /// The event queue is full because the application does not take events, so no client is admitted.
    EventsFull => "events_full",
    /// The endpoint is stopped or not connecting.
    NotRunning => "not_running",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter_and_name() {
        let mut discards = Discards::default();
        for (index, reason) in Discard::ALL.iter().enumerate() {
            assert_eq!(index, *reason as usize);
            for _ in 0..=index {
                discards += *reason;
            }
        }
        for (index, reason) in Discard::ALL.iter().enumerate() {
            assert_eq!(discards[*reason], index as u64 + 1);
            assert_eq!(Discard::ALL.iter().filter(|other| other.name() == reason.name()).count(), 1);
        }
    }
}
