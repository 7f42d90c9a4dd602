//! The string literals of a Rust file: error texts, log lines, help texts, messages of panics and assertions.

use syn::buffer::{Cursor, TokenBuffer};

/// The code whose literals are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All but unit tests.
    Production,
    /// Unit tests too.
    All,
}

/// Returns the text of each string literal outside of documentation, in the order of the file.
pub(crate) fn literals(source: &str, scope: Scope) -> Vec<String> {
    let file = syn::parse_file(source).expect("a Rust file");
    let tokens = TokenBuffer::new2(quote::quote!(#file));
    let mut found = Vec::new();
    collect_literals(tokens.begin(), scope, &mut found);
    found
}

/// Returns the identifiers of a Rust file, unit tests and macros included, each once.
pub(crate) fn identifiers(source: &str) -> std::collections::BTreeSet<String> {
    let file = syn::parse_file(source).expect("a Rust file");
    let tokens = TokenBuffer::new2(quote::quote!(#file));
    let mut found = std::collections::BTreeSet::new();
    let mut open = vec![tokens.begin()];
    while let Some(mut cursor) = open.pop() {
        while !cursor.eof() {
            if let Some((identifier, _)) = cursor.ident() {
                found.insert(identifier.to_string());
            }
            open.extend(cursor.any_group().map(|(inner, ..)| inner));
            let Some((_, rest)) = cursor.token_tree() else { break };
            cursor = rest;
        }
    }
    found
}

fn collect_literals(mut cursor: Cursor<'_>, scope: Scope, found: &mut Vec<String>) {
    while !cursor.eof() {
        if let Some((attribute, after)) = attribute(cursor) {
            cursor = match attribute {
                Attribute::Doc => after,
                Attribute::Test if scope == Scope::Production => after_item(after),
                Attribute::Test => after,
                Attribute::Other(inner) => {
                    collect_literals(inner, scope, found);
                    after
                }
            };
            continue;
        }
        if let Some((literal, _)) = cursor.literal()
            && let syn::Lit::Str(text) = syn::Lit::new(literal)
        {
            found.push(text.value());
        }
        if let Some((inner, ..)) = cursor.any_group() {
            collect_literals(inner, scope, found);
        }
        let Some((_, rest)) = cursor.token_tree() else { break };
        cursor = rest;
    }
}

enum Attribute<'c> {
    /// Documentation, whose text is among the comments.
    Doc,
    /// The item behind it exists in tests only.
    Test,
    Other(Cursor<'c>),
}

/// Returns the attribute at the cursor, and what follows it.
fn attribute(cursor: Cursor<'_>) -> Option<(Attribute<'_>, Cursor<'_>)> {
    let (_, mut rest) = cursor.punct().filter(|(punct, _)| punct.as_char() == '#')?;
    if let Some((_, behind)) = rest.punct().filter(|(punct, _)| punct.as_char() == '!') {
        rest = behind;
    }
    let (inner, _, _, after) = rest.any_group()?;
    let (name, arguments) = inner.ident()?;
    let kind = match name.to_string().as_str() {
        "doc" => Attribute::Doc,
        "test" => Attribute::Test,
        "cfg" if is_for_tests(arguments) => Attribute::Test,
        _ => Attribute::Other(inner),
    };
    Some((kind, after))
}

/// Returns whether the arguments of a `cfg` require tests: `(test)` or `(all(test, ...))`.
fn is_for_tests(arguments: Cursor<'_>) -> bool {
    let Some((inner, ..)) = arguments.any_group() else { return false };
    match inner.ident() {
        Some((name, _)) if name == "test" => true,
        Some((name, rest)) if name == "all" => is_for_tests(rest),
        _ => false,
    }
}

/// Returns what follows the next item: its body in braces, or its semicolon.
fn after_item(mut cursor: Cursor<'_>) -> Cursor<'_> {
    while let Some((_, rest)) = cursor.token_tree() {
        let is_semicolon = cursor.punct().is_some_and(|(punct, _)| punct.as_char() == ';');
        // The type of the delimiter has no public name here.
        let is_body = cursor.any_group().is_some_and(|(_, delimiter, ..)| format!("{delimiter:?}") == "Brace");
        cursor = rest;
        if is_semicolon || is_body {
            break;
        }
    }
    cursor
}

#[test]
fn literals_and_identifiers_are_found() {
    let source = "/// Doc.\n#[must_use = \"reason\"]\nfn f() { g!(x, \"in {a} macro\", b\"no\"); }\n\
        #[cfg(test)]\nmod tests { fn t() { \"test\"; } }\n#[cfg(all(test, unix))]\nconst A: &str = \"test\";\n\
        #[cfg(unix)]\nconst B: &str = \"kept\";\n";
    assert_eq!(literals(source, Scope::Production), ["reason", "in {a} macro", "kept"]);
    assert_eq!(literals(source, Scope::All), ["reason", "in {a} macro", "test", "test", "kept"]);
    assert!(["g", "x", "t", "A"].iter().all(|name| identifiers(source).contains(*name)));
}
