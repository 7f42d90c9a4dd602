//! Channel frames: invented ones, and those of two ends on an arbitrary path.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use slipgate_fuzz::Input;
use slipgate_fuzz::receipts::{Numbered, Receipts};
use slipgate_netcode::time::Instant;
use slipgate_session::channel::transfer::{self, Transfer};
use slipgate_session::channel::{
    ChannelConfig, ChannelEvent, ChannelId, Channels, DeliveryStatus, FrameCursor, Kind, Layout, MAX_RECEIPTS,
    PIECE_BYTES, ReceivedMessage, SendOptions, control,
};
use slipgate_session::connection::SendError;
use slipgate_session::wire::reliable::Sequence;

const KINDS: [Kind; 5] =
    [Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered, Kind::Transfers];
/// The channel that sends each message once.
const ONCE: ChannelId = ChannelId(0);
const MAX_MESSAGE_BYTES: u32 = 2000;
const QUEUE_BYTES: u32 = 4000;
const QUEUE_MESSAGES: u16 = 20;
const MAX_TRANSFER_BYTES: u32 = 5000;
/// Bytes that the messages of all channels may take: full queues, rounded up to chunks, and unfinished messages.
const MAX_MEMORY_BYTES: usize = 150_000;

fuzz_target!(|input: &[u8]| {
    // Rarely, because it is slow: more receipts are requested than can be outstanding.
    let may_flood = input.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)) == 0;
    let mut input = Input::new(input);
    match input.u8() & 1 {
        0 => invented(&mut input),
        _ => World::new(may_flood).run(&mut input),
    }
});

/// The layout of every end. It is hashed once.
static LAYOUT: LazyLock<Arc<Layout>> = LazyLock::new(|| {
    let channel = |kind| ChannelConfig {
        queue_bytes: QUEUE_BYTES,
        queue_messages: QUEUE_MESSAGES,
        max_message_bytes: MAX_MESSAGE_BYTES,
        transfers: transfer::TransferConfig {
            slice_bytes: 256,
            max_transfer_bytes: MAX_TRANSFER_BYTES,
            max_bytes_at_once: 10_000,
            ..transfer::TransferConfig::default()
        },
        ..ChannelConfig::from(kind)
    };
    Arc::new(Layout::try_from(KINDS.map(channel).to_vec()).expect("settings to run with"))
});

