//! Blocks on thin paths: alone they use the path, and beside a game whose states are larger than a packet they take
//! nothing from it.

use std::sync::Arc;
use std::time::Duration;

use slipgate_session::channel::block::Block;
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::session::Config;
use slipgate_sim::{Buffer, Conditions, Rate, RateLimit};
use slipgate_tests::connected::{End, Pair};

const STATE: ChannelId = ChannelId(0);
const MAP: ChannelId = ChannelId(1);
const TICKS: u32 = 60;
/// How often the loops look for datagrams in a tick.
const LOOKS: u32 = 4;

/// UDP's and IPv4's headers and netcode's, which a connection counts as usual.
const USUAL_HEADERS: u32 = 49;
/// The path of these worlds carries none of them.
const NO_HEADERS: u32 = 0;

/// A path of 60 ms with a buffer of 250 ms, and a block that does not end.
fn path(kbit: u32, header_bytes: u32, with_block: bool) -> Pair {
    let layout = Arc::new(Layout::new([Kind::Sequenced, Kind::Blocks].map(ChannelConfig::new).to_vec()).unwrap());
    let conditions = Conditions {
        latency: Duration::from_millis(30),
        rate: Some(RateLimit { rate: Rate::kbit(kbit), buffer: Buffer::Time(Duration::from_millis(250)) }),
        ..Conditions::perfect()
    };
    let mut config = Config::default();
    config.endpoint.lower_layer_bytes = header_bytes;
    let mut pair = Pair::with(7, conditions, [&layout, &layout], &config);
    if with_block {
        let block = Block::new(vec![7; 8 << 20]).unwrap();
        pair.side(End::A).connection.channels_mut().send_block(MAP, block, 1).unwrap();
    }
    pair
}

fn live(pair: &mut Pair, ticks: u32) {
    (0..ticks * LOOKS).for_each(|_| pair.turn(Duration::from_secs(1) / TICKS / LOOKS));
}

/// What a path carries in so many seconds, in bytes.
fn capacity(kbit: u32, seconds: u32) -> u64 {
    u64::from(kbit * 125 * seconds)
}

/// Bytes of the block that are known to have arrived.
fn of_block(pair: &mut Pair) -> u64 {
    let blocks = pair.side(End::A).connection.channels().blocks(MAP);
    blocks.and_then(|blocks| blocks.sending().next()).map_or(0, |(_, progress)| progress.bytes.into())
}

/// How many of 30 s' states arrive after a warm-up, and how many bytes of the block.
fn states(kbit: u32, header_bytes: u32, bytes: usize, interval: u32, with_block: bool) -> (usize, u64) {
    let mut pair = path(kbit, header_bytes, with_block);
    let mut before = (0, 0);
    for tick in 0..40 * TICKS {
        if tick % interval == 0 {
            let (now, options) = (pair.now(), SendOptions { key: Some(0), ..SendOptions::default() });
            pair.side(End::A).connection.send(STATE, &vec![1; bytes], options, now).unwrap();
        }
        live(&mut pair, 1);
        if tick == 10 * TICKS {
            before = (pair.side(End::B).on(STATE).len(), of_block(&mut pair));
        }
    }
    (pair.side(End::B).on(STATE).len() - before.0, of_block(&mut pair) - before.1)
}

#[test]
fn a_block_alone_uses_a_thin_path() {
    for (kbit, header_bytes) in
        [64, 128, 256, 512, 1000].into_iter().flat_map(|kbit| [(kbit, USUAL_HEADERS), (kbit, NO_HEADERS)])
    {
        let mut pair = path(kbit, header_bytes, true);
        live(&mut pair, 5 * TICKS);
        for second in [5, 10, 15, 20, 25, 30, 35] {
            let (carried, block) = (pair.link.up.stats().delivered_bytes, of_block(&mut pair));
            live(&mut pair, 5 * TICKS);
            let carried = pair.link.up.stats().delivered_bytes - carried;
            let (block, all) = (of_block(&mut pair) - block, capacity(kbit, 5));
            println!("{kbit} kbit/s from {second} s: {carried} bytes carried of {all}, {block} of the block");
            assert!(carried * 100 >= all * 90, "{kbit} kbit/s from {second} s: {carried} of {all} bytes");
            assert!(block * 100 >= all * 80, "{kbit} kbit/s from {second} s: {block} of {all} bytes are the block's");
        }
    }
}

#[test]
fn large_states_arrive_beside_a_block_as_they_do_without_and_the_block_has_the_rest() {
    let usual = [(128, 2500, 60), (256, 300, 2), (256, 1000, 6), (256, 2500, 30), (512, 2500, 15)];
    let bare = [(64, 600, 30), (64, 900, 30), (128, 2000, 30)];
    let all = usual
        .map(|game| (USUAL_HEADERS, game))
        .into_iter()
        .chain(usual.into_iter().chain(bare).map(|game| (NO_HEADERS, game)));
    for (header_bytes, (kbit, bytes, interval)) in all {
        let (without, _) = states(kbit, header_bytes, bytes, interval, false);
        let (with, block) = states(kbit, header_bytes, bytes, interval, true);
        let game = format!("{kbit} kbit/s, {bytes} bytes each {interval} ticks");
        println!("{game}: {without} states, {with} beside {block} bytes of a block");
        assert!(without as u32 * interval * 100 >= 95 * 30 * TICKS, "{game}: the game fits into the path: {without}");
        assert!(with * 100 >= 90 * without, "{game}: {with} states instead of {without}");
        let left = capacity(kbit, 30) - (bytes * without) as u64;
        assert!(block * 100 >= 75 * left, "{game}: the block has {block} of {left} bytes");
    }
}
