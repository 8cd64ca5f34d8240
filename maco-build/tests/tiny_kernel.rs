//! A package with one kernel, built by cargo as a user would: PTX is embedded, faults are shown where they are, edits are noticed.
//!
//! Needs a device toolchain (`cargo xtask setup`).
//!
//! Takes a minute: cargo builds each package several times, and its dependencies for the device once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const KERNEL: &str = r#"
#[cfg(target_arch = "nvptx64")]
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn tiny(out: *mut u32) {
    unsafe { *out.add(core::arch::nvptx::_thread_idx_x() as usize) = library::ANSWER }
}
#[cfg(not(target_arch = "nvptx64"))]
pub const EMBEDDED: maco::__private::Embedded = {
    use maco::__private::{DeviceModule, Embedded};
    #[cfg(entry)]
    const HERE: Embedded = include!(concat!(env!("OUT_DIR"), "/maco/tiny.rs"));
    #[cfg(not(entry))]
    const HERE: Embedded = include!(concat!(env!("OUT_DIR"), "/maco.rs"));
    HERE
};
"#;

/// A build script that tells the kernels which file to include, as the megakernel macro finds out by looking.
fn script(kernels: &str) -> String {
    format!(
        "fn main() {{
             maco_build::compile_all([{kernels:?}]);
             println!(\"cargo::rustc-check-cfg=cfg(entry)\");
             let out = std::path::PathBuf::from(std::env::var_os(\"OUT_DIR\").unwrap());
             if out.join(\"maco/tiny.rs\").exists() {{ println!(\"cargo::rustc-cfg=entry\") }}
         }}"
    )
}

/// Stands for `maco`: what the embedded constant names.
const FACADE: &str = r#"
#![no_std]
pub mod __private {
    pub struct DeviceModule {
        pub target: &'static str,
        pub ptx: &'static str,
        pub cubin: Option<&'static [u8]>,
        pub hash: u64,
    }
    pub struct Embedded { pub modules: &'static [DeviceModule], pub profiled: &'static [DeviceModule], pub error: Option<&'static str> }
}
"#;

const MAIN: &str = r#"
mod kernels;
fn main() {
    let embedded = kernels::EMBEDDED;
    println!("{:?}", embedded.error);
    embedded.modules.iter().for_each(|module| println!("{} {}\n{}", module.target, module.hash != 0, module.ptx));
    embedded.profiled.iter().for_each(|module| println!("records: {} {}\n{}", module.target, module.hash != 0, module.ptx));
}
"#;

/// A scratch directory with a package of this name, `maco`, a task library and a library for the host only.
struct User {
    root: PathBuf,
    name: &'static str,
}

impl User {
    fn new(name: &'static str) -> User {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let manifest = |name: &str, more: &str| {
            format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{more}\n[workspace]\n")
        };
        let tasks = "[package.metadata.maco]\ntasks = true\n";
        let user = User { root, name };
        user.write("maco/Cargo.toml", &manifest("maco", tasks));
        user.write("maco/src/lib.rs", FACADE);
        user.write("library/Cargo.toml", &manifest("library", tasks));
        user.write("library/src/lib.rs", "#![no_std]\npub const ANSWER: u32 = 4711;\n");
        // Not for the GPU: it must not be built for it.
        user.write("host-only/Cargo.toml", &manifest("host-only", ""));
        user.write("host-only/src/lib.rs", "pub fn greet() -> String { std::env::args().collect() }\n");
        let build = env!("CARGO_MANIFEST_DIR");
        let dependencies = format!(
            "[dependencies]\nmaco.path = \"../maco\"\nlibrary.path = \"../library\"\nhost-only.path = \"../host-only\"\n\
             [build-dependencies]\nmaco-build.path = {build:?}\n"
        );
        user.write("user/Cargo.toml", &manifest(name, &dependencies));
        user.write("user/build.rs", &script("src/kernels.rs"));
        user.write("user/src/main.rs", MAIN);
        user.write("user/src/kernels.rs", KERNEL);
        user
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if !fs::read_to_string(&path).is_ok_and(|old| old == text) {
            fs::write(path, text).unwrap();
        }
    }

    /// Cargo, on the program.
    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO"));
        command
            .args(arguments)
            .arg("--manifest-path")
            .arg(self.root.join("user/Cargo.toml"))
            .args(QUICKLY)
            .env("CARGO_TARGET_DIR", target())
            .env_remove("MACO_DEVICE")
            .env_remove("MACO_PROFILE")
            .env("MACO_REQUIRE_GPU", "1");
        command
    }

    /// Whether there is nothing to build.
    fn is_fresh(&self) -> bool {
        let output = self.cargo(&["build", "--verbose"]).output().unwrap();
        String::from_utf8_lossy(&output.stderr).contains(&format!("Fresh {} ", self.name))
    }

    /// Runs the program; its output, or cargo's when it does not build.
    fn run(&self, variables: &[(&str, &str)]) -> Result<String, String> {
        let output = self.cargo(&["run", "--quiet"]).envs(variables.iter().copied()).output().unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

/// `maco-build` is compiled anew for each layout of folders, and tiny kernels do not need it optimised as the repository's settings have it.
const QUICKLY: [&str; 3] = [
    "--config=profile.dev.package.maco-build.opt-level=0",
    "--config=profile.dev.package.maco-ptx.opt-level=0",
    "--config=profile.dev.package.maco-abi.opt-level=0",
];

/// Shared, so that `maco-build` is compiled once.
fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("target")
}

#[test]
fn a_kernel_is_embedded_checked_and_rebuilt() {
    let user = User::new("tiny");

    let built = user.run(&[]).unwrap();
    assert!(built.starts_with("None\nsm_90a true\n"), "{built}");
    assert!(built.contains(".visible .entry tiny("), "{built}");
    assert!(built.contains(".maxntid 384, 1, 1\n.minnctapersm 1\n{"), "{built}");
    assert!(built.contains("4711"), "{built}");
    let workshop = target().join("maco").join(user.name);
    assert!(fs::read_to_string(workshop.join("expanded.rs")).unwrap().contains("fn tiny"));

    assert!(user.is_fresh(), "the first build is followed by another one");

    // An edit of a task library counts as one of the kernels.
    user.write("library/src/lib.rs", "#![no_std]\npub const ANSWER: u32 = 815;\n");
    let edited = user.run(&[]).unwrap();
    assert!(edited.contains("815") && !edited.contains("4711"), "{edited}");

    let skipped = user.run(&[("MACO_DEVICE", "skip")]).unwrap();
    assert!(skipped.contains("MACO_DEVICE=skip") && !skipped.contains(".entry"), "{skipped}");

    // A misspelt setting is not a full build.
    let misspelt = user.run(&[("MACO_DEVICE", "chekc")]).unwrap_err();
    assert!(misspelt.contains("`MACO_DEVICE=chekc` means nothing: write `skip` or `check`"), "{misspelt}");

    // rustc's errors name the user's file and line, and the build script itself does not fail.
    user.write("user/src/kernels.rs", &KERNEL.replace("library::ANSWER", "library::ANSWER + 'x'"));
    let broken = user.run(&[]).unwrap_err();
    assert!(broken.contains("user/src/kernels.rs:5:") && broken.contains("cannot add `char` to `u32`"), "{broken}");
    assert!(!broken.contains("failed to run custom build command"), "{broken}");
    assert_eq!(broken.matches("cannot add `char` to `u32`").count(), 1, "an error is shown once: {broken}");

    // No code is made to find them.
    let checked = user.run(&[("MACO_DEVICE", "check")]).unwrap_err();
    assert!(checked.contains("user/src/kernels.rs:5:") && checked.contains("cannot add `char` to `u32`"), "{checked}");
    user.write("user/src/kernels.rs", KERNEL);
    let checked = user.run(&[("MACO_DEVICE", "check")]).unwrap();
    assert!(checked.contains("MACO_DEVICE=check") && !checked.contains(".entry"), "{checked}");

    // So do broken rules of the PTX: this one compiles.
    user.write(
        "user/src/kernels.rs",
        &KERNEL.replace("= library::ANSWER", "= { core::arch::asm!(\"fence.proxy.async;\"); library::ANSWER }"),
    );
    let slow = user.run(&[]).unwrap_err();
    assert!(slow.contains("user/src/kernels.rs:5: `fence.proxy.async`"), "{slow}");

    user.write("user/src/kernels.rs", KERNEL);
    assert!(user.run(&[]).unwrap().contains(".visible .entry tiny("));
}

#[test]
fn code_that_records_is_made_when_it_is_asked_for() {
    let user = User::new("recorded");
    // As in a library: the kernels only call it.
    user.write(
        "library/src/lib.rs",
        "#![no_std]\n#![allow(unexpected_cfgs)]\npub const ANSWER: u32 = if cfg!(maco_profile) { 1234 } else { 4711 };\n",
    );
    let without = user.run(&[]).unwrap();
    assert!(without.contains("4711") && !without.contains("records: "), "{without}");
    let both = user.run(&[("MACO_PROFILE", "1")]).unwrap();
    let (ordinary, recording) = both.split_once("records: sm_90a true\n").unwrap();
    assert_eq!(ordinary, without, "the ordinary code is the same, byte for byte");
    assert!(recording.contains(".visible .entry tiny(") && recording.contains("1234") && !recording.contains("4711"), "{recording}");
    assert_eq!(user.run(&[("MACO_PROFILE", "0")]).unwrap(), without);
}

/// Kernels that the build script wrote itself are newer than its start.
#[test]
fn generated_kernels_are_built_once() {
    let user = User::new("generated");
    let begin = format!(
        "fn main() {{
             let kernels = std::path::PathBuf::from(std::env::var_os(\"OUT_DIR\").unwrap()).join(\"generated.rs\");
             std::fs::write(&kernels, {KERNEL:?}).unwrap();"
    );
    user.write("user/build.rs", &script("KERNELS").replace("fn main() {", &begin).replace("\"KERNELS\"", "&kernels"));
    user.write("user/src/kernels.rs", "include!(concat!(env!(\"OUT_DIR\"), \"/generated.rs\"));\n");
    let built = user.run(&[]).unwrap();
    assert!(built.contains(".visible .entry tiny("), "{built}");
    assert!(user.is_fresh(), "the first build is followed by another one");
}

/// Files of settings for cargo that a user may have for the host: device code has its own profile and flags, and stays the same byte for byte,
/// but for the numbers in mangled names that cargo gives to crates (`Cs9ftxFMNfxat_`): settings for single packages change those.
#[test]
fn settings_for_the_host_do_not_reach_device_code() {
    const SETTINGS: [&str; 13] = [
        "",
        "[profile.release]\ndebug = true\n",
        "[profile.release]\noverflow-checks = true\n",
        "[profile.release]\ndebug-assertions = true\n",
        "[profile.release]\nopt-level = 0\ncodegen-units = 16\n",
        "[profile.release]\nlto = \"off\"\n",
        "[profile.release]\npanic = \"unwind\"\nstrip = true\nrpath = true\n",
        "[profile.release]\nincremental = true\n",
        "[build]\nincremental = true\n",
        "[profile.release.package.\"*\"]\nopt-level = 0\ndebug = true\ndebug-assertions = true\n",
        "[profile.release.package.library]\noverflow-checks = true\ncodegen-units = 4\n",
        "[build]\nrustflags = [\"-Cdebug-assertions=on\", \"-Copt-level=0\"]\n",
        "[target.nvptx64-nvidia-cuda]\nrustflags = [\"-Coverflow-checks=on\"]\n",
    ];
    let user = User::new("configured");
    // Code that shows every one of them, of the kernels and of a library.
    let library = "#![no_std]\n#[inline(never)]\npub fn answer(n: u32) -> u32 {\n    debug_assert!(n < 64);\n    n * n + 4711\n}\n";
    user.write("library/src/lib.rs", library);
    let kernel = KERNEL.replace("library::ANSWER", "library::answer(out as usize as u32) + core::arch::nvptx::_block_idx_x() as u32");
    user.write("user/src/kernels.rs", &kernel);
    let built = |number: usize, settings: &str, variables: &[(&str, &str)]| {
        user.write("user/.cargo/config.toml", settings);
        // The build script does not ask for the settings of this directory: the test runs cargo elsewhere.
        user.write("user/build.rs", &format!("{}// {number}\n", script("src/kernels.rs")));
        let text = user.run(variables).unwrap_or_else(|output| panic!("{settings}: {output}"));
        without_crate_numbers(&text)
    };
    let plain = built(0, SETTINGS[0], &[]);
    assert!(plain.contains(".visible .entry tiny("), "{plain}");
    let same = |found: &str, settings: &str| {
        let differs = plain.lines().zip(found.lines()).find(|(a, b)| a != b);
        assert!(found == plain, "{settings}: {differs:?}");
    };
    for (number, settings) in (1..).zip(&SETTINGS[1..]) {
        same(&built(number, settings, &[]), settings);
    }
    let variables = [("CARGO_INCREMENTAL", "1"), ("CARGO_PROFILE_RELEASE_DEBUG", "2"), ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true")];
    same(&built(SETTINGS.len(), "# variables\n", &variables), "variables");
}

/// Intermediate files in a folder of the user's, which the outer cargo has locked.
#[test]
fn a_folder_for_intermediate_files_is_left_alone() {
    let user = User::new("apart");
    let folder = target().join("apart-intermediate");
    let built = user.run(&[("CARGO_BUILD_BUILD_DIR", folder.to_str().unwrap())]).unwrap();
    assert!(built.starts_with("None\nsm_90a true\n") && built.contains(".visible .entry tiny("), "{built}");
    // In a file too, with a folder for each workspace, and in the layout that cargo is to have: a folder for each unit, and none called `deps`.
    user.write("user/build.rs", &format!("{}// again\n", script("src/kernels.rs")));
    let config = format!("build.build-dir = \"{}/{{workspace-path-hash}}\"", folder.display());
    let output = user
        .cargo(&["run", "--quiet", "--config", &config, "-Zbuild-dir-new-layout"])
        // Else a stable cargo does not know the layout.
        .env("RUSTC_BOOTSTRAP", "1")
        .output()
        .unwrap();
    let built = String::from_utf8_lossy(&output.stdout);
    assert!(
        built.starts_with("None\nsm_90a true\n") && built.contains(".visible .entry tiny("),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let is_new = |debug: &Path| debug.join("build/maco-build").is_dir() && !debug.join("deps").exists();
    assert!(folders(&folder).iter().any(|hash| is_new(&hash.join("debug"))), "cargo has another layout");
}

/// Folders two levels below this one: of `{workspace-path-hash}`.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let below = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    below(folder).flat_map(|folder| below(&folder)).collect()
}

/// Cargo is called in one workspace that locks the package and builds it in another one, with the target folder beside neither: what cargo was asked to build
/// decides, and a `MACO_WORKSPACE` with other versions is an error.
#[test]
fn two_workspaces_with_two_versions_are_an_error() {
    let user = User::new("versions");
    user.write("elsewhere/Cargo.toml", "[package]\nname = \"elsewhere\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n");
    user.write("elsewhere/src/lib.rs", "");
    let lock = |library: &str| {
        format!(
            "version = 4\n\n[[package]]\nname = \"library\"\nversion = \"{library}\"\n\n\
             [[package]]\nname = \"versions\"\nversion = \"0.1.0\"\ndependencies = [\n \"library\",\n]\n"
        )
    };
    let place = user.root.join("elsewhere");
    let called = ("PWD", place.to_str().unwrap());
    let again = |n: u32| user.write("user/build.rs", &format!("{}// {n}\n", script("src/kernels.rs")));

    user.write("elsewhere/Cargo.lock", &lock("0.2.0"));
    let said = user.run(&[called]).unwrap();
    assert!(said.contains(".visible .entry tiny("), "{said}");
    let said = user.run(&[called, ("MACO_WORKSPACE", "../user")]).unwrap();
    assert!(said.contains(".visible .entry tiny("), "{said}");

    let differ = user.run(&[("MACO_WORKSPACE", "../elsewhere")]).unwrap_err();
    assert!(differ.contains("`library` is 0.2.0 by the lock file of") && differ.contains("but 0.1.0 by that of"), "{differ}");
    assert!(differ.contains("set `MACO_WORKSPACE`"), "{differ}");
    let wrong = user.run(&[called, ("MACO_WORKSPACE", "../library")]).unwrap_err();
    assert!(wrong.contains("`MACO_WORKSPACE` is the folder of the workspace that is being built"), "{wrong}");

    user.write("elsewhere/Cargo.lock", &lock("0.1.0"));
    again(1);
    assert!(user.run(&[("MACO_WORKSPACE", "../elsewhere")]).unwrap().contains(".visible .entry tiny("), "they agree");
}

/// An application in a folder of its own, built from a third one with the target folder in a fourth: its versions and patches are those of the device half too,
/// and not those that the package with kernels has where it lies.
#[test]
fn a_program_that_is_built_from_elsewhere_has_its_own_versions() {
    let user = User::new("remote");
    let build = env!("CARGO_MANIFEST_DIR");
    let patched = |library: &str| format!("[workspace]\n[patch.crates-io]\nmaco-patched = {{ path = \"../{library}\" }}\n");
    for (folder, version, answer) in [("old", "0.1.0", 4711), ("new", "0.1.1", 4712)] {
        user.write(
            &format!("{folder}/Cargo.toml"),
            &format!("[package]\nname = \"maco-patched\"\nversion = \"{version}\"\nedition = \"2024\"\n[package.metadata.maco]\ntasks = true\n[workspace]\n"),
        );
        user.write(&format!("{folder}/src/lib.rs"), &format!("#![no_std]\npub const ANSWER: u32 = {answer};\n"));
    }
    user.write(
        "tasks/Cargo.toml",
        &format!(
            "[package]\nname = \"tasks\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[dependencies]\nmaco.path = \"../maco\"\nmaco-patched = \"0.1\"\n\
             [build-dependencies]\nmaco-build.path = {build:?}\n{}",
            patched("old")
        ),
    );
    user.write("tasks/build.rs", &script("src/kernels.rs"));
    user.write("tasks/src/lib.rs", "pub mod kernels;\npub const ANSWER: u32 = maco_patched::ANSWER;\n");
    user.write("tasks/src/kernels.rs", &KERNEL.replace("library::ANSWER", "maco_patched::ANSWER"));
    user.write(
        "user/Cargo.toml",
        &format!(
            "[package]\nname = \"remote\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
             [dependencies]\nmaco.path = \"../maco\"\ntasks = {{ path = \"../tasks\" }}\n{}",
            patched("new")
        ),
    );
    user.write("user/build.rs", "fn main() {}\n");
    let main =
        MAIN.replace("mod kernels;", "use tasks::kernels;").replace("fn main() {", "fn main() {\n    println!(\"{}\", tasks::ANSWER);");
    user.write("user/src/main.rs", &main);
    // The package with kernels has been built by itself, and has a lock file.
    let lock = Command::new(env!("CARGO"))
        .args(["generate-lockfile", "--offline", "--manifest-path"])
        .arg(user.root.join("tasks/Cargo.toml"))
        .output();
    let lock = lock.unwrap();
    assert!(lock.status.success(), "{}", String::from_utf8_lossy(&lock.stderr));

    let mut elsewhere = user.cargo(&["run", "--quiet"]);
    let output = elsewhere.current_dir("/").env("PWD", "/").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("4712\n"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(", 4712;") && !said.contains(", 4711;"), "{said}");
}

/// `_RNvCs9ftxFMNfxat_7library6answer` as `_RNvCs_7library6answer`.
fn without_crate_numbers(text: &str) -> String {
    let mut parts = text.split("Cs");
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let number = part.len() - part.trim_start_matches(|c: char| c.is_ascii_alphanumeric()).len();
        all.push_str("Cs");
        all.push_str(if part[number..].starts_with('_') { &part[number..] } else { part });
    }
    all
}

#[test]
fn a_mended_library_is_noticed() {
    let user = User::new("mended");
    // One that the kernels do not name themselves counts too.
    let manifest = |more: &str| format!("[package]\nname = \"{more}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n");
    user.write("inner/Cargo.toml", &manifest("inner"));
    user.write(
        "library/Cargo.toml",
        &format!("{}[dependencies]\ninner.path = \"../inner\"\n[package.metadata.maco]\ntasks = true\n", manifest("library")),
    );
    let library = "#![no_std]\npub const ANSWER: u32 = inner::values::ANSWER;\n";
    let inner = "#![no_std]\npub mod values;\n";
    let values = "pub const ANSWER: u32 = 4711;\n";
    let files = [("library/src/lib.rs", library), ("inner/src/lib.rs", inner), ("inner/src/values.rs", values)];
    files.iter().for_each(|(path, text)| user.write(path, text));
    assert!(user.run(&[]).unwrap().contains("4711"));
    for (path, text) in files {
        user.write(path, &format!("{text}#[cfg(target_arch = \"nvptx64\")]\ncompile_error!(\"not for the GPU\");\n"));
        let broken = user.run(&[]).unwrap_err();
        assert!(broken.contains("not for the GPU"), "{path}: {broken}");
        // Nothing else is touched.
        user.write(path, text);
        assert!(user.run(&[]).unwrap_or_else(|output| panic!("{path}: {output}")).contains("4711"));
    }
}

#[test]
fn without_a_toolchain_there_is_one_warning_and_a_program() {
    let user = User::new("missing");
    let cache = user.root.join("empty-cache").display().to_string();
    let nowhere = [("MACO_DEVICE_RUSTC", "/nowhere/rustc"), ("MACO_CACHE", &cache)];
    let built = user.run(&[nowhere[0], nowhere[1], ("MACO_REQUIRE_GPU", "0")]).unwrap();
    assert!(built.contains("no device toolchain") && built.contains("rustup component add rust-src"), "{built}");
    let refused = user.run(&nowhere).unwrap_err();
    assert!(refused.contains("no device toolchain"), "{refused}");

    // Nor is it a fault of the kernels that the own cache cannot be written. A file is no directory, for whoever runs this.
    user.write("file", "");
    let file = user.root.join("file/cache").display().to_string();
    let built = user.run(&[("MACO_CACHE", &file), ("MACO_REQUIRE_GPU", "0")]).unwrap();
    assert!(built.contains(&file) && built.contains("`MACO_CACHE`") && !built.contains(".entry"), "{built}");
    let refused = user.run(&[("MACO_CACHE", &file)]).unwrap_err();
    assert!(refused.contains(&file) && refused.contains("`MACO_CACHE`"), "{refused}");
}

#[test]
fn kernels_of_a_dependency_keep_its_features_and_leave_it_alone() {
    let user = User::new("application");
    // The package with kernels becomes a library with a feature and a dependency that only the device needs …
    let build = env!("CARGO_MANIFEST_DIR");
    user.write(
        "tasks/Cargo.toml",
        &format!(
            "[package]\nname = \"tasks\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[features]\nwide = []\n\
             [dependencies]\nmaco.path = \"../maco\"\n[target.'cfg(target_arch = \"nvptx64\")'.dependencies]\nlibrary.path = \"../library\"\n\
             [build-dependencies]\nmaco-build.path = {build:?}\n"
        ),
    );
    user.write("tasks/build.rs", &script("src/kernels/mod.rs"));
    user.write("tasks/src/lib.rs", "pub mod kernels;\n");
    let wide = "library::ANSWER + if cfg!(feature = \"wide\") { 100_000 } else { 0 }";
    user.write("tasks/src/kernels/mod.rs", &format!("pub mod inner;\n{}", KERNEL.replace("library::ANSWER", wide)));
    user.write("tasks/src/kernels/inner.rs", "//! A submodule: its path must be found.\n");
    // … of an application that has no kernels.
    user.write(
        "user/Cargo.toml",
        "[package]\nname = \"application\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n\
         [dependencies]\nmaco.path = \"../maco\"\ntasks = { path = \"../tasks\", features = [\"wide\"] }\n",
    );
    user.write("user/build.rs", "fn main() {}\n");
    user.write("user/src/main.rs", &MAIN.replace("mod kernels;", "use tasks::kernels;"));

    let built = user.run(&[]).unwrap();
    assert!(built.contains(".visible .entry tiny(") && built.contains("104711"), "{built}");
    assert!(!user.root.join("tasks/Cargo.lock").exists());
}

/// A nightly host that builds its own standard library, as a configuration file says: the device half has `core` of its own.
#[test]
fn a_standard_library_of_the_hosts_own_is_not_the_devices() {
    let user = User::new("own-std");
    user.write(
        "user/.cargo/config.toml",
        &format!(
            "[unstable]\nbuild-std = [\"std\", \"panic_abort\"]\n[build]\ntarget = \"{}-unknown-linux-gnu\"\n",
            std::env::consts::ARCH
        ),
    );
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "run", "--quiet"]).args(QUICKLY).current_dir(user.root.join("user"));
    for variable in ["MACO_DEVICE", "MACO_PROFILE", "RUSTUP_TOOLCHAIN", "RUSTC", "CARGO"] {
        command.env_remove(variable);
    }
    let output = command.env("CARGO_TARGET_DIR", target()).env("MACO_REQUIRE_GPU", "1").output().unwrap();
    let built = String::from_utf8_lossy(&output.stdout);
    assert!(built.contains(".visible .entry tiny("), "{built}{}", String::from_utf8_lossy(&output.stderr));
}

/// Nothing may be fetched and no lock file written, and the package with kernels lies outside of the workspace.
#[test]
fn a_path_dependency_outside_is_built_offline_and_locked() {
    let user = User::new("outside");
    let build = env!("CARGO_MANIFEST_DIR");
    user.write(
        "tasks/Cargo.toml",
        &format!(
            "[package]\nname = \"tasks\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
             [dependencies]\nmaco.path = \"../maco\"\nlibrary.path = \"../library\"\n[dev-dependencies]\nnot-there = \"=99.0.0\"\n\
             [build-dependencies]\nmaco-build.path = {build:?}\n"
        ),
    );
    user.write("tasks/build.rs", &script("src/kernels.rs"));
    user.write("tasks/src/lib.rs", "pub mod kernels;\n");
    user.write("tasks/src/kernels.rs", KERNEL);
    user.write(
        "user/Cargo.toml",
        "[package]\nname = \"outside\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\nmaco.path = \"../maco\"\ntasks = { path = \"../tasks\" }\n",
    );
    user.write("user/build.rs", "fn main() {}\n");
    user.write("user/src/main.rs", &MAIN.replace("mod kernels;", "use tasks::kernels;"));
    let lock = user.cargo(&["generate-lockfile", "--offline"]).output().unwrap();
    assert!(lock.status.success(), "{}", String::from_utf8_lossy(&lock.stderr));
    let output = user.cargo(&["run", "--quiet", "--offline", "--locked"]).output().unwrap();
    let built = String::from_utf8_lossy(&output.stdout);
    assert!(built.contains(".visible .entry tiny("), "{built}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!user.root.join("tasks/Cargo.lock").exists());
    // The same where the program itself has the kernels, and a dependency outside of its folder.
    let own = User::new("inside");
    let lock = own.cargo(&["generate-lockfile", "--offline"]).output().unwrap();
    assert!(lock.status.success(), "{}", String::from_utf8_lossy(&lock.stderr));
    let output = own.cargo(&["run", "--quiet", "--offline", "--locked"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(".visible .entry tiny("), "{}", String::from_utf8_lossy(&output.stderr));
}
