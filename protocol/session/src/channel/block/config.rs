//! The settings of a channel of blocks: every limit, with its default and the reason for it.

use core::fmt;

use super::{MAX_BLOCK_BYTES, MAX_SLICE_BYTES, MIN_SLICE_BYTES};

/// Bytes of a slice by default: seven fill a packet of 1,186 or 1,200 bytes but for a few, three one of 508 or 548, and
/// one finds a place in the least that a bad path is granted, 256 bytes on the path.
const SLICE_BYTES: u16 = 160;

/// The settings of blocks, for both directions.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of each slice that this end sends, 128 to 1,152; 160 by default: several travel in one frame, as many as a
    /// packet has room for, and one finds a place in the least packet that congestion avoidance grants. Slices that are
    /// larger than that wait, while more urgent messages want all that a bad path carries. A peer that announces payloads in
    /// which one does not fit gets larger ones all the same: where peers' payloads differ, choose slices for the smallest.
    pub slice_bytes: u16,
    /// The largest block that this end takes, 64 MiB by default.
    pub max_block_bytes: u32,
    /// How many blocks are under way at once in each direction, 1 to 64; 4 by default. Both ends must have the same: a
    /// sender keeps to its own number, a receiver refuses what is beyond its own.
    pub max_at_once: u8,
    /// The most bytes of all blocks that are received at once, by their announced lengths; 128 MiB by default. A block
    /// beyond that waits until others are done.
    pub max_bytes_at_once: u64,
    /// How many blocks may wait to be sent, 64 by default.
    pub max_waiting: usize,
    /// Who decides about blocks that are within these limits.
    pub admission: Admission,
}

/// Who decides about a block that the peer offers, when it is within the limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Admission {
    /// It is accepted from a server, and refused from a server's client: nobody uploads what nobody asked for.
    #[default]
    FromServer,
    /// It is accepted, whoever sends it. A server that takes uploads had better lower
    /// [`max_block_bytes`](Config::max_block_bytes) as well.
    Automatic,
    /// It is refused.
    Never,
    /// The application hears of it by [`super::Event::Offered`], and accepts or refuses it when it likes.
    Ask,
}

impl Default for Config {
    fn default() -> Self {
        Self::usual()
    }
}

impl Config {
    /// The defaults.
    pub(in crate::channel) const fn usual() -> Self {
        Self {
            slice_bytes: SLICE_BYTES,
            max_block_bytes: MAX_BLOCK_BYTES,
            max_at_once: 4,
            max_bytes_at_once: 2 * MAX_BLOCK_BYTES as u64,
            max_waiting: 64,
            admission: Admission::FromServer,
        }
    }

    /// The settings of a server's end of the channel.
    pub(in crate::channel) fn of_server(self) -> Self {
        let admission = match self.admission {
            Admission::FromServer => Admission::Never,
            other => other,
        };
        Self { admission, ..self }
    }

    /// Whether a channel can run with these settings.
    ///
    /// # Errors
    ///
    /// The first setting that is out of its bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(MIN_SLICE_BYTES..=MAX_SLICE_BYTES).contains(&self.slice_bytes) {
            return Err(ConfigError::SliceBytes);
        }
        if self.max_block_bytes > MAX_BLOCK_BYTES || self.max_bytes_at_once < self.max_block_bytes.into() {
            return Err(ConfigError::BlockBytes);
        }
        if !(1..=64).contains(&self.max_at_once) {
            return Err(ConfigError::AtOnce);
        }
        Ok(())
    }
}

/// A setting that no channel of blocks can run with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not 128 to 1,152 bytes for a slice.
    SliceBytes,
    /// More than 64 MiB for a block, or more for one block than for all together.
    BlockBytes,
    /// Not 1 to 64 blocks at once.
    AtOnce,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SliceBytes => "a slice has 128 to 1,152 bytes",
            Self::BlockBytes => "a block has at most 64 MiB, and no more than all blocks together",
            Self::AtOnce => "1 to 64 blocks are under way at once",
        })
    }
}

impl core::error::Error for ConfigError {}
