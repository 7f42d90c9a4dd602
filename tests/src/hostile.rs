//! A client with a valid token that floods its server: mixes of packets, each as costly as its kind of frame allows.
//!
//! [`FloodWriter`] composes payloads, which a [`RawClient`](crate::raw_client::RawClient) or our own netcode client
//! seals. The packets break no rule that a receiver checks, so only a budget stops them.

use std::sync::Arc;

use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_session::channel::control::VERSION;
use slipgate_session::channel::transfer::TransferReason;
use slipgate_session::channel::transfer::frame::{TransferBegin, TransferFrame};
use slipgate_session::channel::transfer::{
    ContentDigest, MIN_SLICE_BYTES, TransferAdmission, TransferConfig, TransferId,
};
use slipgate_session::channel::{ChannelConfig, Kind, Layout};
use slipgate_session::wire::reliable::{Acks, ReliableHeader, Sequence};
use slipgate_session::wire::session_frame::{AckNonces, SessionFrame, Timestamp};

use crate::malicious_peer::{hello, number, slice, transfer, whole};
use crate::nonce_sum::{NoncePlanes, nonce_planes, nonce_sum};

/// The unreliable channel of [`flood_layout`].
pub const UNRELIABLE: u8 = 0;
/// The sequenced channel of [`flood_layout`].
pub const SEQUENCED: u8 = 1;
/// The reliable, unordered channel of [`flood_layout`].
pub const UNORDERED: u8 = 2;
/// The reliable, ordered channel of [`flood_layout`].
pub const ORDERED: u8 = 3;
/// The channel of transfers of [`flood_layout`].
pub const TRANSFERS: u8 = 4;

/// The messages in each window.
const WINDOW: u32 = 4096;
/// The bytes of the largest message.
const MESSAGE_BYTES: u32 = 32 * 1024;
/// The number of message ids.
const IDS: u32 = 1 << 21;
/// The packets at the start that carry a HELLO: one of them arrives even on a path that loses many.
const HELLO_PACKETS: u64 = 64;
/// The most bytes of extended acks in a packet.
const EXTENDED_ACK_BYTES: usize = 28;
/// The bytes of frames in a packet, behind the largest header, frame and HELLO.
const FRAME_BYTES: usize = MAX_PAYLOAD_BYTES - 60;

/// Returns a layout with a channel of each kind, with windows of 4,096 messages, that accepts all transfers.
///
/// # Panics
/// Never: the settings are valid.
#[must_use]
pub fn flood_layout() -> Arc<Layout> {
    let kinds = [Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered, Kind::Transfers];
    let channel = |kind| ChannelConfig {
        max_message_bytes: MESSAGE_BYTES,
        queue_bytes: 1 << 20,
        queue_messages: WINDOW as u16,
        transfers: TransferConfig { admission: TransferAdmission::Automatic, ..TransferConfig::default() },
        ..ChannelConfig::from(kind)
    };
    Arc::new(Layout::try_from(kinds.map(channel).to_vec()).expect("valid channels"))
}

/// What the packets of a flood contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FloodMix {
    /// One unreliable message that fills the packet, as an honest sender writes it.
    FullPackets,
    /// As many unreliable messages without content as fit.
    EmptyUnreliable,
    /// As many sequenced messages without content as fit.
    EmptySequenced,
    /// As many reliable messages without content as fit, in no order.
    EmptyUnordered,
    /// As many reliable messages without content as fit, in order.
    EmptyOrdered,
    /// Reliable messages of the maximum size, in slices and in order.
    LargeOrdered,
    /// The last slices, of one byte each, of ever new unreliable messages.
    LastSlices,
    /// Reliable messages behind a gap, and then the one that closes the gap.
    GapThenAll,
    /// Pairs of messages at both ends of the window.
    FarEnds,
    /// Withdrawals of messages.
    Withdrawals,
    /// Transfers with one slice in each chunk.
    TransferHoles,
    /// Transfers of which the first chunk arrives last, so that all of each one is hashed then.
    TransferLateStarts,
    /// Announcements and withdrawals of transfers.
    TransferBegins,
    /// Withdrawals of transfers that were never announced.
    TransferWithdrawals,
    /// Acknowledgements of 256 packets, as far as they were received, without messages.
    Acks,
    /// Headers and frames alone.
    Headers,
    /// Unknown control messages.
    Controls,
    /// HELLO messages.
    Hellos,
    /// The same packet again and again.
    Duplicates,
    /// Packets with the oldest number of the window, and far behind it.
    Stale,
    /// All others in turn.
    All,
}

