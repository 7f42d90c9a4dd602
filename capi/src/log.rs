//! The library's log: lines that a game takes by polling.

use std::collections::VecDeque;
use std::ffi::c_char;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::boundary;
use crate::pointer;
use crate::status::{SLIPGATE_DONE, SLIPGATE_ERROR_ARGUMENT, SLIPGATE_ERROR_BUSY, SLIPGATE_NONE};

/// No lines: how the library begins.
pub const SLIPGATE_LOG_OFF: u32 = 0;
/// Mistakes, after which something does not work.
pub const SLIPGATE_LOG_ERROR: u32 = 1;
/// What an operator should look at: a wrong clock, a full server, a disk that does not respond.
pub const SLIPGATE_LOG_WARN: u32 = 2;
/// Clients that come and go, and refused ones with their reasons.
pub const SLIPGATE_LOG_INFO: u32 = 3;
/// Each step of each handshake.
pub const SLIPGATE_LOG_DEBUG: u32 = 4;

/// The most lines that wait. Further ones are counted and lost.
const MAX_LINES: usize = 256;
/// The most bytes of a line. The rest is left out.
const MAX_LINE_BYTES: usize = 1024;

static LEVEL: AtomicU32 = AtomicU32::new(SLIPGATE_LOG_OFF);
static LINES: Mutex<LogLines> = Mutex::new(LogLines { waiting: VecDeque::new(), lost: 0 });

/// The lines that the game has not taken.
struct LogLines {
    waiting: VecDeque<String>,
    /// Lines that found no place since the last one that was taken.
    lost: u64,
}

impl LogLines {
    fn lock() -> MutexGuard<'static, Self> {
        // Poisoning is harmless: a line is there or not.
        LINES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&mut self, line: String) {
        if self.waiting.len() < MAX_LINES {
            self.waiting.push_back(line);
        } else {
            self.lost += 1;
        }
    }

    fn pop(&mut self) -> Option<String> {
        self.waiting.pop_front().or_else(|| {
            let lost = std::mem::take(&mut self.lost);
            (lost > 0).then(|| format!("WARN slipgate: {lost} log lines were lost, because too many waited"))
        })
    }
}

/// Receives what the crates of Slipgate log.
struct LineSubscriber;

impl Subscriber for LineSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let needed = match *metadata.level() {
            Level::ERROR => SLIPGATE_LOG_ERROR,
            Level::WARN => SLIPGATE_LOG_WARN,
            Level::INFO => SLIPGATE_LOG_INFO,
            Level::DEBUG => SLIPGATE_LOG_DEBUG,
            Level::TRACE => return false,
        };
        metadata.is_event() && needed <= LEVEL.load(Ordering::Relaxed)
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut line = Line(format!("{} {}: ", metadata.level(), metadata.target()));
        event.record(&mut line);
        LogLines::lock().push(line.0);
    }

    // No crate of Slipgate opens spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A line that is being written: its message, and ` name=value` for each field.
struct Line(String);

impl Visit for Line {
    /// Writes three decimals by integers. The formatting of floating-point numbers is 2 % of the library for clients.
    fn record_f64(&mut self, field: &Field, value: f64) {
        if !value.is_finite() {
            return self.record_debug(field, &format_args!("{}", if value.is_nan() { "NaN" } else { "infinite" }));
        }
        let thousandths = (value * 1000.0).round() as i64;
        let sign = if thousandths < 0 { "-" } else { "" };
        let (whole, rest) = (thousandths.unsigned_abs() / 1000, thousandths.unsigned_abs() % 1000);
        self.record_debug(field, &format_args!("{sign}{whole}.{rest:03}"));
    }

    // The same for integers of 128 bits, which no crate of Slipgate logs: the nearest one of 64 bits.
    fn record_i128(&mut self, field: &Field, value: i128) {
        self.record_i64(field, value.clamp(i64::MIN.into(), i64::MAX.into()) as i64);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.record_u64(field, u64::try_from(value).unwrap_or(u64::MAX));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a text cannot fail; the error is that the line is full.
        let _ = match field.name() {
            "message" => write!(self, "{value:?}"),
            name => write!(self, " {name}={value:?}"),
        };
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if self.0.len() + character.len_utf8() > MAX_LINE_BYTES {
                return Err(fmt::Error);
            }
            // A text of a client must not begin a line of its own.
            self.0.push(if character.is_control() { ' ' } else { character });
        }
        Ok(())
    }
}

