//! What a user wishes of a path, and the conditions that come of it: preset, then flags for both directions, then those
//! of one direction; the later wins.

use std::time::Duration;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use slipgate_sim::{Buffer, Conditions, GilbertElliott, Loss, Order, RateLimit, Reordering, Share, Stalls};

use super::values::{BufferSize, BurstLength, Delay, Delays, Often, Speed, order};

/// How far a datagram is held back when nobody says: far enough to be overtaken at 60 datagrams a second.
const USUAL_REORDERING: Duration = Duration::from_millis(30);
/// The buffer of a link when nobody says.
const USUAL_BUFFER: Buffer = Buffer::Time(Duration::from_millis(250));
/// How long a stall is when nobody says.
const USUAL_STALL: Delays = Delays { shortest: Duration::from_millis(50), longest: Duration::from_millis(250) };

#[derive(Args, Clone, Default, Debug)]
pub(super) struct Wishes {
    /// How long a datagram takes at least, one way
    #[arg(long, value_name = "TIME")]
    latency: Option<Delay>,

    /// How much longer it takes, by chance, at most
    #[arg(long, value_name = "TIME")]
    jitter: Option<Delay>,

    /// Whether datagrams overtake one another by jitter: kept (as from a queue) or free [default: kept]
    #[arg(long, value_name = "ORDER", value_parser = order)]
    jitter_order: Option<Order>,

    /// How many are lost
    #[arg(long, value_name = "PERCENT")]
    loss: Option<Share>,

    /// How many are lost in a row on average (Gilbert-Elliott) [default: each by itself]
    #[arg(long, value_name = "N")]
    loss_burst: Option<BurstLength>,

    /// How many arrive twice
    #[arg(long, value_name = "PERCENT")]
    duplicate: Option<Share>,

    /// How many are held back, so that later ones overtake them
    #[arg(long, value_name = "PERCENT")]
    reorder: Option<Share>,

    /// How long those are held back at most [default: 30ms]
    #[arg(long, value_name = "TIME")]
    reorder_by: Option<Delay>,

    /// How many arrive with a bit flipped
    #[arg(long, value_name = "PERCENT")]
    corrupt: Option<Share>,

    /// How fast the link is, for each client: 256k, 1.5M, 1G (bits a second), or unlimited
    #[arg(long, value_name = "RATE")]
    rate: Option<Speed>,

    /// What waits before the link at most, in bytes (64KiB) or as a time (250ms); more is dropped [default: 250ms]
    #[arg(long, value_name = "SIZE")]
    buffer: Option<BufferSize>,

    /// How often the link stops for a while, about, or never
    #[arg(long, value_name = "TIME")]
    stall_every: Option<Often>,

    /// How long it stops [default: 50ms..250ms]
    #[arg(long, value_name = "TIME..TIME")]
    stall_for: Option<Delays>,
}

impl Wishes {
    /// These wishes where there are any, else the others.
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

