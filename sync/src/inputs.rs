//! Inputs of players: redundant messages of a client, and the server's buffer of them (§6.7).

use crate::bits::{BitReader, BitWriter};
use crate::read_error::StateReadError;
use crate::resync::ResyncRequest;

/// The most inputs of a message: as long as the server has confirmed none of them, the newest 32.
pub const MAX_INPUTS: usize = 32;
/// The longest message of inputs, in bytes: tick, count, 32 inputs of 33 bits but for the flag of the newest one, the
/// tick that was shown, a request, an epoch, and the inputs of the same frame.
pub const MAX_INPUT_BYTES: usize = (16 + 5 + MAX_INPUTS * 33_usize - 1 + 3 + 16 + 4 + 5 + 5).div_ceil(8);
/// The ticks that a server keeps: more than an input may be behind and ahead, so that none takes another one's place.
const KEPT_TICKS: usize = 128;
/// The ticks by which an input may be ahead of the server, and behind it to count for the report.
const MAX_AHEAD: f64 = 48.0;
const MAX_BEHIND: f64 = MAX_INPUTS as f64;
/// Quarters of a tick, in which margins are reported.
const QUARTERS: f64 = 4.0;
/// The parts of a tick in which a client says how far behind its newest input it shows the world, with 16 bits.
const SHOWN_PARTS: f64 = 64.0;
/// The number of epochs, after which they start again at 0. The half after the present one is later than it.
pub(crate) const EPOCHS: u8 = 16;
/// The ticks without a message of the present epoch after which a message of any other one is taken.
const MAX_SILENCE: f64 = 64.0;
/// The inputs of which the server knows what the client showed.
const KEPT_VIEWS: usize = 64;

/// The keys of a player during a tick, one bit each.
pub type Keys = u32;

/// The inputs of a client, until the server has confirmed them.
///
/// # Examples
///
/// ```
/// use slipgate_sync::{InputBuffer, InputLog, MAX_INPUT_BYTES};
///
/// let (mut log, mut buffer) = (InputLog::new(), InputBuffer::new(0));
/// let mut buf = [0; MAX_INPUT_BYTES];
/// for tick in 100..105 {
///     // The player saw the world as it was ten ticks before.
///     log.push(tick, tick % 2, Some(f64::from(tick) - 10.0));
///     let length = log.write(None, &mut buf);
///     // Only the last message arrives, and brings all five inputs.
///     if tick == 104 {
///         buffer.read(&buf[..length], 100.25)?;
///     }
/// }
/// assert_eq!((100..105).map(|tick| buffer.keys(tick).keys).collect::<Vec<_>>(), [0, 1, 0, 1, 0]);
/// assert_eq!(buffer.shown(104), 94.0);
/// log.on_confirmed(104);
/// assert_eq!(log.write(None, &mut buf), 9, "nothing older than the newest one");
/// # Ok::<(), slipgate_sync::StateReadError>(())
/// ```
#[derive(Clone, Debug)]
pub struct InputLog {
    inputs: [LoggedInput; MAX_INPUTS],
    newest: Option<u32>,
    /// The newest tick that the server has confirmed.
    confirmed: Option<u32>,
    /// How many inputs without a gap there are.
    count: usize,
    /// How often an earlier tick got another input, modulo 16.
    epoch: u8,
}

/// An input of a tick, and the tick that the client showed when it was made.
#[derive(Clone, Copy, Debug)]
struct LoggedInput {
    keys: Keys,
    shown: Option<f64>,
}

impl Default for InputLog {
    fn default() -> Self {
        Self::new()
    }
}

impl InputLog {
    /// Returns a log without inputs.
    #[must_use]
    pub const fn new() -> Self {
        let none = LoggedInput { keys: 0, shown: None };
        Self { inputs: [none; MAX_INPUTS], newest: None, confirmed: None, count: 0, epoch: 0 }
    }

