//! Presets: access lines that players have, as conditions, with the source of each number.

use core::fmt::{self, Display};
use core::str::FromStr;
use std::time::Duration;

use crate::conditions::{Buffer, Conditions, Loss, Order, RateLimit, Stalls};
use crate::units::{Rate, Share};

/// A named access line. The numbers are typical of its kind, not of a provider; the reasons stand next to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preset {
    /// A crowded 2.4 GHz network, two walls away.
    WifiBad,
    /// A phone in 4G (LTE), well connected and in motion.
    FourG,
    /// A geostationary satellite.
    Satellite,
    /// A DSL line with a busy upload and an oversized buffer.
    DslBufferbloat,
}

const MILLI: Duration = Duration::from_millis(1);

impl Preset {
    /// All presets.
    pub const ALL: [Self; 4] = [Self::WifiBad, Self::FourG, Self::Satellite, Self::DslBufferbloat];

    /// Returns its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WifiBad => "wifi-bad",
            Self::FourG => "4g",
            Self::Satellite => "satellite",
            Self::DslBufferbloat => "dsl-bufferbloat",
        }
    }

    /// Returns the conditions from the client to the server.
    #[must_use]
    pub fn up(self) -> Conditions {
        match self {
            Self::WifiBad => wifi_bad(),
            Self::FourG => four_g(8),
            Self::Satellite => satellite(3),
            // A buffer of 128 KiB before 1 Mbit/s delays by a second when it is full. Kreibich et al. measured that
            // order of magnitude ("Netalyzr: Illuminating the edge network", 2010). Gettys and Nichols described it
            // ("Bufferbloat: dark buffers in the Internet", 2011).
            Self::DslBufferbloat => dsl(1, Buffer::Bytes(128 * 1024)),
        }
    }

    /// Returns the conditions from the server to the client.
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

/// Returns the conditions of both directions, which are the same because they share the radio channel.
fn wifi_bad() -> Conditions {
    Conditions {
        // Access point and provider; the propagation time of the radio signal is negligible.
        latency: 8 * MILLI,
        // Waiting for the channel and link-layer retransmissions. They keep the order (IEEE 802.11 delivers in
        // sequence).
        jitter: 12 * MILLI,
        order: Order::Kept,
        // Losses after the last link-layer retransmission. Interference lasts longer than a frame, so losses come in
        // bursts.
        loss: Loss::bursts(Share::percent(2.0), 3.0).unwrap_or(Loss::NONE),
        // Causes are other networks, channel scans and microwave ovens.
        stalls: Some(Stalls { every: 2_000 * MILLI, shortest: 50 * MILLI, longest: 250 * MILLI }),
        // A slow modulation, shared with neighbours.
        rate: Some(RateLimit { rate: Rate::mbit(20), buffer: Buffer::Time(250 * MILLI) }),
        ..Conditions::perfect()
    }
}

fn four_g(mbit: u32) -> Conditions {
    Conditions {
        // Radio and core network: a round trip of 50 ms.
        latency: 25 * MILLI,
        // The scheduler of the base station, and retransmissions of 8 ms each.
        jitter: 10 * MILLI,
        // The radio link retransmits until a frame arrives: few are lost, and the order is kept.
        loss: Loss::Random(Share::percent(0.1)),
        // Handovers between cells.
        stalls: Some(Stalls { every: 15_000 * MILLI, shortest: 50 * MILLI, longest: 300 * MILLI }),
        // Base stations have large buffers.
        rate: Some(RateLimit { rate: Rate::mbit(mbit), buffer: Buffer::Time(1_000 * MILLI) }),
        ..Conditions::perfect()
    }
}

fn satellite(mbit: u32) -> Conditions {
    Conditions {
        // Twice 35,786 km at 299,792 km/s take 239 ms; the ground segment adds some.
        latency: 270 * MILLI,
        // The return channel assigns time slots.
        jitter: 10 * MILLI,
        // Rain. Losses that error correction cannot repair come in bursts.
        loss: Loss::bursts(Share::percent(0.5), 4.0).unwrap_or(Loss::NONE),
        // About one round trip, the traditional rule for buffers.
        rate: Some(RateLimit { rate: Rate::mbit(mbit), buffer: Buffer::Time(600 * MILLI) }),
        ..Conditions::perfect()
    }
}

fn dsl(mbit: u32, buffer: Buffer) -> Conditions {
    Conditions {
        // Interleaving against line noise, half of it in each direction.
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

/// The text is not the name of a preset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParsePresetError;

impl Display for ParsePresetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the presets are wifi-bad, 4g, satellite and dsl-bufferbloat")
    }
}

impl core::error::Error for ParsePresetError {}

impl FromStr for Preset {
    type Err = ParsePresetError;

    fn from_str(text: &str) -> Result<Self, ParsePresetError> {
        Self::ALL.into_iter().find(|preset| preset.name() == text).ok_or(ParsePresetError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_error_lists_every_preset() {
        for preset in Preset::ALL {
            assert_eq!(preset.name().parse(), Ok(preset));
            assert!(ParsePresetError.to_string().contains(preset.name()));
        }
        assert_eq!("5g".parse::<Preset>(), Err(ParsePresetError));
    }

    #[test]
    fn presets_with_bursts_have_valid_chains() {
        for preset in [Preset::WifiBad, Preset::Satellite] {
            assert!(matches!(preset.up().loss, Loss::Bursts(_)), "{preset}");
        }
    }

    #[test]
    fn preset_delays_match_their_sources() {
        let limit = Preset::DslBufferbloat.up().rate.unwrap();
        assert_eq!(limit.buffer, Buffer::Bytes(131_072));
        let full = limit.rate.time_for(131_072);
        assert!((1_000 * MILLI..1_100 * MILLI).contains(&full), "{full:?}");
        assert!(Preset::Satellite.up().latency > Duration::from_secs_f64(2.0 * 35_786.0 / 299_792.458));
    }
}
