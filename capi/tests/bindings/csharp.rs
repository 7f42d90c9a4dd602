//! The C# file, compiled and run by Mono.

use std::path::PathBuf;
use std::process::Command;

use super::c_and_cpp::example_of;
use super::header::{functions, generated_header};
use super::toolchain::{folder, has, library, out, run};

/// Compiles `Slipgate.cs` with a program, and returns the program; `None` where Mono is not installed.
pub(crate) fn compile(source: PathBuf) -> Option<PathBuf> {
    if !has("mcs") || !has("mono") {
        return None;
    }
    let program = out().join(source.with_extension("exe").file_name().unwrap());
    let mut compiler = Command::new("mcs");
    compiler.args(["-unsafe", "-langversion:latest", "-warnaserror"]).arg(format!("-out:{}", program.display()));
    run(compiler.arg(folder().join("../bindings/csharp/Slipgate.cs")).arg(source));
    Some(program)
}

/// Returns the command that runs a program of [`compile`].
pub(crate) fn mono(program: PathBuf) -> Command {
    let mut command = Command::new("mono");
    command.env("LD_LIBRARY_PATH", library()).arg(program);
    command
}

#[test]
fn ten_thousand_messages_make_no_garbage() {
    let Some(program) = compile(folder().join("../bindings/csharp/Tests~/EveryMethod.cs")) else { return };
    assert_eq!(run(&mut mono(program)), "garbage: 0 bytes, 0 collections\nok\n");
}

#[test]
fn example_of_the_guide_compiles() {
    let source = out().join("Guide.cs");
    let head = "using System;\nusing System.Text;\nusing Slipgate;\nstatic class Guide {\n\
                static void Play(byte[] token, byte[] line) {\n";
    let code = example_of("csharp.md", "csharp");
    std::fs::write(&source, format!("{head}{code}}}\nstatic void Main() {{ }}\n}}\n")).unwrap();
    compile(source);
}

#[test]
fn functions_and_their_parameters_are_those_of_the_header() {
    let header = generated_header();
    let file = std::fs::read_to_string(folder().join("../bindings/csharp/Slipgate.cs")).unwrap();
    let mut found = 0;
    for name in functions(&header) {
        let parameters = |text: &str, before: &str| {
            let start = text.find(&format!("{before}{name}("));
            let (_, rest) = text[start.unwrap_or_else(|| panic!("{name} is missing"))..].split_once('(').unwrap();
            let (inside, _) = rest.split_once(')').unwrap();
            if ["", "void"].contains(&inside.trim()) { 0 } else { inside.split(',').count() }
        };
        let code: Vec<&str> = header.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let imports = file.rsplit_once("internal static unsafe class Native").unwrap().1;
        assert_eq!(parameters(imports, " "), parameters(&code.join("\n"), ""), "{name}");
        found += 1;
    }
    assert_eq!(file.matches("[DllImport(Library)]").count(), found);
}
