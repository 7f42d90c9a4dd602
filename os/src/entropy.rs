//! Entropy from the operating system.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use std::{io, process, ptr};

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

/// Returns a seed for the packet numbers of a client, which its server cannot predict.
///
/// If the operating system has no entropy to give, it is a hash of what a remote peer does not know of this process:
/// clocks in nanoseconds, addresses of memory, and its number. Keys need [`seed`].
#[must_use]
pub fn seed_for_numbers() -> Seed {
    seed().unwrap_or_else(|_| Seed::from(hash_of_process()))
}

fn hash_of_process() -> [u8; 32] {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let on_heap = Box::new(0_u8);
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let addresses = [ptr::from_ref(&call).addr(), ptr::from_ref(&*on_heap).addr()];
    let mut bytes = [0; 32];
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        let mut hasher = DefaultHasher::new();
        (index, call, addresses, since_epoch, Instant::now(), process::id()).hash(&mut hasher);
        word.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    bytes
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_without_entropy_differ() {
        let [first, second] = [hash_of_process(), hash_of_process()];
        assert_ne!(first, second);
        assert!(first.chunks(8).all(|word| word != [0; 8]));
    }
}
