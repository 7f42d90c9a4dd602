//! A connection between two peers of ours: messages on channels, several in a packet, as many packets as the path carries.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::config::MIN_PAYLOAD;
use super::end::End;
use super::greeting::Saying;
use super::path::{Cargo, Path};
use super::{Budget, Config, ConfigError, Memory, PathStats};
use crate::channel::block::PartialBlock;
use crate::channel::control::{self, Bye, ByeCode, Control, Hello, MAX_TEXT_BYTES, VERSION};
use crate::channel::{
    Arrival, ChannelEvent, ChannelId, Channels, Kind, Layout, LayoutHash, MAX_PACKETS, ReadAt, SendError, SendOptions,
};
use crate::congestion::Demand;
use crate::discard::Reject;
use crate::reliability::{Acceptance, Sink};
use crate::time::Instant;
use crate::wire::reliable::{Header, MAX_HEADER_BYTES, Sequence, is_fragment};
use crate::wire::session::{Frame, FrameFault};

/// A datagram whose messages are being taken.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Where the frames begin in the datagram.
    start: usize,
    at: ReadAt,
}

impl Incoming {
    /// Where the frames begin in the datagram: [`Place::Frames`](crate::channel::Place) counts from there.
    #[must_use]
    pub const fn start(&self) -> usize {
        self.start
    }
}

/// What stands in a datagram.
struct Parts<'d> {
    /// None in one of acknowledgements alone, as reliable 1.0 has them.
    frame: Option<Frame<'d>>,
    /// Behind it: control messages and message frames.
    rest: &'d [u8],
    /// The message frames.
    frames: &'d [u8],
}

/// Where the connection stands.
///
/// ```text
///  Open ──▶ Leaving (we say why, until it is heard or the time is up) ──▶ Over
///    └───▶ Left (the peer said why; it is owed an acknowledgement) ────▶ Over
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Open,
    Leaving(Leaving),
    Left,
    Over,
}

/// How far a farewell is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Leaving {
    saying: Saying,
    /// When it was said first.
    since: Option<Instant>,
    /// When it is said again.
    again: Instant,
}

/// A packet whose payload would have to be smaller is not worth its headers.
const LEAST_PAYLOAD: u64 = 64;

/// Of a frame without acknowledgements behind it: flags and two stamps.
const PLAIN_FRAME_BYTES: usize = 5;
/// What stands before a slice: its channel's head, room for a length, the kind of its frame, its block's number and its
/// own (§4.4).
const BEFORE_SLICE_BYTES: usize = 1 + 2 + 7;

/// How often a farewell is repeated: in the seed's slow rhythm, because nothing is known of a path on which nothing else
/// travels ("Fiedler, Reliability, Ordering and Congestion Avoidance over UDP": 10 packets per second).
const FAREWELL_INTERVAL: Duration = Duration::from_millis(100);

/// A connection on which messages travel.
pub struct Connection {
    path: Path,
    channels: Channels,
    layout: LayoutHash,
    hello: Saying,
    /// Whether the peer has said its layout, and it is ours.
    greeted: bool,
    stage: Stage,
    end: Option<End>,
    farewell: Farewell,
    /// By this side's settings; what it sends may be smaller, by the peer's.
    announced_payload_bytes: u16,
    max_payload_bytes: usize,
    farewell_time: Duration,
    ticked_at: Option<Instant>,
}

/// What is said at the end.
struct Farewell {
    code: ByeCode,
    text: String,
}

impl Connection {
    /// A connection on which nothing was sent yet.
    ///
    /// # Errors
    /// A setting that no connection can run with.
    pub fn new(config: &Config, layout: Arc<Layout>, memory: Option<&Memory>) -> Result<Self, ConfigError> {
        config.check()?;
        if least_payload(&layout) > config.max_payload_bytes {
            return Err(ConfigError::SliceBytes);
        }
        if config.endpoint.received_window > MAX_PACKETS {
            return Err(ConfigError::Window);
        }
        Ok(Self {
            path: Path::new(
                config.endpoint.clone(),
                memory.map(|memory| memory.messages.clone()),
                config.controller(),
            )?,
            layout: layout.hash(),
            channels: channels(layout, memory),
            hello: Saying::NEW,
            greeted: false,
            stage: Stage::Open,
            end: None,
            farewell: Farewell { code: ByeCode::KICKED, text: String::new() },
            announced_payload_bytes: config.max_payload_bytes as u16,
            max_payload_bytes: config.max_payload_bytes,
            farewell_time: config.farewell,
            ticked_at: None,
        })
    }