    /// The conditions that come of them.
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
            (None, Some(_)) => Err("loss-burst says how losses come, and loss how many: it needs loss".to_owned()),
            (Some(share), Some(BurstLength(length))) => {
                let chain = GilbertElliott::bursts(share, length).map(Loss::Bursts);
                chain.ok_or_else(|| format!("a loss of {share} has longer bursts than {length} on average"))
            }
        }
    }

    fn reordering(&self, base: Reordering) -> Result<Reordering, String> {
        if self.reorder.is_none() && self.reorder_by.is_none() {
            return Ok(base);
        }
        let share = self.reorder.unwrap_or(base.share);
        if self.reorder_by.is_some() && share == Share::NONE {
            return Err("reorder-by says how far, and reorder how many: it needs reorder".to_owned());
        }
        let usual = if base.longest.is_zero() { USUAL_REORDERING } else { base.longest };
        Ok(Reordering { share, longest: self.reorder_by.map_or(usual, |Delay(time)| time) })
    }

    fn rate(&self, base: Option<RateLimit>) -> Result<Option<RateLimit>, String> {
        let rate = match self.rate {
            Some(Speed::Limited(rate)) => Some(rate),
            Some(Speed::Unlimited) => None,
            None => base.map(|limit| limit.rate),
        };
        if self.buffer.is_some() && rate.is_none() {
            return Err("a buffer fills only before a link with a rate: it needs rate".to_owned());
        }
        let buffer = self.buffer.map(|BufferSize(buffer)| buffer).or(base.map(|limit| limit.buffer));
        Ok(rate.map(|rate| RateLimit { rate, buffer: buffer.unwrap_or(USUAL_BUFFER) }))
    }

    fn stalls(&self, base: Option<Stalls>) -> Result<Option<Stalls>, String> {
        let every = match self.stall_every {
            Some(Often::Every(every)) => Some(every),
            Some(Often::Never) => None,
            None => base.map(|stalls| stalls.every),
        };
        if self.stall_for.is_some() && every.is_none() {
            return Err("stall-for says how long, and stall-every how often: it needs stall-every".to_owned());
        }
        let usual = base.map_or(USUAL_STALL, |base| Delays { shortest: base.shortest, longest: base.longest });
        let Delays { shortest, longest } = self.stall_for.unwrap_or(usual);
        Ok(every.map(|every| Stalls { every, shortest, longest }))
    }
}

/// Reads the wishes for one direction: `loss=2%,latency=40ms`, with the flags' own names and values.
pub(super) fn list(text: &str) -> Result<Wishes, String> {
    let command = Wishes::augment_args(Command::new("list").no_binary_name(true).disable_help_flag(true));
    let names: Vec<String> = command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned)).collect();
    let mut flags = Vec::new();
    for wish in text.split(',') {
        let (name, value) =
            wish.trim().split_once('=').ok_or_else(|| format!("'{wish}' is no wish: write latency=40ms,loss=2%"))?;
        if !names.iter().any(|known| known == name) {
            return Err(format!("there is no '{name}'; there are {}", names.join(", ")));
        }
        flags.push(format!("--{name}={value}"));
    }
    let matches: Result<ArgMatches, clap::Error> = command.try_get_matches_from(flags);
    matches.and_then(|matches| Wishes::from_arg_matches(&matches)).map_err(|error| sentence(&error))
}

/// The first line of what clap says, which is the reason.
fn sentence(error: &clap::Error) -> String {
    let said = error.to_string();
    let first = said.lines().next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).to_owned()
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
    fn a_list_has_the_flags_names_and_values() {
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
            ("rate=1M", Conditions { rate: limit(USUAL_BUFFER), ..perfect }),
            ("rate=1M,buffer=64KiB", Conditions { rate: limit(Buffer::Bytes(65_536)), ..perfect }),
            ("stall-every=2s", Conditions { stalls: stalls(50, 250), ..perfect }),
            ("stall-every=2s,stall-for=1s", Conditions { stalls: stalls(1000, 1000), ..perfect }),
        ];
        for (text, expected) in cases {
            assert_eq!(of(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        let cases = [
            ("", "is no wish"),
            ("loss", "is no wish"),
            ("lost=2%", "there is no 'lost'; there are latency, jitter"),
            ("loss=2", "a share is written as 2%"),
            ("loss=200%", "from 0% to 100%"),
            ("latency=40", "with its unit"),
            ("loss=1%,loss=2%", "cannot be used multiple times"),
            ("loss-burst=4", "it needs loss"),
            ("loss=90%,loss-burst=2", "longer bursts than 2"),
            ("buffer=64KiB", "it needs rate"),
            ("rate=unlimited,buffer=64KiB", "it needs rate"),
            ("stall-for=1s", "it needs stall-every"),
            ("reorder-by=1s", "it needs reorder"),
            ("jitter-order=loose", "kept, or free"),
        ];
        for (text, reason) in cases {
            let said = of(text).err().unwrap_or_default();
            assert!(said.contains(reason), "{text}: {said}");
            assert!(!said.contains('\n'), "{text}: {said}");
        }
    }

    #[test]
    fn one_directions_wishes_come_before_both_directions_and_those_before_the_preset() {
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
