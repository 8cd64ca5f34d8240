//! Compiles the kernel of collectives outside of megakernels, as any package's build script does its kernels.
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
    maco_build::compile("src/lean/kernel.rs");
    // The entry's own file if there is one, else that which says why not.
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let out = Path::new(&out);
    let entry = out.join("maco/lean_collectives.rs");
    let made = if entry.is_file() { entry } else { out.join("maco.rs") };
    fs::copy(&made, out.join("lean.rs")).unwrap_or_else(|error| panic!("{}: {error}", made.display()));
}
