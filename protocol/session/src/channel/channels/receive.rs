//! Frames in, messages out.

use alloc::vec::Vec;

use super::Channels;
use crate::channel::block::Reception;
use crate::channel::frame::{Body, Frame};
use crate::channel::incoming::Receipt;
use crate::channel::layout::{ChannelId, Kind, MAX_CHANNELS};
use crate::channel::violation::Violation;
use crate::channel::window::{Ahead, Outcome};
use crate::channel::{Arrival, Place, ReadAt};
use slipgate_netcode::time::Instant;

/// The bytes of a frame that has a piece of a message: a head, an id, and what fills the piece.
const LEAST_BYTES_OF_A_PIECE: usize = 3;

impl Channels {
    /// Whether there is memory for what the frames of a packet may have to leave here. If there is not, the packet
    /// should be refused, so that its sender holds it for lost. Without a shared budget there always is.
    ///
    /// What is in order needs none: a sender that writes its oldest messages first gets on although others hold all of the
    /// budget. For what it lost on the way there are [`RESERVE_BYTES`](crate::channel::RESERVE_BYTES) of its own.
    #[must_use]
    pub fn can_take(&self, frames: &[u8]) -> bool {
        let most = frames.len() / LEAST_BYTES_OF_A_PIECE;
        self.receiving.spare(most) >= most || {
            let pieces = self.pieces_to_keep(frames);
            self.receiving.spare(pieces) >= pieces
        }
    }

    fn pieces_to_keep(&self, frames: &[u8]) -> usize {
        let (mut at, mut pieces) = (ReadAt::default(), 0);
        let mut ahead = [Ahead::default(); MAX_CHANNELS];
        while let Ok(Frame { channel, body }) = Frame::read(frames, &mut at, &self.layout) {
            let index = usize::from(channel.0);
            let incoming = self.incoming.get(index).zip(self.layout.channel(channel)).zip(ahead.get_mut(index));
            pieces +=
                incoming.map_or(0, |((incoming, config), ahead)| incoming.pieces_to_keep(config.kind, &body, ahead));
        }
        pieces
    }

    /// Reads on in the frames of a packet, and answers the next message. `scratch` holds those that do not lie in the
    /// packet in one piece. Call it until it answers `None`, before the next packet.
    ///
    /// # Errors
    /// When the frames cannot be those of an honest peer with the same layout. The connection is of no use then.
    pub fn next(
        &mut self,
        frames: &[u8],
        at: &mut ReadAt,
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Arrival>, Violation> {
        loop {
            if let Some(arrival) = self.drain(scratch) {
                return Ok(Some(arrival));
            }
            if at.bytes >= frames.len() {
                return Ok(None);
            }
            let frame = Frame::read(frames, at, &self.layout)?;
            if let Some(arrival) = self.take(frame, frames, scratch, now)? {
                return Ok(Some(arrival));
            }
        }
    }

    /// Takes a frame, and answers its message if that is to be delivered at once.
    fn take(
        &mut self,
        frame: Frame,
        packet: &[u8],
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Arrival>, Violation> {
        let Frame { channel, body } = frame;
        if let Body::Block { data } = body {
            return self.take_block(channel, packet.get(data).unwrap_or(&[])).map(|()| None);
        }
        let index = usize::from(channel.0);
        let (Some(incoming), Some(config)) = (self.incoming.get_mut(index), self.layout.channel(channel)) else {
            return Err(Violation::NoChannel(channel));
        };
        let whole = body.whole();
        let receipt = &mut Receipt { channel, config, packet, store: &mut self.receiving, scratch, now };
        let (outcome, given_up) = incoming.take(body, receipt)?;
        if config.kind == Kind::ReliableOrdered {
            self.draining = Some(channel);
        }
        let place = match outcome {
            Outcome::Deliver => Some(Place::Frames(whole)),
            Outcome::Gathered => Some(Place::Scratch),
            Outcome::Kept | Outcome::Dropped => None,
        };
        if let Some(outgoing) = self.outgoing.get_mut(index) {
            outgoing.counters.dropped += given_up + u64::from(outcome == Outcome::Dropped);
            outgoing.counters.delivered += u64::from(place.is_some());
        }
        Ok(place.map(|place| Arrival::Message { channel, place }))
    }

    fn take_block(&mut self, channel: ChannelId, frame: &[u8]) -> Result<(), Violation> {
        let blocks = self.blocks_mut(channel).ok_or(Violation::NoChannel(channel))?;
        let reception = blocks.on_frame(frame).map_err(|violation| Violation::Block(channel, violation))?;
        if let (Reception::Ignored, Some(outgoing)) = (reception, self.outgoing.get_mut(usize::from(channel.0))) {
            outgoing.counters.dropped += 1;
        }
        Ok(())
    }

    /// Takes a message that waited for the one that was delivered last.
    fn drain(&mut self, scratch: &mut Vec<u8>) -> Option<Arrival> {
        let channel = self.draining?;
        let index = usize::from(channel.0);
        if self.incoming.get_mut(index).is_some_and(|incoming| incoming.pop(&mut self.receiving, scratch)) {
            if let Some(outgoing) = self.outgoing.get_mut(index) {
                outgoing.counters.delivered += 1;
            }
            return Some(Arrival::Message { channel, place: Place::Scratch });
        }
        self.draining = None;
        None
    }
}
