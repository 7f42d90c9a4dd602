#![doc = include_str!("../README.md")]
//!
//! ```text
//!  game's thread ── FleetReporter ─ try_lock ─▶ Population ◀── lock ──┐
//!        │                                                           ├── a thread for each driver: Agones, hook,
//!        └── LifeCycle::advance ─▶ states entered so far ◀── wait ────┘   systemd, registration, redirects
//! ```

#![forbid(unsafe_code)]

mod agones;
mod agones_address;
mod agones_watch;
mod back_off;
mod driver;
mod empty;
// Used by the tests of `fleet` and `redirect`, which run on Unix.
#[cfg(all(test, unix))]
mod fake_http;
mod fleet;
mod hook;
mod hook_command;
mod http;
mod issuer_link;
mod life_cycle;
mod population;
mod redirect;
mod redirect_counts;
mod redirect_queue;
mod registration;
mod registration_key;
mod registration_log;
mod reporter;
#[cfg(target_os = "linux")]
mod systemd;

pub use slipgate_os::authorities::CertificateAuthorities;

pub use self::agones_address::{AgonesAddressError, agones_address};
pub use self::fleet::{Fleet, FleetConfig};
pub use self::hook::HookTarget;
pub use self::hook_command::HookCommands;
pub use self::life_cycle::{LifeCycle, LifeState};
pub use self::redirect_counts::{RedirectCounter, RedirectCounts};
pub use self::registration::RegistrationConfig;
pub use self::registration_key::{RegistrationKey, RegistrationKeyError};
pub use self::registration_log::RegistrationState;
pub use self::reporter::FleetReporter;