impl FloodMix {
    /// All mixes.
    pub const EVERY: [Self; 21] = [
        Self::FullPackets,
        Self::EmptyUnreliable,
        Self::EmptySequenced,
        Self::EmptyUnordered,
        Self::EmptyOrdered,
        Self::LargeOrdered,
        Self::LastSlices,
        Self::GapThenAll,
        Self::FarEnds,
        Self::Withdrawals,
        Self::TransferHoles,
        Self::TransferLateStarts,
        Self::TransferBegins,
        Self::TransferWithdrawals,
        Self::Acks,
        Self::Headers,
        Self::Controls,
        Self::Hellos,
        Self::Duplicates,
        Self::Stale,
        Self::All,
    ];
}

/// Composes the payloads of a flood.
pub struct FloodWriter {
    mix: FloodMix,
    hello: Vec<u8>,
    packets: u64,
    sequence: u16,
    acks: Acks,
    /// The packets before those of `acks`, as extended acks.
    extended_acks: [u8; EXTENDED_ACK_BYTES],
    /// The nonces of the packets of `acks`, and behind them those of the extended acks.
    nonce_planes: Vec<NoncePlanes>,
    /// The nonces of the packets of the peer that were received, by their numbers.
    received: Vec<Option<u8>>,
    /// The next message id of each channel.
    next_ids: [u32; 4],
    /// The next slice of the message of maximum size.
    next_slice: u32,
    /// The id that messages wait for.
    gap: Option<u32>,
    transfer: TransferCursor,
    /// The frames of mixes that never change.
    constant: Vec<u8>,
}

/// The position of the flood in its transfers.
#[derive(Default)]
struct TransferCursor {
    next_id: u16,
    /// The announced transfer, and its next slice.
    current: Option<(u16, u32)>,
    /// The announced transfer of which the first chunk arrives last, and its next packet.
    late: Option<(u16, u32)>,
}

/// The bytes of each announced transfer.
const TRANSFER_BYTES: u32 = 16 << 20;
/// The bytes of a transfer of [`FloodMix::TransferLateStarts`].
pub const LATE_TRANSFER_BYTES: u32 = 4 << 20;
/// The slices of a chunk.
const CHUNK_SLICES: u32 = 16;

impl FloodWriter {
    /// Creates the writer of a flood to a peer with this layout.
    #[must_use]
    pub fn new(mix: FloodMix, layout: &Layout) -> Self {
        Self {
            mix,
            hello: hello(VERSION, layout.hash()),
            packets: 0,
            sequence: 0,
            acks: Acks::NONE,
            extended_acks: [0; EXTENDED_ACK_BYTES],
            nonce_planes: Vec::new(),
            received: vec![None; 1 << 16],
            next_ids: [0; 4],
            next_slice: 0,
            gap: None,
            transfer: TransferCursor::default(),
            constant: Vec::new(),
        }
    }

