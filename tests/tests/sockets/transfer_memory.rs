//! The memory of large transfers returns to the system.

use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use slipgate_server::transfer::{Transfer, TransferAdmission, TransferConfig};
use slipgate_server::{ChannelConfig, ChannelId, Kind, Layout, Traffic};
use slipgate_tests::live::{DEADLINE, Turn, until};

use super::channels_live::{Guest, Host};

/// Set in the process that receives the transfers.
const IS_RECEIVER: &str = "SLIPGATE_TEST_TRANSFER_MEMORY";
const TRANSFERS: ChannelId = ChannelId(0);
const CLIENTS: usize = 5;
const BYTES: usize = 39 << 20;
const MIB: usize = 1 << 20;
/// The memory that may be kept, in MiB.
const MAX_KEPT: usize = 16;

/// Returns the memory of this process that is in the machine's memory, in bytes.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn memory_of_large_transfers_returns_to_the_system() {
    if env::var_os(IS_RECEIVER).is_some() {
        return receive();
    }
    // A process of its own: other tests of this one allocate at the same time.
    let name = "transfer_memory::memory_of_large_transfers_returns_to_the_system";
    let mut child = Command::new(env::current_exe().unwrap());
    let output = child.args(["--exact", name, "--nocapture"]).env(IS_RECEIVER, "1").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    println!("{}", String::from_utf8_lossy(&text));
    assert!(output.status.success());
}

fn receive() {
    let transfers = TransferConfig { admission: TransferAdmission::Automatic, ..TransferConfig::default() };
    let channel = ChannelConfig { transfers, ..ChannelConfig::from(Kind::Transfers) };
    let traffic = Traffic::channels(Layout::try_from(vec![channel]).unwrap());
    let mut host = Host::with_slots(8, traffic.clone());
    let mut guests: Vec<Guest> = (0..CLIENTS).map(|_| Guest::connect(&host, traffic.clone())).collect();
    for guest in &mut guests {
        until(&mut (&mut host, guest), "a connection", |(_, guest)| guest.client.state().is_connected());
    }
    // All send the same bytes, which are counted before.
    let content = Transfer::new(vec![7; BYTES]).unwrap();
    let before = resident();
    for guest in &mut guests {
        guest.client.send_transfer(TRANSFERS, content.clone(), 0).unwrap();
    }
    let (start, mut max) = (Instant::now(), 0);
    while host.log.received.len() < CLIENTS {
        host.turn();
        guests.iter_mut().for_each(Turn::turn);
        max = max.max(resident());
        assert!(start.elapsed() < Duration::from_secs(200), "{}", host.describe());
    }
    let took = start.elapsed();
    let end = Instant::now();
    // The memory is looked at once per second.
    let kept = || resident().saturating_sub(before) / MIB;
    while kept() > MAX_KEPT && end.elapsed() < DEADLINE {
        host.turn();
        guests.iter_mut().for_each(Turn::turn);
        thread::sleep(Duration::from_millis(1));
    }
    let kept = kept();
    println!("{} MiB at most, {kept} MiB are kept; the transfers took {took:?}", (max - before) / MIB);
    assert!(max - before > 100 * MIB, "the transfers took memory");
    assert!(kept <= MAX_KEPT, "{kept} MiB are kept");
    assert_eq!(host.log.refused, []);
}
