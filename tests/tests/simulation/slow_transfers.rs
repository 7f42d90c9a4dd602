//! Transfers on slow paths: alone they fill the path, and beside a game with states larger than a packet they use only
//! the spare rate.

use std::sync::Arc;
use std::time::Duration;

use slipgate_session::channel::transfer::Transfer;
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::connection::ConnectionConfig;
use slipgate_sim::{Buffer, Conditions, Rate, RateLimit};
use slipgate_tests::connection_world::ConnectionWorld;
use slipgate_tests::world::End;

const STATE: ChannelId = ChannelId(0);
const MAP: ChannelId = ChannelId(1);
const TICKS: u32 = 60;
/// Polls of the loops per tick.
const LOOKS: u32 = 4;

/// The headers of UDP, IPv4 and netcode in bytes, which a connection counts by default.
const USUAL_HEADERS: u32 = 49;
/// The rate of these paths excludes all headers.
const NO_HEADERS: u32 = 0;

/// Creates a path of 60 ms with a buffer of 250 ms, and a transfer that does not end.
fn path(kbit: u32, header_bytes: u32, with_transfer: bool) -> ConnectionWorld {
    let layout =
        Arc::new(Layout::try_from([Kind::Sequenced, Kind::Transfers].map(ChannelConfig::from).to_vec()).unwrap());
    let conditions = Conditions {
        latency: Duration::from_millis(30),
        rate: Some(RateLimit { rate: Rate::kbit(kbit), buffer: Buffer::Time(Duration::from_millis(250)) }),
        ..Conditions::perfect()
    };
    let mut config = ConnectionConfig::default();
    config.endpoint.lower_layer_bytes = header_bytes;
    let mut pair = ConnectionWorld::with(7, conditions, [&layout, &layout], &config);
    if with_transfer {
        let transfer = Transfer::new(vec![7; 8 << 20]).unwrap();
        pair.side(End::A).connection.channels.send_transfer(MAP, transfer, 1).unwrap();
    }
    pair
}

fn run(pair: &mut ConnectionWorld, ticks: u32) {
    (0..ticks * LOOKS).for_each(|_| pair.turn(Duration::from_secs(1) / TICKS / LOOKS));
}

/// Returns the capacity of a path in this number of seconds, in bytes.
fn capacity(kbit: u32, seconds: u32) -> u64 {
    u64::from(kbit * 125 * seconds)
}

/// Returns the bytes of the transfer that are known to have arrived.
fn transfer_progress(pair: &mut ConnectionWorld) -> u64 {
    let transfers = pair.side(End::A).connection.channels.transfers(MAP);
    transfers.and_then(|transfers| transfers.sending().next()).map_or(0, |(_, progress)| progress.bytes.into())
}

/// Returns the states of 30 s that arrive after a warm-up, and the bytes of the transfer.
fn states(kbit: u32, header_bytes: u32, bytes: usize, interval: u32, with_transfer: bool) -> (usize, u64) {
    let mut pair = path(kbit, header_bytes, with_transfer);
    let mut before = (0, 0);
    for tick in 0..40 * TICKS {
        if tick % interval == 0 {
            let (now, options) = (pair.now(), SendOptions { key: Some(0), ..SendOptions::default() });
            pair.side(End::A).connection.send(STATE, &vec![1; bytes], options, now).unwrap();
        }
        run(&mut pair, 1);
        if tick == 10 * TICKS {
            before = (pair.side(End::B).on(STATE).len(), transfer_progress(&mut pair));
        }
    }
    (pair.side(End::B).on(STATE).len() - before.0, transfer_progress(&mut pair) - before.1)
}

#[test]
fn lone_transfer_fills_a_slow_path() {
    for (kbit, header_bytes) in
        [64, 128, 256, 512, 1000].into_iter().flat_map(|kbit| [(kbit, USUAL_HEADERS), (kbit, NO_HEADERS)])
    {
        let mut pair = path(kbit, header_bytes, true);
        run(&mut pair, 5 * TICKS);
        for second in [5, 10, 15, 20, 25, 30, 35] {
            let (carried, transfer) = (pair.link.up.stats().delivered_bytes, transfer_progress(&mut pair));
            run(&mut pair, 5 * TICKS);
            let carried = pair.link.up.stats().delivered_bytes - carried;
            let (transfer, all) = (transfer_progress(&mut pair) - transfer, capacity(kbit, 5));
            println!("{kbit} kbit/s from {second} s: {carried} bytes carried of {all}, {transfer} of the transfer");
            assert!(carried * 100 >= all * 90, "{kbit} kbit/s from {second} s: {carried} of {all} bytes");
            assert!(
                transfer * 100 >= all * 80,
                "{kbit} kbit/s from {second} s: {transfer} of {all} bytes are of the transfer"
            );
        }
    }
}

#[test]
fn transfer_beside_large_states_uses_only_spare_rate() {
    let usual = [(128, 2500, 60), (256, 300, 2), (256, 1000, 6), (256, 2500, 30), (512, 2500, 15)];
    let bare = [(64, 600, 30), (64, 900, 30), (128, 2000, 30)];
    let all = usual
        .map(|game| (USUAL_HEADERS, game))
        .into_iter()
        .chain(usual.into_iter().chain(bare).map(|game| (NO_HEADERS, game)));
    for (header_bytes, (kbit, bytes, interval)) in all {
        let (without, _) = states(kbit, header_bytes, bytes, interval, false);
        let (with, transfer) = states(kbit, header_bytes, bytes, interval, true);
        let game = format!("{kbit} kbit/s, {bytes} bytes every {interval} ticks");
        println!("{game}: {without} states, {with} beside {transfer} bytes of a transfer");
        assert!(without as u32 * interval * 100 >= 95 * 30 * TICKS, "{game}: the game must fit the path: {without}");
        assert!(with * 100 >= 90 * without, "{game}: {with} states instead of {without}");
        let left = capacity(kbit, 30) - (bytes * without) as u64;
        assert!(transfer * 100 >= 75 * left, "{game}: the transfer gets {transfer} of {left} bytes");
    }
}
