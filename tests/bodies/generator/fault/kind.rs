//! Bodies that are of another kind than they look like, and results that are not written on every path.

use super::super::Rng;
use super::super::body::WRONG;
use super::Fault::{self, *};

const OPERANDS: &str = "#[read(i, ..)] x: Tensor<bf16, M, K>, #[read(j, ..)] w: Tensor<bf16, N, K>";
const RESULT: &str = "#[write(i, j)] y: Tensor<bf16, M, N>";
const GEMM: &str = "    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
";

/// A task, with the helper functions that it calls.
pub fn body(rng: &mut Rng, fault: Fault) -> String {
    let rows = format!("i = {}", rng.pick(&[4, 16, 32]));
    let number = rng.pick(&["0.5", "2.0", "3.0"]);
    let elements = "#[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>";
    let zip = format!("cta.zip(x, y, |v| v * {number})");
    let sums = format!("cta.rows(x, y, |x, y| {{ let sum = x.sum(|v| v); y.set(move |_| sum + {number}) }})");
    let writes = rng.pick(&[zip, sums]);
    match fault {
        HiddenGemm => {
            let helper =
                format!("#[maco::helper(Gemm)]\nfn gemm(cta: &mut Cta, {OPERANDS}, {RESULT}) {{\n{GEMM}    cta.store(acc, y)\n}}\n");
            let stated = rng.pick(&["", "<Tiles>"]);
            format!(
                "{helper}{}    gemm(cta, x, w, y);{WRONG}\n}}\n",
                task("i = 64, j = 128", &format!("&mut Cta{stated}"), &format!("{OPERANDS}, {RESULT}"))
            )
        }
        HiddenOperation => {
            let helper = "#[maco::helper(Rows)]\nfn raised(cta: &mut Cta, #[update(i, j)] t: Tensor<bf16, M, N>) {\n    cta.map(t, |v| v + 1.0);\n}\n";
            let head = task("i = 64, j = 128", "&mut Cta", &format!("{OPERANDS}, #[update(i, j)] t: Tensor<bf16, M, N>, {RESULT}"));
            let call = format!("    raised(cta, t);{WRONG}\n");
            match rng.one_of(2) {
                true => format!("{helper}{head}{call}{GEMM}    cta.store(acc, y);\n}}\n"),
                false => format!("{helper}{head}{GEMM}    cta.store(acc, y);\n{call}}}\n"),
            }
        }
        OtherOperations => {
            let kind = rng.pick(&["Columns", "Indexed", "Gemm"]);
            let signature = "#[update(i, ..)] x: Tensor<f32, M, N>";
            let helper = format!(
                "#[maco::helper({kind})]\nfn changed(cta: &mut Cta, {signature}) {{\n    cta.map(x, |v| v * {number});{WRONG}\n}}\n"
            );
            format!("{helper}{}    cta.map(x, |v| v + {number});\n}}\n", task(&rows, "&mut Cta", signature))
        }
        OtherOperandB => {
            let head = task("i = 8, j = 16", "&mut Cta", &format!("{OPERANDS}, #[read(j, ..)] v: Tensor<bf16, N, K>, {RESULT}"));
            match rng.one_of(2) {
                true => format!("{head}    let w = v;\n    cta.gemv(x, w, y);{WRONG}\n}}\n"),
                false => format!("{head}    let {{ w }} = {{ v }};\n    cta.gemv(x, w, y);{WRONG}\n}}\n")
                    .replace("{ w }", "(w, _)")
                    .replace("{ v }", "(v, w)"),
            }
        }
        OperationTwice => {
            let head = task(&rows, "&mut Cta", "#[update(i, ..)] x: Tensor<f32, M, N>");
            format!("{head}    let again = || cta.map(x, |v| v * {number});\n    again();\n    again();{WRONG}\n}}\n")
        }
        SomePaths => {
            let signature = elements
                .replace("#[write", "flag: u32, #[write")
                .replace("y: Tensor<f32, M, N>", &format!("y: Tensor<f32, M, N>,{WRONG}\n"));
            if rng.pick(&[true, false]) {
                let leaves = rng.pick(&["if flag == 1 { break 'done }", "for k in 0..flag { if k == 3 { break 'done } }"]);
                return format!("{}    'done: {{ {leaves} {writes}; }}\n}}\n", task(&rows, "&mut Cta", &signature));
            }
            let condition = rng.pick(&["if flag == 1", "while flag == 1", "for _ in 0..flag"]);
            // A loop could write it twice, which is another mistake.
            let end = if condition.starts_with("if") { "" } else { " break;" };
            format!("{}    {condition} {{ {writes};{end} }}\n}}\n", task(&rows, "&mut Cta", &signature))
        }
        HelperForgets => {
            let helper = rng.pick(&[
                "fn forget<T>(_: T) {}\n",
                "fn forget<T>(y: T) -> T {\n    y\n}\n",
                "fn forget<T>(_: T) -> Option<T> {\n    None\n}\n",
            ]);
            let head = task(&rows, "&mut Cta", &elements.replace("#[read(i, ..)] x", "#[update(i, ..)] x"));
            format!("{helper}{head}    cta.map(x, |v| v * {number});\n    forget(y);{WRONG}\n}}\n")
        }
        HelperAccess | HelperRegion | HelperElement | HelperNumber => {
            let (mut x, mut first) = ("#[read(i, ..)] x: Tensor<f32, M, N>".to_owned(), "x");
            match fault {
                HelperAccess => x = x.replace("read", "update"),
                HelperRegion => x = x.replace("i, ..", "..").replace("M, N", "N"),
                HelperElement => x = x.replace("f32", rng.pick(&["bf16", "f16", "i32"])),
                _ => first = "by",
            }
            let helper = format!("#[maco::helper(Rows)]\nfn changed(cta: &mut Cta, {elements}) {{\n    {writes}\n}}\n");
            // Whatever stands first says which axes there are.
            let result = "#[write(i, ..)] y: Tensor<f32, M, N>";
            let other = rng.pick(&["", ", #[update(i, ..)] t: Tensor<f32, M, N>"]);
            let head = task(&rows, "&mut Cta", &format!("{x}, {result}{other}, by: f32"));
            format!("{helper}{head}    changed(cta, {first}, y);{WRONG}\n}}\n")
        }
        HelperResult => {
            let both = format!("{elements}, #[write(i, ..)] z: Tensor<f32, M, N>");
            let returned = rng.pick(&["(y, y)", "(z, y)", "y", "(y, z, z)"]);
            let helper = format!(
                "#[maco::helper(Rows)]\nfn both(cta: &mut Cta, {both}) {{\n    let y = {writes};\n    let z = cta.zip(y, z, |v| v);\n    {returned}{WRONG}\n}}\n"
            );
            format!("{helper}{}    both(cta, x, y, z);\n}}\n", task(&rows, "&mut Cta", &both))
        }
        _ => unreachable!("{fault:?} is no fault of a kind"),
    }
}

/// The head of a task.
fn task(tile: &str, cta: &str, parameters: &str) -> String {
    format!("#[maco::task(tile({tile}))]\npub fn task(cta: {cta}, {parameters}) {{\n")
}
