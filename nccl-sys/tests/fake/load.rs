//! Which library is loaded, and which are refused.

use std::ffi::{OsStr, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

use nccl_sys::{Error, NAMES, Nccl, Use, Version, ncclUnhandledCudaError};

use crate::library::{Fake, build, complete};

fn open(library: &Path) -> Result<Nccl, Error> {
    // SAFETY: the fakes have NCCL's signatures.
    unsafe { Nccl::open([library]) }
}

fn missing() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("nowhere").join("libnccl.so.2")
}

/// What `Nccl::load` says in a process with these variables.
fn loaded(variables: &[(&str, &OsStr)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "load::child", "--nocapture"]).env_remove("MACO_NCCL").env_remove("LD_LIBRARY_PATH");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let (_, said) = text.split_once("<<").unwrap();
    said.split_once(">>").unwrap().0.to_owned()
}

#[test]
#[ignore = "the process that the other tests start"]
fn child() {
    match Nccl::load() {
        Ok(nccl) => println!("<<{}>>", nccl.version()),
        Err(error) => println!("<<{error}>>"),
    }
}

/// A folder with both names, of different versions.
fn both() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("both.{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(build(22_809, &["one_sided"]), folder.join("libnccl.so.2")).unwrap();
    std::fs::copy(complete(), folder.join("libnccl.so")).unwrap();
    folder
}

