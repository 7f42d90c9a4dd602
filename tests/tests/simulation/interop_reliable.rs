//! Our acknowledged-packet endpoint against the crate `reliable` 1.3.4, in the payloads of encrypted sessions.
//!
//! The crate is a port of the library in C with the same wire format, so these scenarios stand for the library as well.
//! Every pair runs all of them: the peer's endpoint at the client and ours at the server, the other way round, and both
//! over the server and the client of `netcode-official`. Each endpoint runs with its defaults, which differ: the peer
//! fragments above 1,024 bytes and remembers 256 packets, ours 1,191 and 1,024. Both read the fragments and headers of
//! the other.

use std::net::IpAddr;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_session::reliability::EndpointConfig;
use slipgate_sim::{Conditions, Loss, Order, Reordering, Share};
use slipgate_tests::live::{GameClient, GameServer, IPV4, OurClient, OurServer};

use super::netcode_official::{TheirClient, TheirServer};
use super::reliable_exchange::{Acknowledging, Measured, Ours, TURN, Talk, Theirs};

/// The positions of the two endpoints.
#[derive(Clone, Copy)]
enum Ends {
    OursAtServer,
    OursAtClient,
}

impl Ends {
    fn begin<S: GameServer, C: GameClient>(self, ip: IpAddr, ours: Box<dyn Acknowledging>) -> Talk<S, C> {
        match self {
            Self::OursAtServer => Talk::begin(ip, ours, Theirs::boxed()),
            Self::OursAtClient => Talk::begin(ip, Theirs::boxed(), ours),
        }
    }

    /// Returns the indices of our side and of the peer's side.
    const fn places(self) -> (usize, usize) {
        match self {
            Self::OursAtServer => (0, 1),
            Self::OursAtClient => (1, 0),
        }
    }
}

/// Makes a test of each scenario for a session and the endpoints on it.
macro_rules! all_scenarios {
    ($($pair:ident: $server:ty, $client:ty, $ends:expr;)+) => {
        $(mod $pair {
            use super::*;

            #[test]
            fn packets_of_1_byte_to_16_kib_arrive_whole_and_acked() {
                super::packets_of_1_byte_to_16_kib::<$server, $client>($ends);
            }

            #[test]
            fn clean_path_acks_every_packet() {
                super::a_clean_path::<$server, $client>($ends);
            }

            #[test]
            fn ack_only_packets_ack_5000_peer_packets_per_second() {
                super::a_one_sided_stream::<$server, $client>($ends);
            }

            #[test]
            fn both_sides_report_the_same_path_stats() {
                super::statistics::<$server, $client>($ends);
            }
        })+
    };
}

all_scenarios! {
    ours_at_our_server_theirs_at_our_client: OurServer, OurClient, Ends::OursAtServer;
    ours_at_our_client_theirs_at_our_server: OurServer, OurClient, Ends::OursAtClient;
    ours_at_our_client_all_theirs_at_the_server: TheirServer, OurClient, Ends::OursAtClient;
    ours_at_our_server_all_theirs_at_the_client: OurServer, TheirClient, Ends::OursAtServer;
}

fn packets_of_1_byte_to_16_kib<S: GameServer, C: GameClient>(ends: Ends) {
    let mut talk: Talk<S, C> = ends.begin(IPV4, Ours::boxed());
    talk.set_conditions(Conditions {
        latency: Duration::from_millis(20),
        jitter: Duration::from_millis(40),
        order: Order::Free,
        loss: Loss::Random(Share::percent(3.0)),
        duplication: Share::percent(5.0),
        reordering: Reordering { share: Share::percent(2.0), longest: Duration::from_millis(500) },
        ..Conditions::perfect()
    });
    let mut chance = StdRng::seed_from_u64(7);
    let mut size = || {
        let max = [100, 1024, 1200, 16 * 1024][chance.random_range(0..4)];
        chance.random_range(1..=max)
    };
    for _ in 0..300 {
        talk.turn(&[size()], &[size()]);
    }
    talk.set_conditions(Conditions::perfect());
    let settling = 60;
    for _ in 0..settling {
        talk.turn(&[8], &[8]);
    }
    talk.assert_agreement(settling);
    for side in &talk.sides {
        let arrived = side.received.range(..300).count();
        assert!((200..300).contains(&arrived), "{arrived} of 300 arrived, which is outside of the expected range");
        assert!(side.received.values().any(|behind| *behind > 1), "the path must reorder");
    }
}

