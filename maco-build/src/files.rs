//! Files that several builds share: the user's cache, atomic writes, locks, fingerprints.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::{env, process};

use crate::Error;

/// The user's cache: `$MACO_CACHE`, `$XDG_CACHE_HOME/maco` or `~/.cache/maco`; a directory of the system's temporary ones without a home.
pub fn cache_dir() -> PathBuf {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("MACO_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("maco")))
        .or_else(|| Some(env::home_dir()?.join(".cache/maco")))
        .unwrap_or_else(|| env::temp_dir().join("maco-cache"))
}

/// 64-bit FNV-1a of several texts. Not `DefaultHasher`: builds of different compilers must agree.
pub fn fingerprint<T: AsRef<[u8]>>(parts: impl IntoIterator<Item = T>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut eat = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    for part in parts {
        part.as_ref().iter().copied().for_each(&mut eat);
        eat(0xff); // so that ("ab", "c") and ("a", "bc") differ
    }
    hash
}

pub(crate) fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(Error::io("read", path))
}

pub(crate) fn create_dir(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(Error::io("create", path))
}

/// Writes by rename, and only what differs, so that no reader sees half a file and no time stamp moves without a reason.
pub(crate) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), Error> {
    let contents = contents.as_ref();
    if fs::read(path).is_ok_and(|old| old == contents) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create_dir(parent)?;
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", process::id()));
    let temporary = PathBuf::from(temporary);
    fs::write(&temporary, contents).map_err(Error::io("write", &temporary))?;
    fs::rename(&temporary, path).map_err(Error::io("write", path))
}

/// Holds `path` for this process until dropped; waits for whoever has it.
pub(crate) fn lock(path: &Path) -> Result<File, Error> {
    let file = open(path)?;
    file.lock().map_err(Error::io("lock", path))?;
    Ok(file)
}

/// The same without waiting: `None` while somebody else has it.
pub(crate) fn try_lock(path: &Path) -> Result<Option<File>, Error> {
    let file = open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(Error::io("lock", path)(error)),
    }
}

fn open(path: &Path) -> Result<File, Error> {
    if let Some(parent) = path.parent() {
        create_dir(parent)?;
    }
    File::options().create(true).truncate(false).write(true).open(path).map_err(Error::io("open", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_see_where_a_part_ends() {
        assert_ne!(fingerprint(["ab", "c"]), fingerprint(["a", "bc"]));
        assert_eq!(fingerprint([""; 0]), 0xcbf2_9ce4_8422_2325);
    }

    #[test]
    fn unchanged_contents_keep_the_time_stamp() {
        let directory = env::temp_dir().join(format!("maco-files-{}", process::id()));
        let path = directory.join("a/b");
        write(&path, "one").unwrap();
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        write(&path, "one").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
        write(&path, "two").unwrap();
        assert_eq!(read(&path).unwrap(), "two");
        fs::remove_dir_all(directory).unwrap();
    }
}
