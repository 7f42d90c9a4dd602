//! Paragraphs with lines of at most 120 columns.

const MAX_COLUMNS: usize = 120;

/// Breaks a paragraph into lines, which end with a line break. All but the first one start with the indent.
pub(super) fn wrap(paragraph: &str, indent: &str) -> String {
    let (mut text, mut columns) = (String::new(), 0);
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if columns == 0 {
            columns = length;
        } else if columns + 1 + length <= MAX_COLUMNS {
            text.push(' ');
            columns += 1 + length;
        } else {
            text.push('\n');
            text.push_str(indent);
            columns = indent.len() + length;
        }
        text.push_str(word);
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_filled_up_to_120_columns() {
        // 24 words of four letters have 119 columns.
        let text = wrap(&["word"; 30].join(" "), "  ");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.iter().map(|line| line.len()).collect::<Vec<_>>(), [119, 2 + 29]);
        assert!(lines.iter().skip(1).all(|line| line.starts_with("  w")), "{text}");
        assert_eq!(wrap("- a\n b", "  "), "- a b\n");
    }
}
