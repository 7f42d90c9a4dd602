//! The impairments of a path: flags, and the conditions that result from preset, flags for both directions and flags
//! for one direction, in increasing precedence.

use std::time::Duration;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use slipgate_cli::usage::sentence;
use slipgate_sim::{Buffer, Conditions, GilbertElliott, Loss, Order, RateLimit, Reordering, Share, Stalls};

use super::values::{BufferSize, BurstLength, Delay, Delays, Speed, StallInterval, order};

/// The default delay of a reordered datagram: long enough to be overtaken at 60 datagrams per second.
const DEFAULT_REORDERING: Duration = Duration::from_millis(30);
/// The default buffer of a link.
const DEFAULT_BUFFER: Buffer = Buffer::Time(Duration::from_millis(250));
/// The default duration of a stall.
const DEFAULT_STALL: Delays = Delays { shortest: Duration::from_millis(50), longest: Duration::from_millis(250) };

#[derive(Args, Clone, Default, Debug)]
pub(super) struct Impairments {
    /// Minimum one-way delay
    #[arg(long, value_name = "TIME")]
    latency: Option<Delay>,

    /// Maximum random delay added to --latency
    #[arg(long, value_name = "TIME")]
    jitter: Option<Delay>,

    /// Whether jitter keeps the order of datagrams: kept (as in a queue) or free [default: kept]
    #[arg(long, value_name = "ORDER", value_parser = order)]
    jitter_order: Option<Order>,

    /// Share of lost datagrams
    #[arg(long, value_name = "PERCENT")]
    loss: Option<Share>,

    /// Average length of a burst of losses (Gilbert-Elliott) [default: independent losses]
    #[arg(long, value_name = "N")]
    loss_burst: Option<BurstLength>,

    /// Share of duplicated datagrams
    #[arg(long, value_name = "PERCENT")]
    duplicate: Option<Share>,

    /// Share of datagrams that are held back, so that later ones overtake them
    #[arg(long, value_name = "PERCENT")]
    reorder: Option<Share>,

    /// Maximum delay of datagrams that are held back [default: 30ms]
    #[arg(long, value_name = "TIME")]
    reorder_by: Option<Delay>,

    /// Share of datagrams with one flipped bit
    #[arg(long, value_name = "PERCENT")]
    corrupt: Option<Share>,

    /// Link rate of each client: 256k, 1.5M, 1G (bits per second), or unlimited
    #[arg(long, value_name = "RATE")]
    rate: Option<Speed>,

    /// Link buffer in bytes (64KiB) or as a time (250ms); what exceeds it is dropped [default: 250ms]
    #[arg(long, value_name = "SIZE")]
    buffer: Option<BufferSize>,

    /// Average interval between two stalls of the link, or never
    #[arg(long, value_name = "TIME")]
    stall_every: Option<StallInterval>,

    /// Duration of a stall [default: 50ms..250ms]
    #[arg(long, value_name = "TIME..TIME")]
    stall_for: Option<Delays>,
}

impl Impairments {
    /// Merges two sets: each value of `self`, else that of `others`.
    pub(super) fn or(&self, others: &Self) -> Self {
        Self {
            latency: self.latency.or(others.latency),
            jitter: self.jitter.or(others.jitter),
            jitter_order: self.jitter_order.or(others.jitter_order),
            loss: self.loss.or(others.loss),
            loss_burst: self.loss_burst.or(others.loss_burst),
            duplicate: self.duplicate.or(others.duplicate),
            reorder: self.reorder.or(others.reorder),
            reorder_by: self.reorder_by.or(others.reorder_by),
            corrupt: self.corrupt.or(others.corrupt),
            rate: self.rate.or(others.rate),
            buffer: self.buffer.or(others.buffer),
            stall_every: self.stall_every.or(others.stall_every),
            stall_for: self.stall_for.or(others.stall_for),
        }
    }

