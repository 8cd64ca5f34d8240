//! Programs whose names are those that MACO's macros use themselves.
//!
//! The names are read from the macros' source: every identifier of a `quote!` and every name of a hidden variable, so that a new one is tried by itself.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// No parameter of Rust's can be called like these: they are patterns.
const PATTERNS: [&str; 4] = ["Some", "None", "Ok", "Err"];
/// What a program that redefines it cannot say any more, with or without MACO.
const BUILT_IN: [&str; 14] = ["bf16", "bool", "char", "f16", "f32", "f64", "i32", "i64", "i8", "str", "u128", "u32", "u64", "usize"];
/// Words that cannot even be raw identifiers.
const NEVER: [&str; 5] = ["_", "self", "Self", "super", "crate"];
const KEYWORDS: [&str; 34] = [
    "as", "async", "await", "break", "const", "continue", "dyn", "else", "enum", "extern", "false", "fn", "for", "if", "impl", "in", "let",
    "loop", "match", "mod", "move", "mut", "pub", "ref", "return", "static", "struct", "trait", "true", "type", "unsafe", "use", "where",
    "while",
];
/// Names that only users could think of.
const OTHERS: [&str; 5] = ["größe", "длина", "r#abstract", "r#try", "r#M"];

/// All names that the macros emit, as a program can write them.
fn emitted() -> Vec<String> {
    let mut names = BTreeSet::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("maco-macros/src"), &mut names);
    assert!(names.len() > 150 && names.contains("plan_with") && names.contains("__recorder") && names.contains("stream"), "{names:?}");
    let names = names.into_iter().filter(|name| !NEVER.contains(&name.as_str()));
    let names = names.map(|name| if KEYWORDS.contains(&name.as_str()) { format!("r#{name}") } else { name });
    names.chain(OTHERS.map(str::to_owned)).collect()
}

fn sources(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("the macros' source").map(|entry| entry.expect("readable").path()) {
        if entry.is_dir() {
            sources(&entry, names);
        } else {
            let text = fs::read_to_string(&entry).expect("readable");
            quoted(text.parse().expect("Rust"), names);
        }
    }
}

/// Of `quote! { … }` and `hidden("…")`, wherever they stand.
fn quoted(tokens: TokenStream, names: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        let before = |n: usize| at.checked_sub(n).map(|at| tokens[at].to_string()).unwrap_or_default();
        if before(1) == "!" && before(2).starts_with("quote") {
            identifiers(group.stream(), names);
        }
        // `["device", "dims"].map(hidden)`, `hidden("recorder")`
        if before(1) == "hidden" || before(1) == "shown" || group.delimiter() == Delimiter::Bracket {
            let strings = group.stream().into_iter().map(|token| token.to_string());
            let words = strings.filter_map(|text| Some(text.strip_prefix('"')?.strip_suffix('"')?.to_owned()));
            names.extend(words.filter(|word| is_name(word)).flat_map(|word| [format!("__{word}"), word]));
        }
        quoted(group.stream(), names);
    }
}