    /// Adds the keys of a tick. `shown` is the tick that the client showed when the player pressed them, with its
    /// fraction, for lag compensation: [`PlayoutClock::tick`](crate::PlayoutClock::tick) of the frame on the screen.
    ///
    /// After a gap, the inputs before it are forgotten. The newest tick again is ignored. An earlier tick, which
    /// [`InputClock`](crate::InputClock) returns after a jump back, makes it forget all inputs. It starts an epoch: the
    /// server replaces the inputs that it has of this tick and later ones.
    pub const fn push(&mut self, tick: u32, keys: Keys, shown: Option<f64>) {
        match self.newest {
            Some(newest) if tick == newest => return,
            Some(newest) if tick < newest => {
                (self.count, self.confirmed, self.epoch) = (1, None, (self.epoch + 1) % EPOCHS);
            }
            Some(newest) if tick == newest + 1 && self.count < MAX_INPUTS => self.count += 1,
            Some(newest) if tick == newest + 1 => {}
            _ => self.count = 1,
        }
        self.newest = Some(tick);
        if let Some(kept) = self.inputs.as_mut_slice().split_at_mut(tick as usize % MAX_INPUTS).1.first_mut() {
            *kept = LoggedInput { keys, shown };
        }
    }

    /// Notes that the server has all inputs up to a tick.
    pub fn on_confirmed(&mut self, tick: u32) {
        self.confirmed = self.confirmed.max(Some(tick).filter(|tick| Some(*tick) <= self.newest));
    }

    /// Notes a report of the server. Returns whether it is of the present epoch. Otherwise it confirms no input of this
    /// log, and [`InputClock::on_report`](crate::InputClock::on_report) is not to be called.
    #[must_use]
    pub fn on_report(&mut self, report: InputReport) -> bool {
        let is_present = report.epoch == self.epoch;
        // The server may have dropped the input if the margin is beyond what a report can say.
        if is_present && !report.is_beyond() {
            self.on_confirmed(report.newest);
        }
        is_present
    }

    /// Returns the keys of a tick that is still kept.
    #[must_use]
    pub fn keys(&self, tick: u32) -> Option<Keys> {
        self.input(tick).map(|input| input.keys)
    }

    fn input(&self, tick: u32) -> Option<LoggedInput> {
        let age = self.newest?.checked_sub(tick)? as usize;
        self.inputs.get(tick as usize % MAX_INPUTS).copied().filter(|_| age < self.count)
    }

    /// Writes all inputs that are not confirmed, and at least the newest one, with the tick that the client showed when
    /// it made this one. `resync` is the request of [`Replica::resync_request`](crate::Replica::resync_request).
    /// Returns the bytes of the message; 0 if there is no input, or if `buf` is shorter than [`MAX_INPUT_BYTES`].
    pub fn write(&self, resync: Option<ResyncRequest>, buf: &mut [u8]) -> usize {
        let Some(newest) = self.newest.filter(|_| buf.len() >= MAX_INPUT_BYTES) else { return 0 };
        let missing = self.confirmed.map_or(self.count, |confirmed| (newest - confirmed) as usize);
        let count = missing.clamp(1, self.count.max(1));
        let mut writer = BitWriter::new(buf);
        write_inputs(&mut writer, newest, count, |tick| self.keys(tick).unwrap_or(0));
        let shown = self.input(newest).and_then(|input| input.shown);
        let is_same_frame = |age: &u32| {
            let older = newest.checked_sub(*age).and_then(|tick| self.input(tick)?.shown);
            shown.is_some() && older.map(f64::to_bits) == shown.map(f64::to_bits)
        };
        let older_in_frame = (1..count as u32).take_while(is_same_frame).count() as u8;
        let parts_behind = shown.map(|shown| libm::round((f64::from(newest) - shown) * SHOWN_PARTS) as u16);
        write_extras(&mut writer, InputExtras { parts_behind, resync, epoch: self.epoch, older_in_frame });
        writer.finish().div_ceil(8)
    }
}

/// Writes the newest `count` inputs: the newest one whole, each older one as a bit if it is the same as the one after.
fn write_inputs(writer: &mut BitWriter<'_>, newest: u32, count: usize, keys: impl Fn(u32) -> Keys) {
    writer.write(newest & 0xffff, 16);
    writer.write(count as u32 - 1, 5);
    let mut after = keys(newest);
    writer.write(after, 32);
    for age in 1..count as u32 {
        let own = keys(newest.wrapping_sub(age));
        writer.write(u32::from(own == after), 1);
        if own != after {
            writer.write(own, 32);
        }
        after = own;
    }
}

/// The parts of a message beside its inputs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct InputExtras {
    /// How far behind the newest input the client showed the world when it made it, in parts of a tick; at most 1023
    /// ticks.
    parts_behind: Option<u16>,
    resync: Option<ResyncRequest>,
    epoch: u8,
    /// How many inputs before the newest one the client made while it showed the same tick.
    older_in_frame: u8,
}

