//! Finds the library, and says what is wrong with the one that it finds.

use std::ffi::{CStr, OsStr, OsString};
use std::fmt;
use std::mem::ManuallyDrop;

use libloading::Library;

use crate::bindings::{Functions, ncclResult_t, ncclSuccess};
use crate::error::{Attempt, Error, VARIABLE};
use crate::fault::{self, Use};
use crate::version::Version;

/// Names under which [`Nccl::load`] looks for the library, in this order. Most installations have the first one only.
pub const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// First version with all required functions.
pub const OLDEST: Version = Version::new(2, 19, 3);

const WINDOWS: Version = Version::new(2, 27, 3);
/// 2.29.2 has them too, and is refused.
const ONE_SIDED: Version = Version::new(2, 29, 3);

/// Functions that a library may lack, and the first version that has each.
const OPTIONAL: [(&str, Version); 8] = [
    ("ncclCommWindowRegister", WINDOWS),
    ("ncclCommWindowDeregister", WINDOWS),
    ("ncclGetLsaMultimemDevicePointer", ONE_SIDED),
    ("ncclGetLsaDevicePointer", ONE_SIDED),
    ("ncclGetPeerDevicePointer", ONE_SIDED),
    ("ncclPutSignal", ONE_SIDED),
    ("ncclSignal", ONE_SIDED),
    ("ncclWaitSignal", ONE_SIDED),
];

/// NCCL, loaded: its version is known and not bad, and it has all required functions.
///
/// It stays loaded until the process ends, also when this is dropped: NCCL has threads of its own.
pub struct Nccl {
    pub(crate) functions: ManuallyDrop<Functions>,
    version: Version,
}

/// What `ncclResult_t` says of a call that did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "a communicator that does not block may still be at it"]
pub enum Status {
    /// `ncclSuccess`.
    Done,
    /// `ncclInProgress`, of a communicator with `blocking` 0: ask `comm_async_status` before the next call.
    InProgress,
}

/// The function of the library, or an error that names it.
macro_rules! function {
    ($nccl:expr, $name:ident) => {
        match &$nccl.functions.$name {
            Ok(function) => *function,
            Err(_) => return Err($nccl.missing(stringify!($name))),
        }
    };
}
pub(crate) use function;

impl Nccl {
    /// Loads the library that `MACO_NCCL` names; without this variable, the first of [`NAMES`] that the dynamic linker finds.
    /// The path is trusted, as `LD_LIBRARY_PATH` is.
    ///
    /// # Errors
    /// There is none, it is too old or known to be bad, or it lacks a function.
    pub fn load() -> Result<Nccl, Error> {
        match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            // SAFETY: that these are NCCL is up to who installed them and set the variable, as with a library that is linked.
            Some(path) => unsafe { Nccl::open([path]) },
            // SAFETY: as above.
            None => unsafe { Nccl::open(NAMES) },
        }
    }

    /// Loads the first of these names or paths that the dynamic linker finds. Later ones are not looked at, whatever is wrong with it.
    ///
    /// # Errors
    /// As for [`load`](Nccl::load).
    ///
    /// # Safety
    /// A library that is found must be NCCL: its initialisers are run, and functions with NCCL's names have NCCL's signatures.
    pub unsafe fn open<N: Into<OsString>>(names: impl IntoIterator<Item = N>) -> Result<Nccl, Error> {
        let mut tried = Vec::new();
        for name in names {
            let name = name.into();
            // SAFETY: the caller's promise.
            match unsafe { Library::new(name.as_os_str()) } {
                // SAFETY: the caller's promise.
                Ok(library) => return unsafe { Nccl::from_library(library) },
                Err(error) => tried.push(Attempt { name: name.to_string_lossy().into(), reason: reason(&error, &name) }),
            }
        }
        Err(Error::NotFound { tried })
    }

    /// # Safety
    /// The library is NCCL.
    unsafe fn from_library(library: Library) -> Result<Nccl, Error> {
        // SAFETY: the types are those of NCCL's header, which the library has by the caller's promise.
        let Ok(functions) = (unsafe { Functions::from_library(library) }) else {
            // Looks only for addresses, and keeps those that are missing as errors.
            return Err(Error::MissingSymbol { symbol: "ncclGetVersion", version: None });
        };
        let functions = ManuallyDrop::new(functions);
        let Ok(get_version) = functions.ncclGetVersion else {
            return Err(Error::MissingSymbol { symbol: "ncclGetVersion", version: None });
        };
        let mut code = 0;
        // SAFETY: `code` is writable; the function needs nothing else.
        let result = unsafe { get_version(&mut code) };
        if result != ncclSuccess {
            let text = "the library does not tell its version".into();
            return Err(Error::Call { function: "ncclGetVersion", result, text, last_error: "".into() });
        }
        let version = Version::from_code(code.unsigned_abs());
        if version < OLDEST {
            return Err(Error::TooOld { what: "nccl-sys", found: version, needed: OLDEST });
        }
        fault::check(version, Use::Library)?;
        if let Some(symbol) = first_missing(&required(&functions)) {
            return Err(Error::MissingSymbol { symbol, version: Some(version) });
        }
        Ok(Nccl { functions, version })
    }

    /// Version of the library.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether this version may be used so.
    ///
    /// # Errors
    /// [`Error::KnownBad`] if it is known to be at fault.
    pub fn check(&self, what: Use) -> Result<(), Error> {
        fault::check(self.version, what)
    }

    /// Whether the library has symmetric windows.
    ///
    /// # Errors
    /// It is older than 2.27.3, or lacks one of the functions.
    pub fn has_windows(&self) -> Result<(), Error> {
        first_missing(&windows(&self.functions)).map_or(Ok(()), |symbol| Err(self.missing(symbol)))
    }

    /// Whether the library has pointers into windows from the host, put and signal.
    ///
    /// # Errors
    /// It is older than 2.29.3, or lacks one of the functions.
    pub fn has_one_sided(&self) -> Result<(), Error> {
        first_missing(&one_sided(&self.functions)).map_or(Ok(()), |symbol| Err(self.missing(symbol)))
    }

    /// NCCL's text for a result.
    pub fn error_string(&self, result: ncclResult_t) -> String {
        match self.functions.ncclGetErrorString {
            // SAFETY: any value has a text, which is static; the library is never unloaded.
            Ok(function) => unsafe { text(function(result)) },
            Err(_) => String::new(),
        }
    }

    /// NCCL's last error of this process, of any communicator and thread, for people to read; empty if there was none.
    pub fn last_error(&self) -> String {
        match self.functions.ncclGetLastError {
            // SAFETY: the communicator is not used and may be null. The text is a static buffer whose last byte is always 0. NCCL
            // may write into it meanwhile, and offers no way to read it otherwise: it is copied at once.
            Ok(function) => unsafe { text(function(std::ptr::null_mut())) },
            Err(_) => String::new(),
        }
    }

    /// Why a function that is not there is not there.
    pub(crate) fn missing(&self, symbol: &'static str) -> Error {
        match OPTIONAL.iter().find(|(name, _)| *name == symbol) {
            Some(&(what, needed)) if self.version < needed => Error::TooOld { what, found: self.version, needed },
            _ => Error::MissingSymbol { symbol, version: Some(self.version) },
        }
    }

    pub(crate) fn failed(&self, function: &'static str, result: ncclResult_t) -> Error {
        Error::Call { function, result, text: self.error_string(result).into(), last_error: self.last_error().into() }
    }
}