#[test]
fn names_are_tried_in_order_and_a_variable_comes_before_them() {
    assert_eq!(NAMES, ["libnccl.so.2", "libnccl.so"]);
    let folder = both();
    let path = ("LD_LIBRARY_PATH", folder.as_os_str());
    assert_eq!(loaded(&[path]), "2.28.9");
    assert_eq!(loaded(&[path, ("MACO_NCCL", folder.join("libnccl.so").as_os_str())]), "2.32.3");
    assert_eq!(loaded(&[path, ("MACO_NCCL", OsStr::new(""))]), "2.28.9", "an empty variable is none");
    let said = loaded(&[path, ("MACO_NCCL", missing().as_os_str())]);
    assert!(said.starts_with("NCCL was not found:\n") && said.contains("nowhere/libnccl.so.2`: "), "{said}");
    assert!(!said.contains("`libnccl.so`"), "a library that is named is not replaced by another one: {said}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_first_name_that_is_found_is_taken() {
    // SAFETY: the fakes have NCCL's signatures.
    let nccl = unsafe { Nccl::open([missing(), complete(), build(22_809, &["one_sided"])]) }.unwrap();
    assert_eq!(nccl.version(), Version::new(2, 32, 3));
}

#[test]
fn no_library_tells_each_name_and_its_reason() {
    // SAFETY: nothing of that name is there.
    let error = unsafe { Nccl::open(["libnccl-not-there.so.2", "libnccl-not-there.so"]) }.unwrap_err();
    let Error::NotFound { tried } = &error else { panic!("{error}") };
    let names: Vec<&str> = tried.iter().map(|attempt| &*attempt.name).collect();
    assert_eq!(names, ["libnccl-not-there.so.2", "libnccl-not-there.so"]);
    assert!(tried.iter().all(|attempt| attempt.reason.contains("No such file")), "{error}");
    let text = error.to_string();
    assert!(text.contains("\n  `libnccl-not-there.so`: cannot open shared object file"), "{text}");
    assert!(text.contains("\nhelp: install NCCL, add its folder to LD_LIBRARY_PATH, or set MACO_NCCL"), "{text}");
}

#[test]
fn a_file_that_is_no_library_is_an_error() {
    let error = open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap_err();
    let Error::NotFound { tried } = &error else { panic!("{error}") };
    assert!(tried[0].reason.contains("invalid ELF header") || tried[0].reason.contains("file too short"), "{error}");
    assert!(error.to_string().contains("Cargo.toml` must be NCCL's shared library"), "{error}");
}

#[test]
fn a_library_without_a_required_function_is_refused() {
    let error = open(&build(23_203, &["send"])).unwrap_err();
    assert!(
        matches!(error, Error::MissingSymbol { symbol: "ncclSend", version: Some(version) } if version == Version::new(2, 32, 3)),
        "{error}"
    );
    assert!(error.to_string().starts_with("NCCL 2.32.3 has no function `ncclSend`\nhelp: "), "{error}");
}

#[test]
fn a_library_that_is_not_nccl_is_refused() {
    let error = open(&build(23_203, &["version"])).unwrap_err();
    assert!(matches!(error, Error::MissingSymbol { symbol: "ncclGetVersion", version: None }), "{error}");
    assert!(error.to_string().starts_with("NCCL has no function `ncclGetVersion`\n"), "{error}");
}

#[test]
fn an_old_library_is_refused() {
    let error = open(&build(21_805, &["windows", "one_sided"])).unwrap_err();
    assert!(
        matches!(error, Error::TooOld { what: "nccl-sys", found, needed } if found == Version::new(2, 18, 5) && needed == Version::new(2, 19, 3)),
        "{error}"
    );
    assert!(error.to_string().starts_with("NCCL 2.18.5 is too old: `nccl-sys` needs 2.19.3\nhelp: "), "{error}");
}

#[test]
fn a_bad_version_is_refused_though_another_library_is_there() {
    // SAFETY: the fakes have NCCL's signatures.
    let error = unsafe { Nccl::open([build(22_902, &[]), complete()]) }.unwrap_err();
    assert!(matches!(error, Error::KnownBad { found, .. } if found == Version::new(2, 29, 2)), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("NCCL 2.29.2 is known to be at fault: ncclCommWindowRegister registers nothing"), "{text}");
    assert!(text.contains("\nhelp: install NCCL 2.29.3 or newer"), "{text}");
}

#[test]
fn a_version_that_spoils_some_uses_is_loaded_and_tells_which() {
    let nccl = open(&build(22_809, &["one_sided"])).unwrap();
    assert!(matches!(nccl.check(Use::CopyEngineWithTwoRanks), Err(Error::KnownBad { fixed, .. }) if fixed == Version::new(2, 31, 2)));
    assert!(open(&complete()).unwrap().check(Use::CopyEngineWithTwoRanks).is_ok());
}

#[test]
fn a_library_that_does_not_tell_its_version_is_refused() {
    let library = complete();
    Fake::of(&library).next(1);
    let error = open(&library).unwrap_err();
    assert!(matches!(error, Error::Call { function: "ncclGetVersion", result, .. } if result == ncclUnhandledCudaError), "{error}");
}

#[test]
fn a_library_without_optional_functions_is_loaded_and_they_are_errors() {
    let null: *mut c_void = std::ptr::null_mut();
    let mut window = null.cast();
    let old = open(&build(22_605, &["windows", "one_sided"])).unwrap();
    let fake = Fake::of(&build(22_605, &["windows", "one_sided"]));
    fake.take();
    // SAFETY: nothing is called.
    let error = unsafe { old.comm_window_register(null.cast(), null, 0, &mut window, 1) }.unwrap_err();
    let text = "NCCL 2.26.5 is too old: `ncclCommWindowRegister` needs 2.27.3\nhelp: install NCCL 2.27.3 or newer, or name another library by MACO_NCCL";
    assert_eq!(error.to_string(), text);
    // SAFETY: nothing is called.
    let error = unsafe { old.comm_window_deregister(null.cast(), window) }.unwrap_err();
    assert!(error.to_string().contains("`ncclCommWindowDeregister` needs 2.27.3"), "{error}");
    assert_eq!(fake.take(), "", "nothing is called");
    assert!(old.has_windows().unwrap_err().to_string().contains("`ncclCommWindowRegister` needs 2.27.3"));

    // Windows, and nothing of 2.29.
    let middle = open(&build(22_809, &["one_sided"])).unwrap();
    assert!(middle.has_windows().is_ok());
    assert!(matches!(middle.has_one_sided(), Err(Error::TooOld { .. })));
    assert!(open(&complete()).unwrap().has_one_sided().is_ok());
    // SAFETY: nothing but the fake's `ncclCommWindowRegister` is called, which writes `window`.
    let errors = unsafe {
        assert!(middle.comm_window_register(null.cast(), null, 0, &mut window, 1).is_ok());
        [
            middle.put_signal(null, 0, nccl_sys::ncclInt8, 0, window, 0, 0, 0, 0, null.cast(), null.cast()).unwrap_err(),
            middle.signal(0, 0, 0, 0, null.cast(), null.cast()).unwrap_err(),
            middle.wait_signal(&mut [], null.cast(), null.cast()).unwrap_err(),
            middle.lsa_device_pointer(window, 0, 0).unwrap_err(),
            middle.lsa_multimem_device_pointer(window, 0).unwrap_err(),
            middle.peer_device_pointer(window, 0, 0).unwrap_err(),
        ]
    };
    let names = [
        "ncclPutSignal",
        "ncclSignal",
        "ncclWaitSignal",
        "ncclGetLsaDevicePointer",
        "ncclGetLsaMultimemDevicePointer",
        "ncclGetPeerDevicePointer",
    ];
    for (error, name) in errors.iter().zip(names) {
        assert!(
            matches!(error, Error::TooOld { what, found, needed } if *what == name && *found == Version::new(2, 28, 9) && *needed == Version::new(2, 29, 3)),
            "{error}"
        );
    }
}

#[test]
fn a_new_library_without_an_optional_function_lacks_it() {
    let nccl = open(&build(23_203, &["one_sided"])).unwrap();
    // SAFETY: nothing is called.
    let error = unsafe { nccl.signal(0, 0, 0, 0, std::ptr::null_mut(), std::ptr::null_mut()) }.unwrap_err();
    assert!(matches!(error, Error::MissingSymbol { symbol: "ncclSignal", version: Some(_) }), "{error}");
    assert!(matches!(nccl.has_one_sided(), Err(Error::MissingSymbol { .. })));
}

#[test]
fn the_library_is_never_unloaded() {
    let library = build(22_707, &["one_sided"]);
    let mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().contains(library.to_str().unwrap());
    assert!(!mapped());
    // In a thread of its own: the fake's variables of a thread hold the library, too.
    std::thread::scope(|scope| scope.spawn(|| open(&library).map(|_| ())).join().unwrap()).unwrap();
    assert!(mapped());
}

/// Compiles or does not.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Nccl>();
    shared::<Error>();
};