    /// Returns `base` with these impairments applied.
    pub(super) fn conditions(&self, base: Conditions) -> Result<Conditions, String> {
        Ok(Conditions {
            latency: self.latency.map_or(base.latency, |Delay(time)| time),
            jitter: self.jitter.map_or(base.jitter, |Delay(time)| time),
            order: self.jitter_order.unwrap_or(base.order),
            loss: self.loss(base.loss)?,
            duplication: self.duplicate.unwrap_or(base.duplication),
            corruption: self.corrupt.unwrap_or(base.corruption),
            reordering: self.reordering(base.reordering)?,
            rate: self.rate(base.rate)?,
            stalls: self.stalls(base.stalls)?,
        })
    }

    fn loss(&self, base: Loss) -> Result<Loss, String> {
        match (self.loss, self.loss_burst) {
            (None, None) => Ok(base),
            (Some(share), None) => Ok(Loss::Random(share)),
            (None, Some(_)) => Err("loss-burst needs loss".to_owned()),
            (Some(share), Some(BurstLength(length))) => {
                let chain = GilbertElliott::bursts(share, length).map(Loss::Bursts);
                chain.ok_or_else(|| format!("a loss of {share} needs longer bursts than {length} on average"))
            }
        }
    }

    fn reordering(&self, base: Reordering) -> Result<Reordering, String> {
        if self.reorder.is_none() && self.reorder_by.is_none() {
            return Ok(base);
        }
        let share = self.reorder.unwrap_or(base.share);
        if self.reorder_by.is_some() && share == Share::NONE {
            return Err("reorder-by needs reorder".to_owned());
        }
        let default = if base.longest.is_zero() { DEFAULT_REORDERING } else { base.longest };
        Ok(Reordering { share, longest: self.reorder_by.map_or(default, |Delay(time)| time) })
    }

    fn rate(&self, base: Option<RateLimit>) -> Result<Option<RateLimit>, String> {
        let rate = match self.rate {
            Some(Speed::Limited(rate)) => Some(rate),
            Some(Speed::Unlimited) => None,
            None => base.map(|limit| limit.rate),
        };
        if self.buffer.is_some() && rate.is_none() {
            return Err("buffer needs rate: only a link with a rate has a buffer".to_owned());
        }
        let buffer = self.buffer.map(|BufferSize(buffer)| buffer).or(base.map(|limit| limit.buffer));
        Ok(rate.map(|rate| RateLimit { rate, buffer: buffer.unwrap_or(DEFAULT_BUFFER) }))
    }

    fn stalls(&self, base: Option<Stalls>) -> Result<Option<Stalls>, String> {
        let every = match self.stall_every {
            Some(StallInterval::Every(every)) => Some(every),
            Some(StallInterval::Never) => None,
            None => base.map(|stalls| stalls.every),
        };
        if self.stall_for.is_some() && every.is_none() {
            return Err("stall-for needs stall-every".to_owned());
        }
        let default = base.map_or(DEFAULT_STALL, |base| Delays { shortest: base.shortest, longest: base.longest });
        let Delays { shortest, longest } = self.stall_for.unwrap_or(default);
        Ok(every.map(|every| Stalls { every, shortest, longest }))
    }
}

/// Parses the impairments of one direction: `loss=2%,latency=40ms`, with the names and values of the flags.
pub(super) fn list(text: &str) -> Result<Impairments, String> {
    let command = Impairments::augment_args(Command::new("list").no_binary_name(true).disable_help_flag(true));
    let names: Vec<String> = command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned)).collect();
    let mut flags = Vec::new();
    for entry in text.split(',') {
        let (name, value) =
            entry.trim().split_once('=').ok_or_else(|| format!("'{entry}' is not of the form latency=40ms"))?;
        if !names.iter().any(|known| known == name) {
            return Err(format!("unknown impairment '{name}'; known are {}", names.join(", ")));
        }
        flags.push(format!("--{name}={value}"));
    }
    let matches: Result<ArgMatches, clap::Error> = command.try_get_matches_from(flags);
    matches.and_then(|matches| Impairments::from_arg_matches(&matches)).map_err(|error| sentence(&error))
}

#[cfg(test)]
mod tests {
    use slipgate_sim::{Preset, Rate};

    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn of(text: &str) -> Result<Conditions, String> {
        list(text)?.conditions(Conditions::perfect())
    }