    /// Acknowledges a packet of the peer with this payload, and those before it that were received, in all packets from
    /// now on. It acknowledges no packet that it did not receive, which would end the session.
    pub fn acknowledge(&mut self, payload: &[u8]) {
        let Ok((ReliableHeader { sequence: ack, .. }, payload)) = ReliableHeader::parse(payload) else { return };
        let Ok((frame, _)) = SessionFrame::parse(payload) else { return };
        self.received[usize::from(ack.0)] = Some(frame.nonces.own);
        // A number that was used 32,768 packets ago will be used again.
        self.received[usize::from(ack.0.wrapping_add(1 << 15))] = None;
        let nonce = |back: u16| self.received[usize::from(ack.0.wrapping_sub(back))];
        let is_received = |back: u16| nonce(back).is_some();
        let bits = (0..32).filter(|back| is_received(*back)).fold(0, |bits, back| bits | 1 << back);
        self.extended_acks = [0; EXTENDED_ACK_BYTES];
        for (index, byte) in (4..).zip(&mut self.extended_acks) {
            *byte = (0..8).filter(|bit| is_received(index * 8 + bit)).fold(0, |byte, bit| byte | 1 << bit);
        }
        self.acks = Acks { ack, bits };
        let nonce = |number: u16| self.received[usize::from(number)].unwrap_or(0);
        self.nonce_planes = nonce_planes(self.acks, &self.extended_acks, nonce);
    }

    /// Returns the next payload.
    ///
    /// # Panics
    /// Never: every payload fits.
    pub fn next_payload(&mut self) -> Vec<u8> {
        let others = FloodMix::EVERY.len() as u64 - 1;
        let mix = match self.mix {
            FloodMix::All => FloodMix::EVERY[(self.packets / 8 % others) as usize],
            mix => mix,
        };
        let sequence = match mix {
            // The first packets carry the HELLO.
            FloodMix::Duplicates if self.packets >= HELLO_PACKETS => self.sequence,
            FloodMix::Stale if self.packets >= HELLO_PACKETS => {
                self.sequence.wrapping_sub(if self.packets.is_multiple_of(2) { 1 << 11 } else { 1 << 14 })
            }
            _ => {
                self.sequence = self.sequence.wrapping_add(1);
                self.sequence
            }
        };
        let frames = self.frames(mix);
        let mut buf = [0; MAX_PAYLOAD_BYTES];
        let mut writer = Writer::new(&mut buf);
        ReliableHeader { sequence: Sequence(sequence), acks: self.acks }.emit(&mut writer);
        let (extended_acks, words) =
            if mix == FloodMix::Acks { (&self.extended_acks[..], usize::MAX) } else { (&[][..], 1) };
        let planes = &self.nonce_planes[..words.min(self.nonce_planes.len())];
        let nonces = AckNonces { own: 0, sum: nonce_sum(sequence, planes) };
        SessionFrame { sent: Timestamp(0), nonces, arrived: None, extended_acks }.emit(&mut writer);
        if self.packets < HELLO_PACKETS && mix != FloodMix::Headers {
            writer.bytes(&self.hello);
        }
        writer.bytes(&frames);
        self.packets += 1;
        let bytes = writer.written().expect("a payload that fits");
        buf[..bytes].to_vec()
    }

    fn frames(&mut self, mix: FloodMix) -> Vec<u8> {
        match mix {
            FloodMix::FullPackets | FloodMix::Duplicates | FloodMix::Stale => {
                self.constant(|| whole(UNRELIABLE, None, &[7; 1100]))
            }
            FloodMix::EmptyUnreliable => self.constant(|| filled(|_| whole(UNRELIABLE, None, &[]))),
            FloodMix::EmptySequenced => self.empty_messages(SEQUENCED),
            FloodMix::EmptyUnordered => self.empty_messages(UNORDERED),
            FloodMix::EmptyOrdered => self.empty_messages(ORDERED),
            FloodMix::LargeOrdered => self.large(),
            FloodMix::LastSlices => self.last_slices(),
            FloodMix::GapThenAll => self.gap_then_all(),
            FloodMix::FarEnds => self.far_ends(),
            FloodMix::Withdrawals => self.withdrawals(),
            FloodMix::TransferHoles => self.transfer_holes(),
            FloodMix::TransferLateStarts => self.transfer_late_starts(),
            FloodMix::TransferBegins => self.transfer_begins(),
            FloodMix::TransferWithdrawals => self.transfer_withdrawals(),
            FloodMix::Acks | FloodMix::Headers | FloodMix::All => Vec::new(),
            FloodMix::Controls => self.constant(|| filled(|_| vec![0, 99, 0])),
            FloodMix::Hellos => {
                let hello = self.hello.clone();
                self.constant(|| filled(|_| hello.clone()))
            }
        }
    }

