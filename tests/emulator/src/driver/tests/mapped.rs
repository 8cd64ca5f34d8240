//! Memory that is created and mapped, in one process and in two.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use super::super::reservations::*;
use super::*;

const BYTES: usize = 4 << 20;
const STORE: &str = "mov.b32 %r1, 7; st.global.u32 [%far], %r1;";

pub fn create(device: i32) -> u64 {
    let location = Location { ty: 1, id: device };
    let properties = Properties { ty: 1, handle_types: 1, location, windows: 0, flags: [0; 8] };
    let (mut granule, mut handle) = (0, 0);
    // SAFETY: places for the answers.
    unsafe {
        assert_eq!((cuMemGetAllocationGranularity(&mut granule, &properties, 0), granule), (SUCCESS, 2 << 20));
        assert_eq!(cuMemCreate(&mut handle, 4096, &properties, 0), INVALID_VALUE);
        assert_eq!(cuMemCreate(&mut handle, BYTES, &properties, 0), SUCCESS);
    }
    handle
}

fn reserve(bytes: usize) -> u64 {
    let mut start = 0;
    // SAFETY: a place for the answer.
    assert_eq!(unsafe { cuMemAddressReserve(&mut start, bytes, 0, 0, 0) }, SUCCESS);
    start
}

fn allow(start: u64, bytes: usize, device: i32, flags: u32) -> Status {
    // SAFETY: one description.
    unsafe { cuMemSetAccess(start, bytes, &Access { location: Location { ty: 1, id: device }, flags }, 1) }
}

pub fn export(handle: u64) -> OwnedFd {
    let mut file = -1;
    // SAFETY: a place for the answer, which is a new descriptor.
    unsafe {
        assert_eq!(cuMemExportToShareableHandle(&mut file, handle, 1, 0), SUCCESS);
        OwnedFd::from_raw_fd(file)
    }
}

pub fn import(file: &OwnedFd) -> u64 {
    let mut handle = 0;
    // SAFETY: a place for the answer.
    assert_eq!(unsafe { cuMemImportFromShareableHandle(&mut handle, file.as_raw_fd() as usize as *mut c_void, 1) }, SUCCESS);
    handle
}

/// Maps a handle for a device.
pub fn mapped(handle: u64, device: i32) -> u64 {
    let start = reserve(BYTES);
    assert_eq!(cuMemMap(start, BYTES, 0, handle, 0), SUCCESS);
    assert_eq!(allow(start, BYTES, device, 3), SUCCESS);
    start
}

