//! Device code: which target fits the GPU, whether the driver can load it, and the kernel in it.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunction_attribute, CUjit_option, CUresult};
use maco_abi::{SHARED_BYTES, THREADS};

use super::context::Context;
use super::driver;
use crate::error::Error;
use crate::program::{DeviceModule, Program};
use crate::progress;

/// Bytes of the assembler's log.
const LOG: usize = 16 << 10;

/// First CUDA version whose driver loads a version of the PTX ISA (PTX ISA, "Release history").
const PTX_NEEDS: [((u32, u32), u32); 10] = [
    ((8, 0), 12_000),
    ((8, 1), 12_010),
    ((8, 2), 12_020),
    ((8, 3), 12_030),
    ((8, 4), 12_040),
    ((8, 5), 12_050),
    ((8, 6), 12_070),
    ((8, 7), 12_080),
    ((8, 8), 12_090),
    ((9, 0), 13_000),
];

/// Which device code it is: its hash, and the addresses of its text and its machine code.
type Key = (u64, usize, Option<usize>);

/// Loaded device code of a context. It stays as long as the context does: to load it takes longer than to
/// make a plan, and plans come and go with the sizes they are for.
#[derive(Debug, Default)]
pub(super) struct Modules(HashMap<Key, sys::CUmodule>);

// SAFETY: modules may be used from any thread.
unsafe impl Send for Modules {}

impl Modules {
    /// Unloads them all.
    ///
    /// # Safety
    /// Their context is current, and none of their kernels is used any more.
    pub(super) unsafe fn unload(&mut self) {
        for (_, module) in self.0.drain() {
            // SAFETY: loaded once and taken out; the caller promises the rest.
            let _ = unsafe { sys::cuModuleUnload(module) };
        }
    }
}

/// A megakernel's entry, ready to launch.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) function: sys::CUfunction,
    /// Keeps the function's module loaded.
    _context: Arc<Context>,
}

// SAFETY: functions may be used from any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Loads the entry of `program` for so many resident CTAs.
    pub(super) fn load(context: &Arc<Context>, program: &Program, ctas: u32) -> Result<Kernel, Error> {
        Kernel::of(context, program, choose(context, program)?, ctas)
    }

    /// The same, but such that it records what it does; none if no such code was built for this GPU.
    pub(super) fn load_profiled(context: &Arc<Context>, program: &Program, ctas: u32) -> Result<Option<Kernel>, Error> {
        best(program.embedded.profiled, context).map(|code| Kernel::of(context, program, code, ctas)).transpose()
    }

    /// Loads an entry without roles: whatever its launches need is checked by the driver.
    pub(super) fn load_plain(context: &Arc<Context>, program: &Program) -> Result<Kernel, Error> {
        let _entered = context.enter()?;
        let kernel = Kernel::find(context, program, choose(context, program)?)?;
        // As in `prepare`.
        // SAFETY: a live function of the current context.
        context.check("cuFuncLoad", unsafe { sys::cuFuncLoad(kernel.function) })?;
        Ok(kernel)
    }

    fn of(context: &Arc<Context>, program: &Program, code: &DeviceModule, ctas: u32) -> Result<Kernel, Error> {
        let _entered = context.enter()?;
        let kernel = Kernel::find(context, program, code)?;
        kernel.prepare(context, program.name, ctas)?;
        Ok(kernel)
    }

    /// The context is entered.
    fn find(context: &Arc<Context>, program: &Program, code: &DeviceModule) -> Result<Kernel, Error> {
        let what = || {
            format!(
                "the device code of megakernel `{}` (PTX {})",
                program.name,
                ptx_version(code.ptx).map_or("?".into(), |(a, b)| format!("{a}.{b}"))
            )
        };
        if let Some(needed) = driver_for(code.ptx).filter(|&needed| context.driver() < needed) {
            return Err(Error::DriverTooOld { found: context.driver(), needed, what: what().into() });
        }
        let module = module(context, program, code)?;
        let entry = CString::new(program.entry).map_err(|_| missing(context, program))?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the context is current, which has the module loaded, the name terminated and `function` writable.
        match unsafe { sys::cuModuleGetFunction(&mut function, module, entry.as_ptr()) } {
            CUresult::CUDA_ERROR_NOT_FOUND => return Err(missing(context, program)),
            code => context.check("cuModuleGetFunction", code)?,
        }
        Ok(Kernel { function, _context: context.clone() })
    }

    /// Sets the shared memory and checks that all CTAs fit the GPU at once.
    fn prepare(&self, context: &Context, megakernel: &str, ctas: u32) -> Result<(), Error> {
        let not_resident = |reason: String| Error::NotResident {
            megakernel: megakernel.into(),
            ctas,
            device: context.to_string().into(),
            reason: reason.into(),
        };
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: a live function of the current context.
        match unsafe { sys::cuFuncSetAttribute(self.function, attribute, SHARED_BYTES as i32) } {
            CUresult::CUDA_ERROR_INVALID_VALUE => return Err(not_resident(format!("a CTA needs {SHARED_BYTES} bytes of shared memory"))),
            code => context.check("cuFuncSetAttribute", code)?,
        }
        let mut per_multiprocessor = 0;
        // SAFETY: as above; the out-pointer is writable.
        let code = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut per_multiprocessor, self.function, THREADS as i32, SHARED_BYTES as usize)
        };
        context.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", code)?;
        if per_multiprocessor < 1 {
            return Err(not_resident(format!(
                "no CTA of {THREADS} threads and {SHARED_BYTES} bytes of shared memory fits a multiprocessor"
            )));
        }
        // Loading lazily while another persistent kernel spins would deadlock.
        // SAFETY: a live function of the current context.
        context.check("cuFuncLoad", unsafe { sys::cuFuncLoad(self.function) })
    }
}

