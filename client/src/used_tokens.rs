//! The tokens that any client of this program has used.
//!
//! A second session with a token would use the same keys and sequence numbers, and so the same nonces. A client
//! remembers its own tokens, but a game may create a new client for each attempt and still hold the token.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use slipgate_netcode::client::TokenName;

/// The number of remembered tokens; the oldest is forgotten. They last for over an hour at one connect per second, and
/// tokens live for seconds.
const MAX_REMEMBERED: usize = 4096;

static USED: Mutex<VecDeque<TokenName>> = Mutex::new(VecDeque::new());

/// Returns whether a client of this program has encrypted a packet with the token's keys.
pub(crate) fn contains(token: &TokenName) -> bool {
    USED.lock().unwrap_or_else(PoisonError::into_inner).contains(token)
}

/// Records that a packet was encrypted with the token's keys.
pub(crate) fn record(token: TokenName) {
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    if used.len() >= MAX_REMEMBERED {
        used.pop_front();
    }
    used.push_back(token);
}