#[test]
fn memory_is_mapped_where_it_is_reserved() {
    alone!(memory_is_mapped_where_it_is_reserved, &[("EMU_GPUS", "2")], {
        enter(0);
        let (handle, other) = (create(0), create(1));
        let start = reserve(3 * BYTES);
        assert_eq!(cuMemMap(start, BYTES, 0, handle, 0), SUCCESS);
        assert_eq!(cuMemMap(start + BYTES as u64 / 2, BYTES, 0, other, 0), INVALID_VALUE);
        assert_eq!(cuMemMap(start + 3 * BYTES as u64, BYTES, 0, other, 0), INVALID_VALUE);
        assert_eq!(cuMemMap(start + BYTES as u64, BYTES, 0, other, 0), SUCCESS);
        assert_eq!(allow(start, 3 * BYTES, 0, 3), INVALID_VALUE);
        assert_eq!(allow(start, 2 * BYTES, 0, 3), SUCCESS);
        // Fills and copies pass from one to the other; kernels of device 0 use both.
        let middle = start + BYTES as u64 - 4;
        // SAFETY: mapped.
        assert_eq!(unsafe { cuMemsetD32_v2(middle, 5, 2) }, SUCCESS);
        assert_eq!((word(middle), word(middle + 4), word(middle + 8)), (5, 5, u32::MAX));
        assert_eq!(run(kernel(STORE), 0, middle + 4), SUCCESS);
        assert_eq!((word(middle), word(middle + 4)), (5, 7));
        let (mut device, mut flags, mut context) = (-1, 9, primary(0));
        let location = [0, 1].map(|id| Location { ty: 1, id });
        // SAFETY: places for the answers.
        unsafe {
            assert_eq!((cuPointerGetAttribute((&raw mut device).cast(), 9, middle + 4), device), (SUCCESS, 1));
            assert_eq!((cuPointerGetAttribute((&raw mut context).cast(), 1, middle), context), (SUCCESS, null_mut()));
            assert_eq!((cuMemGetAccess(&mut flags, &location[0], middle), flags), (SUCCESS, 3));
            assert_eq!((cuMemGetAccess(&mut flags, &location[1], middle), flags), (SUCCESS, 0));
        }
        // A handle of what is mapped, and what it says.
        let mut again = 0;
        let mut properties = Properties { ty: 0, handle_types: 0, location: location[0], windows: 1, flags: [1; 8] };
        // SAFETY: places for the answers.
        unsafe {
            assert_eq!(cuMemRetainAllocationHandle(&mut again, (middle + 4) as *mut c_void), SUCCESS);
            assert_eq!(cuMemGetAllocationPropertiesFromHandle(&mut properties, again), SUCCESS);
        }
        assert_eq!((again, properties.location.id, properties.handle_types), (other, 1, 1));
        assert_eq!([cuMemRelease(again), cuMemRelease(other), cuMemRelease(other)], [SUCCESS, SUCCESS, INVALID_VALUE]);
        // What is mapped stays so without handles, until it is unmapped.
        assert_eq!(word(middle + 4), 7);
        assert_eq!(cuMemAddressFree(start, 3 * BYTES), INVALID_VALUE);
        assert_eq!(cuMemUnmap(start, BYTES / 2), INVALID_VALUE);
        assert_eq!([cuMemUnmap(start, 2 * BYTES), cuMemAddressFree(start, 3 * BYTES)], [SUCCESS; 2]);
        let mut total = [0; 2];
        // SAFETY: places for the answers.
        unsafe { cuMemGetInfo_v2(&mut total[0], &mut total[1]) };
        assert_eq!(total[0], total[1] - BYTES);
    });
}

#[test]
fn unmapped_memory_is_a_fault() {
    let text = alone!(unmapped_memory_is_a_fault, &[("EMU_GPUS", "2")], {
        enter(0);
        let start = mapped(create(0), 0);
        assert_eq!(run(kernel(STORE), 0, start), SUCCESS);
        assert_eq!(cuMemUnmap(start, BYTES), SUCCESS);
        let mut word = 0u32;
        // SAFETY: a place for a word.
        assert_eq!(unsafe { cuMemcpyDtoH_v2((&raw mut word).cast(), start, 4) }, INVALID_VALUE);
        assert_eq!(run(kernel(STORE), 0, start), crate::exec::ILLEGAL_ADDRESS);
    });
    assert!(text.contains("are not allocated"), "{text}");
}

#[test]
fn mappings_need_access() {
    let text = alone!(mappings_need_access, &[("EMU_GPUS", "2")], {
        enter(1);
        let start = mapped(create(0), 0);
        // Of plain memory, this is enough.
        assert_eq!(cuCtxEnablePeerAccess(primary(0), 0), SUCCESS);
        assert_eq!(allow(start, BYTES, 1, 3), SUCCESS);
        assert_eq!(run(kernel(STORE), 0, start), SUCCESS);
        assert_eq!(allow(start, BYTES, 1, 0), SUCCESS);
        assert_eq!(run(kernel(STORE), 0, start), crate::exec::ILLEGAL_ADDRESS);
    });
    assert!(text.contains("no cuMemSetAccess"), "{text}");
}

