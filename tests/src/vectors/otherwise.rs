//! Our decisions that differ from the reference, with reasons: a table that is exact in both directions.

use std::collections::BTreeSet;

use super::Case;

/// Decisions that differ from the reference on purpose.
///
/// The table is exact, as [`REFUSED_ON_PURPOSE`](super::REFUSED_ON_PURPOSE) is: an unlisted difference fails its test,
/// and so does an entry that is not needed or that has another outcome.
pub const DECIDED_OTHERWISE: &[Otherwise] = &[
    Otherwise {
        file: DECISIONS,
        scenario: "token_bound_to_first_address",
        what: "same token from B: ignored",
        ours: "challenge",
        reason: "a thief that presents a sniffed request first must not lock its owner out: the response binds a token",
    },
    Otherwise {
        file: DECISIONS,
        scenario: "one_slot_per_client_id_and_per_address",
        what: "B asks with another token for the same id",
        ours: "ignored",
        reason: "one client id is pending with one token at a time, and this one is not newer",
    },
    Otherwise {
        file: DECISIONS,
        scenario: "responses",
        what: "B's challenge token presented by A under A's key",
        ours: "ignored",
        reason: "a challenge is bound to its address, token and pending entry, or a spoofed address could be connected",
    },
    Otherwise {
        file: DECISIONS,
        scenario: "order_of_checks_when_full",
        what: "same token from another address: ignored, because the denied request already bound it",
        ours: "denied",
        reason: "a token may be pending at a few addresses, and each of them learns that the server is full",
    },
    Otherwise {
        file: SESSIONS,
        scenario: "same_token_again",
        what: "replayed states of 127.1.0.101:50001",
        ours: "sending_connection_request, sending_connection_response, connected, disconnected, invalid_connect_token",
        reason: REUSED,
    },
    Otherwise {
        file: SESSIONS,
        scenario: "same_token_again",
        what: "live states of 127.1.0.101:50001",
        ours: "sending_connection_request, sending_connection_response, connected, disconnected, invalid_connect_token",
        reason: REUSED,
    },
    Otherwise {
        file: SESSIONS,
        scenario: "same_token_again",
        what: "live clients of 127.1.0.1:40000",
        ours: "3880869500433790910 in 0, client_disconnect from 0",
        reason: REUSED,
    },
    Otherwise {
        file: SESSIONS,
        scenario: "same_token_again",
        what: "live payloads to 127.1.0.1:40000",
        ours: "",
        reason: REUSED,
    },
    Otherwise {
        file: SESSIONS,
        scenario: "slots_lowest_free_index",
        what: "replayed states of 127.1.0.102:50002",
        ours: "sending_connection_request, sending_connection_response, connected, disconnected, invalid_connect_token",
        reason: REUSED,
    },
    Otherwise {
        file: SESSIONS,
        scenario: "slots_lowest_free_index",
        what: "live states of 127.1.0.102:50002",
        ours: "sending_connection_request, sending_connection_response, connected, disconnected, invalid_connect_token",
        reason: REUSED,
    },
    Otherwise {
        file: SESSIONS,
        scenario: "slots_lowest_free_index",
        what: "live clients of 127.1.0.1:40000",
        ours: "1000 in 0, 1001 in 1, 1002 in 2, client_disconnect from 1",
        reason: REUSED,
    },
    Otherwise {
        file: SESSIONS,
        scenario: "server_disconnect_with_more_addresses_left",
        what: "replayed states of 127.1.0.101:50001",
        ours: "sending_connection_request, sending_connection_response, connected, disconnected",
        reason: FINAL,
    },
    Otherwise {
        file: SESSIONS,
        scenario: "server_disconnect_with_more_addresses_left",
        what: "live states of 127.1.0.101:50001",
        ours: "sending_connection_request, sending_connection_response, connected, disconnected",
        reason: FINAL,
    },
    Otherwise {
        file: SESSIONS,
        scenario: "server_disconnect_with_more_addresses_left",
        what: "live clients of 127.1.0.2:40001",
        ours: "",
        reason: FINAL,
    },
    Otherwise {
        file: SESSIONS,
        scenario: "timeout_zero",
        what: "replayed states of 127.1.0.101:50001",
        ours: "sending_connection_request, sending_connection_response, connection_response_timed_out",
        reason: ZERO,
    },
    Otherwise {
        file: SESSIONS,
        scenario: "timeout_zero",
        what: "live states of 127.1.0.101:50001",
        ours: "sending_connection_request, sending_connection_response, connected",
        reason: ZERO,
    },
    Otherwise {
        file: SESSIONS,
        scenario: "timeout_zero",
        what: "live clients of 127.1.0.1:40000",
        ours: "286521863628101758 in 0",
        reason: ZERO,
    },
];

const DECISIONS: &str = "netcode_server_decisions.json";
const SESSIONS: &str = "netcode_sessions.json";

const REUSED: &str = "both sides would reuse keys and sequence numbers with a used token";
const FINAL: &str = "a kick is final: the server meant it, and the next server shares the token's keys";
const ZERO: &str = "both sides raise a timeout of 0 s to 1 s: the client connects, where the reference waits for ever";

/// One outcome that differs on purpose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Otherwise {
    /// The file of vectors.
    pub file: &'static str,
    /// The scenario in it.
    pub scenario: &'static str,
    /// The outcome in the scenario.
    pub what: &'static str,
    /// Our outcome.
    pub ours: &'static str,
    /// The reason.
    pub reason: &'static str,
}

/// Compares the outcomes of a file's scenarios with those of the reference.
pub struct Judge {
    expected: BTreeSet<Otherwise>,
    needed: BTreeSet<Otherwise>,
}

impl Judge {
    /// Creates a comparison for the outcomes of a file that `concerns` selects.
    #[must_use]
    pub fn new(file: &'static str, concerns: impl Fn(&str) -> bool) -> Self {
        let mine = |entry: &&Otherwise| entry.file == file && concerns(entry.what);
        Self { expected: DECIDED_OTHERWISE.iter().filter(mine).copied().collect(), needed: BTreeSet::new() }
    }

    /// Compares one outcome.
    ///
    /// # Panics
    /// If it differs from the reference and is not listed in [`DECIDED_OTHERWISE`] with this outcome.
    pub fn compare(&mut self, scenario: &Case<'_>, what: &str, reference: &str, ours: &str) {
        if reference == ours {
            return;
        }
        let mut listed = self.expected.iter().filter(|entry| entry.scenario == scenario.name() && entry.what == what);
        let entry = listed.next().unwrap_or_else(|| {
            panic!("{scenario}: {what}: the reference's outcome is\n  {reference}\nand ours is\n  {ours}")
        });
        assert_eq!(entry.ours, ours, "{scenario}: {what}: our outcome in DECIDED_OTHERWISE");
        self.needed.insert(*entry);
    }

    /// Ends the file: checks that every entry for it was needed.
    ///
    /// # Panics
    /// If an entry was not needed: we decide as the reference does, or its scenario or outcome does not exist.
    pub fn all_entries_were_needed(self) {
        assert_eq!(self.needed, self.expected, "entries of DECIDED_OTHERWISE");
    }
}
