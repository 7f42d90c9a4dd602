//! The simulation of a scenario: events in the order of virtual time.
//!
//! It moves packets between [`Sender`] and [`Receiver`] and records them; [`crate::measure`] evaluates the record.

use core::cmp::{Ordering, Reverse};
use core::time::Duration;
use std::collections::BinaryHeap;

use slipgate_netcode::time::Instant;
use slipgate_session::congestion::CongestionState;
use slipgate_sim::Random;

use crate::link::PathSimulation;
use crate::log::{FlowLog, Log, QueueWait};
use crate::packet::LabPacket;
use crate::report::{Receiver, Report, ReportPolicy};
use crate::scenario::{Flow, FlowController, Scenario, SocketPolling};
use crate::sender::Sender;
use crate::source::Application;
use crate::trace::Trace;

/// TCP acknowledges every second packet, and a single one after 40 ms (RFC 9293, section 3.8.6.3).
const TCP_ACK_POLICY: ReportPolicy = ReportPolicy { every: Duration::from_millis(40), packets: 2 };
/// The maximum time between two wakeups of a sender.
const HEARTBEAT: Duration = Duration::from_millis(16);

/// An event.
#[derive(Clone, Copy, Debug)]
enum Event {
    Wake(usize),
    Arrival(LabPacket),
    ReportTimer(usize),
    /// A receiver that reads once a frame has read all waiting packets.
    BatchRead(usize),
    ReportArrival(usize, Report),
    PathChange,
}

#[derive(Debug)]
struct Scheduled {
    at: Instant,
    order: u64,
    event: Event,
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

struct FlowEnds {
    flow: Flow,
    polling: SocketPolling,
    /// The phases of the frames of both ends: frames begin at these times after whole multiples of their length.
    phases: [Duration; 2],
    sender: Sender,
    receiver: Receiver,
    wakes_at: Option<Instant>,
    batch_read_at: Option<Instant>,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The log of the run.
    pub log: Log,
    /// The fingerprint of all events.
    pub trace: Trace,
}

/// A running simulation.
pub struct Simulation<'a> {
    scenario: &'a Scenario,
    now: Instant,
    events: BinaryHeap<Reverse<Scheduled>>,
    order: u64,
    link: PathSimulation,
    ends: Vec<FlowEnds>,
    log: Log,
    trace: Trace,
}

impl<'a> Simulation<'a> {
    /// Creates the simulation of a scenario and a seed. `congestion` creates the congestion control of each flow.
    #[must_use]
    pub fn new(scenario: &'a Scenario, seed: u64, congestion: impl Fn(&Flow) -> CongestionState) -> Self {
        let mut phases = Random::new(seed, 1);
        let ends = scenario.flows.iter().map(|flow| ends(scenario, flow, &mut phases, congestion(flow))).collect();
        let mut world = Self {
            scenario,
            now: Instant::default(),
            events: BinaryHeap::new(),
            order: 0,
            link: PathSimulation::new(&scenario.path, scenario.duration, seed),
            ends,
            log: Log { flows: vec![FlowLog::default(); scenario.flows.len()], ..Log::default() },
            trace: Trace::default(),
        };
        world.schedule_starts(&mut phases);
        world
    }

    fn schedule_starts(&mut self, phases: &mut Random) {
        for (index, flow) in self.scenario.flows.iter().enumerate() {
            // The flows start at different times, which depend on the seed.
            let start = flow.start + phases.duration_between(Duration::ZERO, Duration::from_millis(30));
            let start = Instant::from_start(start);
            self.schedule(start, Event::Wake(index));
            self.schedule(start, Event::ReportTimer(index));
            if let Some(ends) = self.ends.get_mut(index) {
                ends.wakes_at = Some(start);
            }
        }
        self.schedule_path_change();
    }

    /// Runs the simulation to its end.
    #[must_use]
    pub fn play(mut self) -> Outcome {
        let end = Instant::from_start(self.scenario.duration);
        loop {
            let departure = self.link.next_departure();
            let event = self.events.peek().map(|Reverse(next)| next.at);
            let Some(next) = [departure, event].into_iter().flatten().min().filter(|next| *next < end) else { break };
            self.now = next;
            if departure.is_some_and(|departure| departure <= next) {
                self.depart();
            } else if let Some(Reverse(scheduled)) = self.events.pop() {
                self.process(scheduled.event);
            }
        }
        self.log.capacity = self.link.capacity(end);
        Outcome { log: self.log, trace: self.trace }
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.order += 1;
        self.events.push(Reverse(Scheduled { at, order: self.order, event }));
    }

