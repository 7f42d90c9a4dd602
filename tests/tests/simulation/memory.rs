//! Clients with valid keys that use up the memory which all connections share, and those who play beside them.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout, RESERVE_BYTES};
use slipgate_session::reliability::MemoryBudget;
use slipgate_session::session::{Config, Memory};
use slipgate_sim::{Conditions, Loss, Share};
use slipgate_tests::hall::Hall;
use slipgate_tests::holder::Holder;
use slipgate_tests::liar::{Liar, Says, whole};
use slipgate_tests::world::address;

const UNRELIABLE: u8 = 0;
const UNORDERED: u8 = 1;
const ORDERED: u8 = 2;
/// Messages of a window; a liar fills it but for the first one.
const WINDOW: u16 = 64;
const LIARS: u64 = 5;
const BUDGET: usize = 64 * 1024;

fn layout() -> Arc<Layout> {
    let kinds = [Kind::Unreliable, Kind::ReliableUnordered, Kind::ReliableOrdered];
    let channel = |kind| ChannelConfig {
        max_message_bytes: 2000,
        queue_bytes: 16 * 1024,
        queue_messages: WINDOW,
        ..ChannelConfig::new(kind)
    };
    Arc::new(Layout::new(kinds.map(channel).to_vec()).unwrap())
}

/// A client that holds what memory it can get, and then stays.
struct Hoarder {
    from: Address,
    holder: Holder,
    liar: Liar,
}

impl Hoarder {
    fn admitted(hall: &mut Hall, id: u64) -> Self {
        let (mut holder, from) = (Holder::of(&hall.token(id)), address(&format!("10.9.9.9:{id}")));
        hall.present(from, holder.request());
        hall.turn();
        let challenge = hall.replies.iter().find_map(|(_, reply)| holder.challenge(reply)).expect("a challenge");
        hall.replies.clear();
        hall.present(from, holder.response(&challenge));
        hall.turn();
        assert!(hall.handle(id).is_some());
        Self { from, holder, liar: Liar::default() }
    }

    fn say(&mut self, hall: &mut Hall, message: &[u8]) {
        let payload = self.liar.packet(Says::frames(layout().hash(), message));
        hall.present(self.from, self.holder.seal(PacketKind::Payload, &payload));
    }
}

/// A hall in which hoarders hold all of the budget.
struct Scene {
    hall: Hall,
    hoarders: Vec<Hoarder>,
    budget: MemoryBudget,
    turns: u64,
}

impl Scene {
    fn new() -> Self {
        let budget = MemoryBudget::new(BUDGET);
        let memory = Memory { messages: budget.clone(), blocks: MemoryBudget::new(1 << 20) };
        Self { hall: Hall::new(8, &layout(), &Config::default(), memory), hoarders: Vec::new(), budget, turns: 0 }
    }

    fn hoard(&mut self) {
        self.hoarders = (0..LIARS).map(|at| Hoarder::admitted(&mut self.hall, 100 + at)).collect();
        for id in 1..u32::from(WINDOW) {
            for hoarder in &mut self.hoarders {
                hoarder.say(&mut self.hall, &whole(ORDERED, Some(id), &[0; 250]));
            }
            self.hall.turn();
        }
        assert!(self.budget.left() < RESERVE_BYTES, "{} left", self.budget.left());
    }

    fn turn(&mut self) {
        self.turns += 1;
        if self.turns.is_multiple_of(10) {
            for hoarder in &mut self.hoarders {
                hoarder.say(&mut self.hall, &whole(UNRELIABLE, None, b"here"));
            }
        }
        self.hall.turn();
    }

    /// For ten seconds a player says so many messages a turn on each of these channels, and one unreliable one; answers
    /// what it said there.
    fn play(&mut self, channels: &[u8], each: u32) -> Vec<(ChannelId, Vec<u8>)> {
        let mut said = Vec::new();
        for turn in 0..600_u32 {
            for (on, number) in channels.iter().flat_map(|on| (0..each).map(move |number| (*on, number))) {
                let message = (turn * each + number).to_le_bytes().to_vec();
                if self.hall.say(1, ChannelId(on), &message).is_ok() {
                    said.push((ChannelId(on), message));
                }
            }
            let _ = self.hall.say(1, ChannelId(UNRELIABLE), b"state");
            self.turn();
        }
        (0..120).for_each(|_| self.turn());
        assert!(self.hoarders.iter().zip(100..).all(|(_, id)| self.hall.handle(id).is_some()), "they stay");
        assert!(self.budget.left() < RESERVE_BYTES, "and hold it");
        said
    }

    /// What arrived of the player, channel by channel in its order.
    fn heard(&self, channel: u8) -> Vec<Vec<u8>> {
        let of_channel = |(id, on, _): &&(u64, ChannelId, Vec<u8>)| *id == 1 && *on == ChannelId(channel);
        self.hall.messages.iter().filter(of_channel).map(|(.., message)| message.clone()).collect()
    }

    /// Asserts that all of this has arrived.
    fn check(&self, channels: &[u8], said: &[(ChannelId, Vec<u8>)], what: &str) {
        for channel in channels {
            let of_channel = said.iter().filter(|(on, _)| *on == ChannelId(*channel));
            let mut said: Vec<_> = of_channel.map(|(_, message)| message.clone()).collect();
            let mut heard = self.heard(*channel);
            if *channel == UNORDERED {
                said.sort();
                heard.sort();
            }
            assert!(heard == said, "{what}: of {} on channel {channel} arrived {}", said.len(), heard.len());
        }
        assert!(self.hall.ends().is_empty(), "{what}: {:?}", self.hall.ends());
    }
}

fn path(percent: f64) -> Conditions {
    let latency = Duration::from_millis(20);
    Conditions { latency, loss: Loss::Random(Share::percent(percent)), ..Conditions::perfect() }
}

#[test]
fn who_plays_beside_hoarders_of_all_memory_gets_everything_through() {
    for (channels, each) in [&[UNORDERED][..], &[ORDERED], &[UNORDERED, ORDERED]]
        .into_iter()
        .flat_map(|channels| [1, 2, 3].map(|each| (channels, each)))
    {
        let mut scene = Scene::new();
        scene.hall.join(path(0.0));
        scene.hoard();
        let said = scene.play(channels, each);
        let what = format!("{each} on {channels:?}");
        assert_eq!(said.len(), 600 * each as usize * channels.len(), "{what}: the queue was never full");
        assert!(scene.heard(UNRELIABLE).len() >= 600, "{what}");
        scene.check(channels, &said, &what);
    }
}

#[test]
fn who_comes_when_all_memory_is_held_plays_and_hears_as_well() {
    let mut scene = Scene::new();
    scene.hoard();
    let client = scene.hall.join(path(0.0));
    scene.hall.tell(client, ChannelId(ORDERED), b"welcome").unwrap();
    let said = scene.play(&[UNORDERED, ORDERED], 2);
    assert_eq!(said.len(), 2400);
    scene.check(&[UNORDERED, ORDERED], &said, "a newcomer");
    assert_eq!(scene.hall.player(1).messages, [(ChannelId(ORDERED), b"welcome".to_vec())]);
}

#[test]
fn what_is_lost_beside_hoarders_comes_again() {
    for channels in [&[UNORDERED][..], &[ORDERED]] {
        let mut scene = Scene::new();
        scene.hall.join(path(5.0));
        scene.hoard();
        let said = scene.play(channels, 2);
        assert!(said.len() > 1100, "{} on {channels:?}", said.len());
        scene.check(channels, &said, "with loss");
    }
}
