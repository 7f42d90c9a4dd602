//! C and C++ programs, compiled with all warnings as errors, linked in both ways, and run under valgrind.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::toolchain::{Linkage, compile, folder, has, out, run, valgrind};

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
fn valgrind_finds_no_error_and_no_leak() {
    is_clean_under_valgrind("every_function.c");
    is_clean_under_valgrind("misuse.c");
    is_clean_under_valgrind("classes.cpp");
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

#[test]
fn example_of_the_guide_compiles() {
    if !has("cc") {
        return;
    }
    let guide = fs::read_to_string(folder().join("../docs/c.md")).unwrap();
    let (_, code) = guide.split_once("```c\n").unwrap();
    let (code, _) = code.split_once("```\n").unwrap();
    let source = out().join("guide.c");
    fs::write(&source, format!("{code}\nint main(void) {{ return play(NULL, 0); }}\n")).unwrap();
    // Without a token the connection does not start, so the program would run forever.
    compile(&source, Linkage::Shared);
}
