//! What the program is built with is asked for by `option_env!`, which cargo does not look at in packages of a registry.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=MACO_DEVICE");
}
