//! Private keys, and connect tokens for development. A token issuer mints them in production, beside the
//! backend that knows the players.

use std::ffi::c_char;

use slipgate_token_issuer::{Issuer, Key, Limits, TokenRequest, system_entropy, wall_clock};

use crate::boundary::{run, some};
use crate::pointer;
use crate::server::{read_addresses, read_keys};
use crate::status::{
    SLIPGATE_DONE, SLIPGATE_ERROR_ARGUMENT, SLIPGATE_ERROR_CONFIG, SLIPGATE_ERROR_IO, SLIPGATE_ERROR_TOO_LARGE,
};

/// The bytes of a private key.
pub const SLIPGATE_KEY_BYTES: u32 = 32;
/// The bytes of a connect token.
pub const SLIPGATE_TOKEN_BYTES: u32 = 2048;

/// The content of a connect token.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CClaims {
    /// The size of this structure: `sizeof(slipgate_claims)`.
    pub size: u32,
    /// How long the token is valid, in seconds; 0 for 30.
    pub lifetime_seconds: u32,
    /// The silence after which a connection ends, in seconds; 0 for the default of the issuer.
    pub timeout_seconds: u32,
    /// The bytes of `user_data`, at most 256.
    pub user_data_length: u32,
    /// The id of the game.
    pub protocol_id: u64,
    /// The id of the player.
    pub client_id: u64,
    /// The addresses of the servers, 1 to 32, separated by commas. The text ends with zero.
    pub servers: *const c_char,
    /// What the server learns about the player; null for nothing.
    pub user_data: *const u8,
}

/// Writes a new private key of 32 bytes. `IO` if the system gives no entropy.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_key_generate(key: *mut u8) -> i32 {
    run(|| {
        let out = pointer::buf(key, SLIPGATE_KEY_BYTES as usize)?;
        let key = Key::random(&mut system_entropy().map_err(|_| SLIPGATE_ERROR_IO)?);
        out.iter_mut().zip(key.expose()).for_each(|(to, byte)| _ = to.write(*byte));
        Ok(SLIPGATE_DONE)
    })
}

/// Mints a connect token of 2048 bytes with a private key of 32 bytes. The key must not be in the program of a player.
///
/// Errors: `ARGUMENT` for an invalid address, `TOO_LARGE` for too much user data, `CONFIG` for a lifetime or timeout
/// out of its bounds and for addresses that cannot be dialled, `IO` if the system gives no entropy.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_token_issue(claims: Option<&CClaims>, key: *const u8, token: *mut u8) -> i32 {
    run(|| {
        let (claims, out) = (some(claims)?, pointer::buf(token, SLIPGATE_TOKEN_BYTES as usize)?);
        if claims.size as usize != size_of::<CClaims>() {
            return Err(SLIPGATE_ERROR_ARGUMENT);
        }
        if claims.user_data_length > 256 {
            return Err(SLIPGATE_ERROR_TOO_LARGE);
        }
        let servers = read_addresses(claims.servers, "servers").map_err(|error| error.status)?;
        let keys = read_keys(key, SLIPGATE_KEY_BYTES as usize)?;
        let config = |_| SLIPGATE_ERROR_CONFIG;
        let issuer = Issuer::new(claims.protocol_id, keys, &servers, Limits::default()).map_err(config)?;
        let request = TokenRequest {
            user_data: pointer::bytes(claims.user_data, claims.user_data_length as usize)?.to_vec(),
            lifetime_seconds: (claims.lifetime_seconds > 0).then_some(claims.lifetime_seconds),
            timeout_seconds: (claims.timeout_seconds > 0).then_some(claims.timeout_seconds),
            ..TokenRequest::new(claims.client_id)
        };
        let mut entropy = system_entropy().map_err(|_| SLIPGATE_ERROR_IO)?;
        let minted = issuer.mint(&request, wall_clock(), &mut entropy).map_err(|_| SLIPGATE_ERROR_CONFIG)?;
        out.iter_mut().zip(minted.token.as_bytes()).for_each(|(to, byte)| _ = to.write(*byte));
        Ok(SLIPGATE_DONE)
    })
}
