//! Sockets ask for no memory after they were bound, whatever a system call carries; and what a server holds for its clients.

use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_server::{Clock, Config, HistoryFile, Inbox, Key, Server};
use slipgate_tests::counting::{allocations, held};
use slipgate_tests::live::{PRIVATE_KEY, PROTOCOL_ID};
use slipgate_udp::{BATCH, Batching, ReceiveBatch, SendBatch, Sockets};

/// Fills a batch with rows of datagrams of one size, some of which nobody can be sent, sends it, and receives what came.
fn round(
    one: &mut Sockets,
    other: &mut Sockets,
    to: Address,
    out: &mut SendBatch,
    arrived: &mut ReceiveBatch,
) -> usize {
    let nowhere = Address::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    for place in 0..BATCH {
        let bytes = [100, 100, 100, 700][place % 4];
        out.room().expect("the batch has room")[..bytes].fill(place as u8);
        out.commit(if place % 13 == 0 { nowhere } else { to }, bytes);
    }
    one.send(out);
    let mut count = 0;
    for _ in 0..4 {
        other.receive(arrived);
        count += arrived.len();
    }
    count
}

#[test]
fn a_batch_that_is_sent_and_received_costs_no_allocation() {
    for batching in [Batching::Off, Batching::Messages, Batching::Segments] {
        let [mut one, mut other] = [(); 2].map(|()| {
            let mut sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
            sockets.limit_batching(batching);
            sockets
        });
        let to = other.local_addresses()[0].into();
        let (mut out, mut arrived) = (SendBatch::default(), ReceiveBatch::default());
        let mut count = 0;
        let asked = allocations(|| {
            for _ in 0..50 {
                count += round(&mut one, &mut other, to, &mut out, &mut arrived);
                let _ = std::hint::black_box((one.stats(), other.buffers()));
            }
        });
        assert_eq!((count, asked), (50 * (BATCH - 5), 0), "{batching:?}");
    }
}

#[test]
fn a_server_holds_less_than_4_kib_for_each_of_its_clients() {
    // All of it is asked for at the start. Hash tables double at powers of two: right behind one they are at their largest.
    for slots in [1_000, 4_000, 7_300, 10_000, 14_500, 65_536] {
        let clock = Clock::start();
        // With a history file it holds more than without.
        let file = std::env::temp_dir().join(format!("slipgate-memory-{}-{slots}", std::process::id()));
        let history = HistoryFile::open(&file, clock.now().unix.seconds()).unwrap();
        let (server, bytes) = held(|| {
            let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
            let config = Config::new(PROTOCOL_ID, slots, vec![sockets.local_addresses()[0].into()]);
            let key = Key::from_bytes(PRIVATE_KEY).into();
            let server = Server::with_history(sockets, config, key, clock.now(), history).unwrap();
            (server, Inbox::default())
        });
        // What a server has for itself: batches, and buckets for sources of requests.
        let of_its_own = 512 * 1024;
        let each = (bytes - of_its_own) / i64::from(slots);
        assert!(each < 4096, "{each} bytes for each of {slots}");
        assert!(each > 1000, "it is all asked for at the start");
        drop(server);
        std::fs::remove_file(&file).unwrap();
        std::fs::remove_file(file.with_extension("lock")).unwrap_or_default();
    }
}