impl InputExtras {
    const NONE: Self = Self { parts_behind: None, resync: None, epoch: 0, older_in_frame: 0 };
}

/// Writes what a message has beside its inputs: nothing, or a one and two flags. The first epoch takes no bits.
fn write_extras(writer: &mut BitWriter<'_>, extras: InputExtras) {
    if extras == InputExtras::NONE {
        return;
    }
    writer.write(1, 1);
    writer.write(u32::from(extras.parts_behind.is_some()), 1);
    extras.parts_behind.into_iter().for_each(|parts| writer.write(parts.into(), 16));
    writer.write(u32::from(extras.resync.is_some()), 1);
    extras.resync.into_iter().for_each(|request| writer.write(request.0.into(), 4));
    let has_frame = extras.older_in_frame > 0;
    if extras.epoch > 0 || has_frame {
        writer.write(u32::from(extras.epoch > 0), 1);
    }
    if extras.epoch > 0 {
        writer.write(extras.epoch.into(), 4);
    }
    if has_frame {
        writer.write(extras.older_in_frame.into(), 5);
    }
}

/// Reads what [`write_extras`] wrote, up to the end of a message with this number of inputs.
fn read_extras(reader: &mut BitReader<'_>, count: usize) -> Result<InputExtras, StateReadError> {
    if reader.is_at_padding() {
        return Ok(InputExtras::NONE);
    }
    let has_extras = reader.read_bit()?;
    let parts_behind = if reader.read_bit()? { Some(reader.read(16)? as u16) } else { None };
    let resync = if reader.read_bit()? { Some(ResyncRequest(reader.read(4)? as u8)) } else { None };
    let has_more = !reader.is_at_padding();
    let has_epoch = has_more && reader.read_bit()?;
    let epoch = if has_epoch { reader.read(4)? as u8 } else { 0 };
    let older_in_frame = if has_more && !reader.is_at_padding() { reader.read(5)? as u8 } else { 0 };
    let extras = InputExtras { parts_behind, resync, epoch, older_in_frame };
    let has_frame = older_in_frame > 0;
    let is_frame_valid = !has_frame || parts_behind.is_some() && usize::from(older_in_frame) < count;
    let is_end_valid = has_epoch == (epoch > 0) && has_more == (has_epoch || has_frame) && reader.is_at_padding();
    let is_valid = has_extras && extras != InputExtras::NONE && is_frame_valid && is_end_valid;
    if is_valid { Ok(extras) } else { Err(StateReadError::OutOfRange) }
}

/// The keys of a player that a server plays at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickKeys {
    /// The keys of the player.
    pub keys: Keys,
    /// Whether the input had not arrived: the keys that the player held before are repeated.
    pub is_missing: bool,
}

/// The server's report of how early the inputs of a client arrive. It goes into each state for this client
/// ([`Replicator::set_report`](crate::Replicator::set_report)), and rules [`InputClock`](crate::InputClock).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputReport {
    /// The newest tick up to which all inputs arrived: they need not be sent again.
    pub newest: u32,
    /// The least time from an arrival of an input to its tick since the last report, in quarters of a tick. Negative
    /// for inputs that came too late. -128 and 127 also stand for all beyond: then the server may have dropped the
    /// input of the newest tick, which came 32 ticks late or 48 ticks early.
    pub margin_quarters: i8,
    /// The epoch of the inputs, 0 to 15: a report of an earlier one says nothing about inputs that were made again.
    pub epoch: u8,
}

impl InputReport {
    /// Returns whether the margin is beyond what a report can tell.
    pub(crate) const fn is_beyond(self) -> bool {
        matches!(self.margin_quarters, i8::MIN | i8::MAX)
    }
}