    /// Returns frames that never change; composed once, unless mixes take turns.
    fn constant(&mut self, compose: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
        if self.mix == FloodMix::All {
            return compose();
        }
        if self.constant.is_empty() {
            self.constant = compose();
        }
        self.constant.clone()
    }

    /// Returns a packet of whole messages without content, in order.
    fn empty_messages(&mut self, channel: u8) -> Vec<u8> {
        let next = &mut self.next_ids[usize::from(channel)];
        let frames = filled(|index| {
            let number = if index == 0 { *next % IDS } else { 1 };
            *next += 1;
            whole(channel, Some(number), &[])
        });
        // The frame that did not fit was not sent.
        *next -= 1;
        frames
    }

    /// Returns the next slice, as large as fits, of messages of the maximum size.
    fn large(&mut self) -> Vec<u8> {
        const PIECES: u32 = 8;
        let (id, first) = (self.next_ids[usize::from(ORDERED)] % IDS, self.next_slice);
        self.next_slice = (first + PIECES) % (MESSAGE_BYTES / 128);
        self.next_ids[usize::from(ORDERED)] += u32::from(self.next_slice == 0);
        slice(ORDERED, id, MESSAGE_BYTES, first, &[7; 128 * PIECES as usize])
    }

    fn last_slices(&mut self) -> Vec<u8> {
        let next = &mut self.next_ids[usize::from(UNRELIABLE)];
        filled(|index| {
            let number = if index == 0 { *next % IDS } else { 1 };
            *next += 1;
            slice(UNRELIABLE, number, 129, 1, &[7])
        })
    }

    /// Returns messages behind a gap, and the one that closes it when the window is full.
    fn gap_then_all(&mut self) -> Vec<u8> {
        // Mixes in turn close the gap before the next mix uses the channel.
        let window = if self.mix == FloodMix::All { 1000 } else { WINDOW };
        let next = &mut self.next_ids[usize::from(ORDERED)];
        let gap = *self.gap.get_or_insert(*next);
        *next = (*next).max(gap + 1);
        if *next == gap + window {
            self.gap = None;
            return whole(ORDERED, Some(gap % IDS), &[]);
        }
        let left = (gap + window - *next) as usize;
        let (frames, in_vain) = filled_up_to(left, |index| {
            let number = if index == 0 { *next % IDS } else { 1 };
            *next += 1;
            whole(ORDERED, Some(number), &[])
        });
        *next -= u32::from(in_vain);
        frames
    }

    fn far_ends(&mut self) -> Vec<u8> {
        let next = &mut self.next_ids[usize::from(UNORDERED)];
        let mut last = 0;
        let frames = filled(|_| {
            let (near, far) = (*next, *next + WINDOW - 1);
            let number = near.wrapping_sub(last) % IDS;
            (*next, last) = (near + 1, far);
            [whole(UNORDERED, Some(number), &[]), whole(UNORDERED, Some(WINDOW - 1), &[])].concat()
        });
        *next -= 1;
        frames
    }

    fn withdrawals(&mut self) -> Vec<u8> {
        let next = &mut self.next_ids[usize::from(ORDERED)];
        let frames = filled(|index| {
            let delta = if index == 0 { *next % IDS } else { 1 };
            *next += 1;
            [&[(ORDERED + 1) | 0x40][..], &number(delta), &[0]].concat()
        });
        *next -= 1;
        frames
    }

    fn begin(id: u16, length: u32) -> Vec<u8> {
        let begin = TransferBegin {
            id: TransferId(id),
            slice_bytes: MIN_SLICE_BYTES,
            length,
            label: 1,
            digest: ContentDigest([3; 32]),
        };
        transfer(TRANSFERS, &TransferFrame::Begin(begin))
    }

    fn withdraw(id: u16) -> Vec<u8> {
        let id = TransferId(id);
        transfer(TRANSFERS, &TransferFrame::Withdraw { id, reason: TransferReason::Cancelled })
    }

