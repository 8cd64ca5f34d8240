//! Compiles the kernels that are MACO's own, as any package's build script does its kernels: that of collectives outside of megakernels, and that which shows a timer.
//!
//! Also tells the library why programs have no code for a GPU where they are built like this. What the program is built with would be asked for by `option_env!`, which
//! cargo does not look at in packages of a registry.

use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(reason) = maco_build::no_device_code() {
        println!("cargo::rustc-env=MACO_NO_DEVICE_CODE={reason}");
    }
    maco_build::compile_all(["src/lean/kernel.rs", "src/profile/timer_kernel.rs"]);
    // The entry's own file if there is one, else that which says why not.
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let out = Path::new(&out);
    for (entry, file) in [("lean_collectives", "lean.rs"), ("show_timer", "timer.rs")] {
        let entry = out.join(format!("maco/{entry}.rs"));
        let made = if entry.is_file() { entry } else { out.join("maco.rs") };
        fs::copy(&made, out.join(file)).unwrap_or_else(|error| panic!("{}: {error}", made.display()));
    }
}
