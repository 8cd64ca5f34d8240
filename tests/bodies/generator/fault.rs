//! Bodies and calls that break one rule, in the midst of operations that keep all of them.

use std::fmt::Write as _;

use super::body::{Access, Body, Kind, Layout, WRONG};
use super::{HELPERS, Rng};

/// One way to break one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Input and result exchanged.
    Swapped,
    /// A `#[write]` parameter is read that nothing has written.
    ReadsUnwritten,
    /// The same in place.
    MapsUnwritten,
    /// A `#[read]` parameter is written.
    WritesRead,
    /// One of two results is `#[read]`.
    WritesReadRow,
    /// A part of a `#[write]` parameter is written.
    PartOfUnwritten,
    /// A result beside which is read by position holds values.
    NotFresh,
    /// Rows of what is written are read by an input.
    RowsInPlace,
    /// So are rows that numbers name.
    IndexedInPlace,
    /// What is kept takes the place of a row that is only lent.
    KeptInLent,
    /// One number for each row, beside elements.
    VectorAlongRows,
    /// Rows beside columns.
    Turned,
    /// Rows of a reduction beside columns.
    RowsTurned,
    /// Another dimension.
    OtherDimension,
    /// Another dimension, row by row.
    OtherColumns,
    /// A margin beside elements.
    HaloBeside,
    /// One row of a group beside every row.
    GroupBeside,
    /// What is not turned is transposed.
    NotTurned,
    /// Columns are reduced into more rows than one.
    ManyRows,
    /// Columns of one tensor into those of another.
    OtherReduced,
    /// One index for each column.
    IdsAlongColumns,
    /// Rows of another length are taken.
    OtherTable,
    /// Indices and elements of two shapes.
    OtherScattered,
    /// Fewer indices than rows.
    FewerIds,
    /// Operands of a product the other way round.
    ProductTurned,
    /// Operands of two contracted dimensions.
    OtherContracted,
    /// A product into what is `#[read]`.
    ProductIntoRead,
    /// A `#[write]` parameter that no operation gets.
    NeverWritten,
    /// A `#[write]` parameter is given to two operations.
    WrittenTwice,
    /// A row outlives its call.
    RowEscapes,
    /// A row is written while it is read.
    RowReadAndWritten,
    /// A row is reduced by single lanes.
    ReducedByLanes,
    /// An operation beside a product.
    BesideProduct,
    /// Tiles of one axis write the same.
    GridAxis,
    /// Neighbouring tiles write the same.
    HaloWritten,
    /// Nothing says that indices differ.
    IndexedWrite,
    /// One tensor twice in a call, once to write.
    Aliased,
    /// A call reads what no call has written.
    ReadsNothing,
    /// A call's shapes disagree.
    Shape,
    /// A call writes an `In`.
    WritesIn,
}

use Fault::*;

/// All of them.
pub const FAULTS: [Fault; 40] = [
    Swapped,
    ReadsUnwritten,
    MapsUnwritten,
    WritesRead,
    WritesReadRow,
    PartOfUnwritten,
    NotFresh,
    RowsInPlace,
    IndexedInPlace,
    KeptInLent,
    VectorAlongRows,
    Turned,
    RowsTurned,
    OtherDimension,
    OtherColumns,
    HaloBeside,
    GroupBeside,
    NotTurned,
    ManyRows,
    OtherReduced,
    IdsAlongColumns,
    OtherTable,
    OtherScattered,
    FewerIds,
    ProductTurned,
    OtherContracted,
    ProductIntoRead,
    NeverWritten,
    WrittenTwice,
    RowEscapes,
    RowReadAndWritten,
    ReducedByLanes,
    BesideProduct,
    GridAxis,
    HaloWritten,
    IndexedWrite,
    Aliased,
    ReadsNothing,
    Shape,
    WritesIn,
];

