//! Checks of the received messages: chat, state updates and the map.

use slipgate_client::transfer::{ContentDigest, TransferContent};

use super::game::{ChatLine, StateUpdate};

/// Counters of chat lines. Each line must arrive once and in order.
#[derive(Clone, Default)]
pub(super) struct ChatStats {
    /// Lines that this player sent.
    pub(super) sent: u64,
    /// Its own lines that the server returned unchanged.
    pub(super) returned: u64,
    /// Lines of other players.
    pub(super) from_others: u64,
    /// Lines that were duplicated, out of order, altered or unreadable.
    pub(super) wrong: u64,
    /// The newest session of each author, and the next expected line number in it.
    next_lines: Vec<NextLine>,
}

/// The line of an author that must come next.
#[derive(Clone, Copy)]
struct NextLine {
    author: u64,
    session: u32,
    number: u64,
}

impl ChatStats {
    /// Counts a line that the player with the client id `me` received.
    pub(super) fn receive(&mut self, me: u64, line: &ChatLine<'_>) {
        if !self.is_next(me, line) || !line.is_correct() {
            self.wrong += 1;
            return;
        }
        self.next_lines.retain(|next| next.author != line.author);
        self.next_lines.push(NextLine { author: line.author, session: line.session, number: line.number + 1 });
        if line.author == me {
            self.returned += 1;
        } else {
            self.from_others += 1;
        }
    }

    /// Returns whether no line is missing before this one. Other players may have sent lines before this player
    /// connected, or before the first line of their present session arrived.
    fn is_next(&self, me: u64, line: &ChatLine<'_>) -> bool {
        let next = self.next_lines.iter().find(|next| next.author == line.author);
        match next {
            Some(next) if next.session >= line.session => next.session == line.session && next.number == line.number,
            _ => line.author != me || line.number == 0,
        }
    }
}

/// Counters of state updates, of which only the newest matters.
#[derive(Clone, Copy, Default)]
pub(super) struct StateStats {
    /// Updates that were newer than all earlier ones.
    pub(super) received: u64,
    /// Updates that were older than a received one, altered or unreadable.
    pub(super) wrong: u64,
    newest: Option<u64>,
}

impl StateStats {
    pub(super) fn receive(&mut self, state: &StateUpdate) {
        if self.newest.is_some_and(|newest| state.tick <= newest) || !state.is_correct() {
            self.wrong += 1;
            return;
        }
        self.newest = Some(state.tick);
        self.received += 1;
    }
}

/// The progress of the map transfer.
#[derive(Clone, Copy, Default)]
pub(super) struct MapStats {
    /// Bytes received so far.
    pub(super) bytes: u32,
    /// Complete maps with the expected content; exactly one is correct.
    pub(super) complete: u64,
    /// Maps with other content, and transfers that were cancelled.
    pub(super) wrong: u64,
}

impl MapStats {
    pub(super) fn receive(&mut self, content: TransferContent, expected: ContentDigest) {
        self.bytes = content.len() as u32;
        // The library compared the content with the digest that the sender announced; this compares it with the map.
        let is_correct = ContentDigest::of(&content.into_vec()) == expected;
        *(if is_correct { &mut self.complete } else { &mut self.wrong }) += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(chat: &mut ChatStats, author: u64, number: u64) {
        chat.receive(1, &ChatLine::new(author, 1, number, &ChatLine::text(author, number)));
    }

    #[test]
    fn chat_lines_count_once_and_in_order_per_author() {
        let mut chat = ChatStats::default();
        for (author, number) in [(1, 0), (2, 7), (1, 1), (2, 8), (3, 0)] {
            receive(&mut chat, author, number);
        }
        assert_eq!((chat.returned, chat.from_others, chat.wrong), (2, 3, 0));
        for (author, number) in [(1, 1), (1, 3), (2, 8), (2, 10)] {
            receive(&mut chat, author, number);
        }
        chat.receive(1, &ChatLine::new(1, 1, 2, "something else"));
        assert_eq!((chat.returned, chat.from_others, chat.wrong), (2, 3, 5));
        receive(&mut chat, 1, 2);
        assert_eq!((chat.returned, chat.wrong), (3, 5));
    }

    #[test]
    fn new_session_of_an_author_starts_again_and_ends_the_old_one() {
        let mut chat = ChatStats::default();
        let mut receive = |session, number| {
            chat.receive(1, &ChatLine::new(2, session, number, &ChatLine::text(2, number)));
            (chat.from_others, chat.wrong)
        };
        assert_eq!(receive(1, 5), (1, 0));
        assert_eq!(receive(2, 0), (2, 0), "the author connected again");
        assert_eq!(receive(1, 6), (2, 1), "a line of the session before");
        assert_eq!(receive(2, 2), (2, 2), "a line is missing");
        assert_eq!(receive(2, 1), (3, 2));
    }

    #[test]
    fn own_first_line_must_not_be_missing() {
        let mut chat = ChatStats::default();
        receive(&mut chat, 1, 1);
        assert_eq!((chat.returned, chat.wrong), (0, 1));
    }

    #[test]
    fn state_update_counts_only_if_it_is_newer() {
        let mut states = StateStats::default();
        for tick in [3, 4, 9, 9, 8, 10] {
            states.receive(&StateUpdate::new(tick, 10));
        }
        assert_eq!((states.received, states.wrong), (4, 2));
    }
}
