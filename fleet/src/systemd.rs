//! systemd: units of `Type=notify`, and their watchdog. It does nothing without the variable `NOTIFY_SOCKET`, which
//! systemd sets.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tracing::warn;

use crate::driver::Driver;
use crate::life_cycle::LifeState;
use crate::population::Population;

/// The time between two looks at the state; a new state ends the wait.
const IDLE: Duration = Duration::from_secs(60);

/// Reports the life to systemd. Where the unit has a watchdog, it reports that turns advance.
pub(crate) struct SystemdDriver {
    population: Arc<Population>,
    /// The time in which systemd expects a sign of life; `None` without a watchdog.
    watchdog: Option<Duration>,
    reported: LifeState,
}

impl SystemdDriver {
    pub(crate) fn new(population: Arc<Population>) -> Self {
        Self { population, watchdog: sd_notify::watchdog_enabled(), reported: LifeState::Starting }
    }

    /// Sends one message. The server runs on if systemd does not take it.
    fn notify(states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states) {
            warn!(%error, "systemd cannot be notified");
        }
    }
}

impl Driver for SystemdDriver {
    fn run(&mut self, state: LifeState) -> Option<Duration> {
        if self.reported == LifeState::Starting && state > LifeState::Starting {
            Self::notify(&[NotifyState::Ready, NotifyState::Status("serving")]);
        }
        if self.reported < LifeState::Draining && state >= LifeState::Draining {
            Self::notify(&[NotifyState::Stopping, NotifyState::Status("draining")]);
        }
        self.reported = state;
        if state == LifeState::Ended {
            return None;
        }
        let Some(watchdog) = self.watchdog else { return Some(IDLE) };
        // systemd expects them from READY=1 on, and the first message shall be that one.
        if state > LifeState::Starting && self.population.is_healthy() {
            Self::notify(&[NotifyState::Watchdog]);
        }
        // systemd.service(5) advises half of the time.
        Some(watchdog / 2)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]

    use std::io::{ErrorKind, Write};
    use std::os::unix::net::UnixDatagram;
    use std::process::{Command, Stdio};
    use std::thread;
    use std::time::Instant;

    use crate::{Fleet, FleetConfig, LifeState};

    use super::*;

    /// The longest time until something must have happened.
    const MAX_WAIT: Duration = Duration::from_secs(60);
    /// The silence after which no more signs of life are expected. They are due each 0.1 s.
    const SILENCE: Duration = Duration::from_secs(2);

    /// Reads a line of the standard input, in which the test says that the next step is due.
    fn wait_for_the_test() {
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }

    /// Advances turns until the test has seen them, lets them stand still until it says so, and ends.
    fn run_child() {
        let fleet = Fleet::start(FleetConfig { slots: 8, systemd: true, ..FleetConfig::default() }).unwrap();
        let shard = fleet.population.add_shard();
        shard.on_turn();
        fleet.life_cycle().advance(LifeState::Ready);
        let seen = thread::spawn(wait_for_the_test);
        while !seen.is_finished() {
            shard.on_turn();
            thread::sleep(Duration::from_millis(10));
        }
        wait_for_the_test();
        drop(fleet);
    }

    /// systemd's variables belong to a process, so the driver runs in a child of this test.
    #[test]
    fn watchdog_is_not_fed_while_turns_stand_still() {
        const CHILD: &str = "SLIPGATE_WATCHDOG_CHILD";
        if std::env::var_os(CHILD).is_some() {
            return run_child();
        }
        let path = std::env::temp_dir().join(format!("slipgate-watchdog-{}", std::process::id()));
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(MAX_WAIT)).unwrap();
        let name = "systemd::tests::watchdog_is_not_fed_while_turns_stand_still";
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([name, "--exact"]).env(CHILD, "1").env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut steps = child.stdin.take().unwrap();
        let receive = || {
            let mut buf = [0; 256];
            loop {
                match socket.recv(&mut buf) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    received => break received.map(|length| String::from_utf8_lossy(&buf[..length]).into_owned()),
                }
            }
        };
        assert_eq!(receive().unwrap(), "READY=1\nSTATUS=serving\n");
        for _ in 0..5 {
            assert_eq!(receive().unwrap(), "WATCHDOG=1\n");
        }
        // The turns stand still from now on. A gap of 3 s counts as healthy.
        steps.write_all(b"\n").unwrap();
        let (stalled, mut beats) = (Instant::now(), 0);
        socket.set_read_timeout(Some(SILENCE)).unwrap();
        while let Ok(message) = receive() {
            assert_eq!(message, "WATCHDOG=1\n");
            beats += 1;
            assert!(stalled.elapsed() < MAX_WAIT, "{beats} signs of life since the turns stand still");
        }
        println!("{beats} signs of life after the last turn, in {:?}", stalled.elapsed());
        socket.set_read_timeout(Some(MAX_WAIT)).unwrap();
        steps.write_all(b"\n").unwrap();
        assert_eq!(receive().unwrap(), "STOPPING=1\nSTATUS=draining\n");
        assert!(child.wait().unwrap().success());
        std::fs::remove_file(&path).unwrap();
    }
}
