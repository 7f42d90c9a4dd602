//! Sockets do not allocate after they were bound, in any batch mode; and the memory of a server for its clients.

use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_server::history_file::HistoryFile;
use slipgate_server::keys::Key;
use slipgate_server::{Clock, Inbox, Server, ServerConfig};
use slipgate_tests::counting::{allocations, held};
use slipgate_tests::live::{PRIVATE_KEY, PROTOCOL_ID};
use slipgate_udp::{BATCH_SIZE, Batching, ReceiveBatch, SendBatch, Sockets};

/// Fills a batch with rows of datagrams of one size, some to an unreachable address, sends it, and receives the
/// datagrams.
fn round(
    one: &mut Sockets,
    other: &mut Sockets,
    to: Address,
    out: &mut SendBatch,
    arrived: &mut ReceiveBatch,
) -> usize {
    let unreachable = Address::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    for index in 0..BATCH_SIZE {
        let bytes = [100, 100, 100, 700][index % 4];
        out.next_buf().expect("the batch has space")[..bytes].fill(index as u8);
        out.commit(if index % 13 == 0 { unreachable } else { to }, bytes);
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
fn batch_send_and_receive_do_not_allocate() {
    for batching in [Batching::Off, Batching::Messages, Batching::Segments] {
        let [mut one, mut other] = [(); 2].map(|()| {
            let mut sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
            sockets.limit_batching(batching);
            sockets
        });
        let to = other.local_addresses()[0].into();
        let (mut out, mut arrived) = (SendBatch::default(), ReceiveBatch::default());
        let mut count = 0;
        let allocation_count = allocations(|| {
            for _ in 0..50 {
                count += round(&mut one, &mut other, to, &mut out, &mut arrived);
                let _ = std::hint::black_box((one.stats(), other.buffers()));
            }
        });
        assert_eq!((count, allocation_count), (50 * (BATCH_SIZE - 5), 0), "{batching:?}");
    }
}

#[test]
fn server_holds_less_than_4_kib_per_client() {
    // All of it is allocated at the start. Hash tables double at powers of two: they are largest right above one.
    for slots in [1_000, 4_000, 7_300, 10_000, 14_500, 65_536] {
        let clock = Clock::start();
        // A server with a history file holds more than one without.
        let file = std::env::temp_dir().join(format!("slipgate-memory-{}-{slots}", std::process::id()));
        let history = HistoryFile::open(&file, clock.now().unix.into()).unwrap();
        let (server, bytes) = held(|| {
            let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
            let config = ServerConfig::new(PROTOCOL_ID, slots, &[sockets.local_addresses()[0]]);
            let key = Key::from(PRIVATE_KEY).into();
            let server = Server::with_history(sockets, config, key, clock.now(), history).unwrap();
            (server, Inbox::default())
        });
        // The memory of the server itself: batches, and buckets for the sources of requests.
        let of_its_own = 512 * 1024;
        let each = (bytes - of_its_own) / i64::from(slots);
        assert!(each < 4096, "{each} bytes per slot of {slots}");
        assert!(each > 1000, "all memory is allocated at the start");
        drop(server);
        std::fs::remove_file(&file).unwrap();
        std::fs::remove_file(file.with_extension("lock")).unwrap_or_default();
    }
}
