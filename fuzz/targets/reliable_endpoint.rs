//! Two endpoints on an arbitrary path: their reports about each other's packets are true.

#![no_main]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use slipgate_fuzz::Input;
use slipgate_netcode::time::Instant;
use slipgate_session::connection::SendError;
use slipgate_session::reliability::{Acceptance, Endpoint, EndpointConfig, PacketEvent, Sink};

const BUF_BYTES: usize = 120;
const WINDOW: u16 = 64;

/// A path of 64 datagrams. A full path takes no more.
#[derive(Default)]
struct Path {
    buf: Vec<u8>,
    datagrams: VecDeque<Vec<u8>>,
}

impl Sink for Path {
    fn remaining(&self) -> usize {
        64_usize.saturating_sub(self.datagrams.len())
    }

    fn next_buf(&mut self) -> Option<&mut [u8]> {
        if self.remaining() == 0 {
            return None;
        }
        self.buf.resize(BUF_BYTES, 0);
        Some(&mut self.buf)
    }

    fn commit(&mut self, bytes: usize) {
        self.datagrams.push_back(self.buf[..bytes].to_vec());
    }
}

/// The true state of a packet, which its sender may not know.
#[derive(Default)]
struct DeliveryStatus {
    sent: bool,
    arrived: bool,
    acked: bool,
    lost: bool,
}

struct End {
    endpoint: Endpoint,
    /// The path from this end to the other.
    path: Path,
    /// The state of each packet that this end sent. There are fewer than 65,536, so no number repeats.
    states: BTreeMap<u16, DeliveryStatus>,
}

/// The settings of a run.
#[derive(Default)]
struct World {
    ends: [Option<End>; 2],
    /// Whether any datagram was invented or altered. Then an endpoint may report false facts.
    honest: bool,
    now: Instant,
}

fuzz_target!(|input: &[u8]| {
    let mut operations = Input::new(input);
    // The first byte chose a setting that is gone: the seeds keep it.
    operations.u8();
    let config = EndpointConfig {
        max_packet_bytes: 1000,
        fragment_above: 90,
        fragment_bytes: 60,
        max_fragments: 17,
        sent_window: WINDOW,
        received_window: 32,
        reassemblies: 16,
        reassembly_bytes: 2000,
        rtt_history: 8,
        ..EndpointConfig::default()
    };
    let end = || {
        let endpoint = Endpoint::new(config.clone(), None).expect("settings to run with");
        Some(End { endpoint, path: Path::default(), states: BTreeMap::new() })
    };
    let mut world = World { ends: [end(), end()], honest: true, now: Instant::default() };
    for _ in 0..input.len() {
        let (operation, value) = (operations.u8(), operations.u8());
        world.step(operation, value);
    }
    world.end();
});

impl World {
    fn step(&mut self, operation: u8, value: u8) {
        let from = usize::from(operation & 1);
        match operation >> 1 & 15 {
            0..4 => self.send(from, usize::from(value) * (1 + usize::from(operation >> 5))),
            4..9 => self.deliver(from, usize::from(value), operation >> 5),
            9 => self.lose(from, usize::from(value)),
            10 => self.alter(from, value),
            11 => self.invent(from, &[value, operation, value, 0, value, 0xff, operation >> 5]),
            12 | 13 => self.pass(Duration::from_millis(u64::from(value) * 4)),
            14 => self.with(from, |end, now, _| end.endpoint.transmit(now, &mut end.path)),
            _ => self.send_with(from, usize::from(value)),
        }
    }

    fn with(&mut self, from: usize, act: impl FnOnce(&mut End, Instant, bool)) {
        let (now, honest) = (self.now, self.honest);
        act(self.ends[from].as_mut().expect("two ends"), now, honest);
    }

    fn send(&mut self, from: usize, bytes: usize) {
        self.with(from, |end, now, _| {
            let before = (end.endpoint.next_header().sequence, end.path.datagrams.len());
            match end.endpoint.send(&vec![0x11; bytes], now, &mut end.path) {
                Ok(sequence) => {
                    assert_eq!(sequence, before.0);
                    end.states.entry(sequence.0).or_default().sent = true;
                }
                Err(error) => {
                    assert_eq!((end.endpoint.next_header().sequence, end.path.datagrams.len()), before);
                    assert!(!matches!(error, SendError::TooLarge { .. }) || bytes > 1000);
                    assert!(error != SendError::Empty || bytes == 0);
                }
            }
        });
    }

