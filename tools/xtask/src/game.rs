//! `cargo xtask bench-c --netcode <folder> --reliable <folder>`: 64 clients and a server with the C interface, beside
//! the same with netcode.c and reliable.c.
//!
//! Both libraries are read from folders of the reader: they are no part of this project.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::{Missed, Program, build, c_compiler, compile_c, measure_in_turns, median};
use crate::call;

/// How many messages per core-second the C interface must carry for each one of netcode.c and reliable.c.
const GOAL: f64 = 1.3;

/// The echoes of a round.
const ECHOES: u32 = 256_000;

/// Runs the three programs in turns and prints the ratios beside the goal.
pub(crate) fn run(rounds: usize, netcode: &Path, reliable: &Path, missed: &mut Missed) -> Result<(), Box<dyn Error>> {
    let (_, folder) = build()?;
    let game = compile_c("game", &folder)?;
    let mut programs = vec![
        Program::start("netcode.c and reliable.c", &mut Command::new(compile_peer(&folder, netcode, reliable)?))?,
        Program::start("Slipgate, acknowledged packets", &mut Command::new(&game))?,
        Program::start("Slipgate, an unreliable channel", Command::new(&game).arg("channels"))?,
    ];
    measure_in_turns(&mut programs, rounds, ECHOES)?;
    println!();
    println!(
        "| 64 clients, an echo each and turn | ns of a message | echoes that arrived | ratio per core-second | goal |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for (index, program) in programs.iter().enumerate() {
        let peer = programs.iter().take(1).flat_map(|peer| peer.column(0));
        let ratio = median(peer.zip(program.column(0)).map(|(peer, ours)| peer / ours));
        let goal =
            if index == 0 { String::new() } else { missed.check(program.name, &format!(">= {GOAL}"), ratio >= GOAL) };
        let (time, arrived) = (median(program.column(0)), median(program.column(1)));
        println!("| {} | {time:.0} | {arrived:.4} | {ratio:.2} | {goal} |", program.name);
    }
    programs.into_iter().try_for_each(Program::end)
}

/// Compiles the program that uses netcode.c and reliable.c.
fn compile_peer(folder: &Path, netcode: &Path, reliable: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let sodium = netcode.join("sodium");
    let mut objects = Vec::new();
    for source in [netcode.join("netcode.c"), sodium.join("sodium.c"), reliable.join("reliable.c")] {
        let object = folder.join(source.file_name().unwrap_or_default()).with_extension("o");
        // Release builds of both libraries, as their build files make them.
        let mut compiler = Command::new("cc");
        compiler
            .args(["-w", "-O3", "-DNDEBUG", "-DNETCODE_RELEASE", "-DRELIABLE_RELEASE", "-I"])
            .arg(netcode)
            .arg("-I")
            .arg(&sodium);
        call(compiler.arg("-c").arg(&source).arg("-o").arg(&object))?;
        objects.push(object);
    }
    let (mut compiler, program) = c_compiler("game_netcode", folder);
    compiler.arg("-I").arg(netcode).arg("-I").arg(reliable).args(objects).arg("-lm");
    call(&mut compiler)?;
    Ok(program)
}
