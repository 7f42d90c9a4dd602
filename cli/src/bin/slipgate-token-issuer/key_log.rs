//! The lines of the log that say which keys are loaded, without a secret.

use slipgate_cli::keys::list_fingerprints;
use slipgate_token_issuer::callers::ApiKeys;
use slipgate_token_issuer::http::Games;
use tracing::info;

/// The keys of the games and of the callers, for the log.
pub(crate) struct KeyLog {
    /// The protocol id of each game, and the fingerprints of its private keys.
    games: Vec<(u64, String)>,
    api_keys: String,
}

impl KeyLog {
    pub(crate) fn of(games: &Games, api_keys: &ApiKeys) -> Self {
        let games = games.iter().map(|issuer| (issuer.protocol_id(), list_fingerprints(issuer.key_fingerprints())));
        Self { games: games.collect(), api_keys: api_keys.list() }
    }

    /// Logs one line for each game, of which there are at most 64, and one for the API keys.
    pub(crate) fn write(&self) {
        for (protocol_id, fingerprints) in &self.games {
            let protocol_id = format_args!("{protocol_id:#x}");
            info!(protocol_id, fingerprints, "the private keys of a game are loaded; the first one seals its tokens");
        }
        info!(accepted = self.api_keys, "the API keys are loaded, each with the first digits of its digests");
    }
}