impl fmt::Debug for Nccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nccl").field("version", &self.version).finish_non_exhaustive()
    }
}

/// # Safety
/// Null, or a text that ends with 0.
unsafe fn text(at: *const std::ffi::c_char) -> String {
    if at.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
}

/// What the dynamic linker says, without the name in front, which is said already.
fn reason(error: &libloading::Error, name: &OsStr) -> Box<str> {
    let source = std::error::Error::source(error).map(ToString::to_string);
    let text = source.unwrap_or_else(|| error.to_string());
    text.strip_prefix(&format!("{}: ", name.to_string_lossy())).unwrap_or(&text).into()
}

/// Functions by name, and whether the library lacks them.
macro_rules! which_are_missing {
    ($functions:expr, $($name:ident)*) => { [$((stringify!($name), $functions.$name.is_err())),*] };
}

/// Functions that every library must have.
fn required(functions: &Functions) -> [(&'static str, bool); 26] {
    which_are_missing!(functions,
        ncclGetVersion ncclGetErrorString ncclGetLastError ncclGetUniqueId
        ncclCommInitRankConfig ncclCommInitAll ncclCommGetAsyncError ncclCommAbort ncclCommFinalize ncclCommDestroy
        ncclCommCount ncclCommCuDevice ncclCommUserRank ncclGroupStart ncclGroupEnd
        ncclAllReduce ncclBroadcast ncclReduce ncclAllGather ncclReduceScatter ncclSend ncclRecv
        ncclMemAlloc ncclMemFree ncclCommRegister ncclCommDeregister
    )
}

fn windows(functions: &Functions) -> [(&'static str, bool); 2] {
    which_are_missing!(functions, ncclCommWindowRegister ncclCommWindowDeregister)
}

fn one_sided(functions: &Functions) -> [(&'static str, bool); 6] {
    which_are_missing!(functions,
        ncclGetLsaMultimemDevicePointer ncclGetLsaDevicePointer ncclGetPeerDevicePointer
        ncclPutSignal ncclSignal ncclWaitSignal
    )
}

fn first_missing(functions: &[(&'static str, bool)]) -> Option<&'static str> {
    functions.iter().find(|(_, missing)| *missing).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that is in no list would be missing without a word of its version.
    #[test]
    fn all_functions_of_the_bindings_are_required_or_optional() {
        // SAFETY: nothing is called. The test program has none of the functions.
        let functions = unsafe { Functions::from_library(libloading::os::unix::Library::this()) }.unwrap();
        let table = include_str!("bindings.rs").split_once("pub struct Functions {").unwrap().1.split_once("\n}").unwrap().0;
        let mut bound: Vec<&str> = table.lines().filter_map(|line| line.trim().strip_prefix("pub ")?.split(':').next()).collect();
        let mut listed = [&required(&functions)[..], &windows(&functions), &one_sided(&functions)].concat();
        assert!(listed.iter().all(|(_, missing)| *missing));
        bound.sort_unstable();
        listed.sort_unstable();
        assert_eq!(bound, listed.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        let optional: Vec<&str> = windows(&functions).iter().chain(&one_sided(&functions)).map(|(name, _)| *name).collect();
        assert_eq!(optional, OPTIONAL.map(|(name, _)| name));
    }
}
