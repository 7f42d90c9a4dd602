//! The keys of the first player: those of a person at the page, or random ones.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use slipgate_worlds::{PlayerInput, RandomPlayers};

/// The page repeats pressed keys. Without a repetition they count as released.
const RELEASED_AFTER: Duration = Duration::from_secs(1);
/// The cube moves at random again when no key was pressed for this time.
const ABSENT_AFTER: Duration = Duration::from_secs(8);
/// All keys.
const KEYS: u32 = 63;

#[derive(Default)]
pub(super) struct Keyboard(Mutex<Option<(u32, Instant)>>);

impl Keyboard {
    /// Notes the keys that are pressed now.
    pub(super) fn press(&self, keys: u32) {
        let mut pressed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_absent = pressed.is_none_or(|(_, at)| at.elapsed() > ABSENT_AFTER);
        // No key of an absent person is no news.
        if keys != 0 || !is_absent {
            let since = if keys == 0 { pressed.map_or_else(Instant::now, |(_, at)| at) } else { Instant::now() };
            *pressed = Some((keys & KEYS, since));
        }
    }

    /// Returns the keys of the next tick.
    pub(super) fn keys(&self, random: &mut RandomPlayers) -> PlayerInput {
        let [first, ..] = random.next_inputs();
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((_, at)) if at.elapsed() > ABSENT_AFTER => first,
            Some((_, at)) if at.elapsed() > RELEASED_AFTER => PlayerInput::NONE,
            Some((keys, _)) => PlayerInput(keys),
            None => first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_moves_at_random_until_a_key_is_pressed() {
        let (keyboard, mut random) = (Keyboard::default(), RandomPlayers::new(1));
        keyboard.press(0);
        assert!((0..600).any(|_| keyboard.keys(&mut random) != PlayerInput::NONE));
        keyboard.press(u32::MAX);
        assert_eq!(keyboard.keys(&mut random), PlayerInput(KEYS));
        keyboard.press(0);
        assert_eq!(keyboard.keys(&mut random), PlayerInput::NONE);
    }
}
