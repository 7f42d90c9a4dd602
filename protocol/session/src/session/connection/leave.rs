//! How a connection ends: why this side leaves, and for how long it says so.

use alloc::string::String;
use core::time::Duration;

use super::{Connection, Stage};
use crate::channel::Violation;
use crate::channel::control::{self, Bye, ByeCode, MAX_TEXT_BYTES};
use crate::reliability::Sink;
use crate::session::end::End;
use crate::session::greeting::Saying;
use crate::session::path::Cargo;
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

/// How often a farewell is repeated: in the article's slow rhythm, because nothing is known of a path on which nothing else
/// travels ("Fiedler, Reliability, Ordering and Congestion Avoidance over UDP": 10 packets per second).
const FAREWELL_INTERVAL: Duration = Duration::from_millis(100);

/// How often it is said at once by a program that cannot wait: as with netcode's disconnect packets, one of several gets
/// through.
const FAREWELLS_AT_ONCE: usize = 3;

/// How far a farewell is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Leaving {
    pub(super) saying: Saying,
    /// When it was said first.
    since: Option<Instant>,
    /// When it is said again.
    pub(super) again: Instant,
}

/// What is said at the end.
pub(super) struct Farewell {
    code: ByeCode,
    text: String,
}

impl Default for Farewell {
    fn default() -> Self {
        Self { code: ByeCode::KICKED, text: String::new() }
    }
}

impl Connection {
    /// Leaves, with a text for people of up to 256 bytes; what is longer is cut. Codes that are not
    /// [an application's](ByeCode::of_application) count as 0. It is said until the peer has heard it or the time for
    /// farewells is up; see [`is_over`](Self::is_over).
    pub fn leave(&mut self, code: ByeCode, text: &str) {
        if self.stage == Stage::Open {
            let text = text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default();
            let code = code.of_application();
            self.farewell.text.push_str(text);
            self.break_off(End::Left { code, text: text.into() }, code);
        }
    }

    /// Says at once why this side leaves, three times, and waits for nobody to have heard it: for a program that ends.
    /// Does nothing on a connection that is not about to leave; says it anew if the sink has no room now.
    pub fn say_farewell_at_once(&mut self, now: Instant, sink: &mut impl Sink) {
        if !matches!(self.stage, Stage::Leaving(_)) {
            return;
        }
        let said = (0..FAREWELLS_AT_ONCE).map_while(|_| self.send_farewell(now, sink)).count();
        if said > 0 {
            self.stage = Stage::Over;
        }
    }

    /// The peer lives, and has acknowledged nothing for so long that it never will: one that has not even greeted knows
    /// nothing of sessions.
    pub(super) fn give_up(&mut self) {
        let deaf = End::Violation(Violation::AcknowledgesNothing);
        self.break_off(if self.greeted { deaf } else { End::NotASession }, ByeCode::VIOLATION);
    }

    pub(super) fn break_off(&mut self, end: End, code: ByeCode) {
        if self.stage == Stage::Open {
            self.end = Some(end);
            self.farewell.code = code;
            self.stage = Stage::Leaving(Leaving { saying: Saying::NEW, since: None, again: Instant::default() });
        }
    }

    /// Why the connection ended, if it did. It may still have a farewell to say.
    #[must_use]
    pub const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Whether the connection has ended and nothing is left to say.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Says why this side leaves, until that was heard or the time is up.
    pub(super) fn transmit_farewell(&mut self, leaving: Leaving, now: Instant, sink: &mut impl Sink) {
        let since = leaving.since.unwrap_or(now);
        if leaving.saying.is_heard() || now.reached(since, self.farewell_time) {
            self.stage = Stage::Over;
            return;
        }
        let mut leaving = Leaving { since: Some(since), ..leaving };
        if leaving.again <= now
            && let Some(packet) = self.send_farewell(now, sink)
        {
            leaving.saying.said(packet);
            leaving.again = now.after(FAREWELL_INTERVAL);
        }
        self.stage = Stage::Leaving(leaving);
    }

    /// Says why this side leaves, and its layout, if the peer may not know that; answers in which packet.
    fn send_farewell(&mut self, now: Instant, sink: &mut impl Sink) -> Option<Sequence> {
        let (greeting, most) = (self.greeting(), self.most());
        let Self { path, hello, farewell, .. } = self;
        let bye = Bye { code: farewell.code, text: &farewell.text };
        let mut number = None;
        let sent = path.send_framed(Cargo::Data, most, now, sink, |sequence, room| {
            number = Some(sequence);
            let start = greeting.map_or(0, |greeting| control::write_hello(&greeting, room));
            start + room.get_mut(start..).map_or(0, |rest| control::write_bye(&bye, rest))
        });
        let number = number.filter(|_| sent > 0)?;
        hello.said(number);
        Some(number)
    }
}
