//! Sessions over each kind of datapath of this machine: batches that the kernel segments, batches, and single
//! datagrams, which other systems use.

use std::io::Write as _;
use std::net::UdpSocket;
use std::time::Duration;

use slipgate_client::Client;
use slipgate_client::sockets::Batching;
use slipgate_netcode::discard::Discard;
use slipgate_server::keys::Key;
use slipgate_server::sockets::SocketStats;
use slipgate_server::{Clock, Event, Inbox, ReadLimits, Server, ServerConfig, Sockets, Traffic};
use slipgate_tests::live::{PRIVATE_KEY, PROTOCOL_ID, TokenOrder};

/// Rounds of packets, and packets in each direction of a round: more than a batch, with some equal sizes.
const ROUNDS: usize = 20;
const PACKETS: usize = 150;

fn sockets(batching: Batching) -> Sockets {
    let mut sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    sockets.limit_batching(batching);
    sockets
}

fn server(sockets: Sockets, clock: &Clock) -> Server {
    let config = ServerConfig::new(PROTOCOL_ID, 4, &[sockets.local_addresses()[0]]);
    Server::new(sockets, config, Key::from(PRIVATE_KEY).into(), clock.now()).unwrap()
}

/// Returns the payload of packet `number` of a round; equal sizes come in rows.
fn payload(round: usize, number: usize) -> Vec<u8> {
    let size = if (number / 5).is_multiple_of(2) { 100 } else { 3 + number * 7 % 1190 };
    let mut payload = vec![number as u8; size];
    payload[..2].copy_from_slice(&[round as u8, number as u8]);
    payload
}

/// Runs [`play`], and checks that the server's system calls carried as much as they may.
fn echo(of_server: Batching, of_client: Batching) -> SocketStats {
    let (stats, batching) = play(of_server, of_client);
    if of_server > Batching::Off {
        assert_eq!(stats.dropped_by_system, Some(0));
    }
    assert_eq!(batching[0], of_server);
    stats
}

/// Runs a client that sends rounds of packets to a server, which echoes them within its turn. Returns the statistics of
/// the server's sockets, and the final batch modes of the server and the client.
fn play(of_server: Batching, of_client: Batching) -> (SocketStats, [Batching; 2]) {
    let clock = Clock::start();
    let (mut server, mut server_inbox) = (server(sockets(of_server), &clock), Inbox::default());
    let mut client = Client::with_sockets(sockets(of_client));
    let mut inbox = slipgate_client::Inbox::default();
    client.connect(TokenOrder::new(1, &[server.sockets().local_addresses()[0]]).mint().token, clock.now()).unwrap();
    let (mut round, mut expected) = (0, Vec::new());
    for _ in 0..100_000 {
        client.begin_turn(clock.now());
        while let Some(event) = inbox.next(&mut client) {
            if let slipgate_client::Event::Payload { bytes, .. } = event {
                assert_eq!(bytes, payload(round, expected.remove(0)), "round {round}");
            }
        }
        if client.state().is_connected() && expected.is_empty() {
            round += 1;
            if round > ROUNDS {
                break;
            }
            for number in 0..PACKETS {
                client.send(&payload(round, number)).unwrap();
                expected.push(number);
            }
        }
        client.end_turn();
        server.begin_turn(clock.now());
        while let Some(event) = server_inbox.next(&mut server) {
            if let Event::Payload { client, bytes, .. } = event {
                server.send(client, bytes).unwrap();
            }
        }
        server.end_turn();
    }
    assert!(round > ROUNDS, "round {round} did not end: {} echoes are missing", expected.len());
    let (sent, packets) = (server.sockets().stats(), (ROUNDS * PACKETS) as u64);
    assert!(sent.datagrams_sent >= packets && sent.datagrams_received >= packets);
    (sent, [server.sockets().batching(), client.sockets().batching()])
}

#[test]
fn echoes_arrive_in_order_with_every_batch_mode() {
    let max = sockets(Batching::Segments).batching();
    let kinds = [Batching::Off, Batching::Messages, Batching::Segments];
    let has = |kind: &&Batching| **kind <= max;
    for of_server in kinds.iter().filter(has) {
        for of_client in kinds.iter().filter(has) {
            let sent = echo(*of_server, *of_client);
            if *of_server > Batching::Off {
                assert!(sent.send_calls < sent.datagrams_sent / 20, "{sent:?}");
            }
        }
    }
}

