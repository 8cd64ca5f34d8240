//! A module: where its functions are. They are decoded when somebody asks for an entry, since most of a large module is never run.

use std::collections::HashMap;

use super::decode;
use super::inst::{Program, Ty};
use super::lex::{Lexer, Token, number};

/// What a function's head says.
#[derive(Debug, Clone, Default)]
pub struct Head {
    pub entry: bool,
    /// Place and line behind the opening brace.
    pub body: usize,
    pub line: u32,
    /// Name, bytes and alignment.
    pub results: Vec<(String, u32, u32)>,
    pub parameters: Vec<(String, u32, u32)>,
    /// Functions that the body calls.
    pub callees: Vec<String>,
    pub max_threads: u32,
    pub cluster: [u32; 3],
}

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
    pub text: String,
    pub heads: HashMap<String, Head>,
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
        let mut module = Module { text: String::new(), heads: HashMap::new(), variables: HashMap::new(), shared: 0, owned: Vec::new() };
        let mut lexer = Lexer::new(&text, 0, 1);
        let mut dynamic = Vec::new();
        loop {
            match lexer.next() {
                Token::End => break,
                Token::Word(".version" | ".target" | ".address_size" | ".file" | ".loc") => lexer.skip_line(),
                Token::Word(".func" | ".entry") => {
                    // The word before says nothing that matters.
                    let entry = text[..lexer.at].ends_with(".entry");
                    module.function(&mut lexer, entry)?;
                }
                Token::Word(".section") => {
                    while !matches!(lexer.next(), Token::Mark(b'{') | Token::End) {}
                    callees(&mut lexer);
                }
                Token::Word(".pragma") => while !matches!(lexer.next(), Token::Mark(b';') | Token::End) {},
                Token::Word(".alias") => return Err(format!("line {}: .alias is not supported", lexer.line)),
                Token::Word(space @ (".shared" | ".global" | ".const")) => {
                    let (name, bytes, align, data) = declaration(&mut lexer)?;
                    if space == ".shared" {
                        if bytes == 0 {
                            dynamic.push(name);
                        } else {
                            let at = module.shared.next_multiple_of(align);
                            module.shared = at + bytes;
                            module.variables.insert(name, Variable::Shared(SHARED_START + at));
                        }
                    } else {
                        let address = allocate(u64::from(bytes.max(1)));
                        // SAFETY: just allocated with this size.
                        unsafe {
                            std::ptr::write_bytes(address as *mut u8, 0, bytes as usize);
                            std::ptr::copy_nonoverlapping(data.as_ptr(), address as *mut u8, data.len().min(bytes as usize));
                        }
                        module.owned.push((address, u64::from(bytes)));
                        module.variables.insert(name, Variable::Global(address));
                    }
                }
                _ => {}
            }
        }
        // Dynamic shared memory begins behind the static one.
        module.shared = if module.shared == 0 { 0 } else { module.shared.next_multiple_of(1024) };
        for name in dynamic {
            module.variables.insert(name, Variable::Shared(SHARED_START + module.shared));
        }
        module.text = text;
        Ok(module)
    }

    fn function(&mut self, lexer: &mut Lexer<'_>, entry: bool) -> Result<(), String> {
        let mut head = Head { entry, ..Head::default() };
        if lexer.take(b'(') {
            head.results = parameters(lexer)?;
        }
        let Token::Word(name) = lexer.next() else { return Err(format!("line {}: a function without name", lexer.line)) };
        if lexer.take(b'(') {
            head.parameters = parameters(lexer)?;
        }
        loop {
            match lexer.next() {
                Token::Mark(b';') | Token::End => return Ok(()),
                Token::Mark(b'{') => break,
                Token::Word(".maxntid") => {
                    let sizes = numbers(lexer);
                    head.max_threads = sizes.iter().product();
                }
                Token::Word(".reqnctapercluster") => {
                    let sizes = numbers(lexer);
                    for (to, from) in head.cluster.iter_mut().zip(sizes.iter().chain([&1, &1])) {
                        *to = *from;
                    }
                }
                _ => {}
            }
        }
        (head.body, head.line) = (lexer.at, lexer.line);
        head.callees = callees(lexer);
        self.heads.insert(name.to_string(), head);
        Ok(())
    }

    /// Decodes an entry and what it calls.
    pub fn program(&self, entry: &str) -> Result<Program, String> {
        decode::program(self, entry)
    }
}

