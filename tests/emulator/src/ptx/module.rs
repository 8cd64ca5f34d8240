//! A module: its text, its variables, and the memory that these have. Functions are decoded when somebody asks for an entry, since most of a large module is
//! never run.

use std::collections::{HashMap, HashSet};

use super::decode;
use super::inst::Program;

/// A variable of the module.
#[derive(Debug, Clone)]
pub enum Variable {
    /// Offset in shared memory.
    Shared(u32),
    /// Address in global memory.
    Global(u64),
}

#[derive(Debug)]
pub struct Module {
    text: String,
    /// Names of the entries.
    pub entries: HashSet<String>,
    pub variables: HashMap<String, Variable>,
    /// Bytes of static shared memory.
    pub shared: u32,
    /// Addresses and sizes of the memory behind global variables.
    pub owned: Vec<(u64, u64)>,
}

/// First byte of shared memory that programs may use: what is below belongs to the system.
pub const SHARED_START: u32 = 1024;

impl Module {
    /// `allocate` gives memory for a global variable of that many bytes.
    pub fn new(text: String, allocate: &mut dyn FnMut(u64) -> u64) -> Result<Module, String> {
        let parsed = maco_ptx::Module::parse(&text).map_err(|error| error.to_string())?;
        let entries = parsed.functions.iter().filter(|function| function.entry).map(|function| function.name.to_owned()).collect();
        let (mut shared, mut variables, mut owned, mut dynamic) = (0u32, HashMap::new(), Vec::new(), Vec::new());
        for variable in parsed.variables {
            let (name, bytes) = (variable.name.to_owned(), variable.bytes);
            if variable.space != ".shared" {
                let address = allocate(u64::from(bytes.max(1)));
                // SAFETY: just allocated with this size.
                unsafe {
                    std::ptr::write_bytes(address as *mut u8, 0, bytes as usize);
                    std::ptr::copy_nonoverlapping(variable.data.as_ptr(), address as *mut u8, variable.data.len().min(bytes as usize));
                }
                owned.push((address, u64::from(bytes)));
                variables.insert(name, Variable::Global(address));
            } else if bytes == 0 {
                dynamic.push(name);
            } else {
                let at = shared.next_multiple_of(variable.align);
                shared = at + bytes;
                variables.insert(name, Variable::Shared(SHARED_START + at));
            }
        }
        // Dynamic shared memory begins behind the static one.
        shared = if shared == 0 { 0 } else { shared.next_multiple_of(1024) };
        variables.extend(dynamic.into_iter().map(|name| (name, Variable::Shared(SHARED_START + shared))));
        Ok(Module { text, entries, variables, shared, owned })
    }

    /// Decodes an entry and what it calls.
    pub fn program(&self, entry: &str) -> Result<Program, String> {
        let parsed = maco_ptx::Module::parse(&self.text).map_err(|error| error.to_string())?;
        decode::program(self, &parsed, entry)
    }
}