#[test]
fn packets_of_a_turn_leave_with_one_system_call() {
    const PACKETS_OF_A_TURN: usize = 8;
    if sockets(Batching::Messages).batching() == Batching::Off {
        return writeln!(std::io::stderr(), "SKIPPED, packets of a turn: this system sends no batches").unwrap();
    }
    let (clock, traffic) = (Clock::start(), Traffic::packets());
    let mut server = server(sockets(Batching::Messages), &clock).with_traffic(traffic.clone()).unwrap();
    let mut client = Client::with_sockets(sockets(Batching::Messages)).with_traffic(traffic).unwrap();
    let (mut server_inbox, mut inbox) = (Inbox::default(), slipgate_client::Inbox::default());
    client.connect(TokenOrder::new(1, &[server.sockets().local_addresses()[0]]).mint().token, clock.now()).unwrap();
    let (mut echoes, mut player) = (0, None);
    for _ in 0..100_000 {
        client.begin_turn(clock.now());
        while let Some(event) = inbox.next(&mut client) {
            echoes += usize::from(matches!(event, slipgate_client::Event::Packet { .. }));
        }
        client.end_turn();
        if echoes == PACKETS_OF_A_TURN {
            break;
        }
        server.begin_turn(clock.now());
        while let Some(event) = server_inbox.next(&mut server) {
            if let Event::Connected { client, .. } = event {
                player = Some(client);
            }
        }
        if client.state().is_connected()
            && let Some(player) = player.take()
        {
            let before = server.sockets().stats();
            for number in 0..PACKETS_OF_A_TURN {
                server.client(player).unwrap().send_packet(&[number as u8]).unwrap();
            }
            server.end_turn();
            let after = server.sockets().stats();
            assert_eq!(after.datagrams_sent - before.datagrams_sent, PACKETS_OF_A_TURN as u64);
            assert_eq!(after.send_calls - before.send_calls, 1);
        } else {
            server.end_turn();
        }
    }
    assert_eq!(echoes, PACKETS_OF_A_TURN);
}

/// The warnings in the log of a thread: their fields, by name.
#[cfg(target_os = "linux")]
#[derive(Clone, Default)]
struct Warnings(std::sync::Arc<std::sync::Mutex<Vec<std::collections::BTreeMap<&'static str, String>>>>);

#[cfg(target_os = "linux")]
impl Warnings {
    /// Returns the batch mode in each warning.
    fn of_batching(&self) -> Vec<String> {
        let warnings = self.0.lock().unwrap();
        warnings.iter().filter_map(|warning| warning.get("batching").cloned()).collect()
    }
}

#[cfg(target_os = "linux")]
impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = std::collections::BTreeMap::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            fields.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
        });
        self.0.lock().unwrap().push(fields);
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// A warning reports only the refusal of a requested mode.
#[cfg(target_os = "linux")]
#[test]
fn accepted_or_unrequested_batching_logs_nothing() {
    for batching in [Batching::Segments, Batching::Off] {
        let batching = batching.min(sockets(Batching::Segments).batching());
        let warnings = Warnings::default();
        tracing::subscriber::with_default(warnings.clone(), || play(batching, batching));
        assert_eq!(warnings.of_batching(), Vec::<String>::new(), "{batching:?}");
    }
}

/// A sandbox, as of a container, may refuse the calls that carry many datagrams, with ENOSYS or EPERM. Both ends run in
/// a thread with such a sandbox.
#[cfg(target_os = "linux")]
#[test]
fn sandbox_without_batching_falls_back_to_single_datagrams() {
    use nix::libc::{ENOSYS, EPERM, SYS_recvmmsg, SYS_sendmmsg};

    let max = sockets(Batching::Segments).batching();
    for refused in [&[SYS_recvmmsg][..], &[SYS_sendmmsg], &[SYS_recvmmsg, SYS_sendmmsg]] {
        for error in [ENOSYS, EPERM] {
            let warnings = Warnings::default();
            let playing = warnings.clone();
            let play = || tracing::subscriber::with_default(playing, || play(Batching::Segments, Batching::Segments));
            let sandboxed = move || sandbox(refused, error).map(|()| play());
            match std::thread::spawn(sandboxed).join().unwrap() {
                Ok((stats, batching)) => {
                    assert_eq!(batching, [Batching::Off; 2], "{refused:?}, {error}");
                    assert_eq!(warnings.of_batching(), [Batching::Off.name()], "{refused:?}, {error}: reported once");
                    let lost = slipgate_server::sockets::SocketErrorKind::ALL.map(|kind| stats.errors(kind));
                    assert_eq!(lost, [0; 7], "a refused batch is not an error, because nothing was lost: {error}");
                }
                // stderr, because libtest hides the standard output of passing tests.
                Err(reason) => writeln!(std::io::stderr(), "SKIPPED, a sandbox: no seccomp: {reason}").unwrap(),
            }
        }
    }
    assert_eq!(sockets(Batching::Segments).batching(), max, "other threads have no sandbox");
}

