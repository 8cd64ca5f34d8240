//! Decodes the bodies of an entry and of the functions that it calls into one array of instructions.
//!
//! No function may call itself: each has its registers at a fixed place of a warp's frame.

use std::collections::HashMap;

use super::inst::*;
use super::lex::{Lexer, Token};
use super::module::{Module, SHARED_START, Variable, declaration};

/// Classes of registers by the bytes of their values; predicates are 1.
type Class = u8;

#[derive(Clone, Debug)]
enum Operand {
    Register(Slot, Class),
    Number(u64),
    Name(String),
    Special(Special),
    Not(Box<Operand>),
    Pair(Box<Operand>, Box<Operand>),
    Vector(Vec<Operand>),
    /// Base, offset, coordinates.
    Address(Box<Operand>, i64, Vec<Operand>),
    Names(Vec<String>),
    Nothing,
}

/// A number as PTX writes it; floating ones are their bits.
pub fn number(word: &str) -> Option<u64> {
    let bytes = word.as_bytes();
    if !bytes.first()?.is_ascii_digit() {
        return None;
    }
    if bytes.len() >= 2 && bytes[0] == b'0' {
        match bytes[1] {
            b'f' | b'F' | b'd' | b'D' => return u64::from_str_radix(&word[2..], 16).ok(),
            b'x' | b'X' => return u64::from_str_radix(word[2..].trim_end_matches('U'), 16).ok(),
            b'b' | b'B' => return u64::from_str_radix(word[2..].trim_end_matches('U'), 2).ok(),
            _ => {}
        }
    }
    if word.contains('.') {
        return word.parse::<f64>().ok().map(f64::to_bits);
    }
    word.trim_end_matches('U').parse::<u64>().ok()
}

fn special(word: &str) -> Option<Special> {
    use Special::*;
    Some(match word {
        "%tid.x" | "%tid" => TidX,
        "%tid.y" => TidY,
        "%tid.z" => TidZ,
        "%ntid.x" => NtidX,
        "%ntid.y" => NtidY,
        "%ntid.z" => NtidZ,
        "%ctaid.x" => CtaidX,
        "%ctaid.y" => CtaidY,
        "%ctaid.z" => CtaidZ,
        "%nctaid.x" => NctaidX,
        "%nctaid.y" => NctaidY,
        "%nctaid.z" => NctaidZ,
        "%laneid" => Lane,
        "%warpid" => Warp,
        "%nwarpid" => Nwarp,
        "%smid" => Sm,
        "%nsmid" => Nsm,
        "%gridid" => Grid,
        "%clock" => Clock,
        "%clock_hi" => ClockHi,
        "%clock64" => Clock64,
        "%globaltimer" => Timer,
        "%globaltimer_lo" => TimerLo,
        "%globaltimer_hi" => TimerHi,
        "%lanemask_eq" => MaskEq,
        "%lanemask_lt" => MaskLt,
        "%lanemask_le" => MaskLe,
        "%lanemask_gt" => MaskGt,
        "%lanemask_ge" => MaskGe,
        "%dynamic_smem_size" => DynamicShared,
        "%total_smem_size" => TotalShared,
        "%cluster_ctaid.x" => ClusterX,
        "%cluster_ctarank" => ClusterRank,
        "%cluster_nctaid.x" | "%cluster_nctarank" => ClusterSize,
        "%clusterid.x" => ClusterId,
        "%nclusterid.x" => Clusters,
        "%cluster_ctaid.y" | "%cluster_ctaid.z" | "%clusterid.y" | "%clusterid.z" => Zero,
        _ => return None,
    })
}

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