/// Keeps the lines that the library logs from now on, up to this level: one of `SLIPGATE_LOG_OFF` to
/// `SLIPGATE_LOG_DEBUG`. Take them with `slipgate_next_log_line`, for example once a tick: up to 256 wait. A dedicated
/// server should keep `SLIPGATE_LOG_INFO`. `BUSY` if a program in Rust has a subscriber of its own, which gets them.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_set_log_level(level: u32) -> i32 {
    boundary::run(|| {
        if level > SLIPGATE_LOG_DEBUG {
            return Err(SLIPGATE_ERROR_ARGUMENT);
        }
        let mut is_ours = true;
        if !tracing::dispatcher::has_been_set() {
            is_ours = tracing::subscriber::set_global_default(LineSubscriber).is_ok();
        }
        is_ours &= tracing::dispatcher::get_default(tracing::Dispatch::is::<LineSubscriber>);
        if !is_ours {
            return Err(SLIPGATE_ERROR_BUSY);
        }
        LEVEL.store(level, Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
        Ok(SLIPGATE_DONE)
    })
}

/// Takes the oldest line that waits, such as "WARN slipgate_server::report: the server is full ... slots=64", without a
/// time, as a text with a zero at its end. It is cut if it does not fit; 1,025 bytes are enough. `SLIPGATE_NONE` if no
/// line waits. Any thread may call it.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_next_log_line(text: *mut c_char, capacity: usize) -> i32 {
    boundary::run(|| {
        if text.is_null() || capacity == 0 {
            return Err(SLIPGATE_ERROR_ARGUMENT);
        }
        let Some(line) = LogLines::lock().pop() else { return Ok(SLIPGATE_NONE) };
        pointer::write_text(&line, text, capacity);
        Ok(SLIPGATE_DONE)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panics")]
mod tests {
    use super::*;

    fn next() -> Option<String> {
        let mut text = [0_i8 as c_char; MAX_LINE_BYTES + 1];
        let status = slipgate_next_log_line(text.as_mut_ptr(), text.len());
        let bytes: Vec<u8> = text.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
        (status == SLIPGATE_DONE).then(|| String::from_utf8(bytes).unwrap())
    }

    // One test, because the log is one for the whole program.
    #[test]
    fn lines_are_kept_up_to_the_level_and_lost_ones_are_counted() {
        let mine = || core::iter::from_fn(next).filter(|line| line.contains("of this test")).collect::<Vec<_>>();
        tracing::warn!("before of this test");
        assert_eq!(slipgate_set_log_level(SLIPGATE_LOG_DEBUG + 1), SLIPGATE_ERROR_ARGUMENT);
        assert_eq!(slipgate_set_log_level(SLIPGATE_LOG_INFO), SLIPGATE_DONE);
        tracing::info!(client_id = 42, text = "a\nb", "of this test");
        tracing::debug!("too detailed, of this test");
        let expected = "INFO slipgate_c::log::tests: of this test client_id=42 text=\"a\\nb\"";
        assert_eq!(mine(), [expected]);
        tracing::info!(
            a = 12.0625,
            b = -0.1_f32,
            c = -0.0004,
            d = f64::NAN,
            e = i128::MIN,
            f = u128::MAX,
            "numbers of this test"
        );
        let numbers = "a=12.063 b=-0.100 c=0.000 d=NaN e=-9223372036854775808 f=18446744073709551615";
        assert_eq!(mine(), [format!("INFO slipgate_c::log::tests: numbers of this test {numbers}")]);
        assert_eq!(slipgate_set_log_level(SLIPGATE_LOG_DEBUG), SLIPGATE_DONE);
        tracing::debug!("{}of this test{}", "\n\0", "x".repeat(5000));
        let line = mine().remove(0);
        assert!(line.len() == MAX_LINE_BYTES && line.contains("tests:   of this test"), "{line}");

        (0..MAX_LINES + 9).for_each(|number| tracing::info!(number, "many lines of this test"));
        let all: Vec<_> = core::iter::from_fn(next).collect();
        let lost = all.last().unwrap();
        assert!(lost.starts_with("WARN slipgate: ") && lost.contains(" log lines were lost"), "{lost}");
        assert!(all.len() <= MAX_LINES + 1);
        assert_eq!(slipgate_set_log_level(SLIPGATE_LOG_OFF), SLIPGATE_DONE);
        tracing::error!("off, of this test");
        assert_eq!(mine(), Vec::<String>::new());
        let mut one = [1; 1];
        assert_eq!(slipgate_next_log_line(std::ptr::null_mut(), 9), SLIPGATE_ERROR_ARGUMENT);
        assert_eq!(slipgate_next_log_line(one.as_mut_ptr(), 0), SLIPGATE_ERROR_ARGUMENT);
    }
}
