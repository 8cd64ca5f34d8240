//! Memory of the host that is registered.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::*;
use crate::driver::registered::*;

/// Pages that this process and others would share, or that are its own.
fn pages(flags: i32) -> *mut u32 {
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags | libc::MAP_ANONYMOUS, -1, 0) };
    assert!(at != libc::MAP_FAILED);
    at.cast()
}

fn on_device(at: *mut u32) -> Option<u64> {
    let mut address = 0;
    // SAFETY: a place for the answer.
    (unsafe { cuMemHostGetDevicePointer_v2(&mut address, at.cast(), 0) } == SUCCESS).then_some(address)
}

#[test]
fn registered_memory_is_the_hosts() {
    alone!(registered_memory_is_the_hosts, &[("EMU_GPUS", "2")], {
        enter(1);
        let at = pages(libc::MAP_SHARED);
        assert_eq!(on_device(at), None);
        for round in 1..4 {
            // SAFETY: (of all) mapped, and used by this thread alone.
            unsafe {
                *at = round;
                assert_eq!(cuMemHostRegister_v2(at.cast(), 4096, 0), SUCCESS);
                assert_eq!(cuMemHostRegister_v2(at.cast(), 4096, 0), INVALID_VALUE, "it is registered");
                let address = on_device(at).unwrap();
                assert_eq!(on_device(at.add(10)), Some(address + 40));
                for device in [0, 1] {
                    assert!(crate::memory::usable(device, address, 4096) && !crate::memory::usable(device, address, 4097));
                }
                let seen = address as *mut u32;
                assert_eq!(*seen, round);
                *seen = 100 + round;
                assert_eq!(*at, 100 + round);
                assert_eq!(cuMemHostUnregister(at.cast()), SUCCESS);
                assert_eq!(cuMemHostUnregister(at.cast()), INVALID_VALUE);
                assert!(!crate::memory::usable(0, address, 1));
                assert_eq!((on_device(at), *at), (None, 100 + round));
            }
        }
        let own = pages(libc::MAP_PRIVATE);
        // SAFETY: mapped.
        assert_eq!(unsafe { cuMemHostRegister_v2(own.cast::<c_void>(), 4096, 0) }, INVALID_VALUE);
    });
}
