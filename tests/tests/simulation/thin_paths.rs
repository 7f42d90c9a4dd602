//! A block in the background of a game on a thin path: the game's state arrives as it does without one.

use std::sync::Arc;
use std::time::Duration;

use slipgate_session::channel::block::Block;
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::congestion::{Algorithm, BytesPerSecond, GlideConfig};
use slipgate_session::session::Config;
use slipgate_sim::{Buffer, Conditions, Loss, Rate, RateLimit, Share};
use slipgate_tests::connected::{End, Pair};

const STATE: ChannelId = ChannelId(0);
const MAP: ChannelId = ChannelId(1);
const BLOCK_BYTES: usize = 1 << 20;
/// Before anything is measured the controller looks for the path's rate.
const WARM_UP: u32 = 10;
const MEASURED: u32 = 30;
/// Ticks of a game in a second.
const TICKS: u32 = 60;

/// A path, and a game that fits into it with some reserve.
#[derive(Clone, Copy, Debug)]
struct Thin {
    kbit: u32,
    round_trip: Duration,
    loss_percent: f64,
    state_bytes: usize,
    /// How often the loop looks for datagrams between two ticks of the game.
    looks: u32,
    algorithm: Algorithm,
}

impl Thin {
    fn conditions(&self) -> Conditions {
        let rate = Rate::kbit(self.kbit);
        Conditions {
            latency: self.round_trip / 2,
            loss: Loss::Random(Share::percent(self.loss_percent)),
            rate: Some(RateLimit { rate, buffer: Buffer::Time(Duration::from_millis(250)) }),
            ..Conditions::perfect()
        }
    }

    /// Lives for a while. Answers how many states arrived after the warm-up, and how much of the block in all.
    fn live(&self, with_block: bool) -> (usize, usize) {
        let channel = |kind| ChannelConfig::new(kind);
        let layout = Arc::new(Layout::new([Kind::Sequenced, Kind::Blocks].map(channel).to_vec()).unwrap());
        let mut config = Config::default();
        config.congestion.algorithm = self.algorithm;
        let mut pair = Pair::with(7, self.conditions(), [&layout, &layout], &config);
        if with_block {
            let block = Block::new(vec![7; BLOCK_BYTES]).unwrap();
            pair.side(End::A).connection.channels_mut().send_block(MAP, block, 1).unwrap();
        }
        let mut heard = 0;
        for tick in 0..(WARM_UP + MEASURED) * TICKS {
            let now = pair.now();
            let options = SendOptions { key: Some(0), ..SendOptions::default() };
            let state = vec![tick as u8; self.state_bytes];
            pair.side(End::A).connection.send(STATE, &state, options, now).unwrap();
            (0..self.looks).for_each(|_| pair.turn(Duration::from_secs(1) / TICKS / self.looks));
            if tick == WARM_UP * TICKS {
                heard = pair.side(End::B).on(STATE).len();
            }
        }
        let received = |pair: &mut Pair| {
            let blocks = pair.side(End::A).connection.channels().blocks(MAP);
            blocks
                .and_then(|blocks| blocks.sending().next())
                .map_or(BLOCK_BYTES, |(_, progress)| progress.bytes as usize)
        };
        (pair.side(End::B).on(STATE).len() - heard, received(&mut pair))
    }
}

/// Lives twice; answers what arrived of the block.
fn compare(thin: Thin) -> usize {
    let (without, _) = thin.live(false);
    let (with, block) = thin.live(true);
    println!("{thin:?}: {without} states, {with} beside {block} bytes of a block");
    assert!(without * 100 >= 97 * (MEASURED * TICKS) as usize, "{thin:?}: the game fits into the path: {without}");
    assert!(with * 100 >= 95 * without, "{thin:?}: {with} states instead of {without}");
    block
}

fn satellite() -> Thin {
    Thin {
        kbit: 400,
        round_trip: Duration::from_millis(600),
        loss_percent: 0.0,
        state_bytes: 600,
        looks: 4,
        algorithm: Algorithm::Glide(GlideConfig::default()),
    }
}

fn near() -> Thin {
    Thin { kbit: 256, round_trip: Duration::from_millis(60), state_bytes: 300, ..satellite() }
}

#[test]
fn a_block_in_the_background_takes_nothing_from_the_state_on_a_thin_path() {
    for thin in [satellite(), near(), Thin { loss_percent: 1.0, ..satellite() }] {
        let block = compare(thin);
        assert!(block > BLOCK_BYTES / 4, "{thin:?}: the block has its part as well: {block} bytes");
    }
}

#[test]
fn nor_between_loops_that_look_once_a_tick() {
    for thin in [satellite(), near()] {
        let block = compare(Thin { looks: 1, ..thin });
        assert!(block > BLOCK_BYTES / 4, "{thin:?}: the block has its part as well: {block} bytes");
    }
}

#[test]
fn where_state_takes_nearly_all_there_is_the_block_has_what_is_left() {
    let algorithm = Algorithm::Fixed(BytesPerSecond(50_000.0));
    for (state_bytes, looks, least) in [(640, 4, 200_000), (640, 1, 200_000), (740, 4, 50_000), (740, 1, 50_000)] {
        let block = compare(Thin { state_bytes, looks, algorithm, ..satellite() });
        assert!(block > least, "{state_bytes}: {block} bytes");
    }
}
