//! Models of impaired network paths: the one home of queues, loss, delay and randomness for simulations.
//!
//! A [`Path`] is one direction. Datagrams are pushed in with the time and taken out when they are due. It reads no
//! clock and opens no socket, and a seed decides all random outcomes. A test in virtual time and the UDP proxy between
//! real programs therefore share one model, and a seed repeats a run.
//!
//! ```text
//!           link                                       rest of the path
//!         ┌──────────────────────────────┐           ┌───────────────────────────────────────────────────┐
//!  push ─▶│ buffer ▶ rate                │──────────▶│ loss ▶ duplication ▶ corruption ▶ latency, jitter │─▶ pop_due
//!         │   │        │                 │           │  │                                reordering      │
//!         │   ▼        └ stalls stop it  │           │  ▼ lost                                           │
//!         │ tail drop                    │           └───────────────────────────────────────────────────┘
//!         └──────────────────────────────┘
//! ```
//!
//! A datagram that is lost behind the link has used the link, as on a real access line. [`Link`] has both directions,
//! [`Nat`] changes a client's address, and [`Preset`] names whole access lines. The feature `proxy` adds the module
//! `proxy`, which puts sockets around this; the command `slipgate conditioner` runs it.
//!
//! The congestion laboratory (`slipgate-lab`) assembles its paths from the same parts: [`Random`], [`LossProcess`],
//! [`Policer`], and [`Bottleneck`], a queue that may change its rate at any moment and run `CoDel`.
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
struct SimReadme;

mod bottleneck;
mod buffers;
mod codel;
mod conditions;
mod describe;
mod in_flight;
mod link;
mod link_buffer;
mod loss;
mod nat;
mod path;
mod policer;
mod preset;
#[cfg(feature = "proxy")]
pub mod proxy;
mod random;
mod stalls;
mod stats;
mod units;

pub use self::bottleneck::{Bottleneck, Discipline, Transmitted};
pub use self::conditions::{Buffer, Conditions, GilbertElliott, Loss, LossRuns, Order, RateLimit, Reordering, Stalls};
pub use self::link::Link;
pub use self::loss::LossProcess;
pub use self::nat::{Nat, Rebinding};
pub use self::path::{Arrival, Bounds, Path};
pub use self::policer::{Policer, PolicerConfig};
pub use self::preset::{ParsePresetError, Preset};
pub use self::random::Random;
pub use self::stats::DirectionStats;
pub use self::units::{ParseRateError, ParseShareError, Rate, Share};
