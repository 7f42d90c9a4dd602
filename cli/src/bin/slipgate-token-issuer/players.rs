//! The settings of players' own JSON Web Tokens.

use std::time::Duration;

use slipgate_cli::Failure;
use slipgate_token_issuer::players::{ClientIdMapping, DEFAULT_LEEWAY, PlayerSettings};

use crate::config_file::{ClientIdName, PlayerTable};

/// The longest tolerance for the clocks of the issuer and of the identity provider.
const MAX_LEEWAY: Duration = Duration::from_secs(300);

/// Checks the table `players` of the configuration file.
pub(crate) fn read(table: PlayerTable) -> Result<PlayerSettings, Failure> {
    let wrong = |problem: &dyn std::fmt::Display| Failure::usage(format!("players: {problem}"));
    let leeway = table.leeway_seconds.map_or(DEFAULT_LEEWAY, Duration::from_secs);
    if leeway > MAX_LEEWAY {
        return Err(wrong(&format!("leeway_seconds must be at most {}", MAX_LEEWAY.as_secs())));
    }
    Ok(PlayerSettings {
        keys: table.keys.parse().map_err(|error| wrong(&error))?,
        authorities: table.ca_file,
        issuer: table.issuer,
        audiences: table.audiences.into(),
        claim: table.claim.unwrap_or_else(|| "sub".to_owned()),
        client_id: table.client_id.map_or(ClientIdMapping::Hash, ClientIdMapping::from),
        leeway,
    })
}

impl From<ClientIdName> for ClientIdMapping {
    fn from(name: ClientIdName) -> Self {
        match name {
            ClientIdName::Hash => Self::Hash,
            ClientIdName::Number => Self::Number,
        }
    }
}
