//! `slipgate bench`: measures the CPU time of a server, compared with plain sockets.

use slipgate_bench::flags::BenchFlags;
use slipgate_cli::Failure;

pub(crate) const AFTER_HELP: &str = "\
Each measure runs in several rounds, and each round runs every contender once. The table shows medians, and ratios \
computed round by round. A server's figure is the CPU time of its thread, which is pinned to its own core. Use a \
release build and an otherwise idle machine; the whole run takes several minutes.

  slipgate bench --quick
  slipgate bench --only echo,tick --rounds 9
  cargo bench -p slipgate-tests --bench datapath    compares with other libraries, from the repository";

#[cfg(target_os = "linux")]
pub(crate) fn run(flags: &BenchFlags) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::run_time(error.to_string());
    let report = slipgate_bench::run::run(flags, &[], None).map_err(|error| failed(&error))?;
    let text = if flags.json { report.json().map_err(|error| failed(&error))? } else { report.text() };
    slipgate_cli::output::print_line(&text);
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn run(_flags: &BenchFlags) -> Result<(), Failure> {
    Err(Failure::run_time("the benchmark needs Linux, for thread CPU clocks and pinned cores"))
}
