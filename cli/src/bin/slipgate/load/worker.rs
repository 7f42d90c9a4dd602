//! A thread with a share of the clients: it waits for their sockets and their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};
use slipgate_netcode::time::Instant;

use super::client::{LoadClient, LoadOutbox};
use super::plan::LoadPlan;
use super::report::{PartReport, SharedReport};
use super::tokens::NumberedToken;

/// The longest wait, which bounds the delay of new tokens and of the end.
const MAX_WAIT: Duration = Duration::from_millis(10);
/// The number of sockets that one wait reports at most.
const MAX_EVENTS: usize = 1024;
/// The time between two turns of a client that has no other time.
const IDLE_TURN: Duration = Duration::from_millis(100);

/// The clients that disconnect at once, and the pause behind them. Without it the disconnect packets of thousands of
/// clients overflow the receive buffer of the server, which then waits for their time-outs.
const CLIENTS_AT_ONCE: usize = 16;
const END_PAUSE: Duration = Duration::from_millis(2);

/// The clients of one thread.
pub(super) struct LoadWorker {
    plan: LoadPlan,
    tokens: Receiver<NumberedToken>,
    stop: Arc<AtomicBool>,
    poll: Poll,
    clients: Vec<LoadClient>,
    /// The times of the clients. Each client has exactly one entry.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    outbox: LoadOutbox,
    report: PartReport,
}

impl LoadWorker {
    /// Creates a thread's share without clients.
    ///
    /// # Errors
    /// The system has no event queue.
    pub(super) fn new(
        plan: LoadPlan,
        tokens: Receiver<NumberedToken>,
        shared: Arc<SharedReport>,
        stop: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        Ok(Self {
            plan,
            tokens,
            stop,
            poll: Poll::new()?,
            clients: Vec::new(),
            due: BinaryHeap::new(),
            outbox: LoadOutbox::new(),
            report: PartReport::new(shared),
        })
    }

    /// Runs until the load is stopped. Returns the counters.
    ///
    /// # Errors
    /// The system cannot wait.
    pub(super) fn run(mut self) -> io::Result<PartReport> {
        let mut events = Events::with_capacity(MAX_EVENTS);
        while !self.stop.load(Ordering::Relaxed) {
            self.begin_clients();
            let now = self.plan.clock.monotonic();
            let wait = self.due.peek().map_or(MAX_WAIT, |Reverse((due, _))| due.since(now)).min(MAX_WAIT);
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let now = self.plan.clock.monotonic();
            for event in &events {
                self.receive(event.token().0, now);
            }
            self.run_due();
        }
        let now = self.plan.clock.monotonic();
        for batch in self.clients.chunks_mut(CLIENTS_AT_ONCE) {
            batch.iter_mut().for_each(|client| client.stop(now, &mut self.outbox));
            thread::sleep(END_PAUSE);
        }
        Ok(self.report)
    }

    /// Begins to connect the clients with new tokens.
    fn begin_clients(&mut self) {
        while let Ok(NumberedToken { number, token }) = self.tokens.try_recv() {
            let now = self.plan.clock.monotonic();
            let mark = self.plan.first_client_id.wrapping_add(number.into());
            let index = self.clients.len();
            let started = LoadClient::begin(mark, token, self.plan.preset, now).and_then(|mut client| {
                self.poll.registry().register(client.socket(), Token(index), Interest::READABLE)?;
                Ok(client)
            });
            match started {
                Ok(client) => {
                    self.clients.push(client);
                    self.due.push(Reverse((now, index)));
                }
                Err(error) => self.report.on_ended(&format!("cannot connect: {error}")),
            }
        }
    }

    fn receive(&mut self, index: usize, now: Instant) {
        if let Some(client) = self.clients.get_mut(index) {
            client.receive(now, &mut self.report);
            let turn = self.plan.turn(now);
            client.turn(&turn, &mut self.outbox, &mut self.report);
        }
    }

    /// Runs the clients that are due, and plans their next time.
    fn run_due(&mut self) {
        let now = self.plan.clock.monotonic();
        while let Some(Reverse((due, index))) = self.due.peek().copied() {
            if due > now {
                break;
            }
            self.due.pop();
            let Some(client) = self.clients.get_mut(index) else { continue };
            let turn = self.plan.turn(self.plan.clock.monotonic());
            // Edge-triggered sockets report only new datagrams: those behind a full read are taken here.
            client.receive(turn.now, &mut self.report);
            client.turn(&turn, &mut self.outbox, &mut self.report);
            if !client.has_ended() {
                let next = client.next_due(turn.sends).unwrap_or(now).max(now.after(Duration::from_micros(100)));
                self.due.push(Reverse((next.min(now.after(IDLE_TURN)), index)));
            }
        }
    }
}
