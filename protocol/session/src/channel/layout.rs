//! The layout: the channels of a connection. Both ends must have the same layout, which its hash verifies.

use alloc::vec::Vec;
use core::fmt;

use sha2::{Digest, Sha256};

use crate::channel::config::{ChannelConfig, ChannelId, LayoutFault};

/// The maximum number of channels of a layout: six bits of a frame's head, without 0 (control) and 63 (reserved).
pub const MAX_CHANNELS: usize = 62;
/// The start of the canonical encoding of a layout (§3.6).
const HASH_LABEL: &[u8] = b"slipgate channels 1\0";
/// The tag of the names in the canonical encoding (§3.6).
const NAMES: u8 = 1;
/// The tag of the application's version in the canonical encoding (§3.6).
const VERSION: u8 = 2;

/// A short name of [`ChannelConfig`] for building layouts.
pub type Channel = ChannelConfig;

/// The channels of a connection, the same at both ends.
///
/// # Examples
/// ```
/// use slipgate_session::channel::{Channel, Layout};
///
/// let mut layout = Layout::builder();
/// layout.version = 3;
/// let state = layout.add(Channel::sequenced("state").priority(2).newest_only());
/// let layout = layout.build().expect("one good channel");
/// assert_eq!(layout.channel(state).expect("it was added").priority, 2);
/// ```
#[derive(Clone, Debug)]
pub struct Layout {
    channels: Vec<ChannelConfig>,
    hash: LayoutHash,
    version: u32,
}

/// Builds a [`Layout`] channel by channel, so that an id cannot drift from its channel.
///
/// Names and version are part of the layout's hash. A client with another layout is disconnected with the close reason
/// for a layout mismatch, before any message is misread.
///
/// # Examples
///
/// ```
/// use slipgate_session::channel::{Channel, Layout};
///
/// let mut layout = Layout::builder();
/// layout.version = 3;
/// let state = layout.add(Channel::sequenced("state").priority(2).newest_only());
/// let chat = layout.add(Channel::reliable_ordered("chat"));
/// let layout = layout.build().expect("two good channels");
/// assert_eq!(layout.channel(chat).expect("it was added").name, "chat");
/// assert_ne!(state, chat);
/// ```
#[derive(Clone, Debug, Default)]
pub struct LayoutBuilder {
    /// The application's version of its messages. 0, the default, is not part of the hash.
    pub version: u32,
    channels: Vec<ChannelConfig>,
}

impl LayoutBuilder {
    /// Adds a channel and returns its id. Ids are assigned in ascending order.
    pub fn add(&mut self, channel: ChannelConfig) -> ChannelId {
        // An id beyond the maximum is never used: `build` returns an error.
        let id = ChannelId(self.channels.len().min(MAX_CHANNELS) as u8);
        self.channels.push(channel);
        id
    }

    /// Builds the layout.
    ///
    /// # Errors
    /// [`LayoutError::TooManyChannels`] for more than 62 channels, and [`LayoutError::Channel`] with the first channel
    /// that has a setting out of bounds or a name that is taken.
    pub fn build(self) -> Result<Layout, LayoutError> {
        let Self { channels, version } = self;
        if channels.len() > MAX_CHANNELS {
            return Err(LayoutError::TooManyChannels);
        }
        for (id, channel) in (0..).zip(&channels) {
            let fault = |fault| LayoutError::Channel(ChannelId(id), fault);
            // The first fault in the order of the ids is reported.
            channel.check().map_err(fault)?;
            let is_taken = |other: &ChannelConfig| !channel.name.is_empty() && other.name == channel.name;
            if channels.iter().take(id.into()).any(is_taken) {
                return Err(fault(LayoutFault::DuplicateName));
            }
        }
        let hash = hash(&channels, version);
        Ok(Layout { channels, hash, version })
    }
}

