//! What a server knows of datagrams that have arrived and were not handled: how long what comes next may have waited, and
//! whether a client that seems silent is.

use std::time::Duration;

use slipgate_netcode::time::Instant;

/// A shorter time-out than this no client has: who reads to a turn's limits that often has heard of all who are there.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);

/// What may lie unread, in the sockets or in the inbox.
pub(crate) struct Unread {
    /// Nothing that had arrived by then lies in the sockets.
    read_at: Instant,
    /// Nor in the inbox.
    handled_at: Instant,
    /// The inbox was given datagrams, and has not come back for more.
    in_hand: bool,
    /// Since the last tick the game has once asked until it got no more.
    all_was_asked_for: bool,
    ticked_at: Instant,
}

impl Unread {
    pub(crate) const fn new(now: Instant) -> Self {
        let never = Instant::NEVER;
        Self { read_at: never, handled_at: never, in_hand: false, all_was_asked_for: false, ticked_at: now }
    }

    /// The inbox comes for more: what it was given has been handled.
    pub(crate) fn ask(&mut self) {
        self.in_hand = false;
    }

    /// It gets so many datagrams, which leave the sockets empty as of that moment, or not empty.
    pub(crate) fn give(&mut self, datagrams: usize, empty_at: Option<Instant>) {
        self.caught_up_at();
        self.read_at = empty_at.unwrap_or(self.read_at);
        self.in_hand = datagrams > 0;
        self.all_was_asked_for |= datagrams == 0;
    }

    /// It gets nothing because nothing waited a moment ago.
    pub(crate) fn give_nothing(&mut self) {
        self.all_was_asked_for = true;
    }

    /// It gets nothing because the turn has read as much as it may.
    // DECISION: that counts as if nothing waited, or a flood would keep the slots of those who have gone. What is read under
    // a flood is not older than what the sockets hold. After a pause it may be: then it does not count.
    pub(crate) fn give_no_more(&mut self, now: Instant) {
        self.all_was_asked_for |= now.since(self.ticked_at) < SHORTEST_TIMEOUT;
    }

    /// Until this moment the program slept because the sockets were empty.
    pub(crate) const fn note_sleep(&mut self, now: Instant) {
        self.read_at = now;
    }

    /// Whether the inbox holds datagrams, as far as is known.
    pub(crate) const fn is_in_hand(&self) -> bool {
        self.in_hand
    }

    /// Everything that had arrived by then has been handled.
    pub(crate) fn caught_up_at(&mut self) -> Instant {
        if !self.in_hand {
            self.handled_at = self.read_at;
        }
        self.handled_at
    }

    /// A tick: whether the game has asked, since the one before, for all that there was.
    pub(crate) fn tick(&mut self, now: Instant) -> bool {
        self.ticked_at = now;
        std::mem::replace(&mut self.all_was_asked_for, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn what_the_inbox_holds_is_unread_however_empty_the_sockets_are() {
        let mut unread = Unread::new(at(0));
        unread.note_sleep(at(10));
        unread.ask();
        assert_eq!(unread.caught_up_at(), at(10));
        unread.give(64, Some(at(20)));
        assert_eq!((unread.caught_up_at(), unread.is_in_hand()), (at(10), true));
        // The game pauses: nothing comes, and all that time the datagrams lie there.
        unread.note_sleep(at(500));
        assert_eq!(unread.caught_up_at(), at(10));
        unread.ask();
        assert_eq!((unread.caught_up_at(), unread.is_in_hand()), (at(500), false));
        unread.give(64, None);
        unread.ask();
        assert_eq!(unread.caught_up_at(), at(500), "the sockets were not empty");
    }

    #[test]
    fn who_has_not_asked_for_all_since_the_tick_before_knows_nobody_to_be_silent() {
        let mut unread = Unread::new(at(0));
        assert!(!unread.tick(at(10)), "nothing was asked for");
        for nothing in [Unread::give_nothing, |unread: &mut Unread| unread.give(0, Some(at(11)))] {
            unread.ask();
            unread.give(64, Some(at(10)));
            unread.ask();
            nothing(&mut unread);
            assert!(unread.tick(at(20)));
        }
        unread.ask();
        unread.give(64, None);
        assert!(!unread.tick(at(30)), "the game paused");
    }

    #[test]
    fn a_flood_keeps_nobody_who_has_gone_and_after_a_pause_it_takes_one_more_tick_to_know() {
        let mut unread = Unread::new(at(0));
        let mut read_to_the_limit = |tick| {
            unread.ask();
            unread.give_no_more(at(tick));
            unread.tick(at(tick))
        };
        assert!(read_to_the_limit(16) && read_to_the_limit(32));
        assert!(!read_to_the_limit(6000));
        assert!(read_to_the_limit(6016));
    }
}
