//! Bodies that multiply, with one fault.

use std::fmt::Write as _;

use super::super::Rng;
use super::super::body::WRONG;
use super::Fault::{self, *};

/// A body that multiplies.
pub fn gemm(rng: &mut Rng, fault: Fault) -> String {
    let form = match fault {
        GemvOfF32 => Form::Gemv,
        OtherOperand => Form::Gemm,
        PairContracted => Form::Pair,
        _ => rng.pick(&[Form::Gemm, Form::Gemv, Form::Pair]),
    };
    let gemv = form == Form::Gemv;
    let contracted = if fault == OtherContracted { "V" } else { "K" };
    let (tile, element) = match gemv {
        true => (format!("i = 8, j = {}", rng.pick(&[8, 16, 32])), "bf16"),
        false => {
            (format!("i = {0}, j = 128", if fault == GemmTurned { 128 } else { rng.pick(&[64, 128]) }), rng.pick(&["f32", "bf16", "f16"]))
        }
    };
    let tile = if gemv && fault == GemmTurned { "i = 8, j = 8".to_owned() } else { tile };
    let element = if fault == GemvOfF32 { "f32" } else { element };
    let second = match fault {
        OtherOperand => rng.pick(&["f32", "bf16", "f16"].map(|other| if other == element { "i32" } else { other })),
        _ => element,
    };
    let (x, w) = if fault == GemmTurned { ("w", "x") } else { ("x", "w") };
    let y = if fault == GemmIntoRead { "a" } else { "y" };
    // What is only updated need not be written.
    let result = if fault == GemmIntoRead { "update" } else { "write" };
    let mark = |of: bool| if of { WRONG } else { "" };
    let mut text =
        format!("#[maco::task(tile({tile}))]\npub fn task(\n    cta: &mut Cta,\n    #[read(i, ..)] x: Tensor<{element}, M, K>,\n");
    let _ = writeln!(text, "    #[read(j, ..)] w: Tensor<{second}, N, {contracted}>,");
    if form == Form::Pair {
        let other = if fault == PairContracted { "V" } else { contracted };
        let size = if fault == GemmTurned { "i, ..)] u: Tensor<{element}, M" } else { "j, ..)] u: Tensor<{element}, N" };
        let _ = writeln!(text, "    #[read({}, {other}>,", size.replace("{element}", element));
    }
    let _ = writeln!(
        text,
        "    #[read(i, j)] a: Tensor<{element}, M, N>,\n    #[{result}(i, j)] y: Tensor<{element}, M, N>,\n    #[update(i, j)] t: Tensor<{element}, M, N>,\n) {{"
    );
    let beside = rng.pick(&["cta.map(t, |v| v + 1.0)", "cta.zip(a, t, |v| 2.0 * v)", "cta.zip((a, t), t, |(a, t)| a + t)"]);
    let first = rng.one_of(2);
    if fault == BesideGemm && first {
        let _ = writeln!(text, "    {beside};{WRONG}");
    }
    let in_step = matches!(fault, GemmTurned | OtherContracted | OtherOperand | PairContracted);
    let at_store = mark(fault == GemmIntoRead);
    match form {
        Form::Gemv => {
            let _ = writeln!(text, "    cta.gemv({x}, {w}, {y});{}", mark(fault != BesideGemm));
        }
        Form::Gemm => {
            let _ = writeln!(text, "    let mut acc = cta.accumulator();\n    for k in cta.steps(x, {}) {{", steps(fault, w));
            let _ = writeln!(text, "        cta.mma(&mut acc, {x}.tile(k), {w}.tile(k));{}\n    }}", mark(in_step));
            let _ = writeln!(text, "    cta.store(acc, {y});{at_store}");
        }
        Form::Pair => {
            let _ = writeln!(text, "    let mut acc = cta.accumulator_pair();\n    for k in cta.steps(x, {w}) {{");
            let _ = writeln!(text, "        cta.mma_pair(&mut acc, {x}.tile(k), ({w}.tile(k), u.tile(k)));{}\n    }}", mark(in_step));
            let _ = writeln!(text, "    cta.store_pair(acc, {y}, |a, b| a + b);{at_store}");
        }
    }
    if fault == BesideGemm && !first {
        let _ = writeln!(text, "    {beside};{WRONG}");
    }
    text + "}\n"
}

/// What steps are counted of beside `x`: of another type they are not.
fn steps(fault: Fault, w: &str) -> &str {
    if fault == OtherOperand { "x" } else { w }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Gemm,
    Gemv,
    Pair,
}
