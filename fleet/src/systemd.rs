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

    use std::os::unix::net::UnixDatagram;
    use std::process::Command;
    use std::thread;
    use std::time::Instant;

    use crate::{Fleet, FleetConfig, LifeState};

    use super::*;

    /// The time for which the child's turns advance.
    const TURNS: Duration = Duration::from_secs(1);
    /// The time for which they stand still then.
    const STALL: Duration = Duration::from_secs(6);

    /// Advances turns, stops them, and ends.
    fn run_child() {
        let fleet = Fleet::start(FleetConfig { slots: 8, systemd: true, ..FleetConfig::default() }).unwrap();
        let shard = fleet.population.add_shard();
        shard.on_turn();
        fleet.life_cycle().advance(LifeState::Ready);
        let start = Instant::now();
        while start.elapsed() < TURNS {
            shard.on_turn();
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(STALL);
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
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let name = "systemd::tests::watchdog_is_not_fed_while_turns_stand_still";
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([name, "--exact"]).env(CHILD, "1").env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
        let mut child = child.stdout(std::process::Stdio::null()).spawn().unwrap();
        let (mut beats, mut last, mut ready) = (0, None, None);
        loop {
            let mut buf = [0; 256];
            let length = socket.recv(&mut buf).unwrap();
            match &buf[..length] {
                b"READY=1\nSTATUS=serving\n" => ready = Some(Instant::now()),
                b"WATCHDOG=1\n" => (beats, last) = (beats + 1, ready.map(|ready| ready.elapsed())),
                b"STOPPING=1\nSTATUS=draining\n" => break,
                other => panic!("{:?}", String::from_utf8_lossy(other)),
            }
        }
        let (fed, ended) = (last.unwrap(), ready.unwrap().elapsed());
        assert!(child.wait().unwrap().success());
        std::fs::remove_file(&path).unwrap();
        println!("{beats} signs of life in {fed:?} of {ended:?}");
        assert!(beats >= 5, "{beats}");
        // A gap of 3 s counts as healthy, so that the last sign comes within 4 s and the stall lasts 2 s longer.
        assert!(fed < Duration::from_millis(4500) && ended > fed + Duration::from_secs(2), "{fed:?} of {ended:?}");
    }
}
