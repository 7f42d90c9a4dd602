//! The flags of `slipgate demo`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
#[cfg(feature = "cubes")]
use clap::ValueEnum;
use slipgate_cli::values::{NotASpan, Span};
use slipgate_sim::Preset;

#[cfg(feature = "cubes")]
use super::cubes::CubeFlags;
use super::game;

/// State messages per second, unless the flag says more.
const DEFAULT_RATE: u32 = 60;
/// How long clients play without keys.
pub(super) const UNATTENDED_TIME: Span = Span(Duration::from_secs(10));

/// The content of the demo, instead of players that chat.
#[cfg(feature = "cubes")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum DemoWorld {
    /// Cubes that players push, over a bad path, with the methods of a thesis beside those of slipgate-sync
    Cubes,
}

#[derive(Args)]
pub(crate) struct DemoFlags {
    /// Show game state: cubes
    #[cfg(feature = "cubes")]
    #[arg(long, value_name = "WORLD", conflicts_with_all = ["clients", "map", "preset", "issuer", "server"])]
    pub(super) world: Option<DemoWorld>,

    /// Number of clients
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(super) clients: u32,

    /// How long the clients play; `ever` means until a signal [default: 10s, or until q in a terminal]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(super) duration: Option<Playtime>,

    /// State messages per second, of each client and to each client, if the path allows; with --world cubes 6, 10, 12,
    /// 15, 20, 30 or 60 for Slipgate's clients and the thesis's states. The thesis's snapshots stay at 10: with 6, our
    /// snapshots may err more [default: 60, or 20 in worlds]
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rate: Option<u32>,

    /// Size of the map that the server sends to each client in the background, in KiB
    #[arg(long, value_name = "KIB", default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..=game::MAX_MAP_KIB.into()))]
    pub(super) map: u32,

    /// Impair the network between clients and server: wifi-bad, 4g, satellite or dsl-bufferbloat [default: none]
    #[arg(long, value_name = "NAME")]
    pub(super) preset: Option<Preset>,

    /// Listening address of the token issuer (HTTP, loopback only); port 0 chooses a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub(super) issuer: SocketAddr,

    /// Listening address of the server (UDP); port 0 chooses a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub(super) server: SocketAddr,

    /// Print one JSON object per line instead of a live screen
    #[arg(long)]
    pub(super) json: bool,

    #[cfg(feature = "cubes")]
    #[command(flatten)]
    pub(super) cubes: CubeFlags,
}

impl DemoFlags {
    /// Returns the state messages per second of the demo without a world.
    pub(super) fn rate(&self) -> u32 {
        self.rate.unwrap_or(DEFAULT_RATE)
    }
}

/// How long the clients play.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Playtime {
    For(Span),
    Ever,
}

fn duration(text: &str) -> Result<Playtime, String> {
    if text == "ever" {
        return Ok(Playtime::Ever);
    }
    text.parse().map(Playtime::For).map_err(|NotASpan| format!("{NotASpan}, or the word ever"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_runs_for_a_time_or_for_ever() {
        for (text, seconds) in [("10s", 10), ("1m 30s", 90), ("10", 10)] {
            assert_eq!(duration(text), Ok(Playtime::For(Span(Duration::from_secs(seconds)))), "{text}");
        }
        assert_eq!(duration("ever"), Ok(Playtime::Ever));
        for text in ["", "Ever", "unlimited", "18446744073709551615s"] {
            assert!(duration(text).is_err_and(|message| message.ends_with("or the word ever")), "{text}");
        }
    }
}
