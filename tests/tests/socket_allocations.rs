//! Sockets ask for no memory after they were bound, whatever a system call carries.

use slipgate_edge::udp::{BATCH, Batching, ReceiveBatch, SendBatch, Sockets};
use slipgate_protocol::address::Address;
use slipgate_protocol::netcode::Outbox;
use slipgate_tests::counting::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