impl Fault {
    /// What the compiler must say: a code of MACO's, or one of rustc's where the borrow checker refuses.
    pub fn code(self) -> &'static str {
        match self {
            Swapped | ReadsUnwritten | MapsUnwritten | WritesRead | WritesReadRow | PartOfUnwritten | NotFresh | RowsInPlace
            | IndexedInPlace | KeptInLent | ProductIntoRead => "MACO0073",
            VectorAlongRows | Turned | RowsTurned | OtherDimension | OtherColumns | HaloBeside | GroupBeside | NotTurned | ManyRows
            | OtherReduced | IdsAlongColumns | OtherTable | OtherScattered | FewerIds | ProductTurned | OtherContracted => "MACO0075",
            NeverWritten => "MACO0074",
            BesideProduct => "MACO0068",
            GridAxis => "MACO0014",
            IndexedWrite => "MACO0024",
            HaloWritten | Aliased => "MACO0001",
            ReadsNothing => "MACO0002",
            Shape => "MACO0005",
            WritesIn => "MACO0009",
            WrittenTwice => "E0382",
            RowEscapes => "E0521",
            RowReadAndWritten => "E0499",
            ReducedByLanes => "E0277",
        }
    }

    /// The grids that a body of it may have.
    fn layouts(self) -> &'static [Layout] {
        use Layout::{Columns, Elements, Rows};
        match self {
            WritesReadRow | RowsInPlace | KeptInLent | RowsTurned | OtherColumns | OtherTable | OtherScattered | RowEscapes
            | RowReadAndWritten | ReducedByLanes => &[Rows],
            IndexedInPlace | OtherReduced | FewerIds => &[Columns],
            PartOfUnwritten | OtherDimension => &[Rows, Columns],
            IdsAlongColumns => &[Elements],
            IndexedWrite | GroupBeside => &[Elements, Rows],
            _ => &[Elements, Rows, Columns],
        }
    }

    fn of_product(self) -> bool {
        matches!(self, ProductTurned | OtherContracted | ProductIntoRead | BesideProduct)
    }

    /// In a call, not in a body.
    fn of_call(self) -> bool {
        matches!(self, Aliased | ReadsNothing | Shape | WritesIn)
    }
}

/// A program that must be refused.
pub struct Wrong {
    pub name: String,
    pub fault: Fault,
    /// `MACO0073`, or `E0382`.
    pub code: &'static str,
    pub source: String,
    /// The line of the broken rule.
    pub line: u32,
}

/// A program with this fault.
pub fn wrong(rng: &mut Rng, fault: Fault, seed: u64, number: usize) -> Wrong {
    let text = loop {
        let made = if fault.of_product() {
            Some(product(rng, fault))
        } else if fault.of_call() {
            call(rng, fault)
        } else {
            body(rng, fault)
        };
        // Until there is room for all of it.
        if let Some(text) = made {
            break text;
        }
    };
    let source = format!("#![allow(unused)]\nuse maco::prelude::*;\n{HELPERS}\n{text}\nfn main() {{}}\n");
    let line = source.lines().position(|line| line.ends_with(WRONG)).unwrap_or_else(|| panic!("{fault:?} is on no line:\n{source}"));
    Wrong { name: format!("seed{seed}_{number}_{fault:?}"), fault, code: fault.code(), source, line: line as u32 + 1 }
}

fn body(rng: &mut Rng, fault: Fault) -> Option<String> {
    let layout = rng.pick(fault.layouts());
    let (before, after) = (rng.below(3), rng.below(2));
    let mut body = Body::new(rng, "task".to_owned(), layout);
    match fault {
        GroupBeside => body.tile[0] = 1,
        // Of a tile of one row they may be.
        ManyRows => body.tile[0] = body.tile[0].max(4),
        _ => {}
    }
    if before > 0 {
        body.operations(before);
    }
    break_rule(&mut body, fault)?;
    for _ in 0..after {
        body.right();
    }
    // A task that writes nothing breaks another rule.
    if body.params.iter().all(|param| param.access == Access::Read) {
        let value = body.new_update();
        body.operation(format!("cta.map({}, |a| small(a + 1.0))", value.name), Some(&value));
    }
    (body.params.len() <= 6).then(|| body.task())
}

