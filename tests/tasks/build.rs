fn main() {
    maco_build::compile_all([
        "src/columns.rs",
        "src/elements.rs",
        "src/layouts.rs",
        "src/lookups.rs",
        "src/norms.rs",
        "src/plain.rs",
        "src/rows.rs",
    ])
}
