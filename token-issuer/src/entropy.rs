//! Random generators for minting, seeded by the operating system.

#[cfg(feature = "http")]
use std::cell::RefCell;
use std::io;

use rand::SeedableRng;
use rand::rngs::StdRng;
use zeroize::Zeroizing;

/// Returns a generator for [`Issuer::mint`](crate::Issuer::mint), seeded by the operating system.
///
/// Create one for each token, so that no generator outlives the keys that it produced.
///
/// # Errors
/// Returns the system's error if it provides no entropy.
pub fn system_entropy() -> io::Result<StdRng> {
    let seed = Zeroizing::new(slipgate_os::entropy::bytes()?);
    Ok(StdRng::from_seed(*seed))
}

/// The tokens of a generator of [`with_generator`].
#[cfg(feature = "http")]
const TOKENS_PER_SEED: u32 = 1000;

/// The generator of a thread, until it has made its tokens.
#[cfg(feature = "http")]
struct ThreadGenerator {
    rng: StdRng,
    tokens_left: u32,
}

/// Calls a function with a generator of this thread, which the operating system seeds again after
/// [`TOKENS_PER_SEED`] calls.
///
/// A seed for each token would be a system call for each, and protect nothing: a reader of this memory finds the
/// private key in it, too, which opens all tokens.
///
/// # Errors
/// Returns the system's error if it provides no entropy.
#[cfg(feature = "http")]
pub(crate) fn with_generator<T>(mint: impl FnOnce(&mut StdRng) -> T) -> io::Result<T> {
    thread_local! {
        static GENERATOR: RefCell<Option<ThreadGenerator>> = const { RefCell::new(None) };
    }
    GENERATOR.with_borrow_mut(|generator| {
        let present = match generator {
            Some(present) if present.tokens_left > 0 => present,
            _ => generator.insert(ThreadGenerator { rng: system_entropy()?, tokens_left: TOKENS_PER_SEED }),
        };
        present.tokens_left -= 1;
        Ok(mint(&mut present.rng))
    })
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "http")]
    use std::collections::BTreeSet;

    use rand::Rng;

    use super::*;

    #[test]
    fn each_generator_has_its_own_seed() {
        assert_ne!(system_entropy().unwrap().next_u64(), system_entropy().unwrap().next_u64());
    }

    #[cfg(feature = "http")]
    #[test]
    fn numbers_differ_over_seeds_and_threads() {
        let draw = || (0..3 * TOKENS_PER_SEED).map(|_| with_generator(Rng::next_u64).unwrap()).collect::<Vec<_>>();
        let threads = [(); 2].map(|()| std::thread::spawn(draw));
        let numbers: BTreeSet<u64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(numbers.len(), 2 * 3 * TOKENS_PER_SEED as usize);
    }
}
