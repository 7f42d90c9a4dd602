//! The CPU time of a packet of each mix in the session layer of a server.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_session::connection::{Connection, ConnectionConfig, Memory, Role, WorkLimits};
use slipgate_session::reliability::Sink;
use slipgate_session::wire::reliable::MAX_HEADER_BYTES;
use slipgate_tests::hostile::{FloodMix, FloodWriter, flood_layout};

const TURN: Duration = Duration::from_millis(16);
const PACKETS_PER_TURN: usize = 256;
const TURNS: u32 = 120;

/// Keeps the headers and frames of packets.
struct Nowhere {
    buf: [u8; MAX_PAYLOAD_BYTES],
    sent: Vec<Vec<u8>>,
}

impl Sink for Nowhere {
    fn remaining(&self) -> usize {
        usize::MAX
    }

    fn next_buf(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.buf)
    }

    fn commit(&mut self, bytes: usize) {
        self.sent.push(self.buf[..bytes.min(MAX_HEADER_BYTES + 35)].to_vec());
    }
}

/// Prints the time of each packet and message of each mix.
pub(crate) fn run() {
    println!("{:<22} {:>10} {:>12} {:>10} {:>8}", "mix", "ns/packet", "messages", "sent", "end");
    for mix in FloodMix::EVERY {
        let layout = flood_layout();
        let mut writer = FloodWriter::new(mix, &layout);
        let config = ConnectionConfig { work: WorkLimits::UNLIMITED, ..ConnectionConfig::default() };
        let memory = Memory::default();
        let mut connection = Connection::new(&config, Arc::clone(&layout), Role::Server, Some(&memory)).expect("valid");
        let (mut scratch, mut sink) = (Vec::new(), Nowhere { buf: [0; MAX_PAYLOAD_BYTES], sent: Vec::new() });
        let (mut messages, mut spent, mut packets, mut worst) = (0_u64, Duration::ZERO, 0, Duration::ZERO);
        let mut sent = 0;
        for turn in 0..TURNS {
            let now = Instant::from_start(Duration::from_secs(1) + TURN * turn);
            let payloads: Vec<_> = (0..PACKETS_PER_TURN).map(|_| writer.next_payload()).collect();
            let start = std::time::Instant::now();
            for payload in &payloads {
                let at = std::time::Instant::now();
                if let Ok(Some(mut cursor)) = connection.handle(payload, Duration::ZERO, now) {
                    while connection.next_message(payload, &mut cursor, &mut scratch, now).is_some() {
                        messages += 1;
                    }
                }
                worst = worst.max(at.elapsed());
                packets += 1;
            }
            while connection.channels.poll_event().is_some() {}
            connection.tick(now);
            connection.transmit(now, &mut sink);
            spent += start.elapsed();
            if connection.close_reason().is_some() {
                break;
            }
            // Two packets of the server in each turn, so that there is something to acknowledge.
            let id = slipgate_session::channel::ChannelId(0);
            for _ in 0..2 {
                let _ = connection.send(id, &[7; 700], slipgate_session::channel::SendOptions::default(), now);
            }
            sent += sink.sent.len();
            sink.sent.drain(..).for_each(|packet| writer.acknowledge(&packet));
        }
        let end = connection.close_reason().map_or_else(String::new, |reason| format!("{:?}", reason.kind));
        println!(
            "{:<22} {:>10} {messages:>12} {:>10} {:>8.0?} {end}",
            format!("{mix:?}"),
            spent.as_nanos() / packets,
            sent,
            worst
        );
    }
}