/// A sandbox refuses batches that worked before with EPERM, as a full flow table does. It ends when the sockets leave
/// its thread.
#[cfg(target_os = "linux")]
#[test]
fn temporarily_refused_batches_lose_nothing_and_resume() {
    use nix::libc::{EINVAL, EPERM, SYS_recvmmsg, SYS_sendmmsg};
    use slipgate_udp::{BATCH_SIZE, ReceiveBatch, SendBatch};

    /// Sends a full batch around; returns the numbers of send and receive calls.
    fn around([one, other]: &mut [Sockets; 2]) -> [u64; 2] {
        let before = [one.stats().send_calls, other.stats().receive_calls];
        let (mut leaving, mut arrived, mut count) = (SendBatch::default(), ReceiveBatch::default(), 0);
        for _ in 0..BATCH_SIZE {
            slipgate_netcode::Outbox::next_buf(&mut leaving).unwrap();
            slipgate_netcode::Outbox::commit(&mut leaving, other.local_addresses()[0].into(), 100);
        }
        one.send(&mut leaving);
        while count < BATCH_SIZE {
            other.wait(Duration::from_secs(5)).unwrap();
            other.receive(&mut arrived);
            assert!(!arrived.is_empty(), "{count} arrived");
            count += arrived.len();
        }
        [one.stats().send_calls - before[0], other.stats().receive_calls - before[1]]
    }

    for refused in [&[SYS_recvmmsg][..], &[SYS_sendmmsg], &[SYS_recvmmsg, SYS_sendmmsg]] {
        for error in [EPERM, EINVAL] {
            let mut pair = [sockets(Batching::Messages), sockets(Batching::Messages)];
            assert_eq!(around(&mut pair), [1, 2]);
            let sandboxed = move || sandbox(refused, error).map(|()| (around(&mut pair), pair));
            match std::thread::spawn(sandboxed).join().unwrap() {
                Ok((calls, mut pair)) => {
                    assert!(calls.into_iter().sum::<u64>() > BATCH_SIZE as u64, "the calls were refused: {calls:?}");
                    assert_eq!(pair.each_ref().map(Sockets::batching), [Batching::Messages; 2], "{refused:?}, {error}");
                    assert_eq!(around(&mut pair), [1, 2], "{refused:?}, {error}");
                }
                // stderr, because libtest hides the standard output of passing tests.
                Err(reason) => writeln!(std::io::stderr(), "SKIPPED, a sandbox: no seccomp: {reason}").unwrap(),
            }
        }
    }
}

/// Makes the kernel refuse some system calls of this thread with an error.
#[cfg(target_os = "linux")]
fn sandbox(refused: &[i64], error: i32) -> Result<(), String> {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

    let calls = refused.iter().map(|call| (*call, Vec::new())).collect();
    let arch = std::env::consts::ARCH.try_into().map_err(|error| format!("{error}"))?;
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, SeccompAction::Errno(error as u32), arch);
    let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(|error| error.to_string())?;
    seccompiler::apply_filter(&program).map_err(|error| error.to_string())
}

/// A thread with its own network, in which every path has an MTU of 1,000 bytes.
#[cfg(target_os = "linux")]
#[test]
fn packets_over_the_path_mtu_arrive_fragmented() {
    use std::process::Command;

    use slipgate_server::sockets::SocketErrorKind;

    let narrow = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).map_err(|error| error.to_string())?;
        let made = Command::new("ip").args(["link", "set", "lo", "up", "mtu", "1000"]).status();
        if !made.is_ok_and(|status| status.success()) {
            return Err("`ip link` does not work".to_owned());
        }
        Ok([Batching::Off, Batching::Messages, Batching::Segments].map(|kind| echo(kind, Batching::Segments)))
    };
    match std::thread::spawn(narrow).join().unwrap() {
        Ok(sent) => sent.iter().for_each(|stats| assert_eq!(stats.errors(SocketErrorKind::TooLarge), 0, "{stats:?}")),
        // stderr, because libtest hides the standard output of passing tests.
        Err(reason) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED, a narrow path: no network namespace: {reason}");
        }
    }
}

#[test]
fn full_read_budget_leaves_the_rest_for_the_next_turn() {
    reads_a_batch_a_turn(|server| server.set_read_limits(ReadLimits { max_packets: 64, ..ReadLimits::default() }));
    // A batch is read even without any time budget.
    reads_a_batch_a_turn(|server| {
        server.set_read_limits(ReadLimits { max_time: Duration::ZERO, ..ReadLimits::default() })
    });
}

fn reads_a_batch_a_turn(limit: impl FnOnce(&mut Server)) {
    let clock = Clock::start();
    let mut server = server(sockets(Batching::Segments), &clock);
    // The filter drops datagrams that no server accepts.
    if server.sockets().filter().is_some() {
        server.set_kernel_filter(false).unwrap();
    }
    limit(&mut server);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..100 {
        sender.send_to(&[], server.sockets().local_addresses()[0]).unwrap();
    }
    let mut inbox = Inbox::default();
    for expected in [64, 100, 100] {
        server.begin_turn(clock.now());
        while inbox.next(&mut server).is_some() {}
        server.end_turn();
        assert_eq!(server.discards()[Discard::Empty], expected);
    }
    assert_eq!(server.totals().turns_cut_short, 1);
}

#[test]
fn turn_without_wait_reads_all_queued_datagrams() {
    let clock = Clock::start();
    let mut server = server(sockets(Batching::Segments), &clock);
    if server.sockets().filter().is_some() {
        server.set_kernel_filter(false).unwrap();
    }
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut inbox = Inbox::default();
    for turn in 1..=5 {
        sender.send_to(&[], server.sockets().local_addresses()[0]).unwrap();
        server.begin_turn(clock.now());
        while inbox.next(&mut server).is_some() {}
        server.end_turn();
        assert_eq!(server.discards()[Discard::Empty], turn);
    }
}
