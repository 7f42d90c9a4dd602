//! Whether what was heard is what was said: chat, state, and the map.

use slipgate_client::block::{Content, ContentDigest};

use super::game::{Line, State};

/// Lines of chat: all of them, once, and in order.
#[derive(Clone, Default)]
pub(super) struct Chat {
    /// Lines that this player has said.
    pub(super) said: u64,
    /// Those of them that came back as they were said.
    pub(super) back: u64,
    /// Lines of others.
    pub(super) others: u64,
    /// Lines that came twice, out of order, altered, or that nobody could read.
    pub(super) wrong: u64,
    /// Which line is next, of each who was heard.
    next: Vec<(u64, u64)>,
}

impl Chat {
    /// A player with this client id hears a line.
    pub(super) fn hear(&mut self, me: u64, line: &Line<'_>) {
        let is_next = line.number == self.expected(me, line);
        if !is_next || !line.is_right() {
            self.wrong += 1;
            return;
        }
        self.next.retain(|(author, _)| *author != line.author);
        self.next.push((line.author, line.number + 1));
        if line.author == me {
            self.back += 1;
        } else {
            self.others += 1;
        }
    }

    /// The number that a line must have. Others may have said something before this player came.
    fn expected(&self, me: u64, line: &Line<'_>) -> u64 {
        let heard = self.next.iter().find(|(author, _)| *author == line.author).map(|(_, next)| *next);
        heard.unwrap_or(if line.author == me { 0 } else { line.number })
    }
}

/// Messages of which only newer ones count.
#[derive(Clone, Copy, Default)]
pub(super) struct States {
    /// Those that came and were newer than all before.
    pub(super) received: u64,
    /// Those that came after a newer one, altered, or that nobody could read.
    pub(super) wrong: u64,
    newest: Option<u64>,
}

impl States {
    pub(super) fn hear(&mut self, state: &State) {
        if self.newest.is_some_and(|newest| state.tick <= newest) || !state.is_right() {
            self.wrong += 1;
            return;
        }
        self.newest = Some(state.tick);
        self.received += 1;
    }
}

/// How far the map has come.
#[derive(Clone, Copy, Default)]
pub(super) struct Map {
    /// Bytes that are here.
    pub(super) bytes: u32,
    /// Maps that came whole, and are the one that was sent: one is right.
    pub(super) whole: u64,
    /// Maps that came and are another one, or broke off.
    pub(super) wrong: u64,
}

impl Map {
    pub(super) fn receive(&mut self, content: Content, expected: ContentDigest) {
        self.bytes = content.len() as u32;
        // Whoever sends a block says its digest, and the content was held against that. Here it is held against the map.
        let is_right = ContentDigest::of(&content.into_vec()) == expected;
        *(if is_right { &mut self.whole } else { &mut self.wrong }) += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(chat: &mut Chat, author: u64, number: u64) {
        chat.hear(1, &Line::new(author, number, &Line::text(author, number)));
    }

    #[test]
    fn lines_count_once_and_in_order_for_each_author() {
        let mut chat = Chat::default();
        for (author, number) in [(1, 0), (2, 7), (1, 1), (2, 8), (3, 0)] {
            hear(&mut chat, author, number);
        }
        assert_eq!((chat.back, chat.others, chat.wrong), (2, 3, 0));
        for (author, number) in [(1, 1), (1, 3), (2, 8), (2, 10)] {
            hear(&mut chat, author, number);
        }
        chat.hear(1, &Line::new(1, 2, "something else"));
        assert_eq!((chat.back, chat.others, chat.wrong), (2, 3, 5));
        hear(&mut chat, 1, 2);
        assert_eq!((chat.back, chat.wrong), (3, 5));
    }

    #[test]
    fn the_own_first_line_may_not_be_missing() {
        let mut chat = Chat::default();
        hear(&mut chat, 1, 1);
        assert_eq!((chat.back, chat.wrong), (0, 1));
    }

    #[test]
    fn a_state_counts_only_if_it_is_newer() {
        let mut states = States::default();
        for tick in [3, 4, 9, 9, 8, 10] {
            states.hear(&State::new(tick, 10));
        }
        assert_eq!((states.received, states.wrong), (4, 2));
    }
}
