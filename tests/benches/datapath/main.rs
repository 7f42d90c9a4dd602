//! Measures the cost of a server beside plain sockets and other Rust libraries for netcode 1.02: `cargo bench -p
//! slipgate-tests --bench datapath`. `benches/README.md` describes the method.

#[cfg(target_os = "linux")]
mod peers;

#[cfg(target_os = "linux")]
mod program {
    use std::io::{self, Write};

    use clap::Parser;
    use slipgate_bench::flags::BenchFlags;
    use slipgate_bench::run::run;
    use slipgate_bench::server_thread::AllocationProbe;
    use slipgate_tests::counting::{self, Counting};

    use crate::peers;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    /// Measures the CPU time of a server beside its peers.
    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        flags: BenchFlags,

        /// Passed by `cargo bench`
        #[arg(long, hide = true)]
        bench: bool,
    }

    pub(crate) fn main() -> io::Result<()> {
        let flags = Arguments::parse().flags;
        let probe = AllocationProbe { allocations: counting::allocation_count, bytes: counting::bytes };
        let report = run(&flags, &peers::ALL, Some(probe))?;
        writeln!(io::stdout(), "{}", if flags.json { report.json()? } else { report.text() })
    }
}

#[cfg(target_os = "linux")]
fn main() -> std::io::Result<()> {
    program::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {}