/// Why a layout is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutError {
    /// There are more than 62 channels.
    TooManyChannels,
    /// A channel's settings are out of bounds.
    Channel(ChannelId, LayoutFault),
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (channel, fault) = match self {
            Self::TooManyChannels => return write!(f, "a layout has at most {MAX_CHANNELS} channels"),
            Self::Channel(channel, fault) => (channel.0, fault),
        };
        let text = match fault {
            LayoutFault::NoWeight => "the weight must be at least 1",
            LayoutFault::NoBytesPerTick => "bytes_per_tick must be at least 1",
            LayoutFault::MessageBytes => "max_message_bytes must be within 1 to 65,536",
            LayoutFault::QueueBytes => "queue_bytes must hold one message and be at most 16 MiB",
            LayoutFault::QueueMessages => "queue_messages must be within 1 to 16,384",
            LayoutFault::NewestOnly => "newest_only is for unreliable and sequenced channels",
            LayoutFault::LongName => "the name must have at most 64 bytes",
            LayoutFault::DuplicateName => "another channel has the same name",
            LayoutFault::Transfers(error) => return write!(f, "channel {channel}: {error}"),
        };
        write!(f, "channel {channel}: {text}")
    }
}

impl core::error::Error for LayoutError {}

/// A digest of what both ends must agree upon: the first 8 bytes of a SHA-256 (§3.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct LayoutHash(pub [u8; 8]);

impl fmt::Display for LayoutHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl TryFrom<Vec<ChannelConfig>> for Layout {
    type Error = LayoutError;

    /// Creates a layout of these channels, in the order of their ids. A layout without channels is valid: its
    /// connections measure the path and carry close reasons, but no messages. The errors are those of
    /// [`LayoutBuilder::build`].
    fn try_from(channels: Vec<ChannelConfig>) -> Result<Self, LayoutError> {
        LayoutBuilder { channels, version: 0 }.build()
    }
}

impl Layout {
    /// Creates a builder without channels.
    #[must_use]
    pub fn builder() -> LayoutBuilder {
        LayoutBuilder::default()
    }

    /// Returns the digest that the two ends compare.
    #[must_use]
    pub const fn hash(&self) -> LayoutHash {
        self.hash
    }

    /// Returns the application's version of its messages, 0 if it has none.
    pub(crate) const fn version(&self) -> u32 {
        self.version
    }

    /// Returns the settings of a channel, if it exists.
    #[must_use]
    pub fn channel(&self, channel: ChannelId) -> Option<&ChannelConfig> {
        self.channels.get(usize::from(channel.0))
    }

    /// Returns all channels, in the order of their ids.
    pub fn channels(&self) -> impl ExactSizeIterator<Item = &ChannelConfig> {
        self.channels.iter()
    }
}

