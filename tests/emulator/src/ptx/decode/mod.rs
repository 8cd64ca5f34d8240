//! Decodes the bodies of an entry and of the functions that it calls into one array of instructions: functions here, the rest in rooms.
//!
//! No function may call itself: each has its registers at a fixed place of a warp's frame.

mod arithmetic;
mod barriers;
mod body;
mod collectives;
mod control;
mod conversions;
mod copies;
mod instruction;
mod matrices;
mod memory;
mod operands;

use std::collections::HashMap;

use maco_ptx::Lexer;

use super::inst::*;
use super::module::Module;

/// Classes of registers by the bytes of their values; predicates are 1.
type Class = u8;

#[derive(Clone)]
struct Known {
    /// Where values of parameters lie: bytes of lane after lane.
    results: Vec<(Slot, u32)>,
    parameters: Vec<(Slot, u32)>,
    back: Slot,
    start: u32,
}

struct Decoder<'a> {
    module: &'a Module,
    written: HashMap<&'a str, &'a maco_ptx::Function<'a>>,
    program: Program,
    constants: HashMap<(u64, Class), Slot>,
    known: HashMap<String, Known>,
    busy: Vec<String>,
}

/// What is declared between braces.
#[derive(Default)]
struct Scope {
    registers: HashMap<String, (Slot, Class)>,
    /// Prefix, class, first slot, count.
    ranges: Vec<(String, Class, Slot, u32)>,
    /// Parameters in a frame: slot and bytes of a lane; for an entry, offset.
    parameters: HashMap<String, (Slot, u32)>,
    locals: HashMap<String, u32>,
    shared: HashMap<String, u32>,
}

struct Body<'a, 'b> {
    decoder: &'b mut Decoder<'a>,
    /// The rest of the statement.
    lexer: Lexer<'a>,
    entry: bool,
    scopes: Vec<Scope>,
    labels: HashMap<String, u32>,
    targets: HashMap<String, Vec<String>>,
    /// Instruction and label.
    fixes: Vec<(u32, String)>,
    tables: Vec<(u32, String)>,
    back: Slot,
    guard: (Slot, bool),
    line: u32,
}

fn size_of_class(class: Class) -> u32 {
    match class {
        1 => 8,
        8 => 256,
        16 => 512,
        _ => 128,
    }
}

/// Decodes an entry of a module, as it is written.
pub fn program(module: &Module, written: &maco_ptx::Module<'_>, entry: &str) -> Result<Program, String> {
    let head = written.function(entry).filter(|head| head.entry).ok_or("no such entry")?;
    let cluster = head.directive(".reqnctapercluster").map_or([0; 3], |sizes| [0, 1, 2].map(|n| sizes.get(n).copied().unwrap_or(1)));
    let mut decoder = Decoder {
        module,
        written: written.functions.iter().map(|function| (function.name, function)).collect(),
        program: Program {
            name: entry.into(),
            shared: module.shared,
            max_threads: head.directive(".maxntid").map_or(0, |sizes| sizes.iter().product()),
            cluster,
            ..Program::default()
        },
        constants: HashMap::new(),
        known: HashMap::new(),
        busy: Vec::new(),
    };
    let known = decoder.function(entry)?;
    decoder.program.entry = known.start;
    decoder.program.frame = decoder.program.frame.next_multiple_of(4096);
    Ok(decoder.program)
}

impl<'a> Decoder<'a> {
    fn allocate(&mut self, bytes: u32) -> Slot {
        let at = self.program.frame.next_multiple_of(if bytes >= 64 { 64 } else { 8 });
        self.program.frame = at + bytes;
        at
    }

    fn constant(&mut self, value: u64, class: Class) -> Slot {
        let value = match class {
            1 => (value != 0) as u64 * 0xFFFF_FFFF,
            2 => value & 0xFFFF,
            8 => value,
            _ => value & 0xFFFF_FFFF,
        };
        let words = &mut self.program.constants;
        *self.constants.entry((value, class)).or_insert_with(|| {
            let at = words.len() as u32 * 8;
            match class {
                1 => words.extend([value; 4]),
                8 => words.extend([value; 32]),
                _ => words.extend([value | value << 32; 16]),
            }
            at | CONSTANT
        })
    }

    /// Number of the next instruction.
    fn here(&self) -> u32 {
        self.program.code.len() as u32
    }

    fn list(&mut self, slots: Vec<Slot>) -> i32 {
        self.program.lists.push(slots.into());
        self.program.lists.len() as i32 - 1
    }

    fn function(&mut self, name: &str) -> Result<Known, String> {
        if let Some(known) = self.known.get(name) {
            return Ok(known.clone());
        }
        if self.busy.iter().any(|busy| busy == name) {
            return Err(format!("`{name}` calls itself"));
        }
        let head = *self.written.get(name).ok_or_else(|| format!("no function `{name}`"))?;
        self.busy.push(name.to_string());
        let mut scope = Scope::default();
        let mut known = Known { results: Vec::new(), parameters: Vec::new(), back: NONE, start: 0 };
        if head.entry {
            let mut end = 0u32;
            for parameter in &head.parameters {
                let at = end.next_multiple_of(parameter.align);
                scope.parameters.insert(parameter.name.to_owned(), (at, parameter.bytes));
                self.program.parameter_list.push((at, parameter.bytes));
                end = at + parameter.bytes;
            }
            self.program.parameters = end;
        } else {
            known.back = self.allocate(128);
            for (variables, slots) in [(&head.results, &mut known.results), (&head.parameters, &mut known.parameters)] {
                for variable in variables {
                    let slot = self.allocate(32 * variable.bytes);
                    slots.push((slot, variable.bytes));
                    scope.parameters.insert(variable.name.to_owned(), (slot, variable.bytes));
                }
            }
        }
        // What it calls comes first, so that lanes in a callee have the lowest counters and are waited for.
        for callee in head.body.iter().filter_map(maco_ptx::Statement::callee) {
            self.function(callee)?;
        }
        known.start = self.here();
        let mut body = Body {
            entry: head.entry,
            back: known.back,
            decoder: self,
            lexer: Lexer::new("", 0, 0),
            scopes: vec![scope],
            labels: HashMap::new(),
            targets: HashMap::new(),
            fixes: Vec::new(),
            tables: Vec::new(),
            guard: (NONE, false),
            line: 0,
        };
        body.statements(&head.body)?;
        let end = self.here();
        self.program.functions.push(Function { name: name.into(), start: known.start, end });
        self.busy.pop();
        self.known.insert(name.into(), known.clone());
        Ok(known)
    }
}