pub fn program(module: &Module, entry: &str) -> Result<Program, String> {
    let head = module.heads.get(entry).filter(|head| head.entry).ok_or("no such entry")?;
    let mut decoder = Decoder {
        module,
        program: Program {
            name: entry.into(),
            shared: module.shared,
            max_threads: head.max_threads,
            cluster: head.cluster,
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
        let head = self.module.heads.get(name).ok_or_else(|| format!("no function `{name}`"))?;
        self.busy.push(name.to_string());
        let mut scope = Scope::default();
        let mut known = Known { results: Vec::new(), parameters: Vec::new(), back: NONE, start: 0 };
        if head.entry {
            let mut end = 0u32;
            for (name, bytes, align) in &head.parameters {
                let at = end.next_multiple_of(*align);
                scope.parameters.insert(name.clone(), (at, *bytes));
                self.program.parameter_list.push((at, *bytes));
                end = at + bytes;
            }
            self.program.parameters = end;
        } else {
            known.back = self.allocate(128);
            for (name, bytes, _) in &head.results {
                let slot = self.allocate(32 * bytes);
                known.results.push((slot, *bytes));
                scope.parameters.insert(name.clone(), (slot, *bytes));
            }
            for (name, bytes, _) in &head.parameters {
                let slot = self.allocate(32 * bytes);
                known.parameters.push((slot, *bytes));
                scope.parameters.insert(name.clone(), (slot, *bytes));
            }
        }
        // What it calls comes first, so that lanes in a callee have the lowest counters and are waited for.
        for callee in callees(self.module, head.body, head.line) {
            self.function(&callee)?;
        }
        known.start = self.program.code.len() as u32;
        let lexer = Lexer::new(&self.module.text, head.body, head.line);
        let mut body = Body {
            entry: head.entry,
            back: known.back,
            decoder: self,
            lexer,
            scopes: vec![scope],
            labels: HashMap::new(),
            targets: HashMap::new(),
            fixes: Vec::new(),
            tables: Vec::new(),
            guard: (NONE, false),
            line: 0,
        };
        body.statements()?;
        let end = self.program.code.len() as u32;
        self.program.functions.push(Function { name: name.into(), start: known.start, end });
        self.busy.pop();
        self.known.insert(name.into(), known.clone());
        Ok(known)
    }
}

/// Names of functions that a body calls.
fn callees(module: &Module, body: usize, line: u32) -> Vec<String> {
    let mut lexer = Lexer::new(&module.text, body, line);
    let mut found = Vec::new();
    let mut depth = 1;
    while depth > 0 {
        match lexer.next() {
            Token::Mark(b'{') => depth += 1,
            Token::Mark(b'}') => depth -= 1,
            Token::Word(".loc") => lexer.skip_line(),
            Token::Word("call" | "call.uni") => {
                if lexer.take(b'(') {
                    while !matches!(lexer.next(), Token::Mark(b')') | Token::End) {}
                    lexer.take(b',');
                }
                if let Token::Word(name) = lexer.next()
                    && !found.iter().any(|other| other == name)
                {
                    found.push(name.to_string());
                }
            }
            Token::End => break,
            _ => {}
        }
    }
    found
}

impl<'a> Body<'a, '_> {
    fn error<T>(&self, text: impl std::fmt::Display) -> Result<T, String> {
        Err(format!("PTX line {}: {text}", self.line))
    }

    fn statements(&mut self) -> Result<(), String> {
        loop {
            let token = self.lexer.next();
            self.line = self.lexer.line;
            match token {
                Token::End => return self.error("the text ends in a function"),
                Token::Mark(b'{') => self.scopes.push(Scope::default()),
                Token::Mark(b'}') => {
                    if self.scopes.len() == 1 {
                        break;
                    }
                    self.scopes.pop();
                }
                Token::Mark(b';') => {}
                Token::Mark(b'@') => {
                    let not = self.lexer.take(b'!');
                    let Token::Word(name) = self.lexer.next() else { return self.error("a guard") };
                    let Some((slot, 1)) = self.register(name) else { return self.error(format!("guard `{name}`")) };
                    self.guard = (slot, not);
                    let Token::Word(word) = self.lexer.next() else { return self.error("an instruction") };
                    self.instruction(word)?;
                    self.guard = (NONE, false);
                }
                Token::Word(word) if word.starts_with('.') => self.directive(word)?,
                Token::Word(word) => {
                    if self.lexer.take(b':') {
                        if matches!(self.lexer.peek(), Token::Word(".branchtargets")) {
                            self.lexer.next();
                            let mut names = Vec::new();
                            loop {
                                match self.lexer.next() {
                                    Token::Word(name) => names.push(name.to_string()),
                                    Token::Mark(b';') | Token::End => break,
                                    _ => {}
                                }
                            }
                            self.targets.insert(word.into(), names);
                        } else {
                            let at = self.decoder.program.code.len() as u32;
                            if self.labels.insert(word.into(), at).is_some() {
                                return self.error(format!("label `{word}` twice"));
                            }
                        }
                    } else {
                        self.instruction(word)?;
                    }
                }
                _ => return self.error(format!("{token:?}")),
            }
        }
        // Behind the last instruction.
        let last = self.decoder.program.code.last().map(|inst| (inst.op, inst.guard));
        if !matches!(last, Some((Op::Ret | Op::Exit | Op::Bra | Op::Trap, NONE))) {
            self.emit(Op::Exit, |_| {});
        }
        for (at, label) in std::mem::take(&mut self.fixes) {
            let Some(&target) = self.labels.get(&label) else { return self.error(format!("no label `{label}`")) };
            self.decoder.program.code[at as usize].x = target as i32;
        }
        for (at, table) in std::mem::take(&mut self.tables) {
            let Some(names) = self.targets.get(&table) else { return self.error(format!("no targets `{table}`")) };
            let targets: Option<Vec<Slot>> = names.iter().map(|name| self.labels.get(name).copied()).collect();
            let Some(targets) = targets else { return self.error(format!("targets `{table}`")) };
            self.decoder.program.code[at as usize].x = self.decoder.list(targets);
        }
        Ok(())
    }

    fn directive(&mut self, word: &str) -> Result<(), String> {
        match word {
            ".loc" | ".file" => self.lexer.skip_line(),
            ".pragma" => while !matches!(self.lexer.next(), Token::Mark(b';') | Token::End) {},
            ".reg" => {
                let Token::Word(ty) = self.lexer.next() else { return self.error("a type") };
                let Some(ty) = Ty::of(&ty[1..]) else { return self.error(format!("registers of `{ty}`")) };
                let class = match ty {
                    Ty::Pred => 1,
                    ty => match ty.bytes() {
                        1 => 2,
                        bytes => bytes as Class,
                    },
                };
                loop {
                    let Token::Word(name) = self.lexer.next() else { return self.error("a register's name") };
                    if self.lexer.take(b'<') {
                        let Token::Word(count) = self.lexer.next() else { return self.error("a number") };
                        let count: u32 = count.parse().map_err(|_| "a number of registers")?;
                        self.lexer.next();
                        let first = self.decoder.allocate(size_of_class(class).max(64).max(size_of_class(class) * count));
                        self.scopes.last_mut().unwrap().ranges.push((name.into(), class, first, count));
                    } else {
                        let slot = self.decoder.allocate(size_of_class(class));
                        self.scopes.last_mut().unwrap().registers.insert(name.into(), (slot, class));
                    }
                    if !self.lexer.take(b',') {
                        break;
                    }
                }
                self.lexer.take(b';');
            }
            ".param" => {
                let (name, bytes, _, _) = declaration(&mut self.lexer)?;
                let slot = self.decoder.allocate(32 * bytes);
                self.scopes.last_mut().unwrap().parameters.insert(name, (slot, bytes));
            }
            ".local" => {
                let (name, bytes, align, _) = declaration(&mut self.lexer)?;
                let at = self.decoder.program.local.next_multiple_of(align.max(16));
                self.decoder.program.local = at + bytes;
                self.scopes.last_mut().unwrap().locals.insert(name, at);
            }
            ".shared" => {
                let (name, bytes, align, _) = declaration(&mut self.lexer)?;
                let at = self.decoder.program.shared.next_multiple_of(align);
                self.decoder.program.shared = at + bytes;
                self.scopes.last_mut().unwrap().shared.insert(name, SHARED_START + at);
            }
            _ => return self.error(format!("directive `{word}`")),
        }
        Ok(())
    }

    fn register(&self, name: &str) -> Option<(Slot, Class)> {
        for scope in self.scopes.iter().rev() {
            if let Some(&found) = scope.registers.get(name) {
                return Some(found);
            }
            for (prefix, class, first, count) in &scope.ranges {
                if let Some(index) = name.strip_prefix(prefix.as_str())
                    && let Ok(index) = index.parse::<u32>()
                    && index < *count
                {
                    return Some((first + index * size_of_class(*class), *class));
                }
            }
        }
        None
    }

    fn parameter(&self, name: &str) -> Option<(Slot, u32, bool)> {
        for (depth, scope) in self.scopes.iter().enumerate().rev() {
            if let Some(&(slot, bytes)) = scope.parameters.get(name) {
                return Some((slot, bytes, depth == 0 && self.entry));
            }
        }
        None
    }

    /// Address of a variable in its own space: shared, or global.
    fn variable(&self, name: &str) -> Option<u64> {
        for scope in self.scopes.iter().rev() {
            if let Some(&at) = scope.shared.get(name) {
                return Some(u64::from(at));
            }
            if let Some(&at) = scope.locals.get(name) {
                return Some(u64::from(at));
            }
        }
        match self.decoder.module.variables.get(name)? {
            Variable::Shared(at) => Some(u64::from(*at)),
            Variable::Global(at) => Some(*at),
        }
    }

    fn operand(&mut self) -> Result<Operand, String> {
        match self.lexer.next() {
            Token::Mark(b'{') => {
                let mut all = Vec::new();
                loop {
                    all.push(self.operand()?);
                    match self.lexer.next() {
                        Token::Mark(b',') => {}
                        Token::Mark(b'}') => break,
                        other => return self.error(format!("{other:?} in a vector")),
                    }
                }
                Ok(Operand::Vector(all))
            }
            Token::Mark(b'[') => {
                let base = self.operand()?;
                let mut offset = 0i64;
                let mut coordinates = Vec::new();
                loop {
                    match self.lexer.next() {
                        Token::Mark(b']') => break,
                        Token::Mark(b'+') => {
                            let negative = self.lexer.take(b'-');
                            let Token::Word(word) = self.lexer.next() else { return self.error("an offset") };
                            let Some(value) = number(word) else { return self.error(format!("offset `{word}`")) };
                            offset += if negative { -(value as i64) } else { value as i64 };
                        }
                        Token::Mark(b'-') => {
                            let Token::Word(word) = self.lexer.next() else { return self.error("an offset") };
                            let Some(value) = number(word) else { return self.error(format!("offset `{word}`")) };
                            offset -= value as i64;
                        }
                        Token::Mark(b',') => {
                            let Operand::Vector(all) = self.operand()? else { return self.error("coordinates") };
                            coordinates = all;
                        }
                        other => return self.error(format!("{other:?} in an address")),
                    }
                }
                Ok(Operand::Address(Box::new(base), offset, coordinates))
            }
            Token::Mark(b'(') => {
                let mut names = Vec::new();
                loop {
                    match self.lexer.next() {
                        Token::Word(name) => names.push(name.to_string()),
                        Token::Mark(b')') | Token::End => break,
                        _ => {}
                    }
                }
                Ok(Operand::Names(names))
            }
            Token::Mark(b'!') => Ok(Operand::Not(Box::new(self.operand()?))),
            Token::Mark(b'-') => match self.lexer.next() {
                Token::Word(word) if word.contains('.') => match word.parse::<f64>() {
                    Ok(value) => Ok(Operand::Number((-value).to_bits())),
                    Err(_) => self.error(word),
                },
                Token::Word(word) => match number(word) {
                    Some(value) => Ok(Operand::Number(value.wrapping_neg())),
                    None => self.error(format!("-{word}")),
                },
                other => self.error(format!("{other:?}")),
            },
            Token::Word(word) => {
                let first = if word == "_" {
                    Operand::Nothing
                } else if let Some((slot, class)) = self.register(word) {
                    Operand::Register(slot, class)
                } else if let Some(special) = special(word) {
                    Operand::Special(special)
                } else if word == "WARP_SZ" {
                    Operand::Number(32)
                } else if let Some(value) = number(word) {
                    Operand::Number(value)
                } else {
                    Operand::Name(word.to_string())
                };
                if self.lexer.take(b'|') {
                    let second = self.operand()?;
                    return Ok(Operand::Pair(Box::new(first), Box::new(second)));
                }
                Ok(first)
            }
            other => self.error(format!("{other:?} as an operand")),
        }
    }

    fn emit(&mut self, op: Op, fill: impl FnOnce(&mut Inst)) {
        let mut inst = Inst {
            op,
            ty: Ty::B32,
            ty2: Ty::B32,
            n: 0,
            space: Space::Generic,
            flag: 0,
            dw: 4,
            aw: 4,
            guard: self.guard.0,
            guard_not: self.guard.1,
            d: NONE,
            a: NONE,
            b: NONE,
            c: NONE,
            x: 0,
            line: self.line,
        };
        fill(&mut inst);
        self.decoder.program.code.push(inst);
    }

    /// Slot and class of a value that is read as `class` if it is a constant.
    fn value(&mut self, operand: &Operand, class: Class) -> Result<(Slot, Class), String> {
        match operand {
            Operand::Register(slot, class) => Ok((*slot, *class)),
            Operand::Number(value) => Ok((self.decoder.constant(*value, class), class)),
            Operand::Name(name) => match self.variable(name) {
                Some(address) => Ok((self.decoder.constant(address, class), class)),
                None => self.error(format!("unknown name `{name}`")),
            },
            Operand::Special(special) => {
                let class = if matches!(special, Special::Clock64 | Special::Timer | Special::Grid) { 8 } else { 4 };
                let slot = self.decoder.allocate(size_of_class(class));
                let special = *special;
                self.emit(Op::Special, |inst| (inst.d, inst.dw, inst.x) = (slot, class, special as i32));
                Ok((slot, class))
            }
            Operand::Not(inner) => {
                let (from, _) = self.value(inner, 1)?;
                let slot = self.decoder.allocate(size_of_class(1));
                self.emit(Op::Not, |inst| (inst.ty, inst.d, inst.a) = (Ty::Pred, slot, from));
                Ok((slot, 1))
            }
            Operand::Nothing => Ok((NONE, class)),
            other => self.error(format!("{other:?} as a value")),
        }
    }

    fn slot(&mut self, operand: &Operand, class: Class) -> Result<Slot, String> {
        Ok(self.value(operand, class)?.0)
    }

    /// A slot whose register is of this class; a wider or narrower one is converted.
    fn exact(&mut self, operand: &Operand, class: Class) -> Result<Slot, String> {
        let (slot, found) = self.value(operand, class)?;
        if found == class || slot == NONE || (found | class) == 6 {
            return Ok(slot);
        }
        let wide = self.decoder.allocate(size_of_class(class));
        self.emit(Op::Cvt, |inst| {
            (inst.d, inst.dw, inst.a, inst.aw) = (wide, class, slot, found);
            inst.ty = if class == 8 { Ty::U64 } else { Ty::U32 };
            inst.ty2 = if found == 8 { Ty::U64 } else { Ty::U32 };
        });
        Ok(wide)
    }

    fn instruction(&mut self, word: &str) -> Result<(), String> {
        let mut operands = Vec::new();
        if !self.lexer.take(b';') {
            loop {
                operands.push(self.operand()?);
                match self.lexer.next() {
                    Token::Mark(b',') => {}
                    Token::Mark(b';') => break,
                    other => return self.error(format!("{other:?} in `{word}`")),
                }
            }
        }
        let parts: Vec<&str> = word.split('.').collect();
        self.build(word, parts[0], &parts[1..], &operands)
            .map_err(|text| if text.starts_with("PTX") { text } else { format!("PTX line {}: {text}", self.line) })
    }

    fn build(&mut self, word: &str, base: &str, mods: &[&str], o: &[Operand]) -> Result<(), String> {
        let has = |name: &str| mods.contains(&name);
        let ty = mods.iter().rev().find_map(|name| Ty::of(name)).unwrap_or(Ty::B32);
        let class = match ty {
            Ty::Pred => 1,
            ty => ty.bytes().max(2) as Class,
        };
        let mut flag = 0;
        flag |= if has("NaN") { F_NAN } else { 0 };
        flag |= if has("ftz") { F_FTZ } else { 0 };
        flag |= if has("sat") || has("satfinite") { F_SAT } else { 0 };
        flag |= if has("relu") { F_RELU } else { 0 };
        let simple = |op: Op| -> Option<Op> { Some(op) };
        // Element-wise ones: destination and up to three sources of one type.
        let plain = match base {
            "add" => simple(Op::Add),
            "sub" => simple(Op::Sub),
            "addc" => simple(Op::AddCarry),
            "subc" => simple(Op::SubCarry),
            "div" => simple(Op::Div),
            "rem" => simple(Op::Rem),
            "min" => simple(Op::Min),
            "max" => simple(Op::Max),
            "neg" => simple(Op::Neg),
            "abs" => simple(Op::Abs),
            "and" => simple(Op::And),
            "or" => simple(Op::Or),
            "xor" => simple(Op::Xor),
            "not" => simple(Op::Not),
            "brev" => simple(Op::Brev),
            "fma" => simple(Op::Fma),
            "rcp" => simple(Op::Rcp),
            "sqrt" => simple(Op::Sqrt),
            "rsqrt" => simple(Op::Rsqrt),
            "ex2" => simple(Op::Ex2),
            "lg2" => simple(Op::Lg2),
            "sin" => simple(Op::Sin),
            "cos" => simple(Op::Cos),
            "tanh" => simple(Op::Tanh),
            "copysign" => simple(Op::Copysign),
            "mul" if ty.float() || matches!(ty, Ty::F16x2 | Ty::Bf16x2) => simple(Op::MulLo),
            "mul" if has("lo") => simple(Op::MulLo),
            "mul" if has("hi") => simple(Op::MulHi),
            "mad" if ty.float() => simple(Op::Fma),
            "mad" if has("lo") => simple(Op::MadLo),
            "mad" if has("hi") => simple(Op::MadHi),
            _ => None,
        };
        if matches!(base, "add" | "sub" | "mad") && has("cc") || matches!(base, "addc" | "subc" | "madc") {
            return self.error(format!("`{word}`: arithmetic with carry is not supported"));
        }
        if let Some(op) = plain {
            let d = self.slot(&o[0], class)?;
            let dw = self.value(&o[0], class)?.1;
            let mut sources = [NONE; 3];
            for (to, from) in sources.iter_mut().zip(&o[1..]) {
                *to = self.exact(from, class)?;
            }
            self.emit(op, |inst| {
                (inst.ty, inst.d, inst.dw, inst.a, inst.b, inst.c, inst.flag) = (ty, d, dw, sources[0], sources[1], sources[2], flag);
            });
            return Ok(());
        }
        match base {
            "mov" => {
                if let Operand::Vector(parts) = &o[0] {
                    let (a, aw) = self.value(&o[1], class)?;
                    let mut slots = Vec::new();
                    let mut width = 0;
                    for part in parts {
                        let (slot, class) = self.value(part, 0)?;
                        width = width.max(if slot == NONE { 0 } else { class });
                        slots.push(slot);
                    }
                    let n = slots.len() as u8;
                    let bits = class / n;
                    let x = self.decoder.list(slots);
                    self.emit(Op::Unpack, |inst| (inst.a, inst.aw, inst.n, inst.dw, inst.x) = (a, aw, n, bits, x));
                } else if let Operand::Vector(parts) = &o[1] {
                    let (d, dw) = self.value(&o[0], class)?;
                    let n = parts.len() as u8;
                    let bits = class / n;
                    let slots: Vec<Slot> = parts.iter().map(|part| self.slot(part, bits)).collect::<Result<_, _>>()?;
                    let x = self.decoder.list(slots);
                    self.emit(Op::Pack, |inst| (inst.d, inst.dw, inst.n, inst.aw, inst.x) = (d, dw, n, bits, x));
                } else if let Operand::Special(special) = o[1] {
                    let (d, dw) = self.value(&o[0], class)?;
                    self.emit(Op::Special, |inst| (inst.d, inst.dw, inst.x) = (d, dw, special as i32));
                } else {
                    let (d, dw) = self.value(&o[0], class)?;
                    if let Operand::Name(name) = &o[1]
                        && let Some(&at) = self.scopes.iter().rev().find_map(|scope| scope.locals.get(name))
                    {
                        // The address within local memory.
                        let a = self.decoder.constant(u64::from(at), dw);
                        self.emit(Op::Mov, |inst| (inst.d, inst.dw, inst.a) = (d, dw, a));
                        return Ok(());
                    }
                    let a = self.exact(&o[1], dw)?;
                    self.emit(Op::Mov, |inst| (inst.d, inst.dw, inst.a) = (d, dw, a));
                }
            }
            "shl" | "shr" => {
                let d = self.slot(&o[0], class)?;
                let a = self.exact(&o[1], class)?;
                let b = self.exact(&o[2], 4)?;
                self.emit(if base == "shl" { Op::Shl } else { Op::Shr }, |inst| (inst.ty, inst.d, inst.a, inst.b) = (ty, d, a, b));
            }
            "shf" => {
                let d = self.slot(&o[0], 4)?;
                let (a, b, c) = (self.slot(&o[1], 4)?, self.slot(&o[2], 4)?, self.slot(&o[3], 4)?);
                let n = has("wrap") as u8;
                self.emit(if has("l") { Op::ShfL } else { Op::ShfR }, |inst| (inst.n, inst.d, inst.a, inst.b, inst.c) = (n, d, a, b, c));
            }
            "bfe" | "bfi" => {
                let d = self.slot(&o[0], class)?;
                let count = if base == "bfe" { 1 } else { 2 };
                let sources: Vec<Slot> = o[1..=count].iter().map(|from| self.exact(from, class)).collect::<Result<_, _>>()?;
                let (at, bits) = (self.exact(&o[count + 1], 4)?, self.exact(&o[count + 2], 4)?);
                if base == "bfe" {
                    self.emit(Op::Bfe, |inst| (inst.ty, inst.d, inst.a, inst.b, inst.c) = (ty, d, sources[0], at, bits));
                } else {
                    self.emit(Op::Bfi, |inst| {
                        (inst.ty, inst.d, inst.a, inst.b, inst.c, inst.x) = (ty, d, sources[0], sources[1], at, bits as i32)
                    });
                }
            }
            "popc" | "clz" | "bfind" => {
                let d = self.slot(&o[0], 4)?;
                let a = self.exact(&o[1], class)?;
                let op = match base {
                    "popc" => Op::Popc,
                    "clz" => Op::Clz,
                    _ => Op::Bfind,
                };
                let n = has("shiftamt") as u8;
                self.emit(op, |inst| (inst.ty, inst.d, inst.a, inst.n) = (ty, d, a, n));
            }
            "mul" | "mad" if has("wide") => {
                let wide = class * 2;
                let (d, dw) = self.value(&o[0], wide)?;
                let (a, b) = (self.exact(&o[1], class)?, self.exact(&o[2], class)?);
                let c = if base == "mad" { self.exact(&o[3], wide)? } else { NONE };
                let op = if base == "mad" { Op::MadWide } else { Op::MulWide };
                self.emit(op, |inst| (inst.ty, inst.d, inst.dw, inst.a, inst.b, inst.c) = (ty, d, dw, a, b, c));
            }
            "dp4a" => {
                let (d, a, b, c) = (self.slot(&o[0], 4)?, self.slot(&o[1], 4)?, self.slot(&o[2], 4)?, self.slot(&o[3], 4)?);
                let types: Vec<Ty> = mods.iter().filter_map(|name| Ty::of(name)).collect();
                self.emit(Op::Dp4a, |inst| (inst.ty, inst.ty2, inst.d, inst.a, inst.b, inst.c) = (types[0], types[1], d, a, b, c));
            }
            "prmt" => {
                if mods.len() > 1 {
                    return self.error(format!("`{word}`"));
                }
                let (d, a, b, c) = (self.slot(&o[0], 4)?, self.slot(&o[1], 4)?, self.slot(&o[2], 4)?, self.slot(&o[3], 4)?);
                self.emit(Op::Prmt, |inst| (inst.d, inst.a, inst.b, inst.c) = (d, a, b, c));
            }
            "lop3" => {
                let (d, a, b, c) = (self.slot(&o[0], 4)?, self.slot(&o[1], 4)?, self.slot(&o[2], 4)?, self.slot(&o[3], 4)?);
                let Operand::Number(table) = o[4] else { return self.error("lop3") };
                self.emit(Op::Lop3, |inst| (inst.d, inst.a, inst.b, inst.c, inst.x) = (d, a, b, c, table as i32));
            }
            "selp" => {
                let (d, dw) = self.value(&o[0], class)?;
                let (a, b) = (self.exact(&o[1], dw)?, self.exact(&o[2], dw)?);
                let c = self.slot(&o[3], 1)?;
                self.emit(Op::Selp, |inst| (inst.dw, inst.d, inst.a, inst.b, inst.c) = (dw, d, a, b, c));
            }
            "setp" | "set" => {
                let Some(cmp) = Cmp::ALL.iter().find(|(name, _)| *name == mods[0]).map(|(_, cmp)| *cmp) else {
                    return self.error(format!("`{word}`"));
                };
                let (d, second) = match &o[0] {
                    Operand::Pair(first, second) => (self.slot(first, 1)?, self.slot(second, 1)?),
                    one => (self.slot(one, 4)?, NONE),
                };
                let (a, b) = (self.exact(&o[1], class)?, self.exact(&o[2], class)?);
                let combine = match mods.get(1) {
                    Some(&"and") => 1,
                    Some(&"or") => 2,
                    Some(&"xor") => 3,
                    _ => 0,
                };
                let c = if combine != 0 { self.slot(&o[3], 1)? } else { NONE };
                if base == "setp" {
                    self.emit(Op::Setp, |inst| {
                        (inst.ty, inst.n, inst.d, inst.a, inst.b, inst.c, inst.aw, inst.x) =
                            (ty, cmp as u8, d, a, b, c, combine, second as i32)
                    });
                } else {
                    let types: Vec<Ty> = mods.iter().filter_map(|name| Ty::of(name)).collect();
                    self.emit(Op::Set, |inst| {
                        (inst.ty, inst.ty2, inst.n, inst.d, inst.a, inst.b, inst.c, inst.aw) =
                            (ty, types[0], cmp as u8, d, a, b, c, combine)
                    });
                }
            }
            "cvt" => {
                let types: Vec<Ty> = mods.iter().filter_map(|name| Ty::of(name)).collect();
                let [to, from] = types[..] else { return self.error(format!("`{word}`")) };
                let mut round = Round::None;
                for name in mods {
                    round = match *name {
                        "rn" | "rni" => Round::Nearest,
                        "rz" | "rzi" => Round::Zero,
                        "rm" | "rmi" => Round::Down,
                        "rp" | "rpi" => Round::Up,
                        "rna" => Round::Away,
                        _ => round,
                    };
                }
                let integral = has("rni") || has("rzi") || has("rmi") || has("rpi");
                let (d, dw) = self.value(&o[0], to.bytes().max(2) as Class)?;
                if o.len() == 3 {
                    let (a, b) = (self.slot(&o[1], 4)?, self.slot(&o[2], 4)?);
                    self.emit(Op::CvtPair, |inst| {
                        (inst.ty, inst.ty2, inst.d, inst.dw, inst.a, inst.b, inst.n, inst.flag) = (to, from, d, dw, a, b, round as u8, flag)
                    });
                } else {
                    let (a, aw) = self.value(&o[1], from.bytes().max(2) as Class)?;
                    self.emit(Op::Cvt, |inst| {
                        (inst.ty, inst.ty2, inst.d, inst.dw, inst.a, inst.aw, inst.n, inst.flag, inst.x) =
                            (to, from, d, dw, a, aw, round as u8, flag, integral as i32)
                    });
                }
            }
            "ld" | "ldu" => return self.load(mods, ty, o),
            "st" => return self.store(mods, ty, o),
            "atom" | "red" => {
                let space = space(mods);
                let operation =
                    mods.iter().position(|m| ["add", "inc", "dec", "min", "max", "and", "or", "xor", "exch", "cas"].contains(m));
                let Some(operation) = operation else { return self.error(format!("`{word}`")) };
                let kind = ["add", "inc", "dec", "min", "max", "and", "or", "xor", "exch", "cas"]
                    .iter()
                    .position(|m| *m == mods[operation])
                    .unwrap() as u8;
                let mut at = 0;
                let d = if base == "atom" {
                    at = 1;
                    self.slot(&o[0], class)?
                } else {
                    NONE
                };
                let (a, aw, x) = self.address(&o[at], space)?;
                let b = self.exact(&o[at + 1], class)?;
                let c = if kind == 9 { self.exact(&o[at + 2], class)? } else { NONE };
                if mods.iter().any(|m| matches!(*m, "v2" | "v4" | "v8")) {
                    return self.error(format!("`{word}`"));
                }
                self.emit(Op::Atom, |inst| {
                    (inst.ty, inst.space, inst.n, inst.d, inst.a, inst.aw, inst.b, inst.c, inst.x) = (ty, space, kind, d, a, aw, b, c, x)
                });
            }
            "cvta" => {
                let (d, dw) = self.value(&o[0], 8)?;
                let space = space(mods);
                let mut source = o[1].clone();
                if let Operand::Name(name) = &source
                    && let Some(&at) = self.scopes.iter().rev().find_map(|scope| scope.locals.get(name))
                {
                    source = Operand::Number(u64::from(at));
                }
                let a = self.exact(&source, dw)?;
                let op = if has("to") { Op::FromGeneric } else { Op::ToGeneric };
                self.emit(op, |inst| (inst.d, inst.dw, inst.a, inst.space) = (d, dw, a, space));
            }
            "isspacep" => {
                let d = self.slot(&o[0], 1)?;
                let a = self.exact(&o[1], 8)?;
                let space = space(mods);
                self.emit(Op::IsSpace, |inst| (inst.d, inst.a, inst.space) = (d, a, space));
            }
            "mapa" => {
                let (d, dw) = self.value(&o[0], class)?;
                let a = self.exact(&o[1], dw)?;
                let b = self.exact(&o[2], 4)?;
                let space = space(mods);
                self.emit(Op::Mapa, |inst| (inst.d, inst.dw, inst.a, inst.b, inst.space) = (d, dw, a, b, space));
            }
            "bra" => {
                let Operand::Name(label) = &o[0] else { return self.error("bra") };
                let at = self.decoder.program.code.len() as u32;
                self.fixes.push((at, label.clone()));
                self.emit(Op::Bra, |_| {});
            }
            "brx" => {
                let a = self.slot(&o[0], 4)?;
                let Operand::Name(table) = &o[1] else { return self.error("brx") };
                let at = self.decoder.program.code.len() as u32;
                self.tables.push((at, table.clone()));
                self.emit(Op::Brx, |inst| inst.a = a);
            }
            "call" => return self.call(o),
            "ret" => {
                let back = self.back;
                self.emit(if self.entry { Op::Exit } else { Op::Ret }, |inst| inst.a = back);
            }
            "exit" => self.emit(Op::Exit, |_| {}),
            "trap" | "brkpt" => self.emit(Op::Trap, |_| {}),
            "bar" | "barrier" => return self.barrier(word, mods, o),
            "vote" => {
                let kind = ["all", "any", "uni", "ballot"].iter().position(|m| has(m)).unwrap_or(0) as u8;
                let d = self.slot(&o[0], if kind == 3 { 4 } else { 1 })?;
                let a = self.slot(&o[1], 1)?;
                let b = self.slot(&o[2], 4)?;
                self.emit(Op::Vote, |inst| (inst.n, inst.d, inst.a, inst.b) = (kind, d, a, b));
            }
            "shfl" => {
                let kind = ["up", "down", "bfly", "idx"].iter().position(|m| has(m)).unwrap_or(0) as u8;
                let (d, p) = match &o[0] {
                    Operand::Pair(d, p) => (self.slot(d, 4)?, self.slot(p, 1)?),
                    d => (self.slot(d, 4)?, NONE),
                };
                let (a, b, c, mask) = (self.slot(&o[1], 4)?, self.slot(&o[2], 4)?, self.slot(&o[3], 4)?, self.slot(&o[4], 4)?);
                let x = self.decoder.list(vec![p, mask]);
                self.emit(Op::Shfl, |inst| (inst.n, inst.d, inst.a, inst.b, inst.c, inst.x) = (kind, d, a, b, c, x));
            }
            "match" => {
                let (d, p) = match &o[0] {
                    Operand::Pair(d, p) => (self.slot(d, 4)?, self.slot(p, 1)?),
                    d => (self.slot(d, 4)?, NONE),
                };
                let a = self.exact(&o[1], class)?;
                let b = self.slot(&o[2], 4)?;
                let n = has("all") as u8;
                self.emit(Op::Match, |inst| (inst.ty, inst.n, inst.d, inst.c, inst.a, inst.b) = (ty, n, d, p, a, b));
            }
            "redux" => {
                let kind = ["add", "min", "max", "and", "or", "xor"].iter().position(|m| has(m)).unwrap_or(0) as u8;
                let (d, a, b) = (self.slot(&o[0], 4)?, self.slot(&o[1], 4)?, self.slot(&o[2], 4)?);
                self.emit(Op::Redux, |inst| (inst.ty, inst.n, inst.d, inst.a, inst.b) = (ty, kind, d, a, b));
            }
            "elect" => {
                let Operand::Pair(d, p) = &o[0] else { return self.error("elect") };
                let (d, p, b) = (self.slot(d, 4)?, self.slot(p, 1)?, self.slot(&o[1], 4)?);
                self.emit(Op::Elect, |inst| (inst.d, inst.c, inst.b) = (d, p, b));
            }
            "activemask" => {
                let d = self.slot(&o[0], 4)?;
                self.emit(Op::ActiveMask, |inst| inst.d = d);
            }
            "fence" | "membar" | "prefetch" | "prefetchu" | "discard" | "applypriority" | "pmevent" | "griddepcontrol" | "setmaxnreg"
            | "createpolicy" => {
                if base == "createpolicy" {
                    let (d, dw) = self.value(&o[0], 8)?;
                    let a = self.decoder.constant(0, dw);
                    self.emit(Op::Mov, |inst| (inst.d, inst.dw, inst.a) = (d, dw, a));
                } else if base == "fence" && has("proxy") && has("async") {
                    // 1: shared memory, 2: global.
                    let spaces = if has("global") {
                        2
                    } else if mods.iter().any(|m| m.starts_with("shared")) {
                        1
                    } else {
                        3
                    };
                    self.emit(Op::ProxyFence, |inst| inst.n = spaces);
                } else {
                    self.emit(Op::Nop, |_| {});
                }
            }
            "nanosleep" => {
                let a = self.slot(&o[0], 4)?;
                self.emit(Op::Sleep, |inst| inst.a = a);
            }
            "mbarrier" => return self.mbarrier(word, mods, o),
            "cp" => return self.copy(word, mods, o),
            "wgmma" => return self.wgmma(word, mods, o),
            "ldmatrix" | "stmatrix" => {
                let n = if has("x4") {
                    4
                } else if has("x2") {
                    2
                } else {
                    1
                };
                let (vector, address) = if base == "ldmatrix" { (&o[0], &o[1]) } else { (&o[1], &o[0]) };
                let slots = match vector {
                    Operand::Vector(all) => all.iter().map(|part| self.slot(part, 4)).collect::<Result<Vec<_>, _>>()?,
                    one => vec![self.slot(one, 4)?],
                };
                let (a, aw, offset) = self.address(address, Space::Shared)?;
                let c = self.decoder.constant(offset as u32 as u64, 4);
                let x = self.decoder.list(slots);
                let trans = has("trans") as u8;
                self.emit(if base == "ldmatrix" { Op::LdMatrix } else { Op::StMatrix }, |inst| {
                    (inst.n, inst.flag, inst.a, inst.aw, inst.c, inst.x) = (n, trans, a, aw, c, x)
                });
            }
            "mma" => {
                if !has("row") || !has("col") {
                    return self.error(format!("`{word}`"));
                }
                let Some(shape) = mods.iter().find(|m| m.starts_with("m16n8k")) else { return self.error(format!("`{word}`")) };
                let k: u8 = shape[6..].parse().map_err(|_| word.to_string())?;
                let types: Vec<Ty> = mods.iter().filter_map(|name| Ty::of(name)).collect();
                let mut slots = Vec::new();
                let mut counts = Vec::new();
                for operand in o {
                    let Operand::Vector(all) = operand else { return self.error("mma") };
                    counts.push(all.len());
                    for part in all {
                        slots.push(self.slot(part, 4)?);
                    }
                }
                if types.len() != 4 || counts[0] != 4 {
                    return self.error(format!("`{word}`"));
                }
                let x = self.decoder.list(slots);
                self.emit(Op::Mma, |inst| {
                    (inst.ty, inst.ty2, inst.n, inst.aw, inst.dw, inst.x) = (types[1], types[2], k, counts[1] as u8, counts[2] as u8, x)
                });
            }
            _ => return self.error(format!("instruction `{word}`")),
        }
        Ok(())
    }

    /// Slot and class of an address's base, and its offset.
    fn address(&mut self, operand: &Operand, space: Space) -> Result<(Slot, Class, i32), String> {
        let Operand::Address(base, offset, _) = operand else { return self.error("an address") };
        let class = if space == Space::Shared { 4 } else { 8 };
        let (base, offset) = match &**base {
            Operand::Name(name) if self.variable(name).is_some() => {
                (Operand::Number(self.variable(name).unwrap().wrapping_add(*offset as u64)), 0)
            }
            Operand::Number(value) => (Operand::Number(value.wrapping_add(*offset as u64)), 0),
            other => (other.clone(), *offset),
        };
        let (slot, class) = self.value(&base, class)?;
        match i32::try_from(offset) {
            Ok(offset) => Ok((slot, class, offset)),
            Err(_) => self.error("an offset beyond 32 bits"),
        }
    }

    /// Registers of a vector or of one value, and the widest class.
    fn registers(&mut self, operand: &Operand, class: Class) -> Result<(Vec<Slot>, Class), String> {
        let all = match operand {
            Operand::Vector(all) => &all[..],
            one => std::slice::from_ref(one),
        };
        let (mut slots, mut width) = (Vec::new(), 0);
        for part in all {
            let (slot, class) = self.value(part, class)?;
            if slot != NONE {
                width = width.max(class);
            }
            slots.push(slot);
        }
        Ok((slots, width))
    }

    fn load(&mut self, mods: &[&str], ty: Ty, o: &[Operand]) -> Result<(), String> {
        let space = space(mods);
        let class = ty.bytes().max(2) as Class;
        let (slots, dw) = self.registers(&o[0], class)?;
        let n = slots.len() as u8;
        if space == Space::Param {
            let Operand::Address(base, offset, _) = &o[1] else { return self.error("an address") };
            let Operand::Name(name) = &**base else { return self.error("a parameter") };
            let Some((slot, bytes, entry)) = self.parameter(name) else { return self.error(format!("parameter `{name}`")) };
            let offset = *offset as u32;
            if offset + ty.bytes() * u32::from(n) > bytes {
                return self.error(format!("beyond parameter `{name}`"));
            }
            let x = self.decoder.list(slots);
            self.emit(if entry { Op::LdEntry } else { Op::LdParam }, |inst| {
                (inst.ty, inst.n, inst.dw, inst.x) = (ty, n, dw, x);
                (inst.a, inst.b, inst.c) = (slot, offset, bytes);
            });
            return Ok(());
        }
        let (a, aw, x) = self.address(&o[1], space)?;
        // A single register stands in its place, several in a list.
        let d = if n == 1 { slots[0] } else { self.decoder.list(slots) as u32 };
        let relaxed = mods.iter().any(|m| matches!(*m, "relaxed" | "acquire" | "volatile" | "mmio")) as u8;
        self.emit(Op::Ld, |inst| {
            (inst.ty, inst.n, inst.dw, inst.space, inst.d, inst.a, inst.aw, inst.x, inst.flag) = (ty, n, dw, space, d, a, aw, x, relaxed)
        });
        Ok(())
    }

    fn store(&mut self, mods: &[&str], ty: Ty, o: &[Operand]) -> Result<(), String> {
        let space = space(mods);
        let class = ty.bytes().max(2) as Class;
        let (mut slots, dw) = self.registers(&o[1], class)?;
        if mods[0] == "async" {
            let (a, aw, x) = self.address(&o[0], Space::Shared)?;
            let (mbarrier, bw, y) = self.address(&o[2], Space::Shared)?;
            if (x, y, aw, bw) != (0, 0, 4, 4) {
                return self.error("st.async with offsets");
            }
            slots.insert(0, mbarrier);
            let x = self.decoder.list(slots);
            self.emit(Op::StAsync, |inst| (inst.ty, inst.dw, inst.a, inst.x) = (ty, dw, a, x));
            return Ok(());
        }
        let n = slots.len() as u8;
        if slots.contains(&NONE) {
            return self.error("a sink is stored");
        }
        if space == Space::Param {
            let Operand::Address(base, offset, _) = &o[0] else { return self.error("an address") };
            let Operand::Name(name) = &**base else { return self.error("a parameter") };
            let Some((slot, bytes, _)) = self.parameter(name) else { return self.error(format!("parameter `{name}`")) };
            let offset = *offset as u32;
            let x = self.decoder.list(slots);
            self.emit(Op::StParam, |inst| {
                (inst.ty, inst.n, inst.dw, inst.x) = (ty, n, dw, x);
                (inst.a, inst.b, inst.c) = (slot, offset, bytes);
            });
            return Ok(());
        }
        let (a, aw, x) = self.address(&o[0], space)?;
        let d = if n == 1 { slots[0] } else { self.decoder.list(slots) as u32 };
        self.emit(Op::St, |inst| (inst.ty, inst.n, inst.dw, inst.space, inst.d, inst.a, inst.aw, inst.x) = (ty, n, dw, space, d, a, aw, x));
        Ok(())
    }

    fn call(&mut self, o: &[Operand]) -> Result<(), String> {
        let (mut results, mut name, mut parameters) = (Vec::new(), None, Vec::new());
        for operand in o {
            match operand {
                Operand::Names(names) if name.is_none() => results = names.clone(),
                Operand::Names(names) => parameters = names.clone(),
                Operand::Name(function) if name.is_none() => name = Some(function.clone()),
                Operand::Register(..) => return self.error("a call through a pointer"),
                _ => {}
            }
        }
        let Some(name) = name else { return self.error("call") };
        let known = self.decoder.function(&name)?;
        if known.parameters.len() != parameters.len() || known.results.len() != results.len() {
            return self.error(format!("arguments of `{name}`"));
        }
        for (parameter, &(to, bytes)) in parameters.iter().zip(&known.parameters) {
            let Some((from, _, _)) = self.parameter(parameter) else { return self.error(format!("`{parameter}`")) };
            self.emit(Op::CopyParam, |inst| (inst.d, inst.a, inst.x) = (to, from, bytes as i32));
        }
        self.emit(Op::Call, |inst| (inst.a, inst.x) = (known.back, known.start as i32));
        for (result, &(from, bytes)) in results.iter().zip(&known.results) {
            let Some((to, _, _)) = self.parameter(result) else { return self.error(format!("`{result}`")) };
            self.emit(Op::CopyParam, |inst| (inst.d, inst.a, inst.x) = (to, from, bytes as i32));
        }
        Ok(())
    }

    fn barrier(&mut self, word: &str, mods: &[&str], o: &[Operand]) -> Result<(), String> {
        let has = |name: &str| mods.contains(&name);
        if has("warp") {
            let b = self.slot(&o[0], 4)?;
            self.emit(Op::BarWarp, |inst| inst.b = b);
            return Ok(());
        }
        if has("cluster") {
            self.emit(if has("arrive") { Op::ClusterArrive } else { Op::ClusterWait }, |_| {});
            return Ok(());
        }
        // 0: wait, 1: arrive, 2 to 4: reductions.
        let kind = if has("arrive") {
            1
        } else if has("red") {
            2 + ["popc", "and", "or"].iter().position(|m| has(m)).ok_or_else(|| word.to_string())? as u8
        } else {
            0
        };
        let (mut at, mut d, mut p) = (0, NONE, NONE);
        if kind >= 2 {
            d = self.slot(&o[0], if kind == 2 { 4 } else { 1 })?;
            at = 1;
        }
        let a = self.slot(&o[at], 4)?;
        let last = o.len() - (kind >= 2) as usize;
        let b = if at + 1 < last { self.slot(&o[at + 1], 4)? } else { NONE };
        if kind >= 2 {
            p = self.slot(&o[last], 1)?;
        }
        self.emit(Op::Bar, |inst| (inst.n, inst.d, inst.a, inst.b, inst.c) = (kind, d, a, b, p));
        Ok(())
    }

    fn mbarrier(&mut self, word: &str, mods: &[&str], o: &[Operand]) -> Result<(), String> {
        let has = |name: &str| mods.contains(&name);
        let remote = has("shared::cluster") as u8;
        match mods[0] {
            "init" => {
                let (a, aw, x) = self.address(&o[0], Space::Shared)?;
                let b = self.slot(&o[1], 4)?;
                self.emit(Op::MbarInit, |inst| (inst.a, inst.aw, inst.x, inst.b) = (a, aw, x, b));
            }
            "inval" => {
                let (a, aw, x) = self.address(&o[0], Space::Shared)?;
                self.emit(Op::MbarInval, |inst| (inst.a, inst.aw, inst.x) = (a, aw, x));
            }
            "expect_tx" | "complete_tx" => {
                let (a, aw, x) = self.address(&o[0], Space::Shared)?;
                let b = self.slot(&o[1], 4)?;
                let op = if mods[0] == "expect_tx" { Op::MbarExpect } else { Op::MbarComplete };
                self.emit(op, |inst| (inst.a, inst.aw, inst.x, inst.b, inst.n) = (a, aw, x, b, remote));
            }
            "arrive" | "arrive_drop" => {
                if has("noComplete") {
                    return self.error(format!("`{word}`"));
                }
                let (d, at) = if matches!(o[0], Operand::Address(..)) { (NONE, 0) } else { (self.slot(&o[0], 8)?, 1) };
                let (a, aw, x) = self.address(&o[at], Space::Shared)?;
                let b = if at + 1 < o.len() { self.slot(&o[at + 1], 4)? } else { NONE };
                let flag = has("expect_tx") as u8 | ((mods[0] == "arrive_drop") as u8) << 1;
                self.emit(Op::MbarArrive, |inst| {
                    (inst.d, inst.a, inst.aw, inst.x, inst.b, inst.flag, inst.n) = (d, a, aw, x, b, flag, remote)
                });
            }
            "try_wait" | "test_wait" => {
                let d = self.slot(&o[0], 1)?;
                let (a, aw, x) = self.address(&o[1], Space::Shared)?;
                let parity = has("parity") as u8;
                let b = self.slot(&o[2], if parity == 1 { 4 } else { 8 })?;
                let try_wait = (mods[0] == "try_wait") as u8;
                self.emit(Op::MbarWait, |inst| {
                    (inst.d, inst.a, inst.aw, inst.x, inst.b, inst.flag, inst.n) = (d, a, aw, x, b, parity, try_wait)
                });
            }
            "pending_count" => {
                let d = self.slot(&o[0], 4)?;
                let a = self.slot(&o[1], 8)?;
                self.emit(Op::MbarPending, |inst| (inst.d, inst.a) = (d, a));
            }
            _ => return self.error(format!("`{word}`")),
        }
        Ok(())
    }

    fn copy(&mut self, word: &str, mods: &[&str], o: &[Operand]) -> Result<(), String> {
        let has = |name: &str| mods.contains(&name);
        if has("reduce") {
            return self.error(format!("`{word}`"));
        }
        if !has("bulk") {
            if has("commit_group") {
                self.emit(Op::CpAsyncCommit, |_| {});
            } else if has("wait_group") || has("wait_all") {
                let n = match o.first() {
                    Some(Operand::Number(n)) => *n as u8,
                    _ => 0,
                };
                self.emit(Op::CpAsyncWait, |inst| inst.n = n);
            } else if has("mbarrier") {
                return self.error(format!("`{word}`"));
            } else {
                // Copied at once.
                let (d, dw, x) = self.address(&o[0], Space::Shared)?;
                let (a, aw, offset) = self.address(&o[1], Space::Global)?;
                if x != 0 || offset != 0 || dw != 4 || aw != 8 {
                    return self.error(format!("`{word}` with offsets"));
                }
                let Operand::Number(bytes) = o[2] else { return self.error(format!("`{word}`")) };
                let b = match o.get(3) {
                    Some(size) => self.exact(size, 4)?,
                    None => self.decoder.constant(bytes, 4),
                };
                self.emit(Op::CpAsync, |inst| (inst.d, inst.a, inst.b, inst.n) = (d, a, b, bytes as u8));
            }
            return Ok(());
        }
        match mods[2] {
            "commit_group" => self.emit(Op::BulkCommit, |_| {}),
            "wait_group" => {
                let read = has("read") as u8;
                let Operand::Number(n) = o[0] else { return self.error("wait_group") };
                self.emit(Op::BulkWait, |inst| (inst.n, inst.flag) = (n as u8, read));
            }
            "prefetch" => self.emit(Op::Nop, |_| {}),
            "tensor" => {
                let Some(rank) = mods.iter().find_map(|m| m.strip_suffix('d').and_then(|m| m.parse::<u8>().ok())) else {
                    return self.error(format!("`{word}`"));
                };
                if has("im2col") || has("tile::gather4") || has("tile::scatter4") {
                    return self.error(format!("`{word}`"));
                }
                let load = mods.iter().position(|m| m.starts_with("shared")) < mods.iter().position(|m| *m == "global");
                let tensor = if load { &o[1] } else { &o[0] };
                let Operand::Address(_, 0, coordinates) = tensor else { return self.error("coordinates") };
                let mut slots = Vec::new();
                for coordinate in coordinates {
                    slots.push(self.slot(coordinate, 4)?);
                }
                if slots.len() != rank as usize {
                    return self.error(format!("`{word}`: coordinates"));
                }
                let (map, _, _) = self.address(tensor, Space::Generic)?;
                if load {
                    let (d, dw, offset) = self.address(&o[0], Space::Shared)?;
                    let (b, bw, moved) = self.address(&o[2], Space::Shared)?;
                    if offset != 0 || moved != 0 || dw != 4 || bw != 4 {
                        return self.error(format!("`{word}` with offsets"));
                    }
                    let mask = if has("multicast::cluster") { self.exact(&o[3], 4)? } else { NONE };
                    slots.push(mask);
                    let x = self.decoder.list(slots);
                    self.emit(Op::TensorLoad, |inst| (inst.n, inst.d, inst.a, inst.b, inst.x) = (rank, d, map, b, x));
                } else {
                    let (d, dw, offset) = self.address(&o[1], Space::Shared)?;
                    if offset != 0 || dw != 4 {
                        return self.error(format!("`{word}` with offsets"));
                    }
                    let x = self.decoder.list(slots);
                    self.emit(Op::TensorStore, |inst| (inst.n, inst.d, inst.a, inst.x) = (rank, d, map, x));
                }
            }
            "shared::cluster" if has("shared::cta") => {
                let (d, dw, offset) = self.address(&o[0], Space::Shared)?;
                let (a, aw, moved) = self.address(&o[1], Space::Shared)?;
                let b = self.slot(&o[2], 4)?;
                let (c, cw, shifted) = self.address(&o[3], Space::Shared)?;
                if (offset, moved, shifted, dw, aw, cw) != (0, 0, 0, 4, 4, 4) {
                    return self.error(format!("`{word}` with offsets"));
                }
                self.emit(Op::BulkShared, |inst| (inst.d, inst.a, inst.b, inst.c) = (d, a, b, c));
            }
            to if to.starts_with("shared") && has("global") => {
                let (d, dw, offset) = self.address(&o[0], Space::Shared)?;
                let (a, aw, moved) = self.address(&o[1], Space::Global)?;
                let b = self.slot(&o[2], 4)?;
                let (c, cw, shifted) = self.address(&o[3], Space::Shared)?;
                if (offset, moved, shifted, dw, aw, cw) != (0, 0, 0, 4, 8, 4) {
                    return self.error(format!("`{word}` with offsets"));
                }
                let mask = if has("multicast::cluster") { self.exact(&o[4], 4)? } else { NONE };
                self.emit(Op::BulkLoad, |inst| (inst.d, inst.a, inst.b, inst.c, inst.x) = (d, a, b, c, mask as i32));
            }
            "global" => {
                let (d, dw, offset) = self.address(&o[0], Space::Global)?;
                let (a, aw, moved) = self.address(&o[1], Space::Shared)?;
                let b = self.slot(&o[2], 4)?;
                if (offset, moved, dw, aw) != (0, 0, 8, 4) {
                    return self.error(format!("`{word}` with offsets"));
                }
                self.emit(Op::BulkStore, |inst| (inst.d, inst.a, inst.b) = (d, a, b));
            }
            _ => return self.error(format!("`{word}`")),
        }
        Ok(())
    }

    fn wgmma(&mut self, word: &str, mods: &[&str], o: &[Operand]) -> Result<(), String> {
        match mods[0] {
            "fence" => self.emit(Op::WgmmaFence, |_| {}),
            "commit_group" => self.emit(Op::WgmmaCommit, |_| {}),
            "wait_group" => {
                let Operand::Number(n) = o[0] else { return self.error("wait_group") };
                self.emit(Op::WgmmaWait, |inst| inst.n = n as u8);
            }
            "mma_async" => {
                let Some(shape) = mods.iter().find(|m| m.starts_with("m64n")) else { return self.error(format!("`{word}`")) };
                let n: u32 = shape[4..].split('k').next().unwrap_or("").parse().map_err(|_| word.to_string())?;
                let types: Vec<Ty> = mods.iter().filter_map(|name| Ty::of(name)).collect();
                let [sum, a_ty, b_ty] = types[..] else { return self.error(format!("`{word}`")) };
                let Operand::Vector(accumulators) = &o[0] else { return self.error("accumulators") };
                let d: Box<[Slot]> = accumulators.iter().map(|part| self.slot(part, 4)).collect::<Result<_, _>>()?;
                let expected = if sum == Ty::F16 { n / 4 } else { n / 2 };
                if d.len() != expected as usize {
                    return self.error(format!("`{word}`: {} accumulators", d.len()));
                }
                let (a_registers, a): (Box<[Slot]>, Slot) = match &o[1] {
                    Operand::Vector(all) => (all.iter().map(|part| self.slot(part, 4)).collect::<Result<_, _>>()?, NONE),
                    one => (Box::new([]), self.exact(one, 8)?),
                };
                let b = self.exact(&o[2], 8)?;
                let scale = self.slot(&o[3], 1)?;
                let mut numbers = Vec::new();
                for operand in &o[4..] {
                    let Operand::Number(value) = operand else { return self.error(format!("`{word}`: immediates")) };
                    numbers.push(*value as i64);
                }
                let negate = (numbers.first() == Some(&-1), numbers.get(1) == Some(&-1));
                let across = match numbers.get(2..) {
                    Some([a, b]) => (*a == 1, *b == 1),
                    Some([b]) => (false, *b == 1),
                    _ => (false, false),
                };
                self.decoder.program.products.push(Product { n, a_ty, b_ty, sum, d, a_registers, a, b, scale, negate, across });
                let x = self.decoder.program.products.len() as i32 - 1;
                self.emit(Op::Wgmma, |inst| inst.x = x);
            }
            _ => return self.error(format!("`{word}`")),
        }
        Ok(())
    }
}

fn space(mods: &[&str]) -> Space {
    for name in mods {
        match *name {
            "global" => return Space::Global,
            "shared" | "shared::cta" | "shared::cluster" => return Space::Shared,
            "local" => return Space::Local,
            "param" | "param::entry" | "param::func" => return Space::Param,
            "const" => return Space::Const,
            _ => {}
        }
    }
    Space::Generic
}
