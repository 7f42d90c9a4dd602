//! Gives the shared library its soname: programs load the library with the ABI for which they were compiled. And strips
//! it in the profile `release-small`.

/// The version of the ABI: `SLIPGATE_ABI` in `src/lib.rs`, which a test compares.
const ABI: u32 = 1;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let variable = |name| std::env::var(name).unwrap_or_default();
    // Linkers ignore the name where they make a program, such as a test. Android takes no name with a version.
    if matches!(variable("CARGO_CFG_TARGET_OS").as_str(), "linux" | "freebsd" | "netbsd" | "openbsd" | "dragonfly") {
        println!("cargo:rustc-link-arg=-Wl,-soname,libslipgate.so.{ABI}");
    }
    // Cargo keeps the symbols of a target that is a static library, too, although the profile strips them.
    let is_small = variable("OPT_LEVEL") == "s" && variable("DEBUG") == "false";
    if is_small && variable("CARGO_CFG_TARGET_ENV") != "msvc" && variable("CARGO_CFG_TARGET_VENDOR") != "apple" {
        println!("cargo:rustc-link-arg=-Wl,-s");
    }
}
