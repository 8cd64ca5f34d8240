fn main() {
    // A test breaks a task, to see its error.
    maco_build::Build::new(["src/language.rs"]).faults().run()
}