/// The inputs of one client on the server.
///
/// A client that makes the inputs of its ticks again, after a jump back of its clock, starts an epoch. Its first
/// message replaces all inputs from its oldest tick on, and messages of the epochs before are ignored from then on.
/// Nothing that was played changes, and a client gains nothing from epochs: it could have sent its inputs later.
///
/// # Examples
///
/// ```
/// use slipgate_sync::{InputBuffer, InputLog, InputReport, MAX_INPUT_BYTES, TickKeys};
///
/// const RUN: u32 = 1;
/// const JUMP: u32 = 2;
/// let (mut log, mut buffer) = (InputLog::new(), InputBuffer::new(JUMP));
/// log.push(100, RUN | JUMP, None);
/// let mut buf = [0; MAX_INPUT_BYTES];
/// let length = log.write(None, &mut buf);
/// // It arrives a tick and a half before its tick.
/// buffer.read(&buf[..length], 98.5)?;
/// assert_eq!(buffer.keys(100), TickKeys { keys: RUN | JUMP, is_missing: false });
/// // The next input is missing: the figure runs on, and does not jump again.
/// assert_eq!(buffer.keys(101), TickKeys { keys: RUN, is_missing: true });
/// // The next state has the report, from which the client learns how early its inputs are.
/// assert_eq!(buffer.report(), Some(InputReport { newest: 100, margin_quarters: 6, epoch: 0 }));
/// # Ok::<(), slipgate_sync::StateReadError>(())
/// ```
#[derive(Clone, Debug)]
pub struct InputBuffer {
    keys: [Keys; KEPT_TICKS],
    ticks: [u32; KEPT_TICKS],
    /// The bits that a missing input does not repeat, such as a jump.
    once: Keys,
    newest: Option<u32>,
    /// The newest tick up to which no input is missing.
    complete: Option<u32>,
    last: Keys,
    least_margin: Option<f64>,
    /// The report of the last message, if its newest input was dropped.
    dropped: Option<InputReport>,
    missed: u64,
    /// The present epoch, and the tick at which its last message arrived. `None` before the first message.
    epoch: Option<(u8, f64)>,
    /// The ticks of the newest frames of which a message arrived, and how many ticks before each one the client
    /// showed the world when it made this input.
    views: [Option<(u32, f64)>; KEPT_VIEWS],
}

impl InputBuffer {
    /// Returns a buffer without inputs. `once` has the bits of keys that act when they go down: they are not repeated
    /// for a missing input.
    #[must_use]
    pub const fn new(once: Keys) -> Self {
        Self {
            keys: [0; KEPT_TICKS],
            ticks: [0; KEPT_TICKS],
            once,
            newest: None,
            complete: None,
            last: 0,
            least_margin: None,
            dropped: None,
            missed: 0,
            epoch: None,
            views: [None; KEPT_VIEWS],
        }
    }

    /// Reads a message that arrived when the server was at `now`, a tick with its fraction. Inputs that are more than
    /// 48 ticks ahead or 32 behind are dropped, and the next report says so; those of ticks that were played already
    /// count for the report only. Inputs of an earlier epoch are ignored. Returns the client's request for
    /// [`Replicator::resync`](crate::Replicator::resync).
    ///
    /// # Errors
    ///
    /// [`StateReadError`] if the message is cut or has more than its inputs. Nothing of it is applied then.
    pub fn read(&mut self, message: &[u8], now: f64) -> Result<Option<ResyncRequest>, StateReadError> {
        let mut reader = BitReader::new(message);
        let newest = nearest(reader.read(16)?, now.max(0.0) as u32);
        let count = reader.read(5)? as usize + 1;
        let mut inputs = [0; MAX_INPUTS];
        let mut after = reader.read(32)?;
        for (age, input) in inputs.iter_mut().take(count).enumerate() {
            // The newest input is whole; an older one may be the same as the one after it.
            if age > 0 && !reader.read_bit()? {
                after = reader.read(32)?;
            }
            *input = after;
        }
        let InputExtras { parts_behind, resync, epoch, older_in_frame } = read_extras(&mut reader, count)?;
        if !self.enter_epoch(epoch, newest.saturating_sub(count as u32 - 1), now) {
            return Ok(resync);
        }
        self.dropped = beyond_range(newest, now, epoch);
        for (age, keys) in (0..).zip(inputs).take(count) {
            if let Some(tick) = newest.checked_sub(age) {
                self.add(tick, keys, now);
            }
        }
        // A client repeats its inputs from the first unconfirmed one on, which this message has. After a jump of its
        // clock there are none of the ticks between.
        if self.dropped.is_none() && self.newest.is_some() {
            self.complete = self.complete.max(Some(newest.saturating_sub(count as u32)));
        }
        if let (Some(parts), None) = (parts_behind, self.dropped) {
            let behind = f64::from(parts) / SHOWN_PARTS;
            for age in 0..=u32::from(older_in_frame) {
                let Some(tick) = newest.checked_sub(age) else { break };
                let kept = self.views.get_mut(tick as usize % KEPT_VIEWS);
                kept.into_iter().for_each(|kept| *kept = Some((tick, behind - f64::from(age))));
            }
        }
        Ok(resync)
    }

