//! The controllers of the table, and how each controls a flow.

use slipgate_session::congestion::{
    Algorithm, BinaryConfig, BytesPerSecond, CongestionConfig, CongestionState, Controller, GlideConfig, PacketShape,
};

use crate::rival::{Aimd, Bbr, Cubic, Gcc, Nada};
use crate::scenario::{Flow, FlowController, Scenario};
use crate::source::MAX_PACKET_BYTES;

/// The rate of a sender without congestion control: practically unlimited, in bytes per second.
const UNBOUNDED: BytesPerSecond = BytesPerSecond(1e9);
/// Packet sizes in the laboratory include headers.
const SHAPE: PacketShape = PacketShape { packets_per_second: 60.0, packet_bytes: MAX_PACKET_BYTES, header_bytes: 67 };

/// A controller of the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ControllerKind {
    /// No congestion control.
    None,
    /// The two rates of Fiedler's article, with packets scaled to the demand of the scenario.
    Binary,
    /// Reno.
    Aimd,
    /// CUBIC.
    Cubic,
    /// BBR, main features.
    Bbr,
    /// Google's congestion control of 2016, main features.
    Gcc,
    /// NADA, with a maximum rate of twice the path's rate.
    Nada,
    /// Glide with the default settings of a session.
    Glide,
}

impl ControllerKind {
    /// All controllers, in the order of the table.
    pub const ALL: [Self; 8] =
        [Self::None, Self::Binary, Self::Aimd, Self::Cubic, Self::Bbr, Self::Gcc, Self::Nada, Self::Glide];

    /// Returns its name in the table and on the command line.
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

    /// Returns the congestion control of a flow.
    fn congestion(self, scenario: &Scenario, flow: &Flow) -> CongestionState {
        let algorithm = match self {
            Self::None if flow.source.rate().is_some() => Algorithm::Fixed(UNBOUNDED),
            Self::None => Algorithm::Fixed(BytesPerSecond(scenario.offer)),
            Self::Binary => Algorithm::Binary(BinaryConfig {
                // Good mode sends 30 packets per second of the demand.
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
        CongestionState::from(CongestionConfig { algorithm, shape: SHAPE })
    }
}

/// Returns the congestion control of a flow in a run that measures `controller`.
#[must_use]
pub fn congestion(controller: ControllerKind, scenario: &Scenario, flow: &Flow) -> CongestionState {
    match flow.controller {
        FlowController::Measured => controller.congestion(scenario, flow),
        FlowController::Cubic => rival(Cubic::default()),
        FlowController::Bbr => rival(Bbr::default()),
        FlowController::Constant { rate, .. } => {
            let algorithm = Algorithm::Fixed(BytesPerSecond(rate));
            CongestionState::from(CongestionConfig { algorithm, shape: SHAPE })
        }
    }
}

fn rival(controller: impl Controller + Send + 'static) -> CongestionState {
    CongestionState::new(Box::new(controller), SHAPE)
}
