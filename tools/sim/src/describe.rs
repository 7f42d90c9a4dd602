//! Conditions as text for people.

use core::fmt::{self, Display};
use std::time::Duration;

use crate::conditions::{Buffer, Conditions, GilbertElliott, Loss, Order, RateLimit, Stalls};
use crate::nat::Rebinding;
use crate::units::Share;

/// Lists the impairments, separated by commas; the word `perfect` if there are none.
impl Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = List { f, is_empty: true };
        let is_positive = |time: Duration| time > Duration::ZERO;
        list.add_if(is_positive(self.latency), format_args!("latency {:?}", self.latency))?;
        let free = if self.order == Order::Free { " (overtaking)" } else { "" };
        list.add_if(is_positive(self.jitter), format_args!("jitter {:?}{free}", self.jitter))?;
        list.add_if(self.loss != Loss::NONE, format_args!("loss {}", self.loss))?;
        list.add_if(self.duplication > Share::NONE, format_args!("duplication {}", self.duplication))?;
        let reordering = self.reordering;
        list.add_if(
            reordering.share > Share::NONE,
            format_args!("reordering {} by up to {:?}", reordering.share, reordering.longest),
        )?;
        list.add_if(self.corruption > Share::NONE, format_args!("corruption {}", self.corruption))?;
        self.rate.map_or(Ok(()), |limit| list.add_if(true, format_args!("rate {limit}")))?;
        self.stalls.map_or(Ok(()), |stalls| list.add_if(true, format_args!("stalls {stalls}")))?;
        let is_perfect = list.is_empty;
        list.add_if(is_perfect, format_args!("perfect"))
    }
}

struct List<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    is_empty: bool,
}

impl List<'_, '_> {
    fn add_if(&mut self, applies: bool, words: fmt::Arguments<'_>) -> fmt::Result {
        if !applies {
            return Ok(());
        }
        let separator = if self.is_empty { "" } else { ", " };
        self.is_empty = false;
        write!(self.f, "{separator}{words}")
    }
}

impl Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random(share) => share.fmt(f),
            Self::Bursts(chain) => chain.fmt(f),
            Self::Runs(runs) => write!(f, "{} in runs of {:?}", runs.share, runs.mean),
        }
    }
}

impl Display for GilbertElliott {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (to_bad, to_good) = (self.to_bad.fraction(), self.to_good.fraction());
        if (self.loss_good, self.loss_bad) == (Share::NONE, Share::ALL) && to_good > 0.0 {
            return write!(f, "{:.3}% in bursts of {:.3}", 100.0 * to_bad / (to_bad + to_good), 1.0 / to_good);
        }
        write!(f, "{} and {}, turning by {} and {}", self.loss_good, self.loss_bad, self.to_bad, self.to_good)
    }
}

impl Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.buffer {
            Buffer::Bytes(bytes) => write!(f, "{} (buffer {bytes} bytes)", self.rate),
            Buffer::Time(time) => write!(f, "{} (buffer {time:?})", self.rate),
        }
    }
}

impl Display for Stalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of {:?} to {:?} about every {:?}", self.shortest, self.longest, self.every)
    }
}

impl Display for Rebinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(life) => write!(f, "every {life:?}"),
            Self::About(life) => write!(f, "about every {life:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::preset::Preset;

    use super::*;

    #[test]
    fn conditions_are_listed_as_text() {
        let perfect = Conditions::perfect();
        let cases = [
            (perfect, "perfect"),
            (Conditions { order: Order::Free, ..perfect }, "perfect"),
            (
                Preset::WifiBad.up(),
                "latency 8ms, jitter 12ms, loss 2.000% in bursts of 3.000, rate 20 Mbit/s (buffer 250ms), \
                 stalls of 50ms to 250ms about every 2s",
            ),
            (Preset::DslBufferbloat.up(), "latency 15ms, jitter 1ms, rate 1 Mbit/s (buffer 131072 bytes)"),
            (Conditions { loss: Loss::Random(Share::percent(0.5)), ..perfect }, "loss 0.5%"),
            (
                Conditions { duplication: Share::percent(1.0), corruption: Share::percent(2.0), ..perfect },
                "duplication 1%, corruption 2%",
            ),
        ];
        for (conditions, words) in cases {
            assert_eq!(conditions.to_string(), words);
        }
    }
}
