//! Tells the library why programs have no code for a GPU where they are built like this. What the program is built with would be asked for by `option_env!`, which
//! cargo does not look at in packages of a registry.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(reason) = maco_build::no_device_code() {
        println!("cargo::rustc-env=MACO_NO_DEVICE_CODE={reason}");
    }
}
