//! Random generators for minting, seeded by the operating system.

use std::io;

use rand::SeedableRng;
use rand::rngs::StdRng;
use zeroize::Zeroizing;

/// Returns a generator for [`Issuer::mint`](crate::Issuer::mint), seeded by the operating system.
///
/// Create one for each token, so that no generator outlives the keys that it produced. A snapshot of a virtual machine
/// would hold one that lives longer. Each restore would mint other tokens with the same nonce and the same session
/// keys. The kernel's generator gets a new seed after a restore, and a seed of 32 bytes takes 0.3 us.
///
/// # Errors
/// Returns the system's error if it provides no entropy.
pub fn system_entropy() -> io::Result<StdRng> {
    let seed = Zeroizing::new(slipgate_os::entropy::bytes()?);
    Ok(StdRng::from_seed(*seed))
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;

    #[test]
    fn each_generator_has_its_own_seed() {
        assert_ne!(system_entropy().unwrap().next_u64(), system_entropy().unwrap().next_u64());
    }
}
