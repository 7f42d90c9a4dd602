//! Redacts possible keys in messages.

/// This many consecutive hexadecimal digits may be part of a key. No name or number of the project has as many.
const MIN_SECRET_DIGITS: usize = 16;

/// Returns the message in one line, with possible keys replaced by an ellipsis. Parser messages quote values of a wrong
/// type, and a key may have been given in place of a path.
#[must_use]
pub fn redact(message: &str) -> String {
    let message = message.replace('\n', " ");
    let mut rest = message.as_str();
    let mut redacted = String::with_capacity(message.len());
    while let Some(first) = rest.chars().next() {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits >= MIN_SECRET_DIGITS {
            redacted.push('…');
        }
        let taken = digits.max(first.len_utf8());
        let (head, tail) = rest.split_at(taken);
        if digits < MIN_SECRET_DIGITS {
            redacted.push_str(head);
        }
        rest = tail;
    }
    redacted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn possible_keys_are_redacted() {
        let key = "c0ffee00".repeat(8);
        let cases = [
            (format!("invalid type: string \"{key}\", expected u32"), "invalid type: string \"…\", expected u32"),
            (key.clone(), "…"),
            ("unknown field `dead_beef`,\nexpected é".to_owned(), "unknown field `dead_beef`, expected é"),
            (format!("/run/{key}/keys"), "/run/…/keys"),
            (String::new(), ""),
        ];
        for (message, shown) in cases {
            assert_eq!(redact(&message), shown);
        }
    }
}
