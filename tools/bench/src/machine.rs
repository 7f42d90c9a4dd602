//! Describes the machine of a run in one line.

use std::fs;
use std::process::Command;

/// Returns CPU, cores, kernel and compiler.
#[must_use]
pub fn line() -> String {
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let names = || information.lines().filter(|line| line.starts_with("model name"));
    let cpu = names().next().and_then(|line| Some(line.split_once(':')?.1.trim()));
    // The driver's affinity hides cores from the standard library.
    let cores = names().count().max(1);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned());
    let compiler = Command::new("rustc").arg("--version").output().ok();
    let compiler = compiler.and_then(|output| String::from_utf8(output.stdout).ok()).map(|text| text.trim().to_owned());
    format!(
        "{}, {cores} cores; Linux {}; {}",
        cpu.unwrap_or("unknown CPU"),
        kernel.as_deref().unwrap_or("of unknown version"),
        compiler.as_deref().unwrap_or("rustc not found"),
    )
}