    // Receiving -----------------------------------------------------------------------------------------------------

    /// Takes a datagram. Answers where its messages are, to be taken one by one with [`next`](Self::next).
    ///
    /// # Errors
    /// Why it was dropped; it has been counted. What no peer of ours sends ends the connection: see [`end`](Self::end).
    pub fn handle(&mut self, datagram: &[u8], now: Instant) -> Result<Option<Incoming>, Reject> {
        self.handle_late(datagram, Duration::ZERO, now)
    }

    /// As [`handle`](Self::handle), for a datagram that may have lain unread for so long, at most: the peer hears of it, and
    /// does not take that time for a queue.
    ///
    /// # Errors
    /// As [`handle`](Self::handle).
    pub fn handle_late(&mut self, datagram: &[u8], unread: Duration, now: Instant) -> Result<Option<Incoming>, Reject> {
        let Parts { frame, rest, frames } = match self.read(datagram) {
            Ok(parts) => parts,
            Err(reject) => {
                self.path.count_reject(reject);
                return Err(reject);
            }
        };
        if !self.channels.can_take(frames) {
            return self.path.refuse(datagram, now);
        }
        let answer = if rest.is_empty() { Acceptance::TakeUnanswered } else { Acceptance::Take };
        self.path.take_framed(datagram, frame.as_ref(), answer, unread, now)?;
        self.settle();
        self.take_control(rest);
        if frames.is_empty() || self.stage != Stage::Open {
            return Ok(None);
        }
        if !self.greeted {
            self.break_off(End::NotASession, ByeCode::VIOLATION);
            return Ok(None);
        }
        Ok(Some(Incoming { start: datagram.len() - frames.len(), at: ReadAt::default() }))
    }

