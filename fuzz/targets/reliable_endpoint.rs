//! Two endpoints, and a path on which anything happens: what they say of each other's packets is true.

#![no_main]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use slipgate_fuzz::Input;
use slipgate_session::reliability::{
    Acceptance, Config, Endpoint, Event, LossDeadline, ReferenceSmoothing, SendError, Sink, Statistics,
};
use slipgate_netcode::time::Instant;

const ROOM_BYTES: usize = 120;
const WINDOW: u16 = 64;

/// A path of 64 datagrams; when it is full, no more can leave.
#[derive(Default)]
struct Path {
    room: Vec<u8>,
    datagrams: VecDeque<Vec<u8>>,
}

impl Sink for Path {
    fn rooms(&self) -> usize {
        64_usize.saturating_sub(self.datagrams.len())
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        if self.rooms() == 0 {
            return None;
        }
        self.room.resize(ROOM_BYTES, 0);
        Some(&mut self.room)
    }

    fn commit(&mut self, bytes: usize) {
        self.datagrams.push_back(self.room[..bytes].to_vec());
    }
}

/// What became of a packet, as far as we know better than its sender.
#[derive(Default)]
struct Fate {
    sent: bool,
    arrived: bool,
    acked: bool,
    lost: bool,
}

struct End {
    endpoint: Endpoint,
    /// The path from here to the other end.
    path: Path,
    /// Of the packets that this end sent. Fewer than 65,536 are, so no number is used twice.
    fates: BTreeMap<u16, Fate>,
}

/// What a whole run says of itself.
#[derive(Default)]
struct World {
    ends: [Option<End>; 2],
    /// Whether any datagram was invented or altered: then an endpoint may believe a lie.
    honest: bool,
    now: Instant,
}

fuzz_target!(|input: &[u8]| {
    let mut operations = Input::new(input);
    let settings = operations.u8();
    let config = Config {
        max_packet_bytes: 1000,
        fragment_above: 90,
        fragment_bytes: 60,
        max_fragments: 17,
        sent_window: WINDOW,
        received_window: 32,
        reassemblies: 16,
        reassembly_bytes: 2000,
        loss: if settings & 1 == 0 { LossDeadline::Fixed } else { LossDeadline::AtLeastRtt },
        statistics: if settings & 2 == 0 {
            Statistics::Seed
        } else {
            Statistics::Reference(ReferenceSmoothing::default())
        },
        rtt_history: 8,
        ..Config::default()
    };
    let end = || {
        let endpoint = Endpoint::new(config.clone()).expect("settings to run with");
        Some(End { endpoint, path: Path::default(), fates: BTreeMap::new() })
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
            let before = (end.endpoint.next_sequence(), end.path.datagrams.len());
            match end.endpoint.send(&vec![0x11; bytes], now, &mut end.path) {
                Ok(sequence) => {
                    assert_eq!(sequence, before.0);
                    end.fates.entry(sequence.0).or_default().sent = true;
                }
                Err(error) => {
                    assert_eq!((end.endpoint.next_sequence(), end.path.datagrams.len()), before);
                    assert!(error != SendError::TooLarge || bytes > 1000);
                    assert!(error != SendError::Empty || bytes == 0);
                }
            }
        });
    }

    fn send_with(&mut self, from: usize, bytes: usize) {
        self.with(from, |end, now, _| {
            let fill = |room: &mut [u8]| {
                let bytes = bytes.min(room.len());
                room[..bytes].fill(0x22);
                bytes
            };
            if let Ok(sequence) = end.endpoint.send_with(now, &mut end.path, fill) {
                end.fates.entry(sequence.0).or_default().sent = true;
            }
        });
    }

    /// Delivers one of the datagrams under way; it may stay, to come again, and the application may refuse it.
    fn deliver(&mut self, from: usize, which: usize, how: u8) {
        let (now, honest) = (self.now, self.honest);
        let [one, other] = &mut self.ends;
        let (sender, receiver) = if from == 0 { (one, other) } else { (other, one) };
        let (sender, receiver) = (sender.as_mut().expect("two ends"), receiver.as_mut().expect("two ends"));
        let Some(place) = which.checked_rem(sender.path.datagrams.len()) else { return };
        let stays = how & 3 == 3;
        let datagram =
            if stays { sender.path.datagrams.get(place).cloned() } else { sender.path.datagrams.remove(place) };
        let Some(datagram) = datagram else { return };
        let acceptance = if how & 4 == 0 { Acceptance::Take } else { Acceptance::Refuse };
        let Ok(Some(packet)) = receiver.endpoint.handle_if(&datagram, now, |_| acceptance) else { return };
        assert!(packet.payload.len() <= 1000 && acceptance == Acceptance::Take);
        if honest && !packet.payload.is_empty() {
            let fate = sender.fates.get_mut(&packet.sequence.0).expect("it was sent");
            assert!(fate.sent && !fate.arrived, "{} came twice", packet.sequence);
            fate.arrived = true;
        }
        self.listen();
    }

    fn lose(&mut self, from: usize, which: usize) {
        self.with(from, |end, _, _| {
            if let Some(place) = which.checked_rem(end.path.datagrams.len()) {
                end.path.datagrams.remove(place);
            }
        });
    }

    fn alter(&mut self, from: usize, value: u8) {
        self.honest = false;
        self.with(from, |end, _, _| {
            if let Some(datagram) = end.path.datagrams.back_mut() {
                let place = usize::from(value) % datagram.len().min(16);
                datagram[place] = datagram[place].wrapping_add(value | 1);
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

    /// Hears the news at both ends: it must be true, and each said once.
    fn listen(&mut self) {
        for from in 0..2 {
            self.with(from, |end, now, honest| {
                while let Some(event) = end.endpoint.poll_event() {
                    match event {
                        Event::Acked { sequence, .. } => {
                            let fate = end.fates.get_mut(&sequence.0).expect("it was sent");
                            assert!(!fate.acked && (fate.arrived || !honest));
                            fate.acked = true;
                        }
                        Event::Lost { sequence } => {
                            let fate = end.fates.get_mut(&sequence.0).expect("it was sent");
                            assert!(!fate.acked && !fate.lost);
                            fate.lost = true;
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

    /// In the end every packet has its verdict, but for those of which nobody asked in time, and nothing is to be done any more.
    fn end(&mut self) {
        for _ in 0..20 {
            self.pass(Duration::from_secs(100));
        }
        for end in self.ends.iter_mut().flatten() {
            end.path.datagrams.clear();
            end.endpoint.transmit(self.now, &mut end.path);
            let untold = end.endpoint.stats(self.now).counters.untold_events;
            let unknown = end.fates.values().filter(|fate| !fate.acked && !fate.lost).count();
            assert!(unknown as u64 <= untold, "{unknown} fates, of which {untold} were not asked for in time");
            assert_eq!(end.endpoint.next_deadline(), None);
        }
    }
}
