//! The law book of Glide, `specs/glide-1.md`: its constants are those of the code, and the code cites its sections.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use syn::{Expr, Item, Type};

use super::files::{files, is_test, root};

const FOLDER: &str = "protocol/session/src/congestion";
const DOCUMENT: &str = "specs/glide-1.md";
/// The files beside the folder `glide` that take part in the controller.
const SHARED: &[&str] = &["pacer", "rate", "state", "timing", "windowed_minmax"];
/// Units of constants without a type of their own, which therefore count things or are ratios.
const PLAIN_UNITS: &[&str] = &["ratio", "count", "packets"];
/// Constants whose unit has no type, and that unit.
const OTHER_UNITS: &[(&str, &str)] = &[("cubic::STEEPNESS", "packets/s³"), ("rate::FLOOR_PACKET_BYTES", "B")];

/// A value in its base unit: seconds, bytes, bytes per second, or a number.
#[derive(Clone, PartialEq)]
struct Quantity {
    values: Vec<f64>,
    unit: &'static str,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = self.values.iter().map(f64::to_string).collect();
        write!(f, "{} | {}", values.join(", "), self.unit)
    }
}

/// Returns the base unit of a type, with how many of them the type's number counts.
fn unit_of(ty: &Type) -> Option<&'static str> {
    match ty {
        Type::Array(array) => unit_of(&array.elem),
        Type::Path(path) => match path.path.segments.last()?.ident.to_string().as_str() {
            "f64" | "u16" | "u32" | "u64" | "usize" => Some(""),
            "Duration" | "Seconds" => Some("s"),
            "Bytes" => Some("B"),
            "BytesPerSecond" => Some("B/s"),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the values of a constant expression; `known` holds the constants that it may name.
fn values_of(expr: &Expr, known: &BTreeMap<String, Vec<f64>>) -> Option<Vec<f64>> {
    let one = |expr: &Expr| values_of(expr, known).and_then(|values| values.first().copied());
    Some(match expr {
        Expr::Lit(lit) => match &lit.lit {
            syn::Lit::Float(number) => vec![number.base10_parse().ok()?],
            syn::Lit::Int(number) => vec![number.base10_parse().ok()?],
            _ => return None,
        },
        Expr::Binary(binary) => {
            let (left, right) = (one(&binary.left)?, one(&binary.right)?);
            vec![match binary.op {
                syn::BinOp::Div(_) => left / right,
                syn::BinOp::Mul(_) => left * right,
                _ => return None,
            }]
        }
        Expr::Array(array) => array.elems.iter().map(one).collect::<Option<_>>()?,
        Expr::Call(call) => {
            let Expr::Path(function) = &*call.func else { return None };
            let scale = match function.path.segments.last()?.ident.to_string().as_str() {
                "from_secs" | "Seconds" | "Bytes" | "BytesPerSecond" => 1.0,
                "from_millis" => 1000.0,
                "from_micros" => 1e6,
                _ => return None,
            };
            vec![one(call.args.first()?)? / scale]
        }
        Expr::Cast(cast) => vec![one(&cast.expr)?],
        Expr::Paren(inner) => vec![one(&inner.expr)?],
        Expr::Path(path) => known.get(&path.path.segments.last()?.ident.to_string())?.clone(),
        _ => return None,
    })
}

/// Returns the numbers that a file defines as constants, outside of its tests; one may name those before it.
fn constants_of(source: &str, known: &BTreeMap<String, Vec<f64>>) -> Vec<(String, Quantity)> {
    let (mut found, mut known) = (Vec::new(), known.clone());
    for item in syn::parse_file(source).expect("a Rust file").items {
        let Item::Const(constant) = item else { continue };
        if constant.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) {
            continue;
        }
        let Some(unit) = unit_of(&constant.ty) else { continue };
        let name = constant.ident.to_string();
        let values = values_of(&constant.expr, &known).unwrap_or_else(|| panic!("{name}: write its value as a number"));
        known.insert(name.clone(), values.clone());
        found.push((name, Quantity { values, unit }));
    }
    found
}

/// Returns each constant of the controller as `file::NAME`.
fn constants() -> BTreeMap<String, Quantity> {
    let folder = root().join(FOLDER);
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    let common = constants_of(&read(&folder.join("rate.rs")), &BTreeMap::new());
    let common = common.into_iter().map(|(name, quantity)| (name, quantity.values)).collect();
    let mut sources = files(&folder.join("glide"), &["rs"]);
    sources.extend(SHARED.iter().map(|name| folder.join(format!("{name}.rs"))));
    let mut found = BTreeMap::new();
    for path in sources.iter().filter(|path| !is_test(path)) {
        let is_parent = path.ends_with("mod.rs");
        let file = if is_parent { path.parent().unwrap() } else { path }.file_stem().unwrap().to_string_lossy();
        let constants = constants_of(&read(path), &common);
        found.extend(constants.into_iter().map(|(name, quantity)| (format!("{file}::{name}"), quantity)));
    }
    found
}

/// Returns the value of a row in its base unit, and the unit as the row names it.
fn quantity_of_row(values: &str, unit: &str) -> Option<Quantity> {
    let (scale, unit) = match unit {
        "s" => (1.0, "s"),
        "ms" => (1000.0, "s"),
        "B" => (1.0, "B"),
        "B/s" => (1.0, "B/s"),
        _ => (1.0, ""),
    };
    let number = |value: &str| {
        let value = value.trim().replace(',', "");
        let (over, under) = value.split_once('/').unwrap_or((&value, "1"));
        Some(over.parse::<f64>().ok()? / under.parse::<f64>().ok()? / scale)
    };
    Some(Quantity { values: values.split(';').map(number).collect::<Option<_>>()?, unit })
}

#[test]
fn constants_of_the_law_book_are_those_of_the_code() {
    let document = fs::read_to_string(root().join(DOCUMENT)).unwrap();
    let (mut code, mut offences) = (constants(), Vec::new());
    assert!(code.len() > 100, "only {} constants were found: this test no longer reads the code", code.len());
    for row in document.lines().filter_map(|line| line.strip_prefix("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[0].trim_end_matches('`');
        if !name.contains("::") {
            continue;
        }
        let [_, value, unit, source, ..] = cells[..] else { panic!("a row of four cells: {row}") };
        let Some(wanted) = code.remove(name) else {
            offences.push(format!("{name}: no such constant, or a second row"));
            continue;
        };
        let is_plain = wanted.unit.is_empty();
        let other = OTHER_UNITS.iter().find(|(other, _)| *other == name).map(|(_, unit)| *unit);
        let has_unit = !is_plain || other.map_or(PLAIN_UNITS.contains(&unit), |other| other == unit);
        let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * b.abs();
        let is_same = quantity_of_row(value, unit).is_some_and(|row| {
            (row.unit == wanted.unit || other.is_some())
                && row.values.len() == wanted.values.len()
                && row.values.iter().zip(&wanted.values).all(is_close)
        });
        if !has_unit || !is_same {
            offences.push(format!("{name}: the row says {value} {unit}, the code {wanted}"));
        }
        if source.is_empty() {
            offences.push(format!("{name}: the row names no source"));
        }
    }
    offences.extend(code.iter().map(|(name, wanted)| format!("no row: | `{name}` | {wanted} | source |")));
    assert!(offences.is_empty(), "{DOCUMENT} and {FOLDER} differ:\n{}", offences.join("\n"));
}

#[test]
fn sections_of_the_law_book_that_the_code_cites_exist() {
    let document = fs::read_to_string(root().join(DOCUMENT)).unwrap();
    let headings = document.lines().filter(|line| line.starts_with("##"));
    let numbers: BTreeSet<&str> = headings
        .filter_map(|line| line.trim_start_matches('#').split_whitespace().next())
        .map(|number| number.trim_end_matches('.'))
        .collect();
    let (mut count, mut missing) = (0, Vec::new());
    for path in files(&root(), &["rs", "md"]) {
        let text = fs::read_to_string(&path).unwrap();
        for (_, behind) in text.match_indices("Glide §").map(|(start, cite)| text.split_at(start + cite.len())) {
            let number = behind.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap().trim_end_matches('.');
            count += 1;
            if !number.is_empty() && !numbers.contains(number) {
                missing.push(format!("{}: §{number}", path.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(count > 15, "only {count} citations were found: this test no longer reads the code");
    assert!(missing.is_empty(), "sections that {DOCUMENT} lacks:\n{}", missing.join("\n"));
}

#[test]
fn values_of_constants_and_rows_are_read() {
    let source = [
        "const A: Seconds = Seconds(1.0 / 4.0);",
        "const B: [f64; 2] = [1.0, 2.5];",
        "const C: State = State {};",
        "const D: Duration = Duration::from_millis(20);",
        "const E: Duration = D_0;",
        "const G: u64 = 2 * (H_0 as u64);",
        "#[cfg(test)] const F: u32 = 1;",
    ];
    let known = BTreeMap::from([("D_0".to_owned(), vec![0.1]), ("H_0".to_owned(), vec![4.0])]);
    let found: Vec<String> =
        constants_of(&source.concat(), &known).iter().map(|(name, quantity)| format!("{name} {quantity}")).collect();
    assert_eq!(found, ["A 0.25 | s", "B 1, 2.5 | ", "D 0.02 | s", "E 0.1 | s", "G 8 | "]);
    assert_eq!(quantity_of_row("1,250; 20", "ms").unwrap().values, [1.25, 0.02]);
    assert_eq!(quantity_of_row("1/60", "s").unwrap().values, [1.0 / 60.0]);
}
