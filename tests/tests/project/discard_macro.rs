//! The items that the macro `discard_reasons!` defines, made from the text of its definition.

use std::fs;

use proc_macro2::TokenStream;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Ident, Item, LitStr, Token};

use super::files::{production, root};

/// Returns the items of one call with these tokens.
pub(crate) fn items(tokens: TokenStream) -> Vec<Item> {
    let definition = fs::read_to_string(root().join("protocol/netcode/src/discard.rs")).unwrap();
    expand(&body(&production(&definition)), tokens)
}

/// Returns the text between the braces of the macro's only rule.
fn body(definition: &str) -> String {
    let (_, behind) = definition.split_once(") => {").expect("the macro has a rule");
    behind.split_once("\n    };\n}").expect("the rule ends").0.to_owned()
}

/// The arguments of a call: the enum and the counters with their documents, and the variants.
struct Call {
    reason: (Vec<Attribute>, Ident),
    counters: (Vec<Attribute>, Ident),
    variants: Vec<String>,
}

fn parse(input: ParseStream<'_>) -> syn::Result<Call> {
    let head = || {
        let head = (input.call(Attribute::parse_outer)?, input.parse()?);
        input.parse::<Token![;]>().map(|_| head)
    };
    let (reason, counters, mut variants) = (head()?, head()?, Vec::new());
    while !input.is_empty() {
        input.call(Attribute::parse_outer)?;
        variants.push(input.parse::<Ident>()?.to_string());
        input.parse::<Token![=>]>()?;
        input.parse::<LitStr>()?;
        input.parse::<Token![,]>()?;
    }
    Ok(Call { reason, counters, variants })
}

/// Returns the items of a call. The enum and the counters keep their documents; the other items lose them.
fn expand(body: &str, tokens: TokenStream) -> Vec<Item> {
    let call = parse.parse2(tokens).expect("a call as the rule describes it");
    let text = repeated(body, &call.variants)
        .replace("$reason", &call.reason.1.to_string())
        .replace("$counters", &call.counters.1.to_string());
    assert!(!text.contains('$'), "the macro was not expanded: {text}");
    let mut file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{error} in {text}"));
    for item in &mut file.items {
        match item {
            Item::Enum(item) if item.ident == call.reason.1 => item.attrs.extend(call.reason.0.clone()),
            Item::Struct(item) if item.ident == call.counters.1 => item.attrs.extend(call.counters.0.clone()),
            _ => {}
        }
    }
    file.items
}

/// Returns the text with each repetition written out: once for each variant, and not at all for documents.
fn repeated(text: &str, variants: &[String]) -> String {
    let Some((before, behind)) = text.split_once("$(") else { return text.to_owned() };
    let mut depth = 1;
    let end = behind.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    });
    let (inner, rest) = behind.split_at(end.expect("the repetition ends"));
    let rest = rest[1..].trim_start_matches([',', '+', '*']);
    let inner = repeated(inner, variants);
    let written: String = if inner.contains("$variant") {
        variants.iter().map(|variant| inner.replace("$variant", variant).replace("$name", "\"\"")).collect()
    } else {
        String::new()
    };
    format!("{before}{written}{}", repeated(rest, variants))
}

#[test]
fn macro_of_discard_reasons_is_written_out() {
    let body = "$(#[doc = $d])+ pub enum $reason { $($(#[doc = $d])+ $variant,)+ }\n\
                pub struct $counters(u64);\nimpl $counters { pub fn all() { $($name,)+ $($reason::$variant;)+ } }";
    let call = "/** a */ Why; /** b */ /** c */ Counts; /** d; => */ Late => \"late\", Early => \"early\",";
    let items = expand(body, call.parse().unwrap());
    let (Item::Enum(reason), Item::Struct(counters)) = (&items[0], &items[1]) else { panic!() };
    assert_eq!((reason.ident.to_string(), counters.ident.to_string()), ("Why".to_owned(), "Counts".to_owned()));
    assert_eq!((reason.attrs.len(), counters.attrs.len()), (1, 2));
    let variants: Vec<String> = reason.variants.iter().map(|variant| variant.ident.to_string()).collect();
    assert_eq!(variants, ["Late", "Early"]);
}
