//! Devices: one GPU, or threads of this machine. What runs on them does not belong here.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

use maco_graph::plan::DeviceModel;

use crate::cpu::Pool;
use crate::device_model;
use crate::error::Error;
use crate::gpu::{Context, has_no_code};
use crate::tensor::{IntoShape, Tensor, TensorElement};

/// A GPU, or threads of this machine. Cloning gives the same device; tensors and plans must agree on it.
#[derive(Clone)]
pub struct Device(Kind);

#[derive(Clone)]
enum Kind {
    Cpu(Arc<Pool>),
    Gpu(Arc<Context>),
}

/// The device that [`Device::cpu`] returns, while anybody has it.
static CPU: Mutex<Weak<Pool>> = Mutex::new(Weak::new());

impl Device {
    /// GPU 0 if there is one for which this program has code, else the CPU. If there is one without, standard error says once why it is not used.
    ///
    /// # Errors
    /// What [`Device::gpu`] returns when there is a GPU that does not work.
    pub fn best() -> Result<Device, Error> {
        Device::best_at(0)
    }

    /// [`Device::best`], with GPU `index` instead of the first.
    pub(crate) fn best_at(index: u32) -> Result<Device, Error> {
        let has_no_code = |device: &Device| has_no_code(device.context()?.capability(), option_env!("MACO_NO_DEVICE_CODE"));
        let (device, note) = Device::best_of(Device::gpu(index), has_no_code)?;
        if let Some(note) = note {
            static SAID: Once = Once::new();
            SAID.call_once(|| eprintln!("{note}"));
        }
        Ok(device)
    }

    /// `gpu` if it can be used, else the CPU, with what there is to say. `has_no_code`: why the program has no code for a GPU.
    fn best_of(gpu: Result<Device, Error>, has_no_code: impl Fn(&Device) -> Option<String>) -> Result<(Device, Option<String>), Error> {
        match gpu {
            Err(Error::NoDriver | Error::NoGpu { .. }) => Ok((Device::cpu(), None)),
            Err(error) => Err(error),
            Ok(device) => Ok(match has_no_code(&device) {
                None => (device, None),
                Some(reason) => {
                    let note = format!("note: the CPU is used, since this program has no code for {device}: {reason}");
                    (Device::cpu(), Some(note))
                }
            }),
        }
    }

    /// GPU `index` as the driver counts them.
    ///
    /// # Errors
    /// MACO0040 without a driver or such a GPU, MACO0041 when the driver is too old, MACO0050 when it fails.
    pub fn gpu(index: u32) -> Result<Device, Error> {
        Ok(Device(Kind::Gpu(Context::of(index)?)))
    }

    /// The CPU with one worker per hardware thread; always the same device.
    pub fn cpu() -> Device {
        let mut cached = CPU.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = cached.upgrade().unwrap_or_else(|| {
            let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
            Arc::new(Pool::new(workers.try_into().unwrap_or(u32::MAX)))
        });
        *cached = Arc::downgrade(&pool);
        Device(Kind::Cpu(pool))
    }

    /// The CPU with `workers` workers, at least one; a device of its own.
    pub fn cpu_with(workers: u32) -> Device {
        Device(Kind::Cpu(Arc::new(Pool::new(workers.max(1)))))
    }

    /// Whether this is a GPU.
    pub fn is_gpu(&self) -> bool {
        matches!(self.0, Kind::Gpu(_))
    }

    /// What kind of device it is: the GPU's name as the driver has it, or `CPU`.
    pub fn model(&self) -> String {
        match &self.0 {
            Kind::Cpu(_) => "CPU".to_owned(),
            Kind::Gpu(context) => context.name().to_owned(),
        }
    }

    /// What plans for it are made by, where no tuning file says otherwise ([`crate::Tuning::model`]): the numbers that MACO has of this GPU or derives from those
    /// of the nearest, and the default on the CPU.
    pub fn device_model(&self) -> DeviceModel {
        match &self.0 {
            Kind::Cpu(_) => DeviceModel::DEFAULT,
            Kind::Gpu(context) => device_model::of(context.name(), context.reported()),
        }
    }

    /// Most workers a plan may have here: threads, or multiprocessors, of which the environment's `MACO_MULTIPROCESSORS` can leave some to
    /// others. It is read when the process first asks for the GPU.
    pub fn workers(&self) -> u32 {
        match &self.0 {
            Kind::Cpu(pool) => pool.workers(),
            Kind::Gpu(context) => context.multiprocessors(),
        }
    }

    /// A new tensor with a copy of `data`; see [`Tensor::upload`].
    ///
    /// # Errors
    /// Those of [`Tensor::upload`].
    pub fn upload<E: TensorElement>(&self, data: &[E], shape: impl IntoShape) -> Result<Tensor<E>, Error> {
        Tensor::upload(self, data, shape)
    }

