//! Where a program runs and how: a device, the ranks, and what all plans of them have in common.
//!
//! The values are [`Settings`]; what they do is said where they go to.

use std::fmt;
use std::thread;

use maco_graph::plan::OverlapMode;

use crate::communicator::Communicator;
use crate::device::Device;
use crate::error::Error;
use crate::options::PlanOptions;
use crate::settings::{Backend, Settings};
use crate::sm_config::SmConfig;

/// A device, the ranks that run together, and the choices that every plan made by it has. Cloning gives the same device and ranks.
///
/// ```
/// # use maco_host::{Backend, Context, Settings};
/// let context = Context::new(Settings::new().backend(Backend::Cpu).debug(true))?;
/// assert_eq!(context.world_size(), 1);
/// let options = context.options(); // for `plan_with(context.device(), dims, &options)`; `plan_in(&context, dims)` passes them itself
/// # Ok::<(), maco_host::Error>(())
/// ```
#[derive(Clone)]
pub struct Context {
    device: Device,
    communicator: Communicator,
    settings: Settings,
}

impl Context {
    /// One rank: by `settings`, and by the environment for what they leave open.
    ///
    /// # Errors
    /// MACO0058 for a variable that is wrong, and what [`Device::gpu`] returns for the backend [`Backend::Gpu`].
    pub fn new(settings: Settings) -> Result<Context, Error> {
        Context::of_ranks(&Communicator::single(), settings)
    }

    /// The rank that `communicator` is, with a device of its own: the GPU of its number on the host, or its share of the CPU's threads. All ranks call it with equal settings.
    ///
    /// # Errors
    /// Those of [`Context::new`], MACO0100 where plans of the communicator have made their memory already and [`Settings::buffer_size`] is set, MACO0059 for a deadline out of
    /// range.
    pub fn of_ranks(communicator: &Communicator, settings: Settings) -> Result<Context, Error> {
        let settings = settings.or_environment()?;
        let (local_rank, local_ranks) = (communicator.local_rank(), communicator.local_ranks());
        let several = communicator.ranks() > 1;
        let device = match settings.backend.unwrap_or_default() {
            Backend::Automatic => Device::best_at(local_rank)?,
            Backend::Gpu => Device::gpu(local_rank)?,
            Backend::Cpu => Device::cpu(),
        };
        // Tasks that wait for other ranks hold their workers, so ranks share none; and there are as many as are asked for.
        let asked = settings.compute_sms.zip(settings.comm_sms).map(|(compute, comm)| compute.saturating_add(comm));
        let device = match asked {
            _ if device.is_gpu() => device,
            Some(workers) => Device::cpu_with(workers),
            None if several => Device::cpu_with(thread::available_parallelism().map_or(1, |n| n.get() as u32) / local_ranks),
            None => device,
        };
        if let Some(bytes) = settings.pinned_memory {
            device.set_pinned_memory(bytes);
        }
        settings.buffer_size.map_or(Ok(()), |bytes| communicator.set_message_memory(bytes))?;
        settings.deadline.map_or(Ok(()), |deadline| communicator.set_deadline(deadline))?;
        Ok(Context { device, communicator: communicator.clone(), settings })
    }

    /// By the environment alone: the rank of a job that a launcher has started ([`Communicator::from_env`]), else one rank.
    ///
    /// # Errors
    /// Those of [`Communicator::from_env`] and [`Context::of_ranks`].
    pub fn from_env() -> Result<Context, Error> {
        let communicator = if Communicator::is_launched() { Communicator::from_env()? } else { Communicator::single() };
        Context::of_ranks(&communicator, Settings::new())
    }

    /// The device that plans are for.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The ranks.
    pub fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    /// How many ranks there are.
    pub fn world_size(&self) -> u32 {
        self.communicator.ranks()
    }

    /// Which of the ranks this is, from 0.
    pub fn rank(&self) -> u32 {
        self.communicator.rank()
    }

    /// Multiprocessors that compute, where it is set: else any.
    pub fn compute_sms(&self) -> Option<u32> {
        self.settings.compute_sms
    }

    /// Multiprocessors that communicate, where it is set: else collectives run on any, and NCCL has as many as [`SmConfig::automatic`] says.
    pub fn comm_sms(&self) -> Option<u32> {
        self.settings.comm_sms
    }

    /// Which collectives wait beside calls that need nothing of them.
    pub fn overlap(&self) -> OverlapMode {
        self.settings.overlap.unwrap_or_default()
    }

    /// All that is set, by the program or by the environment.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The options of its plans. Single ones may be changed for a plan of another kind: `context.options().sms(decode)`.
    pub fn options(&self) -> PlanOptions {
        let Settings { policy, strategy, compute_sms, comm_sms, deadline, debug, profile, .. } = self.settings;
        let sms = match (compute_sms, comm_sms) {
            (Some(compute), Some(comm)) => SmConfig::split(compute, comm),
            _ => SmConfig::automatic(),
        };
        let mut options = PlanOptions::new()
            .communicator(self.communicator.clone())
            .sms(sms)
            .overlap(self.overlap())
            .debug(debug.unwrap_or_default())
            .profile(profile.unwrap_or_default());
        options.schedule = policy;
        options.deadline = deadline;
        options.via = strategy.unwrap_or_default();
        // Of one of the two alone: so many workers, or so many multiprocessors of NCCL.
        options.workers = if comm_sms.is_none() { compute_sms } else { None };
        options.comm_sms = comm_sms;
        options
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context(rank {} of {} on {})", self.rank(), self.world_size(), self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_what_the_context_has() {
        let context = Context::new(Settings::new().backend(Backend::Cpu).compute_sms(3).comm_sms(1).overlap(OverlapMode::Always)).unwrap();
        assert_eq!((context.device().workers(), context.device().is_gpu()), (4, false));
        assert_eq!((context.world_size(), context.rank(), context.compute_sms(), context.comm_sms()), (1, 0, Some(3), Some(1)));
        let alone = || PlanOptions::new().communicator(Communicator::single());
        assert_eq!(context.options(), alone().sms(SmConfig::split(3, 1)).overlap(OverlapMode::Always).comm_sms(1));
        let plain = Context::new(Settings::new().backend(Backend::Cpu)).unwrap();
        assert_eq!((plain.device(), plain.options()), (&Device::cpu(), alone()));
    }

    #[test]
    fn each_rank_has_a_device_of_its_own() {
        let contexts = Communicator::threads(2, |ranks| {
            let settings = Settings::new().backend(Backend::Cpu).buffer_size(1 << 20).deadline(std::time::Duration::from_secs(7));
            let context = Context::of_ranks(&ranks, settings).unwrap();
            assert_eq!(context.options().communicator.as_ref(), Some(&ranks));
            (context.rank(), context.world_size(), context.device().clone(), ranks.deadline().as_secs())
        });
        let [one, other] = contexts.unwrap().try_into().unwrap();
        assert_eq!(((one.0, one.1), (other.0, other.1)), ((0, 2), (1, 2)));
        assert_ne!(one.2, other.2);
        assert_eq!((one.3, other.3), (7, 7));
    }
}