    /// Returns the tick that the client showed when it made the input of a tick, with its fraction, for
    /// [`Rewind::at`](crate::Rewind::at). If all messages of this frame got lost, the client was as far behind as at
    /// the nearest tick that is known. Without any it saw the present.
    #[must_use]
    pub fn shown(&self, tick: u32) -> f64 {
        let nearest = self.views.iter().flatten().min_by_key(|(of, _)| of.abs_diff(tick));
        f64::from(tick) - nearest.map_or(0.0, |(_, behind)| *behind)
    }

    /// Returns whether the inputs of a message count, whose oldest tick this is: not if its epoch is an earlier one.
    fn enter_epoch(&mut self, epoch: u8, oldest: u32, now: f64) -> bool {
        let (present, arrived) = self.epoch.unwrap_or((epoch, now));
        let ahead = (epoch + EPOCHS - present) % EPOCHS;
        // A client of which eight epochs got lost could never play again otherwise.
        let is_silent = now - arrived > MAX_SILENCE;
        if ahead >= EPOCHS / 2 && !is_silent {
            return false;
        }
        if ahead > 0 {
            self.forget_from(oldest);
        }
        self.epoch = Some((epoch, now));
        true
    }

    /// Forgets the inputs from a tick on, and what a report would say about any. The inputs before are those that the
    /// client still predicts with.
    fn forget_from(&mut self, oldest: u32) {
        self.ticks.iter_mut().filter(|tick| **tick >= oldest).for_each(|tick| *tick = 0);
        self.views.iter_mut().filter(|view| view.is_some_and(|(tick, _)| tick >= oldest)).for_each(|view| *view = None);
        (self.newest, self.complete, self.least_margin, self.dropped) = (None, None, None, None);
    }

    fn add(&mut self, tick: u32, keys: Keys, now: f64) {
        let margin = f64::from(tick) - now;
        if tick == 0 || !(-MAX_BEHIND..=MAX_AHEAD).contains(&margin) || self.has(tick) {
            return;
        }
        self.least_margin = Some(self.least_margin.map_or(margin, |least| least.min(margin)));
        self.newest = self.newest.max(Some(tick));
        let index = tick as usize % KEPT_TICKS;
        if let (Some(kept), Some(kept_tick)) = (self.keys.get_mut(index), self.ticks.get_mut(index)) {
            (*kept, *kept_tick) = (keys, tick);
        }
    }

    fn has(&self, tick: u32) -> bool {
        self.ticks.get(tick as usize % KEPT_TICKS).is_some_and(|kept| *kept == tick && tick > 0)
    }

    /// Returns the keys of a tick if they have arrived. It changes nothing, so that any tick can be asked for: a client
    /// that has the inputs of other players repeats ticks ([`LateKeys`](crate::LateKeys)).
    #[must_use]
    pub fn arrived(&self, tick: u32) -> Option<Keys> {
        if self.has(tick) { self.keys.get(tick as usize % KEPT_TICKS).copied() } else { None }
    }

    /// Returns the keys of a tick, which the server plays now. Each tick is to be asked for once, in their order.
    pub fn keys(&mut self, tick: u32) -> TickKeys {
        if self.has(tick) {
            self.last = self.keys.get(tick as usize % KEPT_TICKS).copied().unwrap_or(0);
            return TickKeys { keys: self.last, is_missing: false };
        }
        self.missed += 1;
        TickKeys { keys: self.last & !self.once, is_missing: true }
    }

    /// Returns how many ticks were played without their input.
    #[must_use]
    pub const fn missed(&self) -> u64 {
        self.missed
    }

    /// Returns the report for the client, once for each state that is sent. `None` if no input arrived since the last
    /// one.
    pub fn report(&mut self) -> Option<InputReport> {
        let margin = self.least_margin.take();
        // Without this report, a client whose clock is wrong would never learn it.
        if let Some(dropped) = self.dropped.take() {
            return Some(dropped);
        }
        let (newest, margin) = (self.newest?, margin?);
        let quarters = libm::floor(margin * QUARTERS).clamp(f64::from(i8::MIN), f64::from(i8::MAX));
        // The client repeats no older ones.
        let mut complete = self.complete.unwrap_or(newest).max(newest.saturating_sub(MAX_INPUTS as u32));
        while complete < newest && self.has(complete + 1) {
            complete += 1;
        }
        self.complete = Some(complete);
        let (epoch, _) = self.epoch?;
        Some(InputReport { newest: complete, margin_quarters: quarters as i8, epoch })
    }
}

