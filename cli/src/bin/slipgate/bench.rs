//! `slipgate bench`: what a server costs in CPU time, beside plain sockets.

use slipgate_bench::flags::Flags;
use slipgate_cli::Failure;

pub(crate) const AFTER_HELP: &str = "\
Each measure has several rounds in which everybody has a turn; the table shows medians, and ratios that were taken round \
by round. A server's figure is the CPU time of its thread, which has a core of its own. Use a release build, and leave \
the machine alone meanwhile: the whole takes some minutes.

  slipgate bench --quick
  slipgate bench --only echo,tick --rounds 9
  cargo bench -p slipgate-tests --bench datapath    with other libraries beside it, from the repository";

#[cfg(target_os = "linux")]
pub(crate) fn run(flags: &Flags) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::run_time(error.to_string());
    let report = slipgate_bench::run::run(flags, &[], None).map_err(|error| failed(&error))?;
    let text = if flags.json { report.json().map_err(|error| failed(&error))? } else { report.text() };
    crate::say(&text);
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn run(_flags: &Flags) -> Result<(), Failure> {
    Err(Failure::run_time("the benchmark needs Linux: the clock of a thread, and cores of its own"))
}
