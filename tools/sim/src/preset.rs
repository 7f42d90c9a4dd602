//! Lines that players have, as conditions: what each is like, and why the numbers are what they are.

use core::fmt::{self, Display};
use core::str::FromStr;
use std::time::Duration;

use crate::conditions::{Buffer, Conditions, GilbertElliott, Loss, Order, RateLimit, Stalls};
use crate::units::{Rate, Share};

/// A line with a name. The numbers are typical of its kind, not of a provider; the reasons stand beside them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preset {
    /// A crowded 2.4 GHz network, two walls away.
    WifiBad,
    /// A phone in 4G (LTE), well connected and in motion.
    FourG,
    /// A geostationary satellite.
    Satellite,
    /// A DSL line whose upload is busy filling an oversized buffer.
    DslBufferbloat,
}

const MILLI: Duration = Duration::from_millis(1);

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 4] = [Self::WifiBad, Self::FourG, Self::Satellite, Self::DslBufferbloat];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WifiBad => "wifi-bad",
            Self::FourG => "4g",
            Self::Satellite => "satellite",
            Self::DslBufferbloat => "dsl-bufferbloat",
        }
    }

    /// From the client to the server.
    #[must_use]
    pub fn up(self) -> Conditions {
        match self {
            Self::WifiBad => wifi_bad(),
            Self::FourG => four_g(8),
            Self::Satellite => satellite(3),
            // A megabit of upload behind 128 KiB: a full buffer is a second of delay. That is the order of what Kreibich
            // et al. measured ("Netalyzr: Illuminating the edge network", 2010), and what Gettys and Nichols named
            // ("Bufferbloat: dark buffers in the Internet", 2011).
            Self::DslBufferbloat => dsl(1, Buffer::Bytes(128 * 1024)),
        }
    }

    /// From the server to the client.
    #[must_use]
    pub fn down(self) -> Conditions {
        match self {
            Self::WifiBad => wifi_bad(),
            Self::FourG => four_g(25),
            Self::Satellite => satellite(25),
            Self::DslBufferbloat => dsl(16, Buffer::Time(250 * MILLI)),
        }
    }
}

/// Both directions share the air, so both are alike.
fn wifi_bad() -> Conditions {
    Conditions {
        // Access point and provider; the air itself takes no time.
        latency: 8 * MILLI,
        // Waiting for the air, and repeats on it. They keep the order (IEEE 802.11 delivers in sequence).
        jitter: 12 * MILLI,
        order: Order::Kept,
        // What the radio gave up repeating. Interference lasts longer than a frame, so losses come together.
        loss: GilbertElliott::bursts(Share::percent(2.0), 3.0).map_or(Loss::Random(Share::NONE), Loss::Bursts),
        // Another network's transfer, a scan for networks, a microwave oven.
        stalls: Some(Stalls { every: 2_000 * MILLI, shortest: 50 * MILLI, longest: 250 * MILLI }),
        // A slow modulation, shared with the neighbours.
        rate: Some(RateLimit { rate: Rate::mbit(20), buffer: Buffer::Time(250 * MILLI) }),
        ..Conditions::perfect()
    }
}

fn four_g(mbit: u32) -> Conditions {
    Conditions {
        // Radio and core network: 50 ms for both ways.
        latency: 25 * MILLI,
        // The base station's schedule, and repeats of 8 ms each.
        jitter: 10 * MILLI,
        // The radio repeats until it arrives: little is lost, and in order.
        loss: Loss::Random(Share::percent(0.1)),
        // A change of cells.
        stalls: Some(Stalls { every: 15_000 * MILLI, shortest: 50 * MILLI, longest: 300 * MILLI }),
        // Base stations keep much rather than drop it.
        rate: Some(RateLimit { rate: Rate::mbit(mbit), buffer: Buffer::Time(1_000 * MILLI) }),
        ..Conditions::perfect()
    }
}

fn satellite(mbit: u32) -> Conditions {
    Conditions {
        // Up to 35,786 km and down again at 299,792 km/s are 239 ms; the ground takes some as well.
        latency: 270 * MILLI,
        // The return channel gives out time slots.
        jitter: 10 * MILLI,
        // Rain. What error correction does not mend comes in bursts.
        loss: GilbertElliott::bursts(Share::percent(0.5), 4.0).map_or(Loss::Random(Share::NONE), Loss::Bursts),
        // About a round trip, as old advice for buffers has it.
        rate: Some(RateLimit { rate: Rate::mbit(mbit), buffer: Buffer::Time(600 * MILLI) }),
        ..Conditions::perfect()
    }
}

fn dsl(mbit: u32, buffer: Buffer) -> Conditions {
    Conditions {
        // Interleaving against noise on the wire, half of it each way.
        latency: 15 * MILLI,
        jitter: MILLI,
        rate: Some(RateLimit { rate: Rate::mbit(mbit), buffer }),
        ..Conditions::perfect()
    }
}

impl Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is no preset's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAPreset;

impl Display for NotAPreset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there are the presets wifi-bad, 4g, satellite and dsl-bufferbloat")
    }
}

impl core::error::Error for NotAPreset {}

impl FromStr for Preset {
    type Err = NotAPreset;

    fn from_str(text: &str) -> Result<Self, NotAPreset> {
        Self::ALL.into_iter().find(|preset| preset.name() == text).ok_or(NotAPreset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_a_name_and_the_refusal_lists_them_all() {
        for preset in Preset::ALL {
            assert_eq!(preset.name().parse(), Ok(preset));
            assert!(NotAPreset.to_string().contains(preset.name()));
        }
        assert_eq!("5g".parse::<Preset>(), Err(NotAPreset));
    }

    #[test]
    fn the_bursts_of_the_presets_can_be() {
        for preset in [Preset::WifiBad, Preset::Satellite] {
            assert!(matches!(preset.up().loss, Loss::Bursts(_)), "{preset}");
        }
    }

    #[test]
    fn a_full_upload_of_dsl_is_a_second_late_and_light_takes_its_time_to_a_satellite() {
        let limit = Preset::DslBufferbloat.up().rate.unwrap();
        assert_eq!(limit.buffer, Buffer::Bytes(131_072));
        let full = limit.rate.time_for(131_072);
        assert!((1_000 * MILLI..1_100 * MILLI).contains(&full), "{full:?}");
        assert!(Preset::Satellite.up().latency > Duration::from_secs_f64(2.0 * 35_786.0 / 299_792.458));
    }
}