fn hash(channels: &[ChannelConfig], version: u32) -> LayoutHash {
    let mut hash = Sha256::new();
    hash.update(HASH_LABEL);
    // The count makes the list of channels self-delimiting.
    hash.update([channels.len() as u8]);
    for channel in channels {
        channel.encode(&mut hash);
    }
    // Names and version stand behind the rest, and only if given: layouts without them keep the hash of older versions.
    if channels.iter().any(|channel| !channel.name.is_empty()) {
        hash.update([NAMES]);
        for channel in channels {
            // Length first, so that no two lists of names have the same bytes.
            hash.update([channel.name.len() as u8]);
            hash.update(channel.name.as_bytes());
        }
    }
    if version != 0 {
        hash.update([VERSION]);
        hash.update(version.to_le_bytes());
    }
    let mut cut = [0; 8];
    cut.iter_mut().zip(hash.finalize()).for_each(|(to, from)| *to = from);
    LayoutHash(cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use std::vec;

    use crate::channel::config::Kind;
    use crate::channel::transfer;

    #[test]
    fn hash_covers_exactly_what_both_ends_must_agree_upon() {
        let base = ChannelConfig::from(Kind::ReliableOrdered);
        let hash = |config: &ChannelConfig| Layout::try_from(vec![config.clone()]).unwrap().hash();
        for differs in [
            ChannelConfig { kind: Kind::ReliableUnordered, ..base.clone() },
            ChannelConfig { max_message_bytes: 1000, ..base.clone() },
            ChannelConfig { queue_bytes: 65_537, ..base.clone() },
            ChannelConfig { queue_messages: 255, ..base.clone() },
        ] {
            assert_ne!(hash(&differs), hash(&base), "{differs:?}");
        }
        for alike in [
            ChannelConfig { priority: 9, ..base.clone() },
            ChannelConfig { weight: 9, ..base.clone() },
            ChannelConfig { bytes_per_tick: Some(9), ..base.clone() },
            ChannelConfig { deadline: Some(Duration::ZERO), ..base.clone() },
        ] {
            assert_eq!(hash(&alike), hash(&base), "{alike:?}");
        }
        let of = |max_at_once| {
            let transfers = transfer::TransferConfig { max_at_once, ..base.transfers.clone() };
            hash(&ChannelConfig { transfers, ..ChannelConfig::from(Kind::Transfers) })
        };
        assert_ne!(of(4), of(5));
        let two = Layout::try_from(vec![base.clone(), base.clone()]).unwrap().hash();
        assert_ne!(two, hash(&base));
    }

    #[test]
    fn bad_settings_are_refused_with_channel_and_fault() {
        let base = ChannelConfig::from(Kind::Unreliable);
        for (config, fault) in [
            (ChannelConfig { weight: 0, ..base.clone() }, LayoutFault::NoWeight),
            (ChannelConfig { bytes_per_tick: Some(0), ..base.clone() }, LayoutFault::NoBytesPerTick),
            (ChannelConfig { max_message_bytes: 0, ..base.clone() }, LayoutFault::MessageBytes),
            (
                ChannelConfig { max_message_bytes: 65_537, queue_bytes: 65_537, ..base.clone() },
                LayoutFault::MessageBytes,
            ),
            (ChannelConfig { queue_bytes: 16_383, ..base.clone() }, LayoutFault::QueueBytes),
            (ChannelConfig { queue_bytes: (16 << 20) + 1, ..base.clone() }, LayoutFault::QueueBytes),
            (ChannelConfig { name: "n".repeat(65).into(), ..base.clone() }, LayoutFault::LongName),
            (
                ChannelConfig { newest_only: true, ..ChannelConfig::from(Kind::ReliableOrdered) },
                LayoutFault::NewestOnly,
            ),
            (ChannelConfig { queue_messages: 0, ..base.clone() }, LayoutFault::QueueMessages),
            (ChannelConfig { queue_messages: 16_385, ..base.clone() }, LayoutFault::QueueMessages),
            (
                ChannelConfig {
                    transfers: transfer::TransferConfig { max_at_once: 0, ..transfer::TransferConfig::default() },
                    ..base.clone()
                },
                LayoutFault::Transfers(transfer::TransferConfigError::AtOnce),
            ),
        ] {
            let refused = Layout::try_from(vec![base.clone(), config]).unwrap_err();
            assert_eq!(refused, LayoutError::Channel(ChannelId(1), fault));
        }
        assert!(Layout::try_from(vec![base.clone(); 62]).is_ok());
        assert_eq!(Layout::try_from(vec![base; 63]).unwrap_err(), LayoutError::TooManyChannels);
    }

    #[test]
    fn names_and_version_change_the_hash_only_when_given() {
        let build = |names: [&'static str; 2], version| {
            let mut layout = Layout::builder();
            layout.version = version;
            let ids = names.map(|name| layout.add(Channel::unreliable(name)));
            assert_eq!(ids, [ChannelId(0), ChannelId(1)]);
            layout.build().map(|layout| layout.hash())
        };
        let plain = Layout::try_from(vec![ChannelConfig::from(Kind::Unreliable); 2]).unwrap().hash();
        assert_eq!(build(["", ""], 0), Ok(plain));
        let given = [(["", ""], 1), (["a", ""], 0), (["", "a"], 0), (["a", "b"], 0), (["a", "b"], 1), (["ab", ""], 0)];
        let mut hashes: Vec<_> = given.iter().map(|(names, version)| build(*names, *version).unwrap().0).collect();
        hashes.push(plain.0);
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), given.len() + 1);
        let taken = LayoutError::Channel(ChannelId(1), LayoutFault::DuplicateName);
        assert_eq!(build(["a", "a"], 0), Err(taken));
    }

    #[test]
    fn named_layout_hashes_the_bytes_of_the_specification() {
        let mut layout = Layout::builder();
        layout.version = 7;
        layout.add(Channel::transfers("map"));
        let mut encoding = HASH_LABEL.to_vec();
        encoding.extend([1, 4, 4, NAMES, 3, b'm', b'a', b'p', VERSION, 7, 0, 0, 0]);
        let digest: [u8; 32] = Sha256::digest(encoding).into();
        assert_eq!(layout.build().unwrap().hash().0, digest[..8]);
    }
}
