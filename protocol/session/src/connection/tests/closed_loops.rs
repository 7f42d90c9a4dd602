//! Senders that wait for echoes: the pacer must not hold back each packet of them for ever.

use super::*;
use crate::connection::packets::PacketConnection;

/// The time of a turn of both ends in microseconds: an echo takes two turns.
const TURN: u64 = 250;
/// Messages whose echoes have not come back.
const MAX_OUTSTANDING: u64 = 4;
const TURNS: u64 = 20_000;
/// The message of a turn.
const MESSAGE: [u8; 64] = [7; 64];

/// The echoes of the last half of the turns, and the turns of that half.
#[derive(Default)]
struct Count {
    sent: u64,
    echoes: u64,
    late_echoes: u64,
}

impl Count {
    fn may_send(&self) -> bool {
        self.sent - self.echoes < MAX_OUTSTANDING
    }

    fn echo(&mut self, turn: u64) {
        self.echoes += 1;
        self.late_echoes += u64::from(turn >= TURNS / 2);
    }

    /// The sender has an echo in nearly each turn once the rate has grown.
    fn check(&self) {
        assert!(self.late_echoes >= TURNS / 2 * 9 / 10, "{} of {} echoes", self.late_echoes, TURNS / 2);
    }
}

#[test]
fn closed_loop_of_small_messages_gets_a_higher_rate() {
    let mut pair = Pair::new();
    pair.run(200);
    let mut count = Count::default();
    for turn in 0..TURNS {
        pair.now = pair.now.after(Duration::from_micros(TURN));
        if count.may_send() {
            pair.send(0, STATE, &MESSAGE);
            count.sent += 1;
        }
        pair.exchange();
        for message in core::mem::take(&mut pair.received[1]) {
            pair.send(1, STATE, &message);
        }
        for _ in core::mem::take(&mut pair.received[0]) {
            count.echo(turn);
        }
    }
    count.check();
}

#[test]
fn closed_loop_of_small_packets_gets_a_higher_rate() {
    let config = ConnectionConfig::default();
    let mut ends = [(); 2].map(|()| PacketConnection::new(&config, None).unwrap());
    let (mut count, mut now) = (Count::default(), Instant::from_start(Duration::from_secs(5)));
    // Datagrams on their way to the client and to the server, and the packets that the server has not returned.
    let (mut on_the_way, mut unanswered): ([Vec<Vec<u8>>; 2], u64) = ([Vec::new(), Vec::new()], 0);
    for turn in 0..TURNS {
        now = now.after(Duration::from_micros(TURN));
        // The server returns a packet in the turn in which it left, so the client handles the echo before it sends.
        for (at, end) in ends.iter_mut().enumerate() {
            for datagram in core::mem::take(&mut on_the_way[at]) {
                let packet = end.handle(&datagram, &mut Vec::new(), now).unwrap();
                match (packet, at) {
                    (Some(_), 0) => count.echo(turn),
                    (Some(_), _) => unanswered += 1,
                    (None, _) => {}
                }
            }
            end.tick(now);
            let mut sink = Datagrams::default();
            let wanted = if at == 0 { u64::from(count.may_send()) } else { unanswered };
            // The path can carry no more now: the rest waits for a later turn.
            let left = (0..wanted).take_while(|_| end.send(&MESSAGE, now, &mut sink).is_ok()).count() as u64;
            if at == 0 {
                count.sent += left;
            } else {
                unanswered -= left;
            }
            end.transmit(now, &mut sink);
            while end.poll_event().is_some() {}
            on_the_way[1 - at].append(&mut sink.sent);
        }
    }
    count.check();
}
