//! Whether the GPUs of all ranks have access to each other's memory: what plans want to know before they choose how collectives go. Making such memory does not belong here.

use std::sync::{Mutex, PoisonError};

use maco_ranks::Group;

use crate::agreement::own_or_all;
use crate::device::Device;
use crate::error::Error;
use crate::gpu;

/// What all ranks have found out together, for each list of their GPUs.
#[derive(Debug, Default)]
pub(crate) struct PeerAccess(Mutex<Vec<(Vec<Vec<u8>>, bool)>>);

/// What a rank tells the others of its device: nothing of a CPU.
pub(crate) fn told(device: &Device) -> Result<Vec<u8>, Error> {
    device.context().map_or(Ok(Vec::new()), |context| gpu::told(context))
}

impl PeerAccess {
    /// Whether the kernels of all ranks can exchange tiles; `all` is what each told. All ranks call it, and get the same. CPU ranks can.
    ///
    /// # Errors
    /// MACO0095 when a rank does not come, MACO0096 when one cannot find out.
    pub(crate) fn of(&self, group: &Group, device: &Device, all: &[Vec<u8>]) -> Result<bool, Error> {
        let Some(context) = device.context().filter(|_| all.iter().all(|told| !told.is_empty())) else { return Ok(true) };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, access)) = known.iter().find(|(gpus, _)| gpus == all) {
            return Ok(*access);
        }
        let own = gpu::has_access(context, group.rank() as usize, all).map(|access| access && group.one_host());
        let text = own.as_ref().err().map(Error::to_string);
        let value = [u8::from(matches!(own, Ok(true)))];
        let mut votes = Vec::new();
        let voted = group.vote("compare the access of GPUs to each other", text.as_deref().map_or(Ok(&value), Err));
        own_or_all(own, voted.map(|values| votes = values))?;
        let access = votes.iter().all(|vote| *vote == [1]);
        known.push((all.to_vec(), access));
        Ok(access)
    }
}
