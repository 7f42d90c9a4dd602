//! `cargo xtask bench-c`: the same echo in Rust, C and C#, in turns, so that a busy machine slows all of them alike.

use std::error::Error;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::{Build, call, copy, root};

/// The speed of the echo against Rust that C must reach.
const GOAL_C: f64 = 0.97;
/// The speed of the echo against Rust that C# must reach on Mono.
const GOAL_CSHARP: f64 = 0.85;
/// The turns of 64 echoes may differ from 1 by this much. Otherwise the programs do not do the same work: the
/// congestion control holds messages back.
const MAX_TURNS_OFF: f64 = 0.02;
/// The maximum time of one call of `slipgate_client_state`, in nanoseconds.
const GOAL_CALL: f64 = 15.0;
/// The maximum size of the stripped shared library with the client alone, in bytes.
const GOAL_CLIENT_BYTES: u64 = 700_000;
/// The maximum size of the stripped shared library with client and server, in bytes.
const GOAL_BYTES: u64 = 1_100_000;

/// The rounds before the first figures: then caches are warm, C# is compiled, and the congestion control knows the
/// path. They are short, because connections of programs that wait would time out.
const WARM_UP_ROUNDS: usize = 6;
/// The turns of a round.
const TURNS: u32 = 500;

/// A running program that prints a line of figures for each line of its input.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    figures: Vec<Vec<f64>>,
}

impl Program {
    pub(crate) fn start(name: &'static str, command: &mut Command) -> Result<Self, Box<dyn Error>> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or("the program has no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("the program has no output")?);
        Ok(Self { name, child, input, output, figures: Vec::new() })
    }

    /// Measures once. `work` is how much the program does: turns, or echoes.
    fn measure(&mut self, work: u32) -> Result<(), Box<dyn Error>> {
        writeln!(self.input, "{work}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let figures: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
        let figures = figures.ok().filter(|figures| figures.len() >= 2);
        self.figures.push(figures.ok_or_else(|| format!("{} has printed {line:?}", self.name))?);
        Ok(())
    }

    /// Returns the figures of a column, in the order of the rounds.
    pub(crate) fn column(&self, index: usize) -> impl Iterator<Item = f64> {
        self.figures.iter().filter_map(move |line| line.get(index).copied())
    }

    /// Ends the program.
    pub(crate) fn end(mut self) -> Result<(), Box<dyn Error>> {
        drop(self.input);
        if self.child.wait()?.success() { Ok(()) } else { Err(format!("{} has failed", self.name).into()) }
    }
}

pub(crate) fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = figures.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Measures each program once a round.
pub(crate) fn measure_in_turns(programs: &mut [Program], rounds: usize, work: u32) -> Result<(), Box<dyn Error>> {
    for round in 0..rounds {
        // Each program is first, second and last equally often.
        let first = round % programs.len();
        let (before, after) = programs.split_at_mut(first);
        for program in after.iter_mut().chain(before) {
            program.measure(work)?;
        }
    }
    Ok(())
}

/// The goals that were not reached.
#[derive(Default)]
pub(crate) struct Missed(Vec<String>);

impl Missed {
    /// Returns the goal with whether it was reached, for a table.
    pub(crate) fn check(&mut self, figure: &str, goal: &str, is_reached: bool) -> String {
        if is_reached {
            return format!("{goal}: yes");
        }
        self.0.push(figure.to_owned());
        format!("{goal}: NO")
    }

    /// Fails if a goal was missed.
    pub(crate) fn end(self) -> Result<(), Box<dyn Error>> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("missed: {}", self.0.join("; ")).into()) }
    }
}

/// Runs the echo in all languages and prints the ratios beside their goals.
pub(crate) fn run(rounds: usize, with_sizes: bool, missed: &mut Missed) -> Result<(), Box<dyn Error>> {
    let (rust, folder) = build()?;
    let c = compile_c("echo", &folder)?;
    let mut programs =
        vec![Program::start("Rust", &mut Command::new(rust))?, Program::start("C", &mut Command::new(&c))?];
    match compile_csharp(&folder)? {
        Some(program) => {
            let mut command = Command::new("mono");
            let command = command.env("LD_LIBRARY_PATH", &folder).arg(program);
            programs.push(Program::start("C# on Mono", command)?);
        }
        None => println!("skipped: Mono is not installed"),
    }
    measure_in_turns(&mut programs, WARM_UP_ROUNDS, TURNS)?;
    programs.iter_mut().for_each(|program| program.figures.clear());
    measure_in_turns(&mut programs, rounds, TURNS)?;
    print(&programs, missed);
    for program in &programs {
        let turns = median(program.column(1));
        if (turns - 1.0).abs() > MAX_TURNS_OFF {
            return Err(format!("{} took {turns:.3} turns for 64 echoes instead of 1", program.name).into());
        }
    }
    for program in programs {
        program.end()?;
    }
    print_call(&c, missed)?;
    if with_sizes { print_sizes(missed) } else { Ok(()) }
}