/// Adds the fault; nothing if there is no room for it.
fn break_rule(body: &mut Body<'_>, fault: Fault) -> Option<()> {
    if body.room() < 3 {
        return None;
    }
    let formula = |body: &mut Body<'_>, atoms: &[&str]| {
        let formula = body.formula(atoms.len());
        super::body::fill(&formula, &atoms.iter().map(|atom| (*atom).to_owned()).collect::<Vec<_>>())
    };
    let name = |body: &Body<'_>, param: usize| body.params[param].name.clone();
    let one = formula(body, &["a"]);
    let two = formula(body, &["a", "b"]);
    let other = |body: &mut Body<'_>, region: &str, element: &'static str, shape: &[&str]| {
        let param = body.param(Access::Read, Kind::Other, region.to_owned(), element, shape);
        body.params[param].name.clone()
    };
    let (row, col) = (body.row(), body.col());
    let statement = match fault {
        Swapped => {
            let x = body.new_input(Kind::Main).name;
            let y = body.fresh_result()?.name;
            match body.rng.below(3) {
                0 => format!("cta.zip({y}, {x}, |a| {one})"),
                1 => format!("cta.generate({y}, {x}, |a, r, c| a.at(r, c))"),
                _ => format!("cta.rows({y}, {x}, |a, y| y.zip(a, |a| {one}))"),
            }
        }
        ReadsUnwritten => {
            let (x, z) = (body.main_input().name, body.fresh_result()?.name);
            if body.rng.one_of(3) {
                format!("cta.zip(({x}, {z}), {z}, |(a, b)| {two})")
            } else {
                let y = body.fresh_result()?.name;
                match body.rng.below(3) {
                    0 => format!("cta.zip(({x}, {y}), {z}, |(a, b)| {two})"),
                    1 => format!("cta.generate(({x}, {y}), {z}, |(a, b), r, c| a.at(r, c) + b.at(r, c))"),
                    _ => format!("cta.rows({y}, {z}, |a, y| y.zip(a, |a| {one}))"),
                }
            }
        }
        MapsUnwritten => {
            let y = body.fresh_result()?.name;
            format!("cta.map({y}, |a| {one})")
        }
        WritesRead => {
            let (x, y) = (body.main_input().name, body.new_input(Kind::Main).name);
            match body.rng.below(4) {
                0 => format!("cta.zip({x}, {y}, |a| {one})"),
                1 => format!("cta.map({y}, |a| {one})"),
                2 => format!("cta.generate({x}, {y}, |a, r, c| a.at(r, c))"),
                _ => format!("cta.blocks({x}, {y}, |a, r, c| a.at8(r, c))"),
            }
        }
        WritesReadRow => {
            let (x, y, z) = (body.new_input(Kind::Main).name, body.new_input(Kind::Main).name, body.fresh_result()?.name);
            format!("cta.rows({x}, ({z}, {y}), |a, (y, z)| {{ let sum = a.sum(|v| v); y.set(|_| sum); z.set(|_| sum) }})")
        }
        PartOfUnwritten => {
            let y = body.fresh_result()?.name;
            if body.layout == Layout::Rows {
                let (ids, x) = (other(body, "i, ..", "u32", &["M", "K"]), other(body, "i, ..", "f32", &["M", "K"]));
                format!("cta.scatter({ids}, {x}, {y})")
            } else {
                let (ids, x) = (other(body, "..", "u32", &["K"]), other(body, ".., j", "f32", &["K", "N"]));
                let method = body.rng.pick(&["index_add", "index_copy"]);
                format!("cta.{method}({ids}, {x}, {y})")
            }
        }
        NotFresh => {
            let held = body.held_result()?.name;
            match body.rng.below(3) {
                0 => {
                    let x = body.main_input().name;
                    format!("cta.generate({x}, {held}, |a, r, c| small(a.at(r, c)))")
                }
                1 => {
                    let x = body.main_input().name;
                    format!("cta.blocks({x}, {held}, |a, r, c| a.at8(r, c))")
                }
                _ => {
                    let x = body.new_input(Kind::Turned).name;
                    format!("cta.transpose({x}, {held})")
                }
            }
        }
        RowsInPlace => {
            let t = body.new_update().name;
            let closure = body.rng.pick(&[
                "{ let sum = a.sum(|v| v); y.set(|_| sum) }",
                "{ let a = a.elements(); y.set(|j| a.at(j + 1)) }",
                "y.zip(a, |v| small(v + 1.0))",
            ]);
            format!("cta.rows({t}, {t}, |a, y| {closure})")
        }
        IndexedInPlace => {
            let t = body.new_update().name;
            let ids = other(body, "..", "u32", &["M"]);
            let method = body.rng.pick(&["index_add", "index_copy"]);
            format!("cta.{method}({ids}, {t}, {t})")
        }
        KeptInLent => {
            let (x, y) = (body.new_input(Kind::Main).name, body.fresh_result()?.name);
            format!("cta.rows({x}, {y}, |a, y| {{ y.zip_kept(&a, |a| {one}); }})")
        }
        VectorAlongRows | Turned | HaloBeside | GroupBeside | OtherDimension => {
            let x = body.main_input().name;
            let kind = match fault {
                VectorAlongRows => Kind::PerRow,
                Turned => Kind::Turned,
                GroupBeside => Kind::Over(body.rng.pick(&[2, 4])),
                _ => body.any_halo(),
            };
            let away = if fault == OtherDimension {
                let shape: &[&str] = if body.layout == Layout::Rows { &["M", "K"] } else { &["K", "N"] };
                let region = format!("{row}, {col}");
                other(body, &region, "f32", shape)
            } else {
                body.new_input(kind).name
            };
            let y = body.fresh_result()?.name;
            if body.rng.one_of(2) {
                format!("cta.zip(({x}, {away}), {y}, |(a, b)| {two})")
            } else {
                format!("cta.zip({away}, {y}, |a| {one})")
            }
        }
        RowsTurned => {
            let (x, y) = (body.new_input(Kind::Turned).name, body.fresh_result()?.name);
            let closure = body.rng.pick(&["y.set(|_| 0.0 * sum)", "y.set(|j| sum + j as f32)"]);
            format!("cta.rows({x}, {y}, |a, y| {{ let sum = a.sum(|v| v); {closure} }})")
        }
        OtherColumns => {
            let (a, b, y) = (other(body, "i, ..", "f32", &["M", "K"]), body.new_input(Kind::Main).name, body.fresh_result()?.name);
            if body.rng.one_of(2) {
                format!("cta.rows(({a}, {b}), {y}, |(a, b), y| y.zip((b, a), |(a, b)| {two}))")
            } else {
                format!("cta.rows({a}, {y}, |a, y| {{ let sum = a.sum(|v| v); y.zip(a, |a| {one} + sum) }})")
            }
        }
        NotTurned => {
            let (x, y) = (body.main_input().name, body.fresh_result()?.name);
            format!("cta.transpose({x}, {y})")
        }
        ManyRows => {
            let (x, y) = (body.main_input().name, body.fresh_result()?.name);
            format!("cta.columns({x}, {y}, 0.0, |v| v, |a, b| a + b, |v| v)")
        }
        OtherReduced => {
            let x = other(body, ".., ..", "f32", &["K", "V"]);
            let y = body.of_kind(Access::Write, Kind::Vector);
            format!("cta.columns({x}, {}, 0.0, |v| v, |a, b| a + b, |v| v)", name(body, y))
        }
        IdsAlongColumns => {
            let ids = other(body, "j", "u32", &["N"]);
            let region = format!("{ids}[i], j");
            let table = other(body, &region, "f32", &["V", "N"]);
            let y = body.fresh_result()?.name;
            format!("cta.take({ids}, {table}, {y})")
        }
        OtherTable => {
            let ids = body.of_kind(Access::Read, Kind::Ids);
            let ids = name(body, ids);
            let region = format!("{ids}[i], ..");
            let table = other(body, &region, "f32", &["V", "K"]);
            let y = body.fresh_result()?.name;
            format!("cta.take({ids}, {table}, {y})")
        }
        OtherScattered => {
            let (ids, x) = (other(body, "i, ..", "u32", &["M", "K"]), other(body, "i, ..", "f32", &["M", "V"]));
            let t = body.held_result()?.name;
            format!("cta.scatter({ids}, {x}, {t})")
        }
        FewerIds => {
            let (ids, x) = (other(body, "..", "u32", &["V"]), other(body, ".., j", "f32", &["K", "N"]));
            let t = body.held_result()?.name;
            format!("cta.index_add({ids}, {x}, {t})")
        }
        NeverWritten => {
            let y = body.of_kind(Access::Write, Kind::Main);
            body.params[y].wrong = true;
            let (x, z) = (body.main_input().name, body.fresh_result()?.name);
            let y = name(body, y);
            let text = match body.rng.below(3) {
                0 => format!("cta.zip({x}, {z}, |a| {one})"),
                1 => format!("let rows = {y}.rows() as f32; cta.zip({x}, {z}, |a| small(a + rows))"),
                _ => format!("cta.generate({x}, {z}, |a, r, c| a.at(r, c) + {y}.cols() as f32)"),
            };
            body.lines.push(format!("{text};"));
            return Some(());
        }
        WrittenTwice => {
            let (x, y) = (body.main_input().name, body.fresh_result()?);
            body.operation(format!("cta.zip({x}, {}, |a| {one})", y.name), Some(&y));
            match body.rng.below(3) {
                0 => format!("cta.zip({x}, {}, |a| {one})", y.name),
                1 => format!("cta.generate({x}, {}, |a, r, c| a.at(r, c))", y.name),
                _ => format!("cta.generate((), {}, |_, r, c| (r + c) as f32)", y.name),
            }
        }
        RowEscapes => {
            let (x, y) = (body.new_input(Kind::Main).name, body.fresh_result()?.name);
            body.lines.push("let last = core::cell::Cell::new(None);".to_owned());
            format!("cta.rows({x}, {y}, |a, y| {{ y.zip(&a, |a| {one}); last.set(Some(a)) }})")
        }
        RowReadAndWritten => {
            let t = body.new_update().name;
            let statements = body.rng.pick(&[
                "let a = y.read(); let a = a.elements(); y.set(|j| a.at(j + 1))",
                "let a = y.read(); y.put(0, 1.0); let sum = a.sum(|v| v); y.put(1, sum)",
            ]);
            format!("cta.rows((), {t}, |_, y| {{ {statements} }})")
        }
        ReducedByLanes => {
            let (x, y) = (body.new_input(Kind::Main).name, body.fresh_result()?.name);
            let closure = body.rng.pick(&["y.zip(&a, |v| v - a.sum(|v| v))", "y.set(|j| a.max(|v| v) + j as f32)"]);
            format!("cta.rows({x}, {y}, |a, y| {closure})")
        }
        GridAxis | HaloWritten | IndexedWrite => {
            let (region, shape): (String, &[&str]) = match fault {
                IndexedWrite => {
                    let ids = body.of_kind(Access::Read, Kind::Ids);
                    (format!("{}[i], {col}", name(body, ids)), &["V", "N"])
                }
                HaloWritten if row == "i" => (format!("i + -1..=0, {col}"), &["M", "N"]),
                HaloWritten => (format!("{row}, j + 0..=1"), &["M", "N"]),
                _ if body.layout == Layout::Elements && body.rng.one_of(2) => ("i, ..".to_owned(), &["M", "N"]),
                _ => (".., ..".to_owned(), &["M", "N"]),
            };
            let access = if fault == GridAxis && body.rng.one_of(2) { Access::Update } else { Access::Write };
            let y = body.param(access, Kind::Other, region, "f32", shape);
            body.params[y].wrong = true;
            // The axes of the grid are those that a region names.
            let own = body.new_input(Kind::Main).name;
            let z = body.fresh_result()?.name;
            body.lines.push(format!("cta.zip({own}, {z}, |a| {one});"));
            let y = name(body, y);
            body.lines.push(if access == Access::Update {
                format!("cta.map({y}, |a| a + 1.0);")
            } else {
                format!("cta.generate((), {y}, |_, r, c| (r + c) as f32);")
            });
            return Some(());
        }
        ProductTurned | OtherContracted | ProductIntoRead | BesideProduct | Aliased | ReadsNothing | Shape | WritesIn => {
            unreachable!("not in a body of elements")
        }
    };
    body.lines.push(format!("{statement};{WRONG}"));
    Some(())
}

