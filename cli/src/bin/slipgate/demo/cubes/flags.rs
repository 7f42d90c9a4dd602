//! The flags of `slipgate demo --world cubes`.

use clap::Args;
use slipgate_cli::values::Span;
use slipgate_sim::{ParseShareError, Share};

use super::knobs::{Knobs, MAX_CUBES, MAX_JITTER, MAX_LATENCY, MAX_RUN};

/// States a second, unless the flag for the rate says more.
const DEFAULT_RATE: u32 = 20;

#[derive(Args)]
#[command(next_help_heading = "Options of --world cubes")]
pub(crate) struct CubeFlags {
    /// Number of cubes, four of which are players: 4 to 1001
    #[arg(long, value_name = "N", default_value_t = 104, requires = "world",
        value_parser = clap::value_parser!(u16).range(4..=i64::from(MAX_CUBES)))]
    objects: u16,

    /// Share of lost datagrams in each direction: 0 to 60, with or without %
    #[arg(long, value_name = "PERCENT", default_value = "13%", requires = "world", value_parser = percent)]
    loss: Share,

    /// Mean length of runs of losses, up to 1s, such as 100ms [default: independent losses]
    #[arg(long, value_name = "TIME", requires = "world")]
    runs: Option<Span>,

    /// One-way delay, up to 250ms
    #[arg(long, value_name = "TIME", default_value = "50ms", requires = "world")]
    latency: Span,

    /// Maximum random delay added to --latency, up to 100ms; datagrams overtake each other
    #[arg(long, value_name = "TIME", default_value = "10ms", requires = "world")]
    jitter: Span,

    /// Serve no page: only print figures
    #[arg(long, requires = "world")]
    pub(super) no_page: bool,
}

/// Parses a share in percent, also without its sign.
fn percent(text: &str) -> Result<Share, ParseShareError> {
    format!("{}%", text.strip_suffix('%').unwrap_or(text)).parse()
}

impl CubeFlags {
    /// Returns the knobs at the start, or what is wrong with them.
    pub(super) fn knobs(&self, rate: Option<u32>) -> Result<Knobs, String> {
        // Times beyond the limits of the knobs are refused there.
        let millis = |span: Span, limit: u32| u32::try_from(span.0.as_millis()).unwrap_or(limit + 1);
        let knobs = Knobs {
            objects: self.objects,
            rate: rate.unwrap_or(DEFAULT_RATE),
            loss: self.loss.fraction() * 100.0,
            runs: self.runs.map_or(0, |span| millis(span, MAX_RUN)),
            latency: millis(self.latency, MAX_LATENCY),
            jitter: millis(self.jitter, MAX_JITTER),
        };
        knobs.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_a_number_of_percent() {
        for (text, loss) in [("0", 0.0), ("13", 13.0), ("13%", 13.0), ("0.5", 0.5), ("100%", 100.0)] {
            assert_eq!(percent(text), Share::from_fraction(loss / 100.0).ok_or(ParseShareError), "{text}");
        }
        for text in ["", "%", "13%%", "-1", "101", "x"] {
            assert_eq!(percent(text), Err(ParseShareError), "{text}");
        }
    }
}
