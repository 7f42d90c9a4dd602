//! Entropy from the operating system.

use std::io;

use rand::TryRng;
use rand::rngs::SysRng;
use slipgate_netcode::crypto::key::Seed;

/// Returns a seed for one start of a server.
///
/// # Errors
/// When the operating system has no entropy to give.
pub fn seed() -> io::Result<Seed> {
    Ok(Seed::from(bytes()?))
}

/// Returns 32 random bytes.
///
/// # Errors
/// When the operating system has no entropy to give.
pub fn bytes() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    SysRng.try_fill_bytes(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