/// A body that multiplies.
fn product(rng: &mut Rng, fault: Fault) -> String {
    let gemv = rng.one_of(2);
    let contracted = if fault == OtherContracted { "V" } else { "K" };
    let (tile, element) = match gemv {
        true => (format!("i = 8, j = {}", rng.pick(&[8, 16, 32])), "bf16"),
        false => (
            format!("i = {0}, j = 128", if fault == ProductTurned { 128 } else { rng.pick(&[64, 128]) }),
            rng.pick(&["f32", "bf16", "f16"]),
        ),
    };
    let tile = if gemv && fault == ProductTurned { "i = 8, j = 8".to_owned() } else { tile };
    let (x, w) = if fault == ProductTurned { ("w", "x") } else { ("x", "w") };
    let y = if fault == ProductIntoRead { "a" } else { "y" };
    let mark = |of: bool| if of { WRONG } else { "" };
    let mut text =
        format!("#[maco::task(tile({tile}))]\npub fn task(\n    cta: &mut Cta,\n    #[read(i, ..)] x: Tensor<{element}, M, K>,\n");
    let _ = writeln!(text, "    #[read(j, ..)] w: Tensor<{element}, N, {contracted}>,");
    let _ = writeln!(
        text,
        "    #[read(i, j)] a: Tensor<{element}, M, N>,\n    #[write(i, j)] y: Tensor<{element}, M, N>,\n    #[update(i, j)] t: Tensor<{element}, M, N>,\n) {{"
    );
    if fault == ProductIntoRead {
        text.push_str("    let _ = y;\n");
    }
    let beside = rng.pick(&["cta.map(t, |v| v + 1.0)", "cta.zip(a, t, |v| 2.0 * v)", "cta.zip((a, t), t, |(a, t)| a + t)"]);
    let first = rng.one_of(2);
    if fault == BesideProduct && first {
        let _ = writeln!(text, "    {beside};{WRONG}");
    }
    if gemv {
        let _ = writeln!(text, "    cta.gemv({x}, {w}, {y});{}", mark(fault != BesideProduct));
    } else {
        let _ = writeln!(text, "    let mut acc = cta.accumulator();\n    for k in cta.steps(x, w) {{");
        let in_step = matches!(fault, ProductTurned | OtherContracted);
        let _ = writeln!(text, "        cta.mma(&mut acc, {x}.tile(k), {w}.tile(k));{}\n    }}", mark(in_step));
        let _ = writeln!(text, "    cta.store(acc, {y});{}", mark(fault == ProductIntoRead));
    }
    if fault == BesideProduct && !first {
        let _ = writeln!(text, "    {beside};{WRONG}");
    }
    text + "}\n"
}

