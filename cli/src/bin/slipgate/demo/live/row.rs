//! Rows of the screen: styled text that never exceeds a width and never ends within a word.

use std::fmt::Write as _;

use crossterm::style::{Attribute, Color, SetAttribute, SetForegroundColor};

/// How a piece of text looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tone {
    Plain,
    Dim,
    Bold,
    /// The chosen one of several.
    Chosen,
    Accent,
    Good,
    Warning,
    Bad,
}

/// Whether the terminal gets colours. Bold, dim and reversed text are no colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Colours {
    On,
    Off,
}

impl Tone {
    const fn colour(self) -> Option<Color> {
        match self {
            Self::Plain | Self::Dim | Self::Bold | Self::Chosen => None,
            Self::Accent => Some(Color::Cyan),
            Self::Good => Some(Color::Green),
            Self::Warning => Some(Color::Yellow),
            Self::Bad => Some(Color::Red),
        }
    }

    const fn attribute(self) -> Option<Attribute> {
        match self {
            Self::Dim => Some(Attribute::Dim),
            Self::Bold => Some(Attribute::Bold),
            Self::Chosen => Some(Attribute::Reverse),
            _ => None,
        }
    }
}

/// A row of the screen. Every character in it is one column wide.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct ScreenRow {
    pieces: Vec<(Tone, String)>,
    width: usize,
}

impl ScreenRow {
    pub(super) fn new(tone: Tone, text: &str) -> Self {
        Self::default().with(tone, text)
    }

    /// Appends a text.
    #[must_use]
    pub(super) fn with(mut self, tone: Tone, text: &str) -> Self {
        let text: String = text.chars().map(single_column).collect();
        self.width += text.chars().count();
        self.pieces.push((tone, text));
        self
    }

    /// Appends another row.
    #[must_use]
    pub(super) fn and(mut self, other: Self) -> Self {
        self.width += other.width;
        self.pieces.extend(other.pieces);
        self
    }

    /// Appends another row if the whole then has at most `max` columns.
    #[must_use]
    pub(super) fn and_if_it_fits(self, other: Self, max: usize) -> Self {
        if self.width + other.width <= max { self.and(other) } else { self }
    }

    pub(super) const fn width(&self) -> usize {
        self.width
    }

    /// Returns the text without styles.
    #[cfg(test)]
    pub(super) fn text(&self) -> String {
        self.pieces.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// Returns the row with control sequences.
    pub(super) fn styled(&self, colours: Colours) -> String {
        let mut out = String::new();
        for (tone, text) in &self.pieces {
            let colour = tone.colour().filter(|_| colours == Colours::On);
            let attribute = tone.attribute();
            // Writing to a string cannot fail.
            let _ = match (colour, attribute) {
                (Some(colour), _) => {
                    write!(out, "{}{text}{}", SetForegroundColor(colour), SetAttribute(Attribute::Reset))
                }
                (_, Some(attribute)) => {
                    write!(out, "{}{text}{}", SetAttribute(attribute), SetAttribute(Attribute::Reset))
                }
                (None, None) => write!(out, "{text}"),
            };
        }
        out
    }
}

/// Returns the character, or a substitute for one that may be wider or narrower than a column.
fn single_column(character: char) -> char {
    match character {
        ' '..='~' | '\u{a1}'..='\u{24f}' | '…' | '\u{2580}'..='\u{259f}' => character,
        _ => '?',
    }
}

/// Returns the first text that has at most `max` columns, or an empty one.
pub(super) fn first_that_fits<'t>(max: usize, texts: &[&'t str]) -> &'t str {
    texts.iter().find(|text| text.chars().count() <= max).copied().unwrap_or_default()
}

/// Breaks a text between words into lines of at most `max` columns. A longer word becomes `…`.
pub(super) fn wrap(text: &str, max: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let word = if word.chars().count() <= max { word } else { "…" };
        let fits = |line: &String| line.is_empty() || line.chars().count() + 1 + word.chars().count() <= max;
        match lines.last_mut().filter(|line| fits(line)) {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_breaks_between_words_only() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("one", 3), ["one"]);
        assert_eq!(wrap("a http://127.0.0.1:8080 b", 8), ["a … b"]);
        assert_eq!(wrap("", 8), [""]);
        assert_eq!(first_that_fits(5, &["longer", "short", "s"]), "short");
        assert_eq!(first_that_fits(0, &["longer"]), "");
    }

    #[test]
    fn row_counts_columns_and_has_no_control_characters() {
        let row = ScreenRow::new(Tone::Bad, "a\u{1b}[31mb\n").and(ScreenRow::new(Tone::Plain, "▁█…漢"));
        assert_eq!((row.width(), row.text().as_str()), (12, "a?[31mb?▁█…?"));
        assert_eq!(ScreenRow::new(Tone::Good, "up").styled(Colours::Off), "up");
        assert_eq!(ScreenRow::new(Tone::Dim, "up").styled(Colours::Off), "\u{1b}[2mup\u{1b}[0m");
    }

    #[test]
    fn row_takes_whole_pieces_up_to_the_width() {
        let row = ScreenRow::new(Tone::Plain, "four").and_if_it_fits(ScreenRow::new(Tone::Plain, "five5"), 8);
        assert_eq!(row.text(), "four");
        assert_eq!(row.and_if_it_fits(ScreenRow::new(Tone::Plain, "four"), 8).text(), "fourfour");
    }
}
