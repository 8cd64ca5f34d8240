//! What the text of a body uses of Rust's standard library: a GPU has `core` only, and rustc would say so of the device half alone.
//!
//! Syntactic: a name that a file imports from `std` is not seen.

use maco_graph::spec::Code;
use proc_macro2::{Ident, TokenStream, TokenTree};

use crate::errors::Errors;

/// Macros and types that need an allocator, a terminal or an operating system.
const MACROS: [&str; 8] = ["vec", "format", "print", "println", "eprint", "eprintln", "dbg", "thread_local"];
const TYPES: [&str; 8] = ["Vec", "String", "Box", "Rc", "Arc", "HashMap", "HashSet", "BTreeMap"];

/// Functions of floating-point numbers that only `std` has, and what there is instead.
const FUNCTIONS: [(&str, &str); 36] = [
    ("exp", "write `math::exp(v)`"),
    ("exp2", "write `math::exp(v * core::f32::consts::LN_2)`"),
    ("exp_m1", "write `math::exp(v) - 1.0`"),
    ("ln", "write `math::ln(v)`"),
    ("ln_1p", "write `math::ln(1.0 + v)`"),
    ("log", "write `math::ln(v) / math::ln(base)`"),
    ("log2", "write `math::ln(v) * core::f32::consts::LOG2_E`"),
    ("log10", "write `math::ln(v) * core::f32::consts::LOG10_E`"),
    ("tanh", "write `math::tanh(v)`"),
    ("sqrt", "write `v * math::rsqrt(v)`"),
    ("powi", "multiply"),
    ("powf", "write `math::exp(math::ln(v) * power)`"),
    ("mul_add", "write `math::mul_add(a, b, c)`"),
    ("round", "write `math::round(v)`, an i32"),
    ("round_ties_even", "write `math::round(v)`, an i32"),
    ("floor", NO_FUNCTION),
    ("ceil", NO_FUNCTION),
    ("trunc", "write `v as i32 as f32`"),
    ("fract", "write `v - v as i32 as f32`"),
    ("rem_euclid", NO_FUNCTION),
    ("div_euclid", NO_FUNCTION),
    ("cbrt", NO_FUNCTION),
    ("hypot", NO_FUNCTION),
    ("sin", NO_FUNCTION),
    ("cos", NO_FUNCTION),
    ("sin_cos", NO_FUNCTION),
    ("tan", NO_FUNCTION),
    ("asin", NO_FUNCTION),
    ("acos", NO_FUNCTION),
    ("atan", NO_FUNCTION),
    ("atan2", NO_FUNCTION),
    ("sinh", NO_FUNCTION),
    ("cosh", NO_FUNCTION),
    ("asinh", NO_FUNCTION),
    ("acosh", NO_FUNCTION),
    ("atanh", NO_FUNCTION),
];
const ARRAY: &str = "an array of a constant length is `[0.0; 8]`; what other tasks need is a tensor";
const NO_FUNCTION: &str =
    "functions of `maco::math` are for the GPU: exp, ln, tanh, sigmoid, rsqrt, mul_add, round, min, max; write it with them";

/// Reports each use. A body with parts that are only compiled for the host may use what it likes there.
pub fn check(body: TokenStream, errors: &mut Errors) {
    if !mentions_cfg(&body) {
        uses(body, errors);
    }
}

fn mentions_cfg(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == "cfg",
        TokenTree::Group(group) => mentions_cfg(&group.stream()),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

fn uses(tokens: TokenStream, errors: &mut Errors) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |at: usize, letter: char| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == letter);
    let is_path = |at: usize| is(at, ':') && is(at + 1, ':');
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => uses(group.stream(), errors),
            TokenTree::Ident(name) => {
                let text = name.to_string();
                // Behind the dot of a method, or behind `f32::`.
                let method = at > 0 && is(at - 1, '.') && matches!(tokens.get(at + 1), Some(TokenTree::Group(_)));
                let of_f32 = at > 2 && is_path(at - 2) && matches!(&tokens[at - 3], TokenTree::Ident(ty) if ty == "f32");
                let in_path = at > 1 && is_path(at - 2);
                if text == "std" && is_path(at + 1) && !(in_path && at > 2 && matches!(tokens[at - 3], TokenTree::Ident(_))) {
                    report(
                        name,
                        "the standard library is",
                        "`core` has what needs no operating system, `maco::math` the functions of numbers",
                        errors,
                    );
                } else if MACROS.contains(&text.as_str()) && is(at + 1, '!') {
                    let help = if text == "vec" { ARRAY } else { "what is to be seen a task writes into a tensor" };
                    report(name, &format!("`{text}!` is"), help, errors);
                } else if TYPES.contains(&text.as_str()) && is_path(at + 1) {
                    report(name, &format!("`{text}` is"), ARRAY, errors);
                } else if (method || of_f32)
                    && let Some((_, help)) = FUNCTIONS.iter().find(|(function, _)| text == *function)
                {
                    report(name, &format!("`{text}` of a number is"), help, errors);
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn report(at: &Ident, what: &str, help: &str, errors: &mut Errors) {
    errors.push(Code::Std, at, format!("{what} not there on a GPU"), help);
}
