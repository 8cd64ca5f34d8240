//! Folders for the sockets of a job, which nobody else may enter.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The variable by which the launcher names the folder.
pub const FOLDER: &str = "MACO_JOB_FOLDER";

/// Where folders of jobs are: `XDG_RUNTIME_DIR`, else `TMPDIR`, else `/tmp`.
pub(crate) fn base() -> PathBuf {
    std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()).map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Makes a folder of mode 0700 with a random name, for a launcher, which removes it.
///
/// # Errors
/// Of the system.
pub fn create_job_folder() -> io::Result<PathBuf> {
    let name: String = crate::token::nonce()?[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = base().join(format!("maco-{name}"));
    DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(folder)
}

/// Ranks that lose `rank` make this file: so the launcher knows who failed first, even if it sees others end before.
pub fn lost_note(folder: &Path, rank: u32) -> PathBuf {
    folder.join(format!("lost-{rank}"))
}

/// Makes a folder of mode 0700, or takes the one that is there if it is one.
pub(crate) fn private(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => check(folder),
    }
}

/// Whether nobody but this user enters it.
pub(crate) fn check(folder: &Path) -> io::Result<()> {
    // Not through a link, which another user may have put there.
    let found = fs::symlink_metadata(folder)?;
    let own = rustix::process::geteuid().as_raw();
    let fault = if !found.is_dir() {
        "it is no folder".to_owned()
    } else if found.uid() != own {
        format!("it belongs to user {}, not to user {own}", found.uid())
    } else if found.mode() & 0o077 != 0 {
        format!("others may enter it: its mode is {:03o}, not 700", found.mode() & 0o777)
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, fault))
}

/// Whether who is on the other end of a socket is the user of this process.
pub(crate) fn same_user(other: u32, own: u32) -> io::Result<()> {
    if other == own {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("the other end belongs to user {other}, not to user {own}")))
}

/// [`same_user`] of what the system says of a socket (`SO_PEERCRED`).
pub(crate) fn of_same_user(socket: impl std::os::fd::AsFd) -> io::Result<()> {
    let other = rustix::net::sockopt::socket_peercred(socket)?.uid.as_raw();
    same_user(other, rustix::process::geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_folder_that_others_enter_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("job");
        private(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        private(&folder).unwrap();
        for mode in [0o710, 0o701, 0o770, 0o777] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            assert!(private(&folder).unwrap_err().to_string().contains("others may enter"), "{mode:o}");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let link = root.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(private(&link).unwrap_err().to_string().contains("no folder"));
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(private(&file).is_err());
    }

    #[test]
    fn another_user_is_refused() {
        assert!(same_user(1000, 1000).is_ok());
        let error = same_user(1001, 1000).unwrap_err();
        assert!(error.to_string().contains("user 1001, not to user 1000"), "{error}");
        assert!(same_user(0, 1000).is_err(), "not root's either");
        let (one, _other) = UnixStream::pair().unwrap();
        of_same_user(&one).unwrap();
    }
}