    fn process(&mut self, event: Event) {
        match event {
            Event::Wake(flow) => self.wake(flow),
            Event::Arrival(packet) => self.arrive(packet),
            Event::ReportTimer(flow) => self.report_by_timer(flow),
            Event::BatchRead(flow) => self.batch_read(flow),
            Event::ReportArrival(flow, report) => self.report_arrives(flow, &report),
            Event::PathChange => {
                self.link.change(self.now);
                self.schedule_path_change();
            }
        }
    }

    fn schedule_path_change(&mut self) {
        if let Some(at) = self.link.next_change() {
            self.schedule(at, Event::PathChange);
        }
    }

    /// Wakes a sender, which sends the packets that it may.
    fn wake(&mut self, index: usize) {
        let now = self.now;
        let Some(ends) = self.ends.get_mut(index) else { return };
        if ends.wakes_at != Some(now) {
            return;
        }
        ends.wakes_at = None;
        let Some(log) = self.log.flows.get_mut(index) else { return };
        ends.sender.tick(now, |bytes| log.demanded.add(bytes, now));
        if !ends.is_off(now) {
            while let Some(outgoing) = ends.sender.next_packet(now) {
                let packet =
                    LabPacket { flow: index, sequence: outgoing.sequence, sent_at: now, bytes: outgoing.bytes };
                log.sent.add(1.0, now);
                log.sent_bytes.add(f64::from(packet.bytes), now);
                self.trace.note(1, index, packet.sequence.0, now);
                self.link.enqueue(packet, now);
            }
        }
        let next = ends.next_wake(now);
        self.wake_at(index, next);
        self.record_drops();
    }

    fn wake_at(&mut self, index: usize, at: Instant) {
        let Some(ends) = self.ends.get_mut(index) else { return };
        if ends.wakes_at.is_none_or(|planned| at < planned) {
            ends.wakes_at = Some(at);
            self.schedule(at, Event::Wake(index));
        }
    }

    fn record_drops(&mut self) {
        let now = self.now;
        for packet in self.link.drain_dropped() {
            self.trace.note(2, packet.flow, packet.sequence.0, now);
            if let Some(log) = self.log.flows.get_mut(packet.flow) {
                log.dropped.add(1.0, now);
            }
        }
    }

    /// Moves a packet from the bottleneck towards the receiver.
    fn depart(&mut self) {
        let now = self.now;
        let Some(passed) = self.link.depart(now) else { return };
        self.record_drops();
        let packet = passed.packet;
        if let Some(log) = self.log.flows.get_mut(packet.flow) {
            let left_at = now.since_start().as_secs_f32();
            log.waits.push(QueueWait { left_at, waited: passed.waited.as_secs_f32(), bytes: packet.bytes });
        }
        let Some(arrives_at) = self.link.forward(now) else {
            if let Some(log) = self.log.flows.get_mut(packet.flow) {
                log.lost.add(f64::from(packet.bytes), now);
            }
            return;
        };
        let Some(ends) = self.ends.get(packet.flow) else { return };
        let read_at = ends.read_at(arrives_at, 1);
        self.schedule(read_at, Event::Arrival(packet));
    }

    fn arrive(&mut self, packet: LabPacket) {
        let now = self.now;
        self.trace.note(3, packet.flow, packet.sequence.0, now);
        let Some(ends) = self.ends.get_mut(packet.flow) else { return };
        if let Some(log) = self.log.flows.get_mut(packet.flow) {
            log.arrived.add(f64::from(packet.bytes), now);
        }
        let socket_delay = ends.polling.read_intervals().map_or(Duration::ZERO, |[_, receiver]| receiver);
        let due = ends.receiver.receive(packet.sequence, packet.sent_at, socket_delay, now);
        if ends.polling.read_intervals().is_none() {
            if due {
                self.report(packet.flow);
            }
        } else if ends.batch_read_at != Some(now) {
            ends.batch_read_at = Some(now);
            self.schedule(now, Event::BatchRead(packet.flow));
        }
    }