/// The embedded code for this GPU.
fn choose<'a>(context: &Context, program: &'a Program) -> Result<&'a DeviceModule, Error> {
    let none = |reason: &str, help| Error::NoDeviceCode {
        megakernel: program.name.into(),
        device: context.to_string().into(),
        reason: reason.into(),
        help,
    };
    let embedded = &program.embedded;
    if embedded.modules.is_empty() {
        return Err(match embedded.error {
            Some(reason) => none(reason, "MACO_REQUIRE_GPU=1 makes this a build error; or use `Device::cpu()`"),
            None => none(
                "the package has no build script that makes it",
                "write `fn main() { maco_build::compile(\"src/kernels.rs\") }` in build.rs, or use `Device::cpu()`",
            ),
        });
    }
    best(embedded.modules, context).ok_or_else(|| {
        let targets: Vec<_> = embedded.modules.iter().map(|module| module.target).collect();
        none(&format!("it was built for {}", targets.join(", ")), "use a GPU of that kind, or build for this one")
    })
}

/// What device code is compiled for (`maco-build`, `core_cache`).
const TARGET: &str = "sm_90a";

/// Why no program, or this one, has code for a GPU of this capability; `built` is what `maco_build::no_device_code` said when it was built. Kernels that cannot be
/// compiled for the device are errors of the build; a package whose kernels were only checked is not known here: its plans say so.
pub(crate) fn has_no_code(capability: (u32, u32), built: Option<&str>) -> Option<String> {
    match built {
        Some(reason) => Some(reason.to_owned()),
        _ if !fits(TARGET, capability) => Some(format!("device code is compiled for {TARGET}")),
        _ => None,
    }
}

/// Of code for several targets, the one for this GPU.
fn best(modules: &'static [DeviceModule], context: &Context) -> Option<&'static DeviceModule> {
    modules.iter().filter(|module| fits(module.target, context.capability())).max_by_key(|module| target(module.target))
}

/// `sm_90a`: number of the capability, and whether it is for that architecture alone (`a`) or its family (`f`).
fn target(name: &str) -> Option<(u32, Option<char>)> {
    let digits = name.strip_prefix("sm_")?;
    let suffix = digits.chars().last().filter(char::is_ascii_alphabetic);
    let number = digits.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse().ok()?;
    Some((number, suffix))
}

/// Whether code for `name` runs on a GPU of this capability (PTX ISA, `.target`).
fn fits(name: &str, (major, minor): (u32, u32)) -> bool {
    let found = major * 10 + minor;
    match target(name) {
        Some((number, None)) => number <= found,
        Some((number, Some('f'))) => number <= found && number / 10 == major,
        Some((number, Some('a'))) => number == found,
        _ => false,
    }
}

/// The version in a `.version` directive.
fn ptx_version(ptx: &str) -> Option<(u32, u32)> {
    let line = ptx.lines().find_map(|line| line.trim().strip_prefix(".version"))?;
    let (major, minor) = line.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.trim().parse().ok()?))
}

/// The driver that a PTX text needs, if the table knows its version.
fn driver_for(ptx: &str) -> Option<u32> {
    let version = ptx_version(ptx)?;
    PTX_NEEDS.iter().find(|(ptx, _)| *ptx == version).map(|&(_, driver)| driver)
}

fn missing(context: &Context, program: &Program) -> Error {
    let reason = format!("the embedded code has no entry `{}`", program.entry).into();
    let help = "build again: the device code is older than the kernels (`cargo clean -p` of the package with the kernels)";
    Error::NoDeviceCode { megakernel: program.name.into(), device: context.to_string().into(), reason, help }
}

/// The module, loaded once per context.
fn module(context: &Context, program: &Program, code: &DeviceModule) -> Result<sys::CUmodule, Error> {
    let key = (code.hash, code.ptx.as_ptr() as usize, code.cubin.map(|cubin| cubin.as_ptr() as usize));
    let mut modules = context.modules();
    if let Some(&module) = modules.0.get(&key) {
        return Ok(module);
    }
    let module = match code.cubin.and_then(|cubin| load_machine_code(context, cubin).transpose()) {
        Some(module) => module?,
        None => compile(context, program, code)?,
    };
    modules.0.insert(key, module);
    Ok(module)
}