#[test]
fn devices_without_peers_get_no_access() {
    alone!(devices_without_peers_get_no_access, &[("EMU_GPUS", "2"), ("EMU_NO_PEERS", "1")], {
        enter(0);
        let start = mapped(create(0), 0);
        assert_eq!(allow(start, BYTES, 1, 3), INVALID_DEVICE);
    });
}

#[test]
fn imports_of_one_process_are_the_same_memory() {
    alone!(imports_of_one_process_are_the_same_memory, &[("EMU_GPUS", "2")], {
        enter(0);
        let handle = create(0);
        let (first, second) = (mapped(handle, 0), mapped(import(&export(handle)), 1));
        assert_ne!(first, second);
        enter(1);
        assert_eq!(run(kernel(STORE), 0, second + 4096), SUCCESS);
        enter(0);
        assert_eq!((word(first + 4096), word(first)), (7, u32::MAX));
    });
}

/// Sends a descriptor over a socket, or receives one.
fn pass(socket: &UnixStream, file: Option<&OwnedFd>) -> Option<OwnedFd> {
    let mut byte = 0u8;
    let mut room = [0u64; 8];
    let mut piece = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: a message of one byte and one descriptor, with room for both.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
        (message.msg_control, message.msg_controllen) = (room.as_mut_ptr().cast(), libc::CMSG_SPACE(4) as usize);
        if let Some(file) = file {
            let header = libc::CMSG_FIRSTHDR(&message);
            ((*header).cmsg_level, (*header).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
            (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(header).cast::<i32>().write_unaligned(file.as_raw_fd());
            assert_eq!(libc::sendmsg(socket.as_raw_fd(), &message, 0), 1);
            return None;
        }
        assert_eq!(libc::recvmsg(socket.as_raw_fd(), &mut message, 0), 1);
        let header = libc::CMSG_FIRSTHDR(&message);
        assert!(!header.is_null());
        Some(OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<i32>().read_unaligned()))
    }
}

/// Ranks of two processes: each has memory of a device, gets the other's descriptor, and plays ping-pong.
fn rank(rank: usize, socket: &UnixStream) {
    enter(rank);
    let handle = create(rank as i32);
    let own = mapped(handle, rank as i32);
    // SAFETY: mapped.
    assert_eq!(unsafe { cuMemsetD8_v2(own, 0, BYTES) }, SUCCESS);
    pass(socket, Some(&export(handle)));
    let far = mapped(import(&pass(socket, None).unwrap()), rank as i32);
    let mut device = -1;
    // SAFETY: a place for the answer.
    assert_eq!(unsafe { cuPointerGetAttribute((&raw mut device).cast(), 9, far) }, SUCCESS);
    assert_eq!(device, 1 - rank as i32);
    let bodies = super::peers::ping_pong(50, "st.release.sys", "ld.acquire.sys");
    assert_eq!(run(kernel(&bodies[rank]), own, far), SUCCESS);
    assert_eq!(word(own + 128), 100);
}

#[test]
fn processes_share_memory() {
    const SOCKET: &str = "EMU_TEST_SOCKET";
    // What another process has done is not known: none of it is to be called a race.
    alone!(processes_share_memory, &[("EMU_GPUS", "2"), ("EMU_RACES", "2")], {
        if let Ok(file) = std::env::var(SOCKET) {
            // SAFETY: the parent has made it this process's.
            return rank(1, &unsafe { UnixStream::from_raw_fd(file.parse().unwrap()) });
        }
        let (socket, theirs) = UnixStream::pair().unwrap();
        // SAFETY: an open descriptor, which the child is to have.
        assert!(unsafe { libc::fcntl(theirs.as_raw_fd(), libc::F_SETFD, 0) } == 0);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["driver::tests::mapped::processes_share_memory", "--exact", "--nocapture"]);
        let child = command.env(SOCKET, theirs.as_raw_fd().to_string()).stdout(Stdio::piped()).spawn().unwrap();
        drop(theirs);
        rank(0, &socket);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    });
}