/// A right body in a wrong call.
fn call(rng: &mut Rng, fault: Fault) -> Option<String> {
    let layout = Body::any_layout(rng);
    let count = 1 + rng.below(3);
    let mut body = Body::new(rng, "task".to_owned(), layout);
    body.operations(count);
    let (task, params, scalar) = (body.task(), body.params, body.scalar);
    let of = |access: Access| params.iter().position(|param| param.kind == Kind::Main && param.access == access);
    let mut arguments: Vec<String> = params.iter().map(|param| param.name.clone()).collect();
    let mut declared: Vec<String> = params
        .iter()
        .map(|param| {
            let role = if param.access == Access::Read { "In" } else { "InOut" };
            format!("{role}<{}, {}>", param.element, param.shape.join(", "))
        })
        .collect();
    let mut first = String::new();
    match fault {
        Aliased => {
            let (x, y) = (of(Access::Read)?, of(Access::Write).or_else(|| of(Access::Update))?);
            arguments[x] = arguments[y].clone();
            declared[x] = "In<f32, M, N>".to_owned();
        }
        ReadsNothing => {
            let x = if rng.one_of(2) { of(Access::Update).or_else(|| of(Access::Read)) } else { of(Access::Read) }?;
            // An `Out` that nothing writes breaks another rule.
            if params[x].access == Access::Read {
                first = "    let nothing = temp::<f32, M, N>();\n".to_owned();
                arguments[x] = "nothing".to_owned();
            } else {
                declared[x] = "Out<f32, M, N>".to_owned();
            }
        }
        Shape => {
            let x = of(Access::Read)?;
            let others = params.iter().filter(|param| param.shape == ["M", "N"]).count();
            if others < 2 {
                return None;
            }
            declared[x] = format!("In<f32, {}>", rng.pick(&["M, Q", "Q, N", "N, M", "M, { 2 * N }"]));
        }
        _ => {
            let y = of(Access::Write).or_else(|| of(Access::Update))?;
            declared[y] = "In<f32, M, N>".to_owned();
        }
    }
    if scalar {
        arguments.push("by".to_owned());
    }
    let mut text = format!("{task}\n#[maco::megakernel]\npub fn kernel(\n    by: f32,\n");
    for (param, of) in params.iter().zip(&declared) {
        let _ = writeln!(text, "    {}: {of},", param.name);
    }
    let _ = writeln!(text, ") {{\n{first}    task({});{WRONG}\n}}", arguments.join(", "));
    Some(text)
}