/// Loads machine code; none if this driver does not know the format: that of a newer CUDA.
fn load_machine_code(context: &Context, cubin: &[u8]) -> Result<Option<sys::CUmodule>, Error> {
    // Words, since the driver reads the headers of an ELF file in place, and `include_bytes!` puts them anywhere.
    let mut words = vec![0u64; cubin.len().div_ceil(8)];
    for (word, bytes) in words.iter_mut().zip(cubin.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(whole);
    }
    let mut raw = std::ptr::null_mut();
    // SAFETY: the context is current; `ptxas` wrote the image, whose headers say how long it is; it is copied before the call returns.
    match unsafe { sys::cuModuleLoadData(&mut raw, words.as_ptr().cast()) } {
        CUresult::CUDA_ERROR_INVALID_IMAGE
        | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
        | CUresult::CUDA_ERROR_INVALID_SOURCE
        | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => Ok(None),
        code => context.check("cuModuleLoadData", code).map(|()| Some(raw)),
    }
}

/// Has the driver compile the text.
fn compile(context: &Context, program: &Program, code: &DeviceModule) -> Result<sys::CUmodule, Error> {
    let text = CString::new(code.ptx).map_err(|_| refused(program.name, "the text holds a zero byte", String::new()))?;
    let mut log = vec![0u8; LOG];
    let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // The size travels in the place of a pointer (driver API, `CUjit_option`).
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(log.len())];
    let mut raw = std::ptr::null_mut();
    let what = format!("the driver compiles megakernel `{}` ({} KB of PTX) for the first time", program.name, code.ptx.len() >> 10);
    let result = progress::during(&what, || {
        // SAFETY: the context is current; the text is terminated; both arrays have two entries; the log has the size given.
        unsafe { sys::cuModuleLoadDataEx(&mut raw, text.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr()) }
    });
    match result {
        CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
            let version = ptx_version(code.ptx).map_or("?".to_string(), |(major, minor)| format!("{major}.{minor}"));
            Err(refused(
                program.name,
                &driver::describe(result).0,
                format!("PTX {version} is newer than this driver: update the NVIDIA driver"),
            ))
        }
        CUresult::CUDA_ERROR_INVALID_PTX
        | CUresult::CUDA_ERROR_INVALID_IMAGE
        | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
        | CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND
        | CUresult::CUDA_ERROR_INVALID_SOURCE => {
            let log = String::from_utf8_lossy(log.split(|&byte| byte == 0).next().unwrap_or_default()).trim().to_string();
            Err(refused(program.name, &driver::describe(result).0, log))
        }
        code => context.check("cuModuleLoadDataEx", code).map(|()| raw),
    }
}

fn refused(megakernel: &str, code: &str, log: String) -> Error {
    let log = if log.is_empty() { "the driver gave no reason".into() } else { log.into() };
    Error::PtxLoad { megakernel: megakernel.into(), code: code.into(), log }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_fit_as_ptx_says() {
        for (name, capability, expected) in [
            ("sm_90", (9, 0), true),
            ("sm_90", (10, 0), true),
            ("sm_90", (8, 9), false),
            ("sm_90a", (9, 0), true),
            ("sm_90a", (10, 0), false),
            ("sm_100f", (10, 3), true),
            ("sm_100f", (12, 0), false),
            ("sm_100a", (10, 0), true),
            ("compute", (9, 0), false),
            ("sm_x", (9, 0), false),
        ] {
            assert_eq!(fits(name, capability), expected, "{name} on {capability:?}");
        }
        assert!(target("sm_90a") > target("sm_90"), "code for the architecture alone is preferred");
    }

    #[test]
    fn a_gpu_without_code_is_known_before_a_plan() {
        assert_eq!(has_no_code((9, 0), None), None);
        for capability in [(8, 0), (8, 9), (10, 0), (12, 0)] {
            assert!(has_no_code(capability, None).unwrap().contains("sm_90a"), "{capability:?}");
        }
        for built in ["it was built with MACO_DEVICE=skip", "no device toolchain"] {
            assert_eq!(has_no_code((9, 0), Some(built)).unwrap(), built);
        }
    }

    #[test]
    fn ptx_versions_name_a_driver() {
        let ptx = "//\n// Generated\n\n.version 8.6\n.target sm_90a\n.address_size 64\n";
        assert_eq!(ptx_version(ptx), Some((8, 6)));
        assert_eq!(driver_for(ptx), Some(12_070));
        assert_eq!(driver_for(".version 99.0"), None);
        assert_eq!(driver_for("no ptx"), None);
    }
}
