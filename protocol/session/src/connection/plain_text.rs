//! Texts for people without characters that control a terminal, a log or the direction of writing.

use alloc::string::String;

/// Returns a text as a game and a log may show it: each line break and tab is a space, and all other characters that
/// control something are left out. It is never longer than the original.
///
/// Both sides apply it, so that neither needs to trust the other: a text with an escape sequence could rewrite a
/// terminal, one with a line break could forge a line of a log, and one with an override of direction could show other
/// words than it contains (Unicode Technical Report 36, section 2.10).
#[must_use]
pub fn plain_text(text: &str) -> String {
    let shown = text.chars().filter_map(|character| match character {
        '\n' | '\r' | '\t' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => Some(' '),
        character => (!is_control(character)).then_some(character),
    });
    shown.collect()
}

/// Returns whether a character is invisible and changes how others are shown.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character,
            // Bidirectional marks, embeddings, overrides and isolates (Unicode Standard Annex 9).
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Spaces without width, invisible operators, deprecated format characters, and the byte order mark. The
            // joiners U+200C and U+200D stay: languages and emoji need them.
            | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{feff}'
            // Annotations and tags.
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_left_out_and_breaks_become_spaces() {
        for (text, expected) in [
            ("no rockets", "no rockets"),
            ("Grüße, 你好, مرحبا, 👩\u{200d}🚀", "Grüße, 你好, مرحبا, 👩\u{200d}🚀"),
            ("\u{1b}[2J\u{1b}[31mowned\u{7}", "[2J[31mowned"),
            ("one\r\ntwo\tthree\u{2028}four", "one  two three four"),
            ("\0a\u{7f}b\u{9b}c\u{85}d", "abc d"),
            ("\u{202e}txt.exe\u{202c} \u{2066}x\u{2069}\u{200f}", "txt.exe x"),
            ("\u{feff}a\u{200b}b\u{2060}c\u{e0041}", "abc"),
        ] {
            assert_eq!(plain_text(text), expected, "{text:?}");
        }
    }

    #[test]
    fn no_character_of_any_plane_makes_a_text_longer() {
        for character in (0..=0x10_ffff).filter_map(char::from_u32) {
            let mut buf = [0; 4];
            let plain = plain_text(character.encode_utf8(&mut buf));
            assert!(plain.len() <= character.len_utf8(), "{character:?}");
            assert!(!plain.chars().any(is_control), "{character:?}");
        }
    }
}