/// Returns the report of a message whose newest input is dropped.
fn beyond_range(newest: u32, now: f64, epoch: u8) -> Option<InputReport> {
    let margin = f64::from(newest) - now;
    let is_kept = (-MAX_BEHIND..=MAX_AHEAD).contains(&margin);
    let margin_quarters = if margin > 0.0 { i8::MAX } else { i8::MIN };
    (!is_kept && newest > 0).then_some(InputReport { newest, margin_quarters, epoch })
}

/// Returns the tick with these lowest 16 bits that is nearest to another one.
pub(crate) fn nearest(low: u32, to: u32) -> u32 {
    let ahead = (low as u16).wrapping_sub(to as u16) as i16;
    to.saturating_add_signed(i32::from(ahead))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn inputs_come_back(keys in prop::collection::vec(0..4_u32, 1..40), first in 1..200_000_u32) {
            let (mut log, mut buffer) = (InputLog::new(), InputBuffer::new(0));
            (first..).zip(&keys).for_each(|(tick, keys)| log.push(tick, *keys, None));
            let mut buf = [0xff; MAX_INPUT_BYTES];
            let length = log.write(None, &mut buf);
            buffer.read(&buf[..length], f64::from(first)).unwrap();
            for (tick, keys) in (first..).zip(&keys).skip(keys.len().saturating_sub(MAX_INPUTS)) {
                if tick - first <= 32 {
                    prop_assert_eq!(buffer.keys(tick), TickKeys { keys: *keys, is_missing: false });
                }
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), now in any::<f64>()) {
            let mut buffer = InputBuffer::new(0);
            let is_read = buffer.read(&bytes, now).is_ok();
            let report = buffer.report();
            prop_assert!(is_read || report.is_none(), "a refused message changes nothing");
            let report = report.filter(|report| !report.is_beyond());
            let ahead = report.map_or(0.0, |report| f64::from(report.newest) - now);
            prop_assert!(ahead <= MAX_AHEAD, "{}", ahead);
        }
    }

    #[test]
    fn missing_input_repeats_held_keys_but_no_others() {
        let (mut log, mut buffer) = (InputLog::new(), InputBuffer::new(0b10));
        log.push(7, 0b11, None);
        let mut buf = [0; MAX_INPUT_BYTES];
        let length = log.write(None, &mut buf);
        buffer.read(&buf[..length], 5.0).unwrap();
        assert_eq!(buffer.keys(7), TickKeys { keys: 0b11, is_missing: false });
        assert_eq!(buffer.keys(8), TickKeys { keys: 0b01, is_missing: true });
        assert_eq!(buffer.missed(), 1);
    }

    #[test]
    fn report_has_the_least_margin_and_confirms_without_gaps() {
        let (mut log, mut buffer) = (InputLog::new(), InputBuffer::new(0));
        let mut buf = [0; MAX_INPUT_BYTES];
        for (tick, now) in [(100, 97.5), (101, 99.5), (102, 101.75)] {
            log.push(tick, 0, None);
            let length = log.write(None, &mut buf);
            // The second message is lost; the third one repeats its input.
            if tick != 101 {
                buffer.read(&buf[..length], now).unwrap();
            }
        }
        assert_eq!(buffer.report(), Some(InputReport { newest: 102, margin_quarters: -3, epoch: 0 }));
        assert_eq!(buffer.report(), None);
    }

    #[test]
    fn late_inputs_take_no_place_of_early_ones() {
        let (mut early, mut late, mut buffer) = (InputLog::new(), InputLog::new(), InputBuffer::new(0));
        let mut buf = [0; MAX_INPUT_BYTES];
        for (log, tick) in [(&mut early, 140), (&mut late, 76)] {
            log.push(tick, tick, None);
            let length = log.write(None, &mut buf);
            buffer.read(&buf[..length], 100.0).unwrap();
        }
        assert_eq!(buffer.keys(140), TickKeys { keys: 140, is_missing: false });
    }

    #[test]
    fn report_after_a_long_pause_costs_no_more() {
        let (mut log, mut buffer) = (InputLog::new(), InputBuffer::new(0));
        let mut buf = [0; MAX_INPUT_BYTES];
        // The report would take seconds if it counted the ticks of the pause.
        for (tick, confirmed) in [(100, 100), (4_000_000_000, 4_000_000_000)] {
            log.push(tick, 1, None);
            let length = log.write(None, &mut buf);
            buffer.read(&buf[..length], f64::from(tick)).unwrap();
            assert_eq!(buffer.report(), Some(InputReport { newest: confirmed, margin_quarters: 0, epoch: 0 }));
        }
    }

    /// A view of a lost message is replaced by that of the nearest one, not by the present.
    #[test]
    fn shown_tick_of_a_lost_message_is_that_of_the_nearest() {
        let (mut log, mut buffer) = (InputLog::new(), InputBuffer::new(0));
        assert_eq!(buffer.shown(100), 100.0);
        // The messages of 101 and 102 are lost, and the delay grows meanwhile.
        for (tick, shown) in [(99, 90.0), (100, 91.0), (101, 0.0), (102, 0.0), (103, 93.5)] {
            log.push(tick, 0, Some(shown));
            let mut buf = [0; MAX_INPUT_BYTES];
            let length = log.write(None, &mut buf);
            if shown > 0.0 {
                buffer.read(&buf[..length], f64::from(tick) - 2.0).unwrap();
            }
        }
        let shown = [99, 100, 101, 102, 103, 104].map(|tick| buffer.shown(tick));
        assert_eq!(shown, [90.0, 91.0, 92.0, 92.5, 93.5, 94.5]);
    }

    /// A client that draws more often than the game ticks sends several messages with the same newest input.
    #[test]
    fn shown_tick_is_that_of_the_input_in_all_messages() {
        for lost in [0, 1, 2] {
            let (mut log, mut buffer) = (InputLog::new(), InputBuffer::new(0));
            for (frame, shown) in [90.0, 90.4, 90.8].into_iter().enumerate() {
                log.push(100, 1, Some(shown));
                let mut buf = [0; MAX_INPUT_BYTES];
                let length = log.write(None, &mut buf);
                if frame >= lost {
                    buffer.read(&buf[..length], 97.0).unwrap();
                    assert_eq!(buffer.shown(100), 90.0, "frame {frame}, {lost} messages lost");
                }
            }
        }
    }

    /// A client that draws less often than the game ticks makes several inputs while it shows one tick.
    #[test]
    fn inputs_of_one_frame_have_one_shown_tick() {
        let (mut log, mut buffer) = (InputLog::new(), InputBuffer::new(0));
        for (frame, (first, newest)) in [(98, 99), (100, 101), (102, 104)].into_iter().enumerate() {
            (first..=newest).for_each(|tick| log.push(tick, tick, Some(90.0 + 2.0 * frame as f64)));
            let mut buf = [0; MAX_INPUT_BYTES];
            let length = log.write(None, &mut buf);
            buffer.read(&buf[..length], f64::from(newest) - 3.0).unwrap();
        }
        let shown = [98, 99, 100, 101, 102, 103, 104].map(|tick| buffer.shown(tick));
        assert_eq!(shown, [90.0, 90.0, 92.0, 92.0, 94.0, 94.0, 94.0]);
    }

    #[test]
    fn inputs_of_the_far_future_are_dropped() {
        let (mut log, mut buffer) = (InputLog::new(), InputBuffer::new(0));
        log.push(500, 1, None);
        let mut buf = [0; MAX_INPUT_BYTES];
        let length = log.write(None, &mut buf);
        buffer.read(&buf[..length], 100.0).unwrap();
        assert_eq!(buffer.report(), Some(InputReport { newest: 500, margin_quarters: i8::MAX, epoch: 0 }));
        assert_eq!(buffer.report(), None);
        assert!(buffer.keys(500).is_missing);
        // The client jumps back, and its inputs of earlier ticks are taken.
        log.push(103, 2, None);
        let length = log.write(None, &mut buf);
        buffer.read(&buf[..length], 100.0).unwrap();
        assert_eq!(buffer.report(), Some(InputReport { newest: 103, margin_quarters: 12, epoch: 1 }));
        assert_eq!(buffer.keys(103), TickKeys { keys: 2, is_missing: false });
    }
}
