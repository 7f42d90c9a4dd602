//! Sessions on real loopback sockets: a server and a client, ours or of a peer library, polled in the thread of the
//! test.
//!
//! ```text
//!   scenario ──▶ until(what) ──▶ turn, turn, sleep 1 ms, … until it happened, or fail after DEADLINE
//!                                 │
//!                 GameServer, GameClient: ours (`ours`), a peer's (in the test of that peer)
//! ```
//!
//! `scenarios` holds what every pair must pass. A test names the pair, and [`scenarios!`](crate::scenarios) makes a
//! test of each scenario. The system chooses the port of every socket.

mod ends;
mod ours;
pub mod scenarios;

pub use self::ends::*;
pub use self::ours::{OurClient, OurServer};

/// Makes a test of each scenario, for a server, a client and an address.
#[macro_export]
macro_rules! scenarios {
    ($pair:ident: $server:ty, $client:ty, $ip:expr, [$($scenario:ident),+ $(,)?]) => {
        mod $pair {
            use super::*;

            $(
                #[test]
                fn $scenario() {
                    if !$crate::live::families().contains(&$ip) {
                        return;
                    }
                    $crate::live::scenarios::$scenario::<$server, $client>($ip);
                }
            )+
        }
    };
}
