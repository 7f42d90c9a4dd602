//! The token issuer of the demo.

use std::net::{SocketAddr, TcpListener};

use slipgate_cli::Failure;
use slipgate_netcode::crypto::key::KeyRing;
use slipgate_token_issuer::api_key::ApiKey;
use slipgate_token_issuer::callers::ApiKeys;
use slipgate_token_issuer::http::{self, RunningService, TokenService};
use slipgate_token_issuer::{Issuer, Limits};

use super::failures::cannot_listen;
use crate::keygen::entropy;

/// The protocol id of the demo's game.
pub(super) const PROTOCOL_ID: u64 = 0x51_19_67_a7_e0_de_30_01;
/// Starts the issuer on a loopback address.
pub(super) fn start_issuer(
    bind: SocketAddr,
    keys: KeyRing,
    server: SocketAddr,
    api_key: &ApiKey,
) -> Result<RunningService, Failure> {
    if !bind.ip().is_loopback() {
        return Err(Failure::usage(format!(
            "the demo's issuer serves plain HTTP, so {bind} must be a loopback address"
        )));
    }
    let issuer = Issuer::new(PROTOCOL_ID, keys, &[server], Limits::default())
        .map_err(|error| Failure::usage(error.to_string()))?;
    let digest = api_key.digest(&mut entropy()?);
    let api_keys = ApiKeys::new(vec![digest]).map_err(|error| Failure::run_time(error.to_string()))?;
    TcpListener::bind(bind)
        .and_then(|listener| http::spawn(listener, TokenService::new(issuer, api_keys)))
        .map_err(|error| cannot_listen("issuer", "HTTP", bind, &error))
}
