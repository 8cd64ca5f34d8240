//! What the library is told to do wrong, by environment variables.

use std::ffi::c_int;

use crate::{REMOTE_ERROR, Status};

/// `FAKE_NCCL_VERSION`: a code of NCCL's; 2.28.9 if it is not set.
pub fn version() -> c_int {
    number("FAKE_NCCL_VERSION").unwrap_or(22_809)
}

fn number(name: &str) -> Option<c_int> {
    std::env::var(name).ok()?.parse().ok()
}

/// How a call of NCCL's fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It returns this.
    Returns(Status),
    /// It is queued, and the communicators of all ranks fail with `ncclRemoteError` when the stream comes to it.
    Remote,
    /// It does not end before the communicator is aborted.
    Endless,
}

/// `FAKE_NCCL_FAULT`: `RANK:CALL:FAULT`, the rank's call of this number (from 0, of each communicator), and a result, `remote` or `endless`.
pub fn of_call(rank: usize, call: u64) -> Option<Fault> {
    parsed(&std::env::var("FAKE_NCCL_FAULT").ok()?, rank, call)
}

fn parsed(text: &str, rank: usize, call: u64) -> Option<Fault> {
    let mut parts = text.split(':');
    let is_this = parts.next()?.parse() == Ok(rank) && parts.next()?.parse() == Ok(call);
    let fault = match parts.next()? {
        "remote" => Fault::Remote,
        "endless" => Fault::Endless,
        result => Fault::Returns(result.parse().unwrap_or(REMOTE_ERROR)),
    };
    is_this.then_some(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_those_of_one_call() {
        assert_eq!(parsed("1:3:endless", 1, 3), Some(Fault::Endless));
        assert_eq!(parsed("1:3:remote", 1, 3), Some(Fault::Remote));
        assert_eq!(parsed("0:3:5", 0, 3), Some(Fault::Returns(5)));
        assert_eq!([parsed("1:3:5", 0, 3), parsed("1:3:5", 1, 4), parsed("1", 1, 3)], [None; 3]);
    }
}