    fn transfer_holes(&mut self) -> Vec<u8> {
        let slices = TRANSFER_BYTES / u32::from(MIN_SLICE_BYTES);
        let cursor = &mut self.transfer;
        let mut frames = Vec::new();
        let (id, slice) = *cursor.current.get_or_insert_with(|| {
            cursor.next_id = cursor.next_id.wrapping_add(1);
            (cursor.next_id, 0)
        });
        // Repeated at the start: the first one may be lost. Among other mixes most packets are.
        if slice < 8 * 7 * CHUNK_SLICES || self.mix == FloodMix::All {
            frames.extend(Self::begin(id, TRANSFER_BYTES));
        }
        for index in (slice..slices).step_by(CHUNK_SLICES as usize).take(7) {
            frames.extend(transfer(
                TRANSFERS,
                &TransferFrame::Slice { id: TransferId(id), index, bytes: &[7; MIN_SLICE_BYTES as usize] },
            ));
        }
        let next = slice + 7 * CHUNK_SLICES;
        cursor.current = Some((id, next));
        if next >= slices {
            frames.extend(Self::withdraw(id));
            cursor.current = None;
        }
        frames
    }

    /// Returns the next packet of a transfer: its slices from the second chunk on, twice, because some packets are
    /// lost, and then its first chunk.
    fn transfer_late_starts(&mut self) -> Vec<u8> {
        const PIECES: u32 = CHUNK_SLICES / 2;
        // Mixes in turn have 8 packets in a row, which are a whole transfer.
        let length = if self.mix == FloodMix::All { 4096 } else { LATE_TRANSFER_BYTES };
        // Packets of the first chunk, and of all others.
        let (first, rest) = (2, length / (PIECES * u32::from(MIN_SLICE_BYTES)) - 2);
        let cursor = &mut self.transfer;
        let (id, packet) = *cursor.late.get_or_insert_with(|| {
            cursor.next_id = cursor.next_id.wrapping_add(1);
            (cursor.next_id, 0)
        });
        let mut frames = Vec::new();
        // Repeated at the start: the first one may be lost.
        if packet < 64 {
            frames.extend(Self::begin(id, length));
        }
        // The transfer before it is hashed by now, or some of it is lost.
        if packet / 64 == rest / 64 {
            frames.extend(Self::withdraw(id.wrapping_sub(1)));
        }
        let part = if packet < 2 * rest { first + packet % rest } else { (packet - 2 * rest) % first };
        let bytes = &[7; PIECES as usize * MIN_SLICE_BYTES as usize];
        let slices = TransferFrame::Slice { id: TransferId(id), index: part * PIECES, bytes };
        frames.extend(transfer(TRANSFERS, &slices));
        cursor.late = Some((id, packet + 1)).filter(|(_, next)| *next < 2 * (rest + first));
        frames
    }

    fn transfer_begins(&mut self) -> Vec<u8> {
        let next = &mut self.transfer.next_id;
        filled(|index| {
            *next = next.wrapping_add(u16::from(index % 2 == 0));
            if index % 2 == 0 { Self::begin(*next, TRANSFER_BYTES) } else { Self::withdraw(*next) }
        })
    }

    fn transfer_withdrawals(&mut self) -> Vec<u8> {
        let next = &mut self.transfer.next_id;
        filled(|_| {
            *next = next.wrapping_add(1);
            Self::withdraw(*next)
        })
    }
}

/// Returns frames until the packet is full. The last call of `frame` adds nothing.
fn filled(frame: impl FnMut(usize) -> Vec<u8>) -> Vec<u8> {
    filled_up_to(usize::MAX, frame).0
}

/// Returns at most this many frames, and whether the last call of `frame` added nothing.
fn filled_up_to(max: usize, mut frame: impl FnMut(usize) -> Vec<u8>) -> (Vec<u8>, bool) {
    let mut frames = Vec::with_capacity(MAX_PAYLOAD_BYTES);
    for index in 0..max {
        let next = frame(index);
        if frames.len() + next.len() > FRAME_BYTES {
            return (frames, true);
        }
        frames.extend(next);
    }
    (frames, false)
}
