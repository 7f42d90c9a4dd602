//! C and C++ programs, compiled with all warnings as errors, linked in both ways, and run under valgrind.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::header::{functions, generated_header};
use super::toolchain::{Linkage, compile, folder, has, library, out, run, valgrind, valgrind_command};

fn passes(file: &str, linkage: Linkage) {
    let compiler = if file.ends_with(".c") { "cc" } else { "c++" };
    if has(compiler) {
        let program = compile(&folder().join("tests").join(file), linkage);
        assert_eq!(run(&mut Command::new(program)), "ok\n", "{file}");
    }
}

fn is_clean_under_valgrind(file: &str) {
    if has("cc") && has("c++") && has("valgrind") {
        assert_eq!(valgrind(&compile(&folder().join("tests").join(file), Linkage::Static)), "ok\n", "{file}");
    }
}

#[test]
fn every_function_works_in_c() {
    passes("every_function.c", Linkage::Shared);
    passes("every_function.c", Linkage::Static);
}

/// Returns whether a file calls a function.
fn calls(file: &str, function: &str) -> bool {
    file.contains(&format!("{function}("))
}

#[test]
fn every_function_is_called_in_c_and_cpp() {
    let read = |file: &str| fs::read_to_string(folder().join(file)).unwrap();
    let (works, refuses, classes) =
        (read("tests/every_function.c"), read("tests/misuse.c"), read("include/slipgate.hpp"));
    for name in functions(&generated_header()) {
        assert!(calls(&works, &name), "every_function.c does not call {name}");
        // These take no pointer.
        if !["slipgate_abi", "slipgate_version", "slipgate_size_of"].contains(&name.as_str()) {
            assert!(calls(&refuses, &name), "misuse.c does not call {name}");
        }
        // A program that needs them includes slipgate.h beside the classes.
        if !["slipgate_abi", "slipgate_size_of"].contains(&name.as_str()) {
            assert!(calls(&classes, &name), "slipgate.hpp does not call {name}");
        }
    }
}

/// Returns the public methods of the classes of a header in C++, and its functions.
fn methods(header: &str) -> BTreeSet<&str> {
    let mut is_public = true;
    let mut found = BTreeSet::new();
    for line in header.lines() {
        match line {
            "public:" => is_public = true,
            "private:" => is_public = false,
            _ if line.starts_with("struct Deleter") => is_public = false,
            "};" => is_public = true,
            _ => {}
        }
        // Classes have 4 spaces, functions none. A body has more, and the next line of parameters, too.
        let code = line.strip_prefix("    ").unwrap_or(line);
        let is_declaration = is_public && code.starts_with(char::is_alphabetic) || code.starts_with("[[nodiscard]]");
        let Some((before, _)) = code.split_once('(').filter(|_| is_declaration) else { continue };
        // A type and a name. A constructor, a call, `static_assert` and a statement have no type or no such name.
        let words: Vec<&str> = before.split(' ').collect();
        if let [.., kind, name] = words[..]
            && !["return", "throw", "explicit"].contains(&kind)
            && !name.is_empty()
            && !before.contains(['=', '.', '#'])
        {
            found.insert(name);
        }
    }
    found
}

#[test]
fn every_method_is_called_in_cpp() {
    let read = |file: &str| fs::read_to_string(folder().join(file)).unwrap();
    let (header, program) = (read("include/slipgate.hpp"), read("tests/classes.cpp"));
    let methods = methods(&header);
    for name in &methods {
        let is_called = [".", "->", "::"].iter().any(|before| calls(&program, &format!("{before}{name}")));
        assert!(is_called, "classes.cpp does not call {name}");
    }
    for known in ["why_closed", "set_uplink", "next", "connect", "generate_key", "view", "max_payload_bytes"] {
        assert!(methods.contains(known), "{known} is not found: {methods:?}");
    }
}

#[test]
fn null_and_random_arguments_are_refused() {
    passes("misuse.c", Linkage::Shared);
}

#[test]
fn every_method_works_in_cpp() {
    passes("classes.cpp", Linkage::Shared);
    passes("classes.cpp", Linkage::Static);
}

