//! The files of an installed library: pkg-config and CMake find it.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{call, copy, root};

/// The version of the ABI, `SLIPGATE_ABI` of the header; a test of the C interface compares it.
const ABI: u32 = 1;

/// The libraries that static programs link beside ours, as `rustc --print native-static-libs` says.
const UNIX_LIBRARIES: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";
const WINDOWS_LIBRARIES: &str = "-lws2_32 -lntdll -luserenv -lbcrypt -ladvapi32 -lkernel32 -ldbghelp";

/// Copies the library in `built` and the headers to `folder`, which programs know as `prefix`.
pub(crate) fn install(built: &Path, prefix: &Path, folder: &Path, is_windows: bool) -> Result<(), Box<dyn Error>> {
    let (lib, include) = (folder.join("lib"), root().join("capi/include"));
    for header in ["slipgate.h", "slipgate.hpp"] {
        copy(&include.join(header), &folder.join("include").join(header))?;
    }
    copy(&built.join("libslipgate.a"), &lib.join("libslipgate.a"))?;
    if is_windows {
        copy(&built.join("slipgate.dll"), &folder.join("bin/slipgate.dll"))?;
        write_import_library(&lib)?;
    } else {
        install_shared(built, &lib)?;
    }
    for (name, linkage) in [("slipgate", Linkage::Shared), ("slipgate-static", Linkage::Static)] {
        let file = lib.join("pkgconfig").join(name).with_extension("pc");
        write(&file, &pkg_config_text(name, linkage, prefix, is_windows))?;
    }
    write(&lib.join("cmake/slipgate/slipgateConfig.cmake"), &cmake_text(is_windows))?;
    write(&lib.join("cmake/slipgate/slipgateConfigVersion.cmake"), &cmake_version_text())
}

/// Installs the shared library under the name of its ABI, and the name that linkers look for as a link to it.
fn install_shared(built: &Path, lib: &Path) -> Result<(), Box<dyn Error>> {
    let soname = format!("libslipgate.so.{ABI}");
    copy(&built.join("libslipgate.so"), &lib.join(&soname))?;
    let link = lib.join("libslipgate.so");
    let _ = fs::remove_file(&link);
    #[cfg(unix)]
    std::os::unix::fs::symlink(soname, link)?;
    #[cfg(not(unix))]
    fs::copy(lib.join(soname), link)?;
    Ok(())
}

/// Writes the library that programs for Windows link. Cargo's own names a file with a hash.
fn write_import_library(lib: &Path) -> Result<(), Box<dyn Error>> {
    let abi = fs::read_to_string(root().join("capi/abi.txt"))?;
    let words = abi.lines().filter(|line| line.starts_with("fn ")).filter_map(|line| line.split('(').next());
    let names: Vec<&str> = words.filter_map(|before| before.rsplit([' ', '*']).next()).collect();
    let definition = lib.join("slipgate.def");
    write(&definition, &format!("EXPORTS\n{}\n", names.join("\n")))?;
    let dlltool = if cfg!(windows) { "dlltool" } else { "x86_64-w64-mingw32-dlltool" };
    let mut command = Command::new(dlltool);
    command.arg("-d").arg(definition).args(["-D", "slipgate.dll", "-l"]).arg(lib.join("libslipgate.dll.a"));
    call(&mut command)
}

fn write(file: &Path, text: &str) -> Result<(), Box<dyn Error>> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()).into())
}

/// How programs link the library.
#[derive(Clone, Copy)]
enum Linkage {
    Shared,
    Static,
}

/// Returns the file for pkg-config. The static library has a file of its own: with `pkg-config --static` linkers take
/// the shared one, which lies beside it.
fn pkg_config_text(name: &str, linkage: Linkage, prefix: &Path, is_windows: bool) -> String {
    let system = if is_windows { WINDOWS_LIBRARIES } else { UNIX_LIBRARIES };
    let libraries = match linkage {
        Linkage::Shared => "-L${libdir} -lslipgate".to_owned(),
        Linkage::Static => format!("${{libdir}}/libslipgate.a {system}"),
    };
    // An archive has no prefix of its own: its files lie relative to this one.
    let prefix = if prefix == Path::new("/") { "${pcfiledir}/../..".into() } else { prefix.display().to_string() };
    format!(
        "prefix={prefix}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\nName: {name}\n\
         Description: Secure game networking: clients and dedicated servers\nVersion: {}\n\
         Libs: {libraries}\nCflags: -I${{includedir}}\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// Returns a package with the targets `slipgate::slipgate` and `slipgate::static`. Names without a namespace collide
/// with those of other projects.
fn cmake_text(is_windows: bool) -> String {
    let (shared, import, libraries) = if is_windows {
        ("bin/slipgate.dll", "\n    IMPORTED_IMPLIB \"${slipgate_root}/lib/libslipgate.dll.a\"", WINDOWS_LIBRARIES)
    } else {
        ("lib/libslipgate.so", "", UNIX_LIBRARIES)
    };
    let libraries = libraries.replace("-l", "").replace(' ', ";");
    format!(
        "get_filename_component(slipgate_root \"${{CMAKE_CURRENT_LIST_DIR}}/../../..\" ABSOLUTE)\n\
         if(NOT TARGET slipgate::slipgate)\n  \
         add_library(slipgate::slipgate SHARED IMPORTED)\n  \
         set_target_properties(slipgate::slipgate PROPERTIES\n    \
         IMPORTED_LOCATION \"${{slipgate_root}}/{shared}\"{import}\n    \
         INTERFACE_INCLUDE_DIRECTORIES \"${{slipgate_root}}/include\")\n  \
         add_library(slipgate::static STATIC IMPORTED)\n  \
         set_target_properties(slipgate::static PROPERTIES\n    \
         IMPORTED_LOCATION \"${{slipgate_root}}/lib/libslipgate.a\"\n    \
         INTERFACE_LINK_LIBRARIES \"{libraries}\"\n    \
         INTERFACE_INCLUDE_DIRECTORIES \"${{slipgate_root}}/include\")\n\
         endif()\n"
    )
}

/// Returns the version file: a package of the same major and minor version is compatible before 1.0.
fn cmake_version_text() -> String {
    format!(
        "set(PACKAGE_VERSION {})\n\
         if(PACKAGE_FIND_VERSION_MAJOR EQUAL {} AND PACKAGE_FIND_VERSION_MINOR EQUAL {} \
         AND NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)\n  \
         set(PACKAGE_VERSION_COMPATIBLE TRUE)\n\
         endif()\n\
         if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)\n  \
         set(PACKAGE_VERSION_EXACT TRUE)\n\
         endif()\n",
        env!("CARGO_PKG_VERSION"),
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
    )
}
