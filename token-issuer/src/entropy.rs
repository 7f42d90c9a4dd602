//! Entropy to mint with, from the operating system.

use std::io;

use rand::SeedableRng;
use rand::rngs::StdRng;
use zeroize::Zeroizing;

/// A generator for [`Issuer::mint`](crate::Issuer::mint), seeded by the operating system.
///
/// Make one for every token, so that no generator outlives the keys it made.
///
/// # Errors
/// When the operating system has no entropy to give.
pub fn system_entropy() -> io::Result<StdRng> {
    let seed = Zeroizing::new(slipgate_os::entropy::bytes()?);
    Ok(StdRng::from_seed(*seed))
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;

    #[test]
    fn each_generator_is_seeded_anew() {
        assert_ne!(system_entropy().unwrap().next_u64(), system_entropy().unwrap().next_u64());
    }
}
