//! The header and the ABI are those of the sources.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::toolchain::{folder, has, library, out, run};

/// The files of the header in its order. cbindgen reads their modules, too.
const FILES: &[&str] = &[
    "library.rs",
    "status.rs",
    "log.rs",
    "traffic.rs",
    "event_kinds.rs",
    "event.rs",
    "path.rs",
    "send.rs",
    "transfer.rs",
    "client.rs",
    "server/config.rs",
    "server.rs",
    "server/clients.rs",
    "waker.rs",
    "token.rs",
];

/// Compares a checked-in file with its generated text, and writes it if `SLIPGATE_BLESS` is set.
fn compare(file: &Path, generated: &str) {
    if std::env::var_os("SLIPGATE_BLESS").is_some() {
        fs::write(file, generated).unwrap();
    }
    let checked_in = fs::read_to_string(file).unwrap_or_default();
    assert!(
        checked_in == generated,
        "{} is not what the sources generate; to accept it: SLIPGATE_BLESS=1 cargo test -p slipgate-c",
        file.display()
    );
}

/// Generates the header from the sources of this crate.
pub(crate) fn generated_header() -> String {
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in FILES {
        builder = builder.with_src(folder().join("src").join(file));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn header_is_the_one_that_the_sources_generate() {
    compare(&folder().join("include/slipgate.h"), &generated_header());
}

/// Returns the names of the functions that the header declares.
pub(crate) fn functions(header: &str) -> BTreeSet<String> {
    let code: Vec<&str> = header.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let declarations = code.split("SLIPGATE_IMPORT").skip(3).filter_map(|text| text.split_once('('));
    declarations.filter_map(|(before, _)| before.split([' ', '*', '\n']).next_back().map(str::to_owned)).collect()
}

#[test]
fn library_exports_the_functions_of_the_header() {
    if !has("nm") {
        return;
    }
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library().join("libslipgate.so")));
    let exported: BTreeSet<String> =
        symbols.lines().filter_map(|line| line.split(' ').next_back().map(str::to_owned)).collect();
    assert_eq!(exported, functions(&generated_header()));
}

#[test]
fn soname_has_the_version_of_the_abi() {
    if !has("readelf") {
        return;
    }
    let dynamic = run(Command::new("readelf").arg("-d").arg(library().join("libslipgate.so")));
    let soname = format!("[libslipgate.so.{}]", slipgate_c::SLIPGATE_ABI);
    assert!(dynamic.contains(&soname), "{dynamic}");
    // Nothing but the C library and the unwinder is needed.
    let needed: Vec<&str> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(needed.iter().all(|line| ["libc.", "libgcc_s.", "ld-linux"].iter().any(|name| line.contains(name))));
}

/// Returns the constants, functions, and structures with the offsets of their fields on a machine with 64 bits.
fn abi(header: &str) -> String {
    let code: Vec<&str> = header.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let mut text = String::new();
    for line in code.iter().filter(|line| line.starts_with("#define SLIPGATE_")) {
        let is_value = line.split(' ').nth(2).is_some_and(|value| value.parse::<i64>().is_ok());
        is_value.then(|| _ = writeln!(text, "{}", line.replace("#define ", "const ")));
    }
    let code = code.join("\n");
    for declaration in code.split("SLIPGATE_IMPORT").skip(3) {
        let (declaration, _) = declaration.split_once(';').unwrap();
        let words: Vec<&str> = declaration.split_whitespace().collect();
        writeln!(text, "fn {}", words.join(" ")).unwrap();
    }
    text + &offsets(&code)
}

/// Lets the C compiler print the sizes and offsets of the structures.
fn offsets(code: &str) -> String {
    let mut program = "#include <stdio.h>\n#include \"slipgate.h\"\nint main(void) {\n".to_owned();
    for structure in code.split("typedef struct ").skip(1).filter(|text| text.contains(" {\n")) {
        let Some((name, body)) = structure.split_once(" {\n") else { continue };
        let (fields, _) = body.split_once("\n}").unwrap_or_default();
        writeln!(program, "printf(\"struct {name} %zu\\n\", sizeof({name}));").unwrap();
        for field in fields.lines().filter_map(|line| line.trim().trim_end_matches(';').split([' ', '*']).next_back()) {
            let field = field.split('[').next().unwrap_or(field);
            writeln!(program, "printf(\"field {name}.{field} %zu\\n\", offsetof({name}, {field}));").unwrap();
        }
    }
    let (source, built) = (out().join("offsets.c"), out().join("offsets"));
    fs::write(&source, program + "}\n").unwrap();
    run(Command::new("cc").arg("-I").arg(folder().join("include")).arg("-o").arg(&built).arg(&source));
    run(&mut Command::new(built))
}

/// A changed line breaks programs that were compiled before: raise `SLIPGATE_ABI`, the soname in `build.rs` and
/// `version` in `Cargo.toml` together. A new line is harmless.
#[test]
fn abi_is_the_reviewed_one() {
    if !has("cc") || !cfg!(target_pointer_width = "64") {
        return;
    }
    let (file, now) = (folder().join("abi.txt"), abi(&generated_header()));
    let before = fs::read_to_string(&file).unwrap_or_default();
    let version = |text: &str| text.lines().find(|line| line.starts_with("const SLIPGATE_ABI ")).map(str::to_owned);
    if version(&before) == version(&now) {
        let removed: Vec<&str> = before.lines().filter(|line| !now.lines().any(|other| other == *line)).collect();
        assert!(removed.is_empty(), "programs that were compiled before need these: {removed:#?}");
    }
    compare(&file, &now);
}

#[test]
fn version_of_the_abi_is_the_same_in_all_files() {
    let abi = slipgate_c::SLIPGATE_ABI;
    let build = fs::read_to_string(folder().join("build.rs")).unwrap();
    assert!(build.contains(&format!("const ABI: u32 = {abi};")));
    let manifest = fs::read_to_string(folder().join("Cargo.toml")).unwrap();
    assert!(manifest.contains(&format!("version = \"{abi}.0.0\"")));
    let install = fs::read_to_string(folder().join("../tools/xtask/src/install.rs")).unwrap();
    assert!(install.contains(&format!("const ABI: u32 = {abi};")));
}
