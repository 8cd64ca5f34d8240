//! Compiles `nccl.rs` as a shared library, in several versions, and reads what it wrote down.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use libloading::Library;

/// All functions.
pub fn complete() -> PathBuf {
    build(23_203, &[])
}

/// `libnccl.so.2` of this version (as a code) and without these functions, in a folder of its own.
pub fn build(version: u32, without: &[&str]) -> PathBuf {
    static BUILDING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let mut built = BUILDING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{version}{}", without.concat()));
    let library = folder.join("libnccl.so.2");
    if !built.contains(&library) {
        std::fs::create_dir_all(&folder).unwrap();
        // Renamed when it is complete: another run of the tests may have the old one open.
        let new = folder.join(format!("new.{}", std::process::id()));
        let status = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
            .args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "nccl", "-Awarnings"])
            .args(without.iter().flat_map(|what| ["--cfg".to_owned(), format!("without_{what}")]))
            .arg("-o")
            .args([&new, &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake/nccl.rs")])
            .env("FAKE_VERSION", version.to_string())
            .status()
            .unwrap();
        assert!(status.success(), "the fake library could not be compiled");
        std::fs::rename(new, &library).unwrap();
        built.push(library.clone());
    }
    library
}

/// The fake library's other side.
pub struct Fake(Library);

impl Fake {
    pub fn of(library: &Path) -> Fake {
        // SAFETY: the fake has no initialisers.
        Fake(unsafe { Library::new(library) }.unwrap())
    }

    /// This thread's calls since it was last asked, a line each.
    pub fn take(&self) -> String {
        let mut text = vec![0; 4096];
        // SAFETY: the signature is that of the fake.
        let length =
            unsafe { self.0.get::<unsafe extern "C" fn(*mut u8, usize) -> usize>("fake_take").unwrap()(text.as_mut_ptr(), text.len()) };
        text.truncate(length);
        String::from_utf8(text).unwrap()
    }

    /// This thread's next call returns `result`.
    pub fn next(&self, result: i32) {
        // SAFETY: the signature is that of the fake.
        unsafe { self.0.get::<unsafe extern "C" fn(i32)>("fake_next").unwrap()(result) }
    }
}