fn print(programs: &[Program], missed: &mut Missed) {
    println!("| echo of 64 messages a turn | ns of a message | turns | Rust's time / its time | goal |");
    println!("| --- | --- | --- | --- | --- |");
    let Some(rust) = programs.first() else { return };
    for program in programs {
        let ratio = median(rust.column(0).zip(program.column(0)).map(|(rust, other)| rust / other));
        let goal = match program.name {
            "C" => Some(GOAL_C),
            "C# on Mono" => Some(GOAL_CSHARP),
            _ => None,
        };
        let goal = goal.map(|goal| missed.check(program.name, &format!(">= {goal}"), ratio >= goal));
        let goal = goal.unwrap_or_default();
        let (time, turns) = (median(program.column(0)), median(program.column(1)));
        println!("| {} | {time:.0} | {turns:.3} | {ratio:.3} | {goal} |", program.name);
        let garbage: Vec<f64> = program.column(2).collect();
        if !garbage.is_empty() {
            let most = garbage.into_iter().fold(0.0, f64::max);
            let goal = missed.check("garbage", "0", most == 0.0);
            println!("| garbage of {}, bytes | {most:.0} | | | {goal} |", program.name);
        }
    }
}

/// Prints the time of one call.
fn print_call(program: &Path, missed: &mut Missed) -> Result<(), Box<dyn Error>> {
    let mut program = Program::start("state", Command::new(program).arg("state"))?;
    for _ in 0..5 {
        program.measure(TURNS)?;
    }
    let time = median(program.column(0));
    let goal = missed.check("one call", &format!("<= {GOAL_CALL}"), time <= GOAL_CALL);
    println!("| one call (`slipgate_client_state`), ns | {time:.1} | | | {goal} |");
    program.end()
}

/// Builds the stripped libraries and prints their sizes.
fn print_sizes(missed: &mut Missed) -> Result<(), Box<dyn Error>> {
    for (client_only, name, max) in [(true, "client", GOAL_CLIENT_BYTES), (false, "client and server", GOAL_BYTES)] {
        let build = Build { target: None, profile: "release-small".into(), client_only, glibc: None };
        let size = fs::metadata(build.run()?.join("libslipgate.so"))?.len();
        let goal = missed.check(name, &format!("<= {max}"), size <= max);
        println!("| stripped shared library, {name}, bytes | {size} | | | {goal} |");
    }
    Ok(())
}

/// Builds the library and the program in Rust. Returns the program, and a folder with the library.
pub(crate) fn build() -> Result<(PathBuf, PathBuf), Box<dyn Error>> {
    let build = Build { target: None, profile: "release".into(), client_only: false, glibc: None };
    let built = build.run_with(&["--example", "echo"])?;
    let folder = built.join("bench-c");
    for name in ["libslipgate.so", "libslipgate.so.1"] {
        copy(&built.join("libslipgate.so"), &folder.join(name))?;
    }
    Ok((built.join("echo"), folder))
}

/// Returns a command that compiles a program in C of `capi/benches`, and the program.
pub(crate) fn c_compiler(name: &str, folder: &Path) -> (Command, PathBuf) {
    let (capi, program) = (root().join("capi"), folder.join(name));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c99", "-O2", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I"]).arg(capi.join("include"));
    compiler.arg("-o").arg(&program).arg(capi.join("benches").join(name).with_extension("c"));
    (compiler, program)
}

/// Compiles a program that uses libslipgate.
pub(crate) fn compile_c(name: &str, folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let (mut compiler, program) = c_compiler(name, folder);
    compiler.arg("-L").arg(folder).arg("-lslipgate").arg(format!("-Wl,-rpath,{}", folder.display()));
    call(&mut compiler)?;
    Ok(program)
}

/// Compiles the program in C#; `None` where Mono is not installed.
fn compile_csharp(folder: &Path) -> Result<Option<PathBuf>, Box<dyn Error>> {
    if Command::new("mcs").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Ok(None);
    }
    let program = folder.join("echo.exe");
    let mut compiler = Command::new("mcs");
    compiler.args(["-unsafe", "-optimize+", "-langversion:latest"]).arg(format!("-out:{}", program.display()));
    compiler.arg(root().join("bindings/csharp/Slipgate.cs")).arg(root().join("capi/benches/Echo.cs"));
    call(&mut compiler)?;
    Ok(Some(program))
}
