//! Writes the kernels of a few seeds, and their references, and compiles the kernels for the GPU.
#[path = "generator/mod.rs"]
mod generator;

use std::path::PathBuf;
use std::{env, fs};

/// A few, with all operations: the device code of each takes half a minute.
const SEEDS: std::ops::Range<u64> = 1..5;

fn main() {
    println!("cargo::rerun-if-env-changed={}", generator::SEEDS);
    println!("cargo::rerun-if-changed=generator");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a folder")).join("generated");
    fs::create_dir_all(&folder).expect("cannot make the folder");
    let mut kernels = format!("use maco::prelude::*;\n{}", generator::HELPERS);
    let (mut checks, mut names) = (generator::HELPERS.to_owned(), [Vec::new(), Vec::new()]);
    for seed in generator::seeds(SEEDS) {
        let made = generator::make(seed);
        kernels += &made.kernels;
        checks += &made.checks;
        for name in made.names {
            names[usize::from(name.ends_with("outside"))].push(name);
        }
    }
    for (list, names) in ["RIGHT", "OUTSIDE"].into_iter().zip(names) {
        let entries: Vec<String> = names.iter().map(|name| format!("(\"{name}\", {name})")).collect();
        checks += &format!("\npub const {list}: &[(&str, fn(&Setup))] = &[{}];\n", entries.join(", "));
    }
    // What is as it was keeps its time.
    for (file, text) in [("kernels.rs", kernels), ("checks.rs", checks)] {
        let file = folder.join(file);
        if fs::read_to_string(&file).ok().as_ref() != Some(&text) {
            fs::write(file, text).expect("cannot write what was generated");
        }
    }
    // Device code that sleeps at random places.
    maco_build::Build::new([folder.join("kernels.rs")]).delayed().run();
}