    /// Takes a datagram apart. What no peer of ours sends ends the connection.
    fn read<'d>(&mut self, datagram: &'d [u8]) -> Result<Parts<'d>, Reject> {
        if is_fragment(datagram) {
            self.break_off(End::NotASession, ByeCode::VIOLATION);
            return Err(Reject::NotAPacket);
        }
        let (_, payload) = Header::parse(datagram)?;
        let Ok((frame, rest)) = parse_frame(payload) else {
            self.break_off(End::NotASession, ByeCode::VIOLATION);
            return Err(Reject::Refused);
        };
        let frames = self.behind_control(rest).ok_or(Reject::Refused)?;
        Ok(Parts { frame, rest, frames })
    }

    /// Takes the next message of a datagram; `scratch` is lent for messages that must be put together. `None` when there
    /// is none, or when the peer broke the rules: see [`end`](Self::end).
    pub fn next(
        &mut self,
        datagram: &[u8],
        incoming: &mut Incoming,
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Option<Arrival> {
        if self.stage != Stage::Open {
            return None;
        }
        let frames = datagram.get(incoming.start..)?;
        match self.channels.next(frames, &mut incoming.at, scratch, now) {
            Ok(arrival) => arrival,
            Err(violation) => {
                self.break_off(End::Violation(violation), ByeCode::VIOLATION);
                None
            }
        }
    }

    /// The frames behind the control messages, which come before all others.
    fn behind_control<'d>(&mut self, mut rest: &'d [u8]) -> Option<&'d [u8]> {
        loop {
            match control::read(rest) {
                Ok(None) => return Some(rest),
                Ok(Some((_, bytes))) => rest = rest.get(bytes..)?,
                Err(violation) => {
                    self.break_off(End::Violation(violation), ByeCode::VIOLATION);
                    return None;
                }
            }
        }
    }

    /// Takes the control messages.
    fn take_control(&mut self, mut rest: &[u8]) {
        while let Ok(Some((control, bytes))) = control::read(rest) {
            match control {
                Control::Hello(hello) => self.hear_hello(&hello),
                Control::Bye(bye) => self.hear_bye(&bye),
                _ => {}
            }
            rest = rest.get(bytes..).unwrap_or_default();
        }
    }

    fn hear_hello(&mut self, hello: &Hello) {
        if !(hello.oldest_version..=hello.version).contains(&VERSION) {
            self.break_off(End::VersionMismatch, ByeCode::VERSION_MISMATCH);
        } else if hello.layout == self.layout {
            self.greeted = true;
            let least = MIN_PAYLOAD.max(least_payload(self.channels.layout()));
            self.max_payload_bytes = self.max_payload_bytes.min(hello.payload_bytes.into()).max(least);
        } else {
            let end = End::LayoutMismatch { ours: self.layout, theirs: Some(hello.layout) };
            self.break_off(end, ByeCode::LAYOUT_MISMATCH);
        }
    }

    fn hear_bye(&mut self, bye: &Bye<'_>) {
        let end = match bye.code {
            ByeCode::LAYOUT_MISMATCH => End::LayoutMismatch { ours: self.layout, theirs: None },
            ByeCode::VERSION_MISMATCH => End::VersionMismatch,
            ByeCode::VIOLATION => End::Accused,
            code => End::Farewell { code, text: bye.text.into() },
        };
        // Who has found a reason of its own stays with it.
        self.end.get_or_insert(end);
        if self.stage != Stage::Over {
            self.stage = Stage::Left;
        }
    }

    /// Tells the channels which packets arrived and which are lost.
    fn settle(&mut self) {
        let Self { path, channels, hello, stage, .. } = self;
        let mut nobody = Saying::Heard;
        let bye = if let Stage::Leaving(leaving) = stage { &mut leaving.saying } else { &mut nobody };
        for packet in path.verdicts().acked() {
            hello.acked(packet);
            bye.acked(packet);
            channels.on_acked(packet);
        }
        for packet in path.verdicts().lost() {
            hello.lost(packet);
            bye.lost(packet);
            channels.on_lost(packet);
        }
    }

    // Sending -------------------------------------------------------------------------------------------------------

    /// Puts a message into a channel's queue; it is copied once.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(
        &mut self,
        channel: ChannelId,
        message: &[u8],
        options: SendOptions,
        now: Instant,
    ) -> Result<(), SendError> {
        self.channels.send(channel, message, options, now)
    }

    /// Sends what waits, as far as the path should carry it now, and the acknowledgements that are due.
    pub fn transmit(&mut self, now: Instant, sink: &mut impl Sink) {
        self.transmit_within(u64::MAX, now, sink);
    }

    /// As [`transmit`](Self::transmit), with messages in at most `allowance` bytes on the path, for an uplink that many
    /// connections share; acknowledgements and farewells need none. Answers the bytes of messages that left.
    pub fn transmit_within(&mut self, allowance: u64, now: Instant, sink: &mut impl Sink) -> u64 {
        if self.ticked_at != Some(now) {
            // It slept until something was sent: this is a tick as any other, with a whole tick's budgets.
            self.tick(now);
        }
        if self.path.probe_deadline().is_some_and(|deadline| deadline <= now) {
            self.doubt();
        }
        match self.stage {
            Stage::Open => return self.transmit_open(allowance, now, sink),
            Stage::Leaving(leaving) => self.transmit_farewell(leaving, now, sink),
            Stage::Left => {
                // The peer says goodbye until it hears that this was heard.
                if self.path.send_framed(Cargo::AcksAlone, self.most(), now, sink, |_, _| 0) > 0 {
                    self.stage = Stage::Over;
                }
            }
            Stage::Over => {}
        }
        0
    }

    fn transmit_open(&mut self, allowance: u64, now: Instant, sink: &mut impl Sink) -> u64 {
        let mut left = 0;
        loop {
            self.path.set_demand(if self.waits() { Demand::Unmet } else { Demand::Met });
            let Some(most) = self.path.packet_budget(self.most(), now) else { break };
            let allowed = allowance.saturating_sub(left + self.path.overhead());
            if allowed < LEAST_PAYLOAD {
                // It is the uplink that keeps it back, and not the path.
                self.path.set_demand(Demand::Met);
                break;
            }
            let bytes = self.send_packet(most.min(usize::try_from(allowed).unwrap_or(most)), now, sink);
            if bytes == 0 {
                break;
            }
            left += u64::from(bytes);
        }
        if self.path.owes_acks(now) {
            self.path.send_framed(Cargo::AcksAlone, self.most(), now, sink, |_, _| 0);
            // More arrived in one turn than one frame can tell.
            self.path.send_plain_acks(now, sink);
            self.channels.skip(self.path.newest_departure());
        }
        left
    }

    /// Whether anything waits to be said.
    fn waits(&self) -> bool {
        self.hello.wants_packet() || self.channels.wants_to_send()
    }

    /// About how many bytes on the path would leave now, if nothing limited them but this connection's path.
    #[must_use]
    pub fn wanted_bytes(&self, now: Instant) -> u64 {
        if self.stage != Stage::Open || !self.waits() {
            return 0;
        }
        let allowed = self.path.budget(now) as u64 + self.path.overhead();
        let packets = |bytes: u64| bytes / self.most() as u64 + 1;
        // What frames add to messages is about as much again as their packets' own headers.
        let wanted = self.channels.waiting_bytes().map(|bytes| bytes + 2 * packets(bytes) * self.path.overhead());
        wanted.unwrap_or(u64::MAX).min(allowed)
    }

    /// Sends one packet of messages; answers its bytes on the path, 0 if it did not leave.
    fn send_packet(&mut self, most: usize, now: Instant, sink: &mut impl Sink) -> u32 {
        let greeting = self.greeting();
        let Self { path, channels, hello, .. } = self;
        let mut number = None;
        let sent = path.send_framed(Cargo::Data, most, now, sink, |sequence, room| {
            number = Some(sequence);
            let start = greeting.map_or(0, |greeting| control::write_hello(&greeting, room));
            let frames = room.get_mut(start..).map_or(0, |rest| channels.write(sequence, now, rest));
            // A greeting that is under way already is no reason for a packet.
            if frames > 0 || hello.wants_packet() { start + frames } else { 0 }
        });
        if sent > 0
            && let Some(number) = number
        {
            hello.said(number);
        }
        sent
    }

    /// Says why this side leaves, until that was heard or the time is up.
    fn transmit_farewell(&mut self, leaving: Leaving, now: Instant, sink: &mut impl Sink) {
        let since = leaving.since.unwrap_or(now);
        if leaving.saying.is_heard() || now.reached(since, self.farewell_time) {
            self.stage = Stage::Over;
            return;
        }
        let mut leaving = Leaving { since: Some(since), ..leaving };
        if leaving.again <= now
            && let Some(packet) = self.send_farewell(now, sink)
        {
            leaving.saying.said(packet);
            leaving.again = now.after(FAREWELL_INTERVAL);
        }
        self.stage = Stage::Leaving(leaving);
    }

    /// Says why this side leaves, and its layout, if the peer may not know that; answers in which packet.
    fn send_farewell(&mut self, now: Instant, sink: &mut impl Sink) -> Option<Sequence> {
        let (greeting, most) = (self.greeting(), self.most());
        let Self { path, hello, farewell, .. } = self;
        let bye = Bye { code: farewell.code, text: &farewell.text };
        let mut number = None;
        let sent = path.send_framed(Cargo::Data, most, now, sink, |sequence, room| {
            number = Some(sequence);
            let start = greeting.map_or(0, |greeting| control::write_hello(&greeting, room));
            start + room.get_mut(start..).map_or(0, |rest| control::write_bye(&bye, rest))
        });
        let number = number.filter(|_| sent > 0)?;
        hello.said(number);
        Some(number)
    }

    /// The path is silent although something is under way: what was said and sent may have got lost.
    fn doubt(&mut self) {
        self.hello.doubt();
        self.channels.on_probe();
        self.path.probed();
    }

    /// What this side says of itself, as long as that was not heard.
    fn greeting(&self) -> Option<Hello> {
        (!self.hello.is_heard()).then_some(Hello {
            version: VERSION,
            oldest_version: VERSION,
            layout: self.layout,
            payload_bytes: self.announced_payload_bytes,
            abilities: 0,
        })
    }

    /// The most bytes behind a packet's header.
    const fn most(&self) -> usize {
        self.max_payload_bytes - MAX_HEADER_BYTES
    }

    // The end -------------------------------------------------------------------------------------------------------

    /// Leaves, with a text for people of up to 256 bytes; what is longer is cut. It is said until the peer has heard it or
    /// the time for farewells is up; see [`is_over`](Self::is_over).
    pub fn leave(&mut self, code: ByeCode, text: &str) {
        if self.stage == Stage::Open {
            self.farewell.text.push_str(text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default());
            self.break_off(End::Left, code);
        }
    }

    fn break_off(&mut self, end: End, code: ByeCode) {
        if self.stage == Stage::Open {
            self.end = Some(end);
            self.farewell.code = code;
            self.stage = Stage::Leaving(Leaving { saying: Saying::NEW, since: None, again: Instant::default() });
        }
    }

    /// Why the connection ended, if it did. It may still have a farewell to say.
    #[must_use]
    pub const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Whether the connection has ended and nothing is left to say.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    // Time ----------------------------------------------------------------------------------------------------------

    /// Time has passed; to be called once a tick, before messages are composed. A connection that has no deadline by then
    /// need not be: it makes up for it when it transmits.
    pub fn tick(&mut self, now: Instant) {
        self.ticked_at = Some(now);
        self.path.tick(now);
        self.settle();
        self.channels.begin_tick(now);
    }

    /// When something is due, if nothing arrives before and nothing is sent.
    #[must_use]
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        match self.stage {
            Stage::Open => self.open_deadline(now),
            Stage::Leaving(leaving) if leaving.saying.is_heard() => Some(now),
            Stage::Leaving(leaving) => Some(leaving.again),
            Stage::Left => Some(now),
            Stage::Over => None,
        }
    }

    fn open_deadline(&self, now: Instant) -> Option<Instant> {
        // Without a word from the controller it is the uplink, or the sink, that keeps something back.
        let send = self.waits().then(|| self.path.next_send(now).unwrap_or(now));
        let path = self.path.next_deadline().into_iter().chain(self.path.probe_deadline());
        path.chain(send).chain(self.channels.next_deadline(now)).min()
    }

    // What is known -------------------------------------------------------------------------------------------------

    /// The oldest event of the channels.
    pub fn poll_event(&mut self) -> Option<ChannelEvent> {
        self.channels.poll_event()
    }

    /// What had arrived of blocks that are not whole, to go on with in another connection; to be asked when this one has
    /// ended.
    pub fn take_partials(&mut self) -> impl Iterator<Item = (ChannelId, PartialBlock)> + use<> {
        self.channels.take_partials()
    }

    /// The channels.
    #[must_use]
    pub const fn channels(&self) -> &Channels {
        &self.channels
    }

    /// The channels, for what goes beyond messages: blocks.
    pub const fn channels_mut(&mut self) -> &mut Channels {
        &mut self.channels
    }

    /// What may leave now.
    #[must_use]
    pub fn budget(&self, now: Instant) -> Budget {
        Budget::of(&self.path, now)
    }

    /// How the path is.
    #[must_use]
    pub fn stats(&self, now: Instant) -> PathStats {
        PathStats::of(&self.path, now)
    }
}

/// Reads the frame of a packet; one of acknowledgements alone may have none.
fn parse_frame(payload: &[u8]) -> Result<(Option<Frame<'_>>, &[u8]), FrameFault> {
    if payload.is_empty() {
        return Ok((None, payload));
    }
    Frame::parse(payload).map(|(frame, rest)| (Some(frame), rest))
}

/// The least payload in which every block's slices find a place, between a header, a frame and what stands before a slice.
fn least_payload(layout: &Layout) -> usize {
    let blocks = layout.channels().filter(|channel| channel.kind == Kind::Blocks);
    let slice = blocks.map(|channel| usize::from(channel.blocks.slice_bytes)).max();
    slice.map_or(0, |slice| MAX_HEADER_BYTES + PLAIN_FRAME_BYTES + BEFORE_SLICE_BYTES + slice)
}

fn channels(layout: Arc<Layout>, memory: Option<&Memory>) -> Channels {
    match memory {
        Some(memory) => Channels::new(layout, Some(memory.messages.clone())).with_block_memory(memory.blocks.clone()),
        None => Channels::new(layout, None),
    }
}
