//! A path that spoils datagrams on purpose: as a value for simulations, and as a UDP proxy between real programs.
//!
//! A [`Path`] is one direction. Datagrams are pushed in with the time, and those that are due are pulled out; between the
//! two nothing reads a clock or opens a socket, and a seed decides all that happens by chance. So a test in virtual time
//! and the proxy between real programs share one model, and a run is repeated by its seed.
//!
//! ```text
//!            the link                                    the rest of the way
//!          ┌───────────────────────────────┐           ┌──────────────────────────────────────────────────┐
//!  push ──▶│ buffer ▶ rate                 │──────────▶│ loss ▶ duplication ▶ corruption ▶ latency, jitter │──▶ pop_due
//!          │   │        │                  │           │                                   reordering     │
//!          │   ▼        └ stalls stop it   │           │  │                                               │
//!          │ tail drop                     │           │  ▼ lost                                          │
//!          └───────────────────────────────┘           └──────────────────────────────────────────────────┘
//! ```
//!
//! As on a real last mile, what is lost behind the link has used the link. [`Link`] has both directions, and [`Nat`] tells
//! when a client's address changes. [`Preset`] names whole lines. With the feature `proxy`, the module `proxy` puts
//! sockets around this, and the command `slipgate conditioner` runs it.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//!
//! use slipgate_sim::{Conditions, Path};
//! use slipgate_netcode::time::Instant;
//!
//! let conditions = Conditions { latency: Duration::from_millis(40), ..Conditions::perfect() };
//! let mut path = Path::new(conditions, 7);
//! let start = Instant::from_start(Duration::from_secs(1));
//! path.push(b"hello", start);
//! assert_eq!(path.next_due(), Some(start.after(Duration::from_millis(40))));
//! assert!(path.pop_due(start.after(Duration::from_millis(39))).is_none());
//! let arrival = path.pop_due(start.after(Duration::from_millis(40))).expect("it is due");
//! assert_eq!(arrival.bytes, b"hello");
//! ```

#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod bottleneck;
mod conditions;
mod describe;
mod flight;
mod link;
mod loss;
mod nat;
mod path;
mod preset;
#[cfg(feature = "proxy")]
pub mod proxy;
mod random;
mod stalls;
mod stats;
mod store;
mod units;

pub use self::conditions::{Buffer, Conditions, GilbertElliott, Loss, Order, RateLimit, Reordering, Stalls};
pub use self::link::Link;
pub use self::nat::{Nat, Rebinding};
pub use self::path::{Arrival, Bounds, Path};
pub use self::preset::{NotAPreset, Preset};
pub use self::stats::PathStats;
pub use self::units::{NotARate, NotAShare, Rate, Share};