fn a_clean_path<S: GameServer, C: GameClient>(ends: Ends) {
    let mut talk: Talk<S, C> = ends.begin(IPV4, Ours::boxed());
    for turn in 0..64 {
        let size = 1 + turn * (16 * 1024 - 1) / 63;
        talk.turn(&[size, 40], &[40, 16 * 1024 - size + 1]);
    }
    talk.turn(&[8], &[8]);
    talk.turn(&[8], &[8]);
    for side in &talk.sides {
        assert_eq!(side.received.len(), 130);
        assert!(side.acked.range(..129).eq((0..129).collect::<Vec<_>>().iter()), "{:?}", side.acked);
        assert_eq!(side.endpoint.measured().packets_acked, side.acked.len() as u64);
    }
}

fn a_one_sided_stream<S: GameServer, C: GameClient>(ends: Ends) {
    for (loss, min) in [(Share::NONE, 1.0), (Share::percent(5.0), 0.98)] {
        let mut talk: Talk<S, C> = ends.begin(IPV4, Ours::boxed());
        talk.set_conditions(Conditions { loss: Loss::Random(loss), ..Conditions::perfect() });
        let (ours, theirs) = ends.places();
        // 83 packets per turn are 5,000 per second; one header acknowledges 32.
        let burst = [32; 83];
        for _ in 0..36 {
            let both: [&[usize]; 2] = if ours == 0 { [&[], &burst] } else { [&burst, &[]] };
            talk.turn(both[0], both[1]);
        }
        for _ in 0..4 {
            talk.turn(&[], &[]);
        }
        assert_eq!(talk.sides[ours].sent, 0);
        let (arrived, acked) = (talk.sides[ours].received.len(), talk.sides[theirs].acked.len());
        let share = acked as f64 / arrived as f64;
        assert!(share >= min && acked <= arrived, "{acked} of {arrived} arrivals, {loss} lost");
    }
}

fn statistics<S: GameServer, C: GameClient>(ends: Ends) {
    let config = EndpointConfig { sent_window: 256, received_window: 256, ..EndpointConfig::default() };
    let mut talk: Talk<S, C> = ends.begin(IPV4, Ours::with(config));
    let loss = Loss::Random(Share::percent(4.0));
    talk.set_conditions(Conditions { latency: TURN * 2, loss, ..Conditions::perfect() });
    for _ in 0..900 {
        talk.turn(&[200], &[200]);
    }
    let (ours, theirs) = ends.places();
    assert_alike(&talk.sides[ours].endpoint.measured(), &talk.sides[theirs].endpoint.measured());
}

/// The path is the same in both directions, so both ends measure the same, up to chance: bandwidths are averages over
/// 128 packets, of which the number lost varies, and headers count only where they are received.
fn assert_alike(ours: &Measured, theirs: &Measured) {
    for (what, ours, theirs, tolerance) in [
        ("round-trip time", ours.rtt.as_secs_f64(), theirs.rtt.as_secs_f64(), 0.01),
        ("our bandwidth", ours.sent_kbps, theirs.received_kbps / 0.96, 0.08),
        ("their bandwidth", ours.received_kbps / 0.96, theirs.sent_kbps, 0.08),
    ] {
        assert!((ours / theirs - 1.0).abs() < tolerance, "{what}: {ours} by ours, {theirs} by the peer");
    }
    for (side, loss) in [("our", ours.loss), ("their", theirs.loss)] {
        assert!((0.01..0.09).contains(&loss), "{side} loss is {loss} on a path that loses 4 %");
    }
}

#[test]
fn sequence_wrap_loses_nothing_on_either_side() {
    let mut talk: Talk<OurServer, OurClient> = Talk::begin(IPV4, Ours::boxed(), Theirs::boxed());
    // Large packets are fragmented around the wrap.
    let (burst, large) = ([4; 30], [16 * 1024, 4, 3000, 1, 1100]);
    while talk.sides[0].sent < 65_800 {
        let is_near = (65_480..65_600).contains(&talk.sides[0].sent);
        let sizes: &[usize] = if is_near { &large } else { &burst };
        talk.turn(sizes, sizes);
    }
    talk.turn(&[4], &[4]);
    talk.turn(&[4], &[4]);
    for side in &talk.sides {
        assert_eq!(side.received.len() as u32, side.sent);
        assert!(side.acked.len() as u32 >= side.sent - 1, "{} of {}", side.acked.len(), side.sent);
    }
    talk.assert_agreement(1);
}