fn numbers(lexer: &mut Lexer<'_>) -> Vec<u32> {
    let mut found = Vec::new();
    while let Token::Word(word) = lexer.peek() {
        let Ok(number) = word.parse() else { break };
        lexer.next();
        found.push(number);
        if !lexer.take(b',') {
            break;
        }
    }
    found
}

/// Walks to behind the brace that closes what is open; names of the functions that are called there.
fn callees(lexer: &mut Lexer<'_>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
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

/// Parameters up to the closing parenthesis.
fn parameters(lexer: &mut Lexer<'_>) -> Result<Vec<(String, u32, u32)>, String> {
    let mut found = Vec::new();
    while !lexer.take(b')') {
        let (name, bytes, align, _) = declaration(lexer)?;
        found.push((name, bytes, align));
    }
    Ok(found)
}

/// `.param .align 16 .b8 name[32]`, from behind the first word or with it, to behind a comma or semicolon, or to a closing parenthesis.
pub fn declaration(lexer: &mut Lexer<'_>) -> Result<(String, u32, u32, Vec<u8>), String> {
    let (mut bytes, mut align, mut name, mut data) = (0, 0, String::new(), Vec::new());
    loop {
        match lexer.peek() {
            Token::Mark(b')') => break,
            Token::Mark(b',' | b';') => {
                lexer.next();
                break;
            }
            Token::Mark(b'[') => {
                lexer.next();
                match lexer.next() {
                    Token::Word(count) => {
                        bytes *= count.parse::<u32>().map_err(|_| format!("line {}: a size", lexer.line))?;
                        lexer.next();
                    }
                    _ => bytes = 0,
                }
            }
            Token::Mark(b'=') => {
                lexer.next();
                data = initialiser(lexer, bytes)?;
            }
            Token::Word(".align") => {
                lexer.next();
                if let Token::Word(word) = lexer.next() {
                    align = word.parse().unwrap_or(1);
                }
            }
            Token::Word(word) if word.starts_with('.') => {
                lexer.next();
                if let Some(ty) = Ty::of(&word[1..]) {
                    bytes = ty.bytes();
                    align = align.max(bytes);
                }
            }
            Token::Word(word) => {
                lexer.next();
                name = word.to_string();
            }
            Token::End => return Err("the text ends in a declaration".into()),
            _ => {
                lexer.next();
            }
        }
    }
    Ok((name, bytes, align.max(1), data))
}

fn initialiser(lexer: &mut Lexer<'_>, bytes: u32) -> Result<Vec<u8>, String> {
    // Of arrays of bytes, as compilers write them, or of one number.
    let mut data = Vec::new();
    let braces = lexer.take(b'{');
    loop {
        let mut negative = false;
        match lexer.peek() {
            Token::Mark(b';') => break,
            Token::Mark(b'}') => {
                lexer.next();
                break;
            }
            Token::Mark(b'-') => {
                lexer.next();
                negative = true;
            }
            Token::Mark(_) => {
                lexer.next();
                continue;
            }
            _ => {}
        }
        let Token::Word(word) = lexer.next() else { break };
        let value = number(word).ok_or_else(|| format!("line {}: initialiser `{word}`", lexer.line))?;
        let value = if negative { value.wrapping_neg() } else { value };
        if braces {
            data.push(value as u8);
        } else {
            data.extend_from_slice(&value.to_le_bytes()[..(bytes as usize).min(8)]);
        }
    }
    Ok(data)
}