#[test]
fn unreal_module_works_with_stubs_of_the_engine() {
    if !has("c++") {
        return;
    }
    let module = folder().join("../bindings/unreal/Slipgate/Source/Slipgate");
    let stubs = folder().join("tests/unreal");
    let program = out().join("unreal_module");
    let mut compiler = Command::new("c++");
    // The engine compiles modules without exceptions.
    compiler.args(["-std=c++17", "-g", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fno-exceptions"]);
    for include in [&folder().join("include"), &stubs, &module.join("Public")] {
        compiler.arg("-I").arg(include);
    }
    compiler.arg("-o").arg(&program).arg(stubs.join("main.cpp"));
    compiler.arg(module.join("Private/SlipgateClient.cpp")).arg(module.join("Private/SlipgateModule.cpp"));
    compiler.arg("-L").arg(library()).arg("-lslipgate").arg(format!("-Wl,-rpath,{}", library().display()));
    run(&mut compiler);
    assert_eq!(run(&mut Command::new(program)), "ok\n");
}

#[test]
fn valgrind_finds_no_error_and_no_leak() {
    is_clean_under_valgrind("every_function.c");
    is_clean_under_valgrind("misuse.c");
    is_clean_under_valgrind("classes.cpp");
}

#[test]
fn valgrind_reports_what_a_program_forgot_to_write() {
    if has("cc") && has("valgrind") {
        let program = compile(&folder().join("tests/uninitialised.c"), Linkage::Static);
        let report = valgrind_command(&program).output().unwrap();
        let text = String::from_utf8_lossy(&report.stderr);
        assert!(report.status.code() == Some(9) && text.contains("read_options"), "{text}");
    }
}

/// Runs a program of `cargo xtask bench-c` once. Returns the processor time and its second figure.
fn benchmark(file: &str, argument: &str, work: u32) -> (f64, f64) {
    let program = compile(&folder().join("benches").join(file), Linkage::Shared);
    let mut child = Command::new(&program).arg(argument).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{work}").unwrap();
    let output = child.wait_with_output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{file}: {line}");
    let (time, second) = line.trim().split_once(' ').unwrap();
    (time.parse().unwrap(), second.parse().unwrap())
}

#[test]
fn benchmark_of_64_clients_gets_its_echoes() {
    if has("cc") {
        for traffic in ["packets", "channels"] {
            let (time, arrived) = benchmark("game.c", traffic, 4000);
            assert!(time > 0.0 && arrived > 0.9, "{traffic}: {time} ns, {arrived} of the echoes");
        }
    }
}

#[test]
fn benchmark_of_an_echo_gets_its_echoes() {
    if has("cc") {
        // The connection takes some of the 500 turns, so the turns of an echo are more than 1.
        let (time, turns) = benchmark("echo.c", "", 500);
        assert!(time.is_finite() && time > 0.0 && (1.0..100.0).contains(&turns), "{time} ns, {turns} turns");
    }
}

/// Returns the examples of a guide in a language.
fn examples_of(guide: &str, language: &str) -> Vec<String> {
    let guide = fs::read_to_string(folder().join("../docs").join(guide)).unwrap();
    let start = format!("```{language}\n");
    guide.split(&start).skip(1).map(|code| code.split_once("```\n").unwrap().0.to_owned()).collect()
}

#[test]
fn examples_of_the_guide_compile() {
    if has("cc") {
        let source = out().join("guide.c");
        let [client, server] = &examples_of("c.md", "c")[..] else { panic!("two examples in C") };
        let main = "int main(void) { const int runs = 0; const uint8_t key[32] = {1};\n\
                    return serve(key, &runs) || play(NULL, 0); }\n";
        let server = server.replace("127.0.0.1:40000", "127.0.0.1:0");
        fs::write(&source, format!("{client}\n{server}\n{main}")).unwrap();
        // The server ends at once. Without a token no connection begins, and the program ends.
        let printed = run(&mut Command::new(compile(&source, Linkage::Shared)));
        assert_eq!(printed, "the connect token is invalid\n");
    }
    if has("c++") {
        let source = out().join("guide.cpp");
        let examples = examples_of("c.md", "cpp");
        let [client, batch] = &examples[..] else { panic!("two examples in C++") };
        let head = "#include <iostream>\n#include <slipgate.hpp>\n";
        // It has the names of the first example.
        let batch = format!("void send(slipgate::Client& net, std::uint8_t chat) {{\n{batch}}}\n");
        let start = "slipgate::Client idle;\nsend(idle, 0);\nconst slipgate::Token token{};\n";
        let end = "std::cout << error.status(); }\n";
        let main = format!("int main() try {{\n{start}{client}}} catch (const slipgate::Error& error) {{ {end}");
        fs::write(&source, format!("{head}{batch}{main}")).unwrap();
        // A client of payloads refuses the messages, and the empty token is refused.
        assert_eq!(run(&mut Command::new(compile(&source, Linkage::Shared))), "-12\n-3");
    }
}
