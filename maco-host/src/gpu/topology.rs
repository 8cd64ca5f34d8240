//! Which GPUs of a job can access each other's memory, and how. Making the memory does not belong here.

use std::fmt;

use cudarc::driver::sys::{self, CUdevice_P2PAttribute};
use maco_ranks::Error as RanksError;

use super::context::Context;
use super::virtual_memory::missing;
use crate::error::Error;

/// How a rank's GPU gets at the memory of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// It is the same GPU.
    Own,
    /// Another one, directly; with atomics that are atomic for both, or without.
    Peer { native_atomics: bool },
    /// One that this process does not see (`CUDA_VISIBLE_DEVICES`): whether it can be mapped is found by doing it.
    Unseen,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reach::Own => "the same GPU",
            Reach::Peer { native_atomics: true } => "peer access with native atomics",
            Reach::Peer { native_atomics: false } => "peer access without native atomics",
            Reach::Unseen => "a GPU that this process does not see",
        })
    }
}

/// A GPU as ranks tell each other of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gpu {
    /// The same in all processes of the host; of a part of a GPU (MIG) it is the part's.
    uuid: [u8; 16],
    /// What its rank calls it.
    pub(super) name: String,
}

impl Gpu {
    pub(super) fn of(context: &Context) -> Result<Gpu, Error> {
        let uuid = uuid(context.device()).map_err(|code| context.check("cuDeviceGetUuid", code).unwrap_err())?;
        Ok(Gpu { uuid, name: format!("GPU {} ({})", context.ordinal(), context.name()) })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        [&self.uuid, self.name.as_bytes()].concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Gpu {
        let (uuid, name) = bytes.split_first_chunk().unwrap_or((&[0; 16], bytes));
        Gpu { uuid: *uuid, name: String::from_utf8_lossy(name).into_owned() }
    }

    /// Whether it is the same GPU.
    pub(super) fn is(&self, other: &Gpu) -> bool {
        self.uuid == other.uuid
    }

    /// Parts of a GPU have names such as `NVIDIA H100 80GB HBM3 MIG 1g.10gb`.
    fn is_part(&self) -> bool {
        self.name.contains(" MIG ")
    }
}

fn uuid(device: sys::CUdevice) -> Result<[u8; 16], sys::CUresult> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: `uuid` is writable, and the device exists.
    match unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, device) } {
        sys::CUresult::CUDA_SUCCESS => Ok(uuid.bytes.map(|byte| byte as u8)),
        code => Err(code),
    }
}

/// How the GPU of rank `rank` gets at the memory of all, whose GPUs these are.
///
/// # Errors
/// MACO0100 for one that it cannot access, which is named.
pub(super) fn reach(context: &Context, rank: usize, gpus: &[Gpu]) -> Result<Vec<Reach>, Error> {
    let seen = devices(context)?;
    let own = &gpus[rank];
    let one = |(peer, gpu): (usize, &Gpu)| {
        if gpu.uuid == own.uuid {
            return Ok(Reach::Own);
        }
        let refused = |because: &str| {
            let what = format!("{} of rank {rank} cannot access the memory of {} of rank {peer}{because}", own.name, gpu.name).into();
            let help = "give all ranks GPUs with peer access to each other: `nvidia-smi topo -p2p rw` lists them";
            Err(Error::from(RanksError::Memory { what, help }))
        };
        if own.is_part() || gpu.is_part() {
            return refused(": it is a part of a GPU (MIG), and parts have no peer access");
        }
        let Some(&(device, _)) = seen.iter().find(|(_, uuid)| *uuid == gpu.uuid) else { return Ok(Reach::Unseen) };
        match [can_access(context, context.device(), device)?, can_access(context, device, context.device())?] {
            [true, _] => Ok(Reach::Peer { native_atomics: native_atomics(context, device)? }),
            [false, true] => refused(", but the other way it could"),
            [false, false] => refused(": there is no peer access between the two"),
        }
    };
    gpus.iter().enumerate().map(one).collect()
}

/// What a rank tells the others of its GPU.
pub(crate) fn told(context: &Context) -> Result<Vec<u8>, Error> {
    Ok(Gpu::of(context)?.encode())
}

/// Whether the GPU of rank `rank` can have the memory of all, who have told this of theirs, as far as it can be known before it does.
pub(crate) fn has_access(context: &Context, rank: usize, told: &[Vec<u8>]) -> Result<bool, Error> {
    let gpus: Vec<Gpu> = told.iter().map(|told| Gpu::decode(told)).collect();
    match reach(context, rank, &gpus) {
        Ok(_) => Ok(missing(context)?.is_none()),
        Err(Error::Ranks(error)) if matches!(*error, RanksError::Memory { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The GPUs that this process sees.
fn devices(context: &Context) -> Result<Vec<(sys::CUdevice, [u8; 16])>, Error> {
    let mut count = 0;
    // SAFETY: (of both) the out-pointers are writable.
    context.check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    let one = |ordinal| {
        let mut device = 0;
        // SAFETY: as above.
        context.check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal) })?;
        Ok((device, uuid(device).map_err(|code| context.check("cuDeviceGetUuid", code).unwrap_err())?))
    };
    (0..count).map(one).collect()
}

fn can_access(context: &Context, from: sys::CUdevice, to: sys::CUdevice) -> Result<bool, Error> {
    let mut value = 0;
    // SAFETY: `value` is writable, and both devices exist.
    context.check("cuDeviceCanAccessPeer", unsafe { sys::cuDeviceCanAccessPeer(&mut value, from, to) })?;
    Ok(value != 0)
}

fn native_atomics(context: &Context, to: sys::CUdevice) -> Result<bool, Error> {
    let (mut value, attribute) = (0, CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
    // SAFETY: as above.
    let code = unsafe { sys::cuDeviceGetP2PAttribute(&mut value, attribute, context.device(), to) };
    context.check("cuDeviceGetP2PAttribute", code)?;
    Ok(value != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_told_as_they_are() {
        let gpu = Gpu { uuid: *b"0123456789abcdef", name: "GPU 3 (NVIDIA H200)".into() };
        assert_eq!(Gpu::decode(&gpu.encode()), gpu);
        assert!(!gpu.is_part());
        assert!(Gpu { name: "GPU 0 (NVIDIA H100 80GB HBM3 MIG 1g.10gb)".into(), ..gpu }.is_part());
    }
}