    #[test]
    fn list_has_the_names_and_values_of_the_flags() {
        let perfect = Conditions::perfect();
        let limit = |buffer| Some(RateLimit { rate: Rate::mbit(1), buffer });
        let stalls = |shortest, longest| {
            Some(Stalls { every: 2000 * MILLI, shortest: MILLI * shortest, longest: MILLI * longest })
        };
        let reordering = |millis| Reordering { share: Share::percent(2.0), longest: MILLI * millis };
        let (one, two) = (Share::percent(1.0), Share::percent(2.0));
        let cases = [
            ("latency=40ms, jitter=5ms", Conditions { latency: 40 * MILLI, jitter: 5 * MILLI, ..perfect }),
            ("jitter-order=free", Conditions { order: Order::Free, ..perfect }),
            ("loss=0%", perfect),
            ("loss=2%", Conditions { loss: Loss::Random(two), ..perfect }),
            (
                "loss=2%,loss-burst=4",
                Conditions { loss: Loss::Bursts(GilbertElliott::bursts(two, 4.0).unwrap()), ..perfect },
            ),
            ("duplicate=1%,corrupt=2%", Conditions { duplication: one, corruption: two, ..perfect }),
            ("reorder=2%", Conditions { reordering: reordering(30), ..perfect }),
            ("reorder=2%,reorder-by=1s", Conditions { reordering: reordering(1000), ..perfect }),
            ("rate=1M", Conditions { rate: limit(DEFAULT_BUFFER), ..perfect }),
            ("rate=1M,buffer=64KiB", Conditions { rate: limit(Buffer::Bytes(65_536)), ..perfect }),
            ("stall-every=2s", Conditions { stalls: stalls(50, 250), ..perfect }),
            ("stall-every=2s,stall-for=1s", Conditions { stalls: stalls(1000, 1000), ..perfect }),
        ];
        for (text, expected) in cases {
            assert_eq!(of(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_lists_are_refused_with_their_reason() {
        let cases = [
            ("", "is not of the form latency=40ms"),
            ("loss", "is not of the form latency=40ms"),
            ("lost=2%", "unknown impairment 'lost'; known are latency, jitter"),
            ("loss=2", "a share is written as 2%"),
            ("loss=200%", "from 0% to 100%"),
            ("latency=40", "with its unit"),
            ("loss=1%,loss=2%", "cannot be used multiple times"),
            ("loss-burst=4", "loss-burst needs loss"),
            ("loss=90%,loss-burst=2", "longer bursts than 2"),
            ("buffer=64KiB", "buffer needs rate"),
            ("rate=unlimited,buffer=64KiB", "buffer needs rate"),
            ("stall-for=1s", "stall-for needs stall-every"),
            ("reorder-by=1s", "reorder-by needs reorder"),
            ("jitter-order=loose", "kept or free"),
        ];
        for (text, reason) in cases {
            let message = of(text).err().unwrap_or_default();
            assert!(message.contains(reason), "{text}: {message}");
            assert!(!message.contains('\n'), "{text}: {message}");
        }
    }

    #[test]
    fn one_direction_overrides_both_and_both_override_the_preset() {
        let (both, up) = (list("loss=1%,rate=2M").unwrap(), list("loss=5%,stall-every=never").unwrap());
        let preset = Preset::WifiBad.up();
        let conditions = up.or(&both).conditions(preset).unwrap();
        let limit = preset.rate.map(|limit| RateLimit { rate: Rate::mbit(2), ..limit });
        assert_eq!((conditions.loss, conditions.rate), (Loss::Random(Share::percent(5.0)), limit));
        assert_eq!((conditions.stalls, conditions.latency), (None, preset.latency));
        let unlimited = list("rate=unlimited").unwrap().conditions(preset).unwrap();
        assert_eq!((unlimited.rate, unlimited.stalls), (None, preset.stalls));
        assert_eq!(
            list("loss-burst=4").unwrap().or(&both).conditions(preset).unwrap().loss.to_string(),
            "1.000% in bursts of 4.000"
        );
    }
}