    fn send_with(&mut self, from: usize, bytes: usize) {
        self.with(from, |end, now, _| {
            let fill = |buf: &mut [u8]| {
                let bytes = bytes.min(buf.len());
                buf[..bytes].fill(0x22);
                bytes
            };
            if let Ok(sequence) = end.endpoint.send_with(now, &mut end.path, fill) {
                end.states.entry(sequence.0).or_default().sent = true;
            }
        });
    }

    /// Delivers one datagram in flight. It may stay in flight as a duplicate, and the application may refuse it.
    fn deliver(&mut self, from: usize, which: usize, how: u8) {
        let (now, honest) = (self.now, self.honest);
        let [one, other] = &mut self.ends;
        let (sender, receiver) = if from == 0 { (one, other) } else { (other, one) };
        let (sender, receiver) = (sender.as_mut().expect("two ends"), receiver.as_mut().expect("two ends"));
        let Some(index) = which.checked_rem(sender.path.datagrams.len()) else { return };
        let stays = how & 3 == 3;
        let datagram =
            if stays { sender.path.datagrams.get(index).cloned() } else { sender.path.datagrams.remove(index) };
        let Some(datagram) = datagram else { return };
        let acceptance = if how & 4 == 0 { Acceptance::Take } else { Acceptance::Refuse };
        let Ok(Some(packet)) = receiver.endpoint.handle_if(&datagram, now, |_| acceptance) else { return };
        assert!(packet.payload.len() <= 1000 && acceptance == Acceptance::Take);
        if honest && !packet.payload.is_empty() {
            let state = sender.states.get_mut(&packet.sequence.0).expect("it was sent");
            assert!(state.sent && !state.arrived, "{} came twice", packet.sequence);
            state.arrived = true;
        }
        self.listen();
    }

    fn lose(&mut self, from: usize, which: usize) {
        self.with(from, |end, _, _| {
            if let Some(index) = which.checked_rem(end.path.datagrams.len()) {
                end.path.datagrams.remove(index);
            }
        });
    }

    fn alter(&mut self, from: usize, value: u8) {
        self.honest = false;
        self.with(from, |end, _, _| {
            if let Some(datagram) = end.path.datagrams.back_mut() {
                let index = usize::from(value) % datagram.len().min(16);
                datagram[index] = datagram[index].wrapping_add(value | 1);
            }
        });
    }

    fn invent(&mut self, from: usize, datagram: &[u8]) {
        self.honest = false;
        self.with(from, |end, _, _| end.path.datagrams.push_back(datagram.to_vec()));
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        for from in 0..2 {
            self.with(from, |end, now, _| end.endpoint.tick(now));
        }
        self.listen();
    }

    /// Takes the events of both ends: each must be true and reported once.
    fn listen(&mut self) {
        for from in 0..2 {
            self.with(from, |end, now, honest| {
                while let Some(event) = end.endpoint.poll_event() {
                    match event {
                        PacketEvent::Acked { sequence, .. } => {
                            let state = end.states.get_mut(&sequence.0).expect("it was sent");
                            assert!(!state.acked && (state.arrived || !honest));
                            state.acked = true;
                        }
                        PacketEvent::Lost { sequence } => {
                            let state = end.states.get_mut(&sequence.0).expect("it was sent");
                            assert!(!state.acked && !state.lost);
                            state.lost = true;
                        }
                    }
                }
                let stats = end.endpoint.stats(now);
                assert!((0.0..=1.0).contains(&stats.loss) && stats.sent.0 >= 0.0 && stats.received.0 >= 0.0);
                assert!(!honest || stats.counters.acks_of_unsent == 0);
                assert!(end.endpoint.reassembly_bytes() <= 2000 + 1000 + 16 * 256);
                assert!(stats.rtt.is_none_or(|rtt| rtt.min <= rtt.mean && rtt.mean <= rtt.max));
            });
        }
    }

    /// Checks at the end that each packet is acknowledged or lost, except those with overwritten events, and that no
    /// work is left.
    fn end(&mut self) {
        for _ in 0..20 {
            self.pass(Duration::from_secs(100));
        }
        for end in self.ends.iter_mut().flatten() {
            end.path.datagrams.clear();
            end.endpoint.transmit(self.now, &mut end.path);
            let unreported = end.endpoint.stats(self.now).counters.dropped_events;
            let unknown = end.states.values().filter(|state| !state.acked && !state.lost).count();
            assert!(unknown as u64 <= unreported, "{unknown} states, of which {unreported} were not asked for in time");
            assert_eq!(end.endpoint.next_deadline(), None);
        }
    }
}
