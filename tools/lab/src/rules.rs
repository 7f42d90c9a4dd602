//! The algorithms of the table, and how each rules a flow.

use slipgate_session::congestion::{
    Algorithm, BinaryConfig, BytesPerSecond, Config, Congestion, Controller, Fixed, GlideConfig, Shape,
};

use crate::rival::{Aimd, Bbr, Cubic, Gcc, Nada};
use crate::scenario::{Flow, Ruler, Scenario};
use crate::source::LARGEST_PACKET;

/// What a sender without congestion avoidance may do: anything.
const UNBOUNDED: BytesPerSecond = BytesPerSecond(1e9);
/// Packets in the lab are bytes on the path, headers included.
const SHAPE: Shape = Shape { packets_per_second: 60.0, packet_bytes: LARGEST_PACKET, header_bytes: 67 };

/// An algorithm of the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// No congestion avoidance.
    None,
    /// The article's two rates, its packets scaled to what the scenario wants.
    Binary,
    /// Reno's.
    Aimd,
    /// CUBIC.
    Cubic,
    /// BBR, in its main features.
    Bbr,
    /// Google's congestion control of 2016, in its main features.
    Gcc,
    /// NADA, which is told twice the path's rate as the most there can be.
    Nada,
    /// Glide, as a session has it by default.
    Glide,
}

impl Rule {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 8] =
        [Self::None, Self::Binary, Self::Aimd, Self::Cubic, Self::Bbr, Self::Gcc, Self::Nada, Self::Glide];

    /// Its name, in the table and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Binary => "binary",
            Self::Aimd => "aimd",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Gcc => "gcc",
            Self::Nada => "nada",
            Self::Glide => "glide",
        }
    }

    /// The congestion avoidance that rules a flow from this source.
    fn congestion(self, scenario: &Scenario, flow: &Flow) -> Congestion {
        let algorithm = match self {
            Self::None if flow.source.rate().is_some() => Algorithm::Fixed(UNBOUNDED),
            Self::None => Algorithm::Fixed(BytesPerSecond(scenario.offer)),
            Self::Binary => Algorithm::Binary(BinaryConfig {
                // Good mode brings 30 packets per second of what is wanted.
                packet_bytes: (flow.source.rate().unwrap_or(scenario.offer) / 30.0) as u32,
                ..BinaryConfig::default()
            }),
            Self::Glide => Algorithm::Glide(GlideConfig::default()),
            Self::Aimd => return rival(Aimd::default()),
            Self::Cubic => return rival(Cubic::default()),
            Self::Bbr => return rival(Bbr::default()),
            Self::Gcc => return rival(Gcc::default()),
            Self::Nada => return rival(Nada::up_to(BytesPerSecond(2.0 * scenario.path.rate))),
        };
        Congestion::new(Config { algorithm, shape: SHAPE })
    }
}

/// The congestion avoidance of a flow, where `rule` is measured.
#[must_use]
pub fn congestion(rule: Rule, scenario: &Scenario, flow: &Flow) -> Congestion {
    match flow.ruler {
        Ruler::Measured => rule.congestion(scenario, flow),
        Ruler::Cubic => rival(Cubic::default()),
        Ruler::Bbr => rival(Bbr::default()),
        Ruler::Constant { rate, .. } => rival(Fixed::new(BytesPerSecond(rate))),
    }
}

fn rival(controller: impl Controller + Send + 'static) -> Congestion {
    Congestion::with_controller(Box::new(controller), SHAPE)
}