    /// A new tensor of zeros; see [`Tensor::zeros`].
    ///
    /// # Errors
    /// Those of [`Tensor::zeros`].
    pub fn zeros<E: TensorElement>(&self, shape: impl IntoShape) -> Result<Tensor<E>, Error> {
        Tensor::zeros(self, shape)
    }

    /// How many bytes of page-locked host memory tensors are copied through, 8 MiB if it is not set; rounded up to whole pages of two buffers. Of the GPU, and so of all that have
    /// this device; a larger one makes large copies a little faster. Nothing on a CPU, where nothing is copied.
    pub fn set_pinned_memory(&self, bytes: usize) {
        if let Some(context) = self.context() {
            context.pinned.store(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn context(&self) -> Option<&Arc<Context>> {
        match &self.0 {
            Kind::Gpu(context) => Some(context),
            Kind::Cpu(_) => None,
        }
    }

    /// What is on device `found`, and should be on this one; devices that are called alike are numbered in the order in which they were made.
    pub(crate) fn wrong(&self, what: &str, found: &Device) -> Error {
        let mut names = [self, found].map(Device::to_string);
        if names[0] == names[1] {
            for (name, device) in names.iter_mut().zip([self, found]) {
                if let Some(pool) = device.pool() {
                    *name = format!("{name}, device {} of this program", pool.number() + 1);
                }
            }
        }
        let [expected, found] = names.map(Into::into);
        Error::WrongDevice { what: what.into(), expected, found }
    }

    pub(crate) fn pool(&self) -> Option<&Arc<Pool>> {
        match &self.0 {
            Kind::Cpu(pool) => Some(pool),
            Kind::Gpu(_) => None,
        }
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        match (&self.0, &other.0) {
            (Kind::Cpu(a), Kind::Cpu(b)) => Arc::ptr_eq(a, b),
            (Kind::Gpu(a), Kind::Gpu(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Eq for Device {}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Cpu(pool) => write!(f, "CPU with {} {}", pool.workers(), if pool.workers() == 1 { "worker" } else { "workers" }),
            Kind::Gpu(context) => context.fmt(f),
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_one_device_and_cpu_with_is_another() {
        let device = Device::cpu();
        assert_eq!(device, Device::cpu());
        assert_eq!(device, device.clone());
        assert_ne!(device, Device::cpu_with(2));
        assert_ne!(Device::cpu_with(2), Device::cpu_with(2));
    }

    #[test]
    fn a_device_says_what_it_is() {
        assert_eq!(Device::cpu_with(3).to_string(), "CPU with 3 workers");
        assert_eq!(Device::cpu_with(0).to_string(), "CPU with 1 worker");
        assert!(!Device::cpu().is_gpu());
    }

    #[test]
    fn best_always_finds_something_and_gpu_says_why_not() {
        let best = Device::best();
        match Device::gpu(0) {
            Ok(gpu) => assert!(gpu.is_gpu() && best.is_ok()),
            Err(error @ (Error::NoDriver | Error::NoGpu { .. })) => {
                assert_eq!(error.code(), 40);
                assert_eq!(best.unwrap(), Device::cpu());
            }
            Err(error) => assert_eq!(best.unwrap_err().code(), error.code()),
        }
        assert!(Device::gpu(1 << 20).is_err());
    }

    /// A device with workers of its own stands for the GPU.
    #[test]
    fn best_is_the_cpu_where_the_program_has_no_code_for_the_gpu() {
        let gpu = || Ok(Device::cpu_with(5));
        let (best, note) = Device::best_of(gpu(), |_| None).unwrap();
        assert_eq!((best.workers(), note), (5, None));
        let (best, note) = Device::best_of(gpu(), |_| Some("it has code for sm_90a".to_owned())).unwrap();
        assert_eq!(best, Device::cpu());
        assert_eq!(note.unwrap(), "note: the CPU is used, since this program has no code for CPU with 5 workers: it has code for sm_90a");
        // Without a GPU there is nothing to say; one that does not work is an error.
        let (best, note) = Device::best_of(Err(Error::NoDriver), |_| panic!()).unwrap();
        assert_eq!((best, note), (Device::cpu(), None));
        let broken = Error::NeedsGpu { what: "a test", device: "this".into() };
        assert_eq!(Device::best_of(Err(broken), |_| panic!()).unwrap_err().code(), 56);
    }

    #[test]
    fn devices_that_are_called_alike_are_told_apart() {
        let (one, other) = (Device::cpu_with(2), Device::cpu_with(2));
        let Error::WrongDevice { expected, found, .. } = one.wrong("x", &other) else { panic!() };
        assert!(expected.starts_with("CPU with 2 workers, device ") && found.starts_with("CPU with 2 workers, device "));
        assert_ne!(expected, found);
        let Error::WrongDevice { expected, found, .. } = one.wrong("x", &Device::cpu_with(3)) else { panic!() };
        assert_eq!((&*expected, &*found), ("CPU with 2 workers", "CPU with 3 workers"));
    }
}
