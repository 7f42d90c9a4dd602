//! Gives the shared library its soname: programs load the library with the ABI for which they were compiled.

/// The version of the ABI: `SLIPGATE_ABI` in `src/lib.rs`, which a test compares.
const ABI: u32 = 1;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    match target.as_str() {
        // Linkers ignore the name where they make a program, such as a test.
        "linux" | "android" | "freebsd" | "netbsd" | "openbsd" | "dragonfly" => {
            println!("cargo:rustc-link-arg=-Wl,-soname,libslipgate.so.{ABI}");
        }
        _ => {}
    }
}