/// Not those behind a colon, which nothing of the user's can stand for: `::maco::__private::spec::Recorder`.
fn identifiers(tokens: TokenStream, names: &mut BTreeSet<String>) {
    let mut in_path = false;
    for token in tokens {
        let colon = matches!(&token, TokenTree::Punct(colon) if colon.as_char() == ':');
        match token {
            TokenTree::Group(group) => identifiers(group.stream(), names),
            TokenTree::Ident(name) if !in_path => drop(names.insert(name.to_string())),
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
        in_path = colon;
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Tasks, graphs and megakernels whose parameters, dimensions and grid axes are called like eight names at a time, and items that are called like each.
pub fn of_everything() -> String {
    // A type parameter with two underscores is MACO's: rustc has no hygiene for them.
    let generic = |name: &String| name.strip_prefix("__").is_some_and(|rest| rest.starts_with(char::is_uppercase));
    let own = |name: &String| !PATTERNS.contains(&name.as_str()) && !BUILT_IN.contains(&name.as_str()) && !generic(name);
    let names: Vec<String> = emitted().into_iter().filter(own).collect();
    let mut text = format!("#![allow(non_snake_case, non_camel_case_types, uncommon_codepoints, mixed_script_confusables)]\n{PLAIN}");
    for (number, start) in (0..names.len()).step_by(8).enumerate() {
        // The last group takes names from the front.
        let [a, b, c, d, e, f, g, h] = [0, 1, 2, 3, 4, 5, 6, 7].map(|n| names[(start + n) % names.len()].as_str());
        let _ = writeln!(
            text,
            "mod group{number} {{
                use maco::prelude::*;
                #[maco::task(tile({c} = 64, {d} = 64), {h} in [bf16, f16])]
                pub fn task1(cta0: &mut Cta, #[read({c}, {d})] {a}: Tensor<{h}, {a}, {b}>, #[read({c}, {d})] {b}: Tensor<{h}, {a}, {b}>,
                    #[write({c}, {d})] {c}: Tensor<{h}, {a}, {b}>, {d}: f32) {{
                    cta0.zip(({a}, {b}), {c}, |(v0, w0)| v0 + w0 * {d})
                }}
                #[maco::task(simt, tile({a} = 64 | 128, {b} = 64))]
                pub unsafe fn task2(cta0: &mut Simt, #[read({a}, {b})] {e}: Tensor<f32, {e}, {f}>, #[read({a}, {b})] {f}: Tensor<f32, {e}, {f}>,
                    #[write({a}, {b})] {g}: Tensor<f32, {e}, {f}>, {h}: f32) {{}}
                #[maco::graph]
                pub fn graph1({a}: In<bf16, {c}, {d}>, {b}: [In<bf16, {c}, {d}>; 2], {c}: Out<bf16, {c}, {d}>, {d}: f32,
                    {e}: In<f32, {g}, {h}>, {f}: In<f32, {g}, {h}>, {g}: Out<f32, {g}, {h}>, {h}: f32) {{
                    let h0 = temp::<bf16, {c}, {{2 * {d} / 2}}>();
                    task1({a}, {b}[0], h0, {d});
                    task1(h0, {b}[1], {c}, {d});
                    task2({e}, {f}, {g}, {h});
                }}
                #[maco::megakernel]
                pub fn kernel1({a}: In<bf16, {a}, {b}>, {b}: [In<bf16, {a}, {b}>; 2], {c}: Out<bf16, {a}, {b}>, {d}: f32,
                    {e}: In<f32, {e}, {f}>, {f}: In<f32, {e}, {f}>, {g}: Out<f32, {e}, {f}>, {h}: f32) {{
                    graph1({a}, {b}, {c}, {d}, {e}, {f}, {g}, {h});
                }}
            }}"
        );
    }
    // Names with two underscores are MACO's.
    let possible = |name: &&String| !name.starts_with("__") && *name != "maco";
    for (number, name) in names.iter().filter(possible).enumerate() {
        let item = match number % 4 {
            0 => PLAIN.replace("plain", name),
            1 => format!("#[maco::graph] pub fn {name}(x: In<f32, N>, y: Out<f32, N>) {{ super::plain(x, y); }}"),
            2 => format!("#[maco::task(elementwise)] pub fn {name}(v: f32) -> f32 {{ v }}"),
            _ => format!("#[maco::megakernel] pub fn {name}(x: In<f32, N>, y: Out<f32, N>) {{ super::plain(x, y); }}"),
        };
        let _ = writeln!(text, "pub mod named{number} {{ {item} }}");
    }
    text + "maco::task_set! { r#do: plain }\nfn main() {}\n"
}

const PLAIN: &str = "#[maco::task(tile(i = 64))]
    pub fn plain(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>) { cta.zip(x, y, |v| v) }\n";

/// Every kind of item of MACO's beside constants, statics or unit structs that are called like all names but those that begin with two underscores, which are
/// MACO's.
pub fn beside(item: &str) -> String {
    let own = |name: &&str| !BUILT_IN.contains(name) && !PATTERNS.contains(name) && !name.starts_with("__") && *name != "r#M";
    let mut text =
        "#![allow(non_snake_case, non_upper_case_globals, non_camel_case_types, uncommon_codepoints, mixed_script_confusables, unused)]\n"
            .to_owned();
    // And like its own dimensions and grid axes.
    for name in emitted().iter().map(String::as_str).filter(|name| own(name)).chain(["Mm", "Nn", "Kk", "ii", "jj"]) {
        let _ = writeln!(text, "{}", item.replace("NAME", name));
    }
    text + BESIDE
}

/// Its own names are none of the macros'.
const BESIDE: &str = "
use ::maco::{bf16, f16};
#[::maco::task(tile(ii = 64 | 128, jj = 64), Ee in [bf16, f16])]
pub fn task1(cta0: &mut Cta, #[read(ii, jj)] x0: Tensor<Ee, Mm, Nn>, #[write(ii, jj)] y0: Tensor<Ee, Mm, Nn>, by0: f32) {
    cta0.zip(x0, y0, |v0| v0 * by0)
}
#[::maco::task(tile(ii = 64))]
pub fn task2(cta0: &mut Cta, #[read(ii)] x0: Tensor<f32, Mm>, #[write(ii)] y0: Tensor<f32, Mm>) {
    cta0.zip(x0, y0, |v0| v0)
}
#[::maco::task(simt, tile(ii = 64), cpu = reference0)]
pub unsafe fn task3(cta0: &mut Simt, #[read(ii)] x0: Tensor<f32, Mm>, #[write(ii)] y0: Tensor<f32, Mm>) {}
fn reference0(x0: ::maco::ReadTile<f32, 1, 64>, y0: ::maco::Tile<f32, 1, 64>) {}
#[::maco::task(simt, warp, tile(ii = 64))]
pub unsafe fn task4(cta0: &mut SimtWarp, #[read(ii)] x0: Tensor<f32, Mm>, #[write(ii)] y0: Tensor<f32, Mm>) {}
#[::maco::task(elementwise)]
pub fn function1(v0: f32) -> f32 { v0 }
#[::maco::task(elementwise)]
pub fn function2(v0: f32, r0: f32) -> f32 { v0 + r0 }
#[::maco::task(tile(ii = 64, jj = 128), Ee in [bf16, f16])]
pub fn gemm0(cta0: &mut Cta, #[read(ii, ..)] x0: Tensor<Ee, Mm, Kk>, #[read(jj, ..)] w0: Tensor<Ee, Nn, Kk>, #[write(ii, jj)] y0: Tensor<Ee, Mm, Nn>) {
    let mut acc0 = cta0.accumulator();
    for k0 in cta0.steps(x0, w0) { cta0.mma(&mut acc0, x0.tile(k0), w0.tile(k0)); }
    cta0.store(acc0, y0);
}
#[::maco::graph(where Mm == Nn)]
pub fn graph1(x0: In<bf16, Mm, Kk>, w0: [In<bf16, Nn, Kk>; 2], y0: Out<bf16, Mm, {2 * Nn}>) {
    let h0 = temp::<bf16, Mm, {2 * Nn}>();
    gemm0(x0, w0[0], h0.slice(1, 0..Nn)).then(function1);
    gemm0(x0, w0[1], h0.slice(1, Nn..2 * Nn));
    task1(h0.t().swap(0, 1), y0, 1.0);
}
#[::maco::megakernel(workers = 4, schedulers = 0)]
pub fn kernel1(x0: In<bf16, Mm, Kk>, w0: [In<bf16, Nn, Kk>; 2], r0: In<bf16, Mm, Nn>, y0: [Out<bf16, Mm, Nn>; 2], f0: In<f32, Mm>, g0: Out<f32, Mm>) {
    for k0 in (0..2).rev() {
        if k0 == 1 {
            gemm0(x0, w0[k0], y0[k0]).then(function2(r0)).tile(64, 128);
        } else {
            gemm0(x0, w0[k0], y0[k0]).split_k(2);
        }
    }
    let e0 = temp::<f32, Mm>();
    let e1 = temp::<f32, Mm>();
    task2(f0, e0);
    task3(e0, e1);
    task4(e1, g0);
}
::maco::task_set! { set0: gemm0<bf16>, task2, function1 }
fn main() {}
";
