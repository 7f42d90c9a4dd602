//! Which tokens this program has used, whichever of its clients did.
//!
//! A second session with a token would seal under the same keys and sequence numbers. A client remembers its own, but a
//! game may make a new client for each attempt and still hold the token.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use slipgate_netcode::client::TokenName;

/// How many tokens are remembered; the oldest goes. At one connect a second that is over an hour, and tokens live
/// seconds.
const REMEMBERED: usize = 4096;

static USED: Mutex<VecDeque<TokenName>> = Mutex::new(VecDeque::new());

/// Whether something was sealed under this token.
pub(crate) fn contains(token: &TokenName) -> bool {
    USED.lock().unwrap_or_else(PoisonError::into_inner).contains(token)
}

/// Something was sealed under this token.
pub(crate) fn note(token: TokenName) {
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    if used.len() >= REMEMBERED {
        used.pop_front();
    }
    used.push_back(token);
}