/// Feeds packets of arbitrary bytes: memory stays bounded and no message exceeds its limit.
fn invented(input: &mut Input<'_>) {
    let mut channels = Channels::new(Arc::clone(&LAYOUT), None);
    let (mut scratch, mut now) = (Vec::new(), Instant::default());
    while let Some(length) = input.operation() {
        let frames: Vec<u8> = (0..usize::from(length) * 2).map_while(|_| input.operation()).collect();
        now = now.after(Duration::from_millis(u64::from(length)));
        channels.begin_tick(now);
        let _ = channels.can_take(&frames);
        let mut rest = &frames[..];
        while let Ok(Some((_, bytes))) = control::read(rest) {
            rest = &rest[bytes..];
        }
        let mut at = FrameCursor::default();
        loop {
            match channels.next(rest, &mut at, &mut scratch, now) {
                Ok(Some(ReceivedMessage { span, .. })) => {
                    assert!(span.bytes(rest, &scratch).len() <= MAX_MESSAGE_BYTES as usize);
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
        while channels.poll_event().is_some() {}
        assert!(channels.memory_bytes() <= MAX_MEMORY_BYTES, "{}", channels.memory_bytes());
    }
}

/// The expected state of the messages of one channel in one direction.
#[derive(Default)]
struct Log {
    sent: BTreeMap<u32, Vec<u8>>,
    received: BTreeSet<u32>,
    /// Numbers of the messages with a key. They may never arrive.
    keyed: BTreeSet<u32>,
    /// Numbers of the messages with a deadline.
    dated: BTreeSet<u32>,
    next: u32,
}

struct End {
    channels: Channels,
    packets: Vec<(Sequence, Vec<u8>)>,
    sequence: Sequence,
    logs: [Log; KINDS.len()],
    receipts: Receipts,
    transfers: [usize; 2],
}

/// Two ends. The log of an end holds the messages it sent, and those of them that the other end received.
struct World {
    ends: [End; 2],
    now: Instant,
    honest: bool,
    /// Whether this run requests more receipts than can be outstanding. It happens at most once.
    may_flood: bool,
    scratch: Vec<u8>,
}

impl World {
    fn new(may_flood: bool) -> Self {
        let end = || End {
            channels: Channels::new(Arc::clone(&LAYOUT), None),
            packets: Vec::new(),
            sequence: Sequence(65_500),
            logs: Default::default(),
            receipts: Receipts::default(),
            transfers: [0; 2],
        };
        Self { ends: [end(), end()], now: Instant::default(), honest: true, may_flood, scratch: Vec::new() }
    }

    fn run(mut self, input: &mut Input<'_>) {
        while let Some(operation) = input.operation() {
            let (from, value) = (usize::from(operation & 1), input.u8());
            let alive = match operation >> 1 & 15 {
                0..=3 => self.send(from, operation >> 5, value),
                4..=6 => self.write(from, 40 + usize::from(value) * 3),
                7..=10 => self.deliver(from, value.into(), value % 5),
                11 => self.lose(from, value.into()),
                12 => self.pass(value.into()),
                13 if value == 255 => self.flood(from),
                13 => self.probe(from),
                14 => self.begin(from, value),
                _ => self.alter(from, value),
            };
            if !alive {
                return;
            }
        }
        self.end();
    }

    fn send(&mut self, from: usize, channel: u8, value: u8) -> bool {
        let channel = ChannelId(channel % KINDS.len() as u8);
        let end = &mut self.ends[from];
        let log = &mut end.logs[usize::from(channel.0)];
        let number = log.sent.len() as u32;
        let bytes = 4 + usize::from(value) * 8;
        let content: Vec<u8> =
            number.to_le_bytes().into_iter().chain((0..).map(|at| at as u8 ^ value)).take(bytes).collect();
        let key = (value % 3 == 0).then_some(u64::from(value % 2));
        let free = end.channels.remaining(channel);
        let deadline = (value % 5 == 0).then_some(Duration::from_millis(value.into()));
        let message = Numbered { channel: channel.0, number };
        let receipt = (value % 4 != 0).then(|| message.tag());
        let sent = end.channels.send(channel, &content, SendOptions { deadline, key, receipt }, self.now);
        match sent {
            Ok(()) => {
                log.sent.insert(number, content);
                log.keyed.extend(key.map(|_| number));
                log.dated.extend(deadline.map(|_| number));
                if receipt.is_some() {
                    end.receipts.ask(message);
                }
            }
            Err(SendError::TooLarge { .. }) => assert!(bytes > MAX_MESSAGE_BYTES as usize),
            Err(SendError::WrongKind) => assert_eq!(KINDS[usize::from(channel.0)], Kind::Transfers),
            Err(error) => {
                assert_eq!(error, SendError::Backlogged);
                let full = free.messages == 0 || (free.bytes as usize) < bytes;
                assert!(full || receipt.is_some() && free.receipts == 0);
            }
        }
        true
    }

    /// Sends small messages that request more receipts than can be outstanding.
    fn flood(&mut self, from: usize) -> bool {
        if std::mem::replace(&mut self.may_flood, false) {
            for _ in 0..MAX_RECEIPTS + 100 {
                if self.ends[from].channels.remaining(ONCE).messages == 0 {
                    self.write(from, 800);
                }
                self.send(from, ONCE.0, 1);
            }
        }
        true
    }

    fn begin(&mut self, from: usize, value: u8) -> bool {
        let content = vec![value; usize::from(value) * 10];
        let transfer = Transfer::new(content).expect("small");
        let started = self.ends[from].channels.send_transfer(ChannelId(4), transfer, value.into());
        self.ends[from].transfers[0] += usize::from(started.is_ok());
        true
    }

    fn write(&mut self, from: usize, bytes: usize) -> bool {
        let end = &mut self.ends[from];
        let mut buf = vec![0xee; bytes];
        let written = end.channels.write(end.sequence, self.now, &mut buf);
        if written > 0 {
            assert!(written <= bytes);
            buf.truncate(written);
            end.packets.push((end.sequence, buf));
            end.sequence = end.sequence + 1;
        }
        true
    }

    fn deliver(&mut self, from: usize, which: usize, outcome: u8) -> bool {
        let Some(index) = which.checked_rem(self.ends[from].packets.len()) else { return true };
        let (sequence, frames) = self.ends[from].packets.remove(index);
        let [one, other] = &mut self.ends;
        let (sender, receiver) = if from == 0 { (one, other) } else { (other, one) };
        let mut at = FrameCursor::default();
        assert!(receiver.channels.can_take(&frames), "there is no shared budget");
        loop {
            match receiver.channels.next(&frames, &mut at, &mut self.scratch, self.now) {
                Ok(Some(ReceivedMessage { channel, span })) if self.honest => {
                    let kind = KINDS[usize::from(channel.0)];
                    sender.logs[usize::from(channel.0)].receive(kind, span.bytes(&frames, &self.scratch));
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(violation) => {
                    assert!(!self.honest, "{violation}");
                    return false;
                }
            }
        }
        // The acknowledgement may be lost or late.
        match outcome {
            0 => sender.channels.on_lost(sequence),
            1 => {
                sender.channels.on_lost(sequence);
                sender.channels.on_acked(sequence);
            }
            _ => sender.channels.on_acked(sequence),
        }
        true
    }

    fn lose(&mut self, from: usize, which: usize) -> bool {
        let end = &mut self.ends[from];
        if let Some(index) = which.checked_rem(end.packets.len()) {
            let (sequence, _) = end.packets.remove(index);
            end.channels.on_lost(sequence);
        }
        true
    }

    fn pass(&mut self, millis: u64) -> bool {
        self.now = self.now.after(Duration::from_millis(millis));
        for end in &mut self.ends {
            end.channels.begin_tick(self.now);
            end.receipts.check_free(end.channels.remaining(ONCE).receipts);
            while let Some(event) = end.channels.poll_event() {
                match event {
                    ChannelEvent::Transfer { event: transfer::TransferEvent::Received { content, .. }, .. } => {
                        end.transfers[1] += 1;
                        assert!(content.into_vec().len() <= MAX_TRANSFER_BYTES as usize);
                    }
                    ChannelEvent::Receipt { channel, tag, status } => end.receipts.report(channel, tag, status),
                    _ => {}
                }
            }
            end.receipts.check_free(end.channels.remaining(ONCE).receipts);
            for Numbered { channel, number } in end.receipts.take_arrived() {
                let (kind, log) = (KINDS[usize::from(channel)], &end.logs[usize::from(channel)]);
                assert!(!self.honest || log.has_arrived(kind, number), "{kind:?}: {number} has not arrived");
            }
            assert!(end.channels.memory_bytes() <= 2 * MAX_MEMORY_BYTES, "{}", end.channels.memory_bytes());
        }
        true
    }

    fn probe(&mut self, from: usize) -> bool {
        self.ends[from].channels.on_pto();
        true
    }

    fn alter(&mut self, from: usize, value: u8) -> bool {
        if let Some((_, frames)) = self.ends[from].packets.last_mut().filter(|_| value > 200) {
            self.honest = false;
            let index = usize::from(value) % frames.len();
            frames[index] = frames[index].wrapping_add(value);
        }
        true
    }

    /// Repairs the path and checks that all guaranteed messages arrive.
    fn end(mut self) {
        for _ in 0..1000 {
            for from in 0..2 {
                while !self.ends[from].packets.is_empty() {
                    if !self.deliver(from, 0, u8::MAX) {
                        return;
                    }
                }
                self.write(from, 400);
                self.write(from, 400);
            }
            self.pass(20);
            let idle = self.ends.iter().all(|end| end.packets.is_empty() && !end.channels.wants_to_send());
            if idle {
                return self.settled();
            }
        }
        assert!(!self.honest, "the two ends do not come to rest");
    }

    fn settled(self) {
        for end in &self.ends {
            for (kind, log) in KINDS.iter().zip(&end.logs).filter(|(kind, _)| kind.is_reliable() && self.honest) {
                let missing =
                    log.sent.keys().find(|number| !log.received.contains(number) && log.is_promised(**number));
                assert_eq!(missing, None, "{kind:?}");
            }
            if self.honest {
                end.settle_receipts();
            }
        }
        let [one, other] = self.ends;
        if self.honest {
            assert_eq!((one.transfers[0], other.transfers[0]), (other.transfers[1], one.transfers[1]), "transfers");
        }
    }
}

impl End {
    /// Checks the end of a run: each requested receipt was reported, and guaranteed messages as delivered.
    fn settle_receipts(&self) {
        assert!(self.receipts.all_reported());
        for (Numbered { channel, number }, status) in self.receipts.statuses() {
            let (kind, log) = (KINDS[usize::from(channel)], &self.logs[usize::from(channel)]);
            let may_be = match status {
                DeliveryStatus::Arrived => true,
                DeliveryStatus::Lost | DeliveryStatus::ArrivedLate => !kind.is_reliable(),
                // A channel without retransmission gives its messages a deadline.
                DeliveryStatus::Expired => !kind.is_reliable() || log.dated.contains(&number),
                DeliveryStatus::Superseded => log.keyed.contains(&number),
                _ => false,
            };
            assert!(may_be, "{kind:?}: {number} is {status:?}");
        }
    }
}

impl Log {
    /// Returns whether a reliable channel must deliver the message.
    fn is_promised(&self, number: u32) -> bool {
        !self.keyed.contains(&number) && !self.dated.contains(&number)
    }

    /// Returns whether the peer received a message that a receipt reports as delivered. A sequenced channel delivers
    /// only the newest. A message with a key may have replaced an older one, so messages that were queued behind it are
    /// newer. The peer may drop a sliced message of a channel without retransmission after it received all slices.
    fn has_arrived(&self, kind: Kind, number: u32) -> bool {
        let is_one_slice = self.sent.get(&number).is_some_and(|content| content.len() <= PIECE_BYTES);
        let came = match kind {
            Kind::Sequenced => {
                self.received.last().is_some_and(|newest| *newest >= number || self.keyed.contains(&number))
            }
            _ => self.received.contains(&number),
        };
        came || !kind.is_reliable() && !is_one_slice
    }

    fn receive(&mut self, kind: Kind, content: &[u8]) {
        let number = u32::from_le_bytes(content[..4].try_into().expect("four bytes"));
        assert_eq!(self.sent.get(&number).map(Vec::as_slice), Some(content), "{kind:?}");
        assert!(self.received.insert(number), "{kind:?}: {number} came twice");
        // A message with a key may replace an older one in the queue.
        let in_order = number >= self.next || !self.keyed.is_empty();
        assert!(in_order || !matches!(kind, Kind::Sequenced | Kind::ReliableOrdered), "{kind:?}: {number}");
        self.next = number + 1;
    }
}