    fn batch_read(&mut self, index: usize) {
        if self.ends.get(index).is_some_and(|ends| ends.receiver.is_due()) {
            self.report(index);
        }
    }

    fn report_by_timer(&mut self, index: usize) {
        self.report(index);
        let Some(ends) = self.ends.get(index) else { return };
        let next = self.now.after(ends.receiver.interval());
        self.schedule(next, Event::ReportTimer(index));
    }

    fn report(&mut self, index: usize) {
        let now = self.now;
        let Some(ends) = self.ends.get_mut(index) else { return };
        let Some(report) = ends.receiver.report(now) else { return };
        self.trace.note(4, index, report.newest.0, now);
        let Some(arrives_at) = self.link.back(now) else { return };
        let read_at = ends.read_at(arrives_at, 0);
        self.schedule(read_at, Event::ReportArrival(index, report));
    }

    fn report_arrives(&mut self, index: usize, report: &Report) {
        let now = self.now;
        self.trace.note(5, index, report.newest.0, now);
        let Some(ends) = self.ends.get_mut(index) else { return };
        ends.sender.on_report(report, now);
        if !matches!(ends.polling, SocketPolling::PerFrame(_)) {
            self.wake_at(index, now);
        }
    }
}

fn ends(scenario: &Scenario, flow: &Flow, phases: &mut Random, congestion: CongestionState) -> FlowEnds {
    let (receiver, polling) = match flow.controller {
        FlowController::Measured if scenario.false_delays => {
            (Receiver::with_false_delays(scenario.ack_policy), scenario.polling)
        }
        FlowController::Measured => (Receiver::new(scenario.ack_policy), scenario.polling),
        FlowController::Cubic | FlowController::Bbr | FlowController::Constant { .. } => {
            (Receiver::new(TCP_ACK_POLICY), SocketPolling::Prompt)
        }
    };
    let frames = polling.read_intervals().unwrap_or_default();
    FlowEnds {
        flow: *flow,
        polling,
        phases: frames.map(|frame| phases.duration_between(Duration::ZERO, frame)),
        sender: Sender::new(congestion, Application::new(flow.source, Instant::from_start(flow.start))),
        receiver,
        wakes_at: None,
        batch_read_at: None,
    }
}

impl FlowEnds {
    /// Returns when a packet that arrives at an end (0: the sender's, 1: the receiver's) is read.
    fn read_at(&self, arrives_at: Instant, end: usize) -> Instant {
        let Some(frame) = self.polling.read_intervals().and_then(|frames| frames.get(end).copied()) else {
            return arrives_at;
        };
        let phase = self.phases.get(end).copied().unwrap_or_default();
        next_frame(arrives_at, frame, phase)
    }

    fn next_wake(&self, now: Instant) -> Instant {
        if let SocketPolling::PerFrame([frame, _]) = self.polling {
            let [phase, _] = self.phases;
            return next_frame(now.after(Duration::from_nanos(1)), frame, phase);
        }
        let heartbeat = now.after(HEARTBEAT);
        if self.is_off(now) {
            return heartbeat;
        }
        let candidates = [self.sender.next_departure(now), self.sender.application.next_tick()];
        let next = candidates.into_iter().flatten().fold(heartbeat, Instant::min);
        // Time always advances, even if the sender requests otherwise.
        next.max(now.after(Duration::from_nanos(1)))
    }

    /// Returns whether a constant flow is in a pause.
    fn is_off(&self, now: Instant) -> bool {
        let FlowController::Constant { period, .. } = self.flow.controller else { return false };
        let running = now.since(Instant::from_start(self.flow.start));
        (running.as_nanos() / period.as_nanos()) % 2 == 1
    }
}

/// Returns the first moment from `at` on at which a frame begins.
fn next_frame(at: Instant, frame: Duration, phase: Duration) -> Instant {
    let (at, frame, phase) = (at.since_start().as_nanos(), frame.as_nanos(), phase.as_nanos());
    let frames = at.saturating_sub(phase).div_ceil(frame);
    Instant::from_start(Duration::from_nanos((frames * frame + phase) as u64))
}

#[cfg(test)]
mod tests;
