//! Operations that break a rule.

use super::super::body::{Body, WRONG, fill};
use super::super::element::Element;
use super::super::signature::{Access, Kind, Layout};
use super::Fault::{self, *};

/// Adds the fault; nothing if there is no room for it.
pub fn break_rule(body: &mut Body<'_>, fault: Fault) -> Option<()> {
    let formula = |body: &mut Body<'_>, atoms: &[&str]| {
        let formula = body.formula(atoms.len());
        fill(&formula, &atoms.iter().map(|atom| (*atom).to_owned()).collect::<Vec<_>>())
    };
    let name = |body: &Body<'_>, param: usize| body.params[param].name.clone();
    let one = formula(body, &["a"]);
    let two = formula(body, &["a", "b"]);
    let number = body.number();
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
                let (ids, x) = (body.other("i, ..", Element::U32, &["M", "K"]), body.other("i, ..", number, &["M", "K"]));
                format!("cta.scatter({ids}, {x}, {y})")
            } else {
                let (ids, x) = (body.other("..", Element::U32, &["K"]), body.other(".., j", number, &["K", "N"]));
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
            let ids = body.other("..", Element::U32, &["M"]);
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
                body.other(&region, number, shape)
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
            let (a, b, y) = (body.other("i, ..", number, &["M", "K"]), body.new_input(Kind::Main).name, body.fresh_result()?.name);
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
            let x = body.other(".., ..", number, &["K", "V"]);
            let y = body.of_kind(Access::Write, Kind::Vector);
            format!("cta.columns({x}, {}, 0.0, |v| v, |a, b| a + b, |v| v)", name(body, y))
        }
        IdsAlongColumns => {
            let ids = body.other("j", Element::U32, &["N"]);
            let region = format!("{ids}[i], j");
            let table = body.other(&region, number, &["V", "N"]);
            let y = body.fresh_result()?.name;
            format!("cta.take({ids}, {table}, {y})")
        }
        OtherTable => {
            let ids = body.of_kind(Access::Read, Kind::Ids);
            let ids = name(body, ids);
            let region = format!("{ids}[i], ..");
            let table = body.other(&region, number, &["V", "K"]);
            let y = body.fresh_result()?.name;
            format!("cta.take({ids}, {table}, {y})")
        }
        OtherScattered => {
            let (ids, x) = (body.other("i, ..", Element::U32, &["M", "K"]), body.other("i, ..", number, &["M", "V"]));
            let t = body.held_result()?.name;
            format!("cta.scatter({ids}, {x}, {t})")
        }
        FewerIds => {
            let (ids, x) = (body.other("..", Element::U32, &["V"]), body.other(".., j", number, &["K", "N"]));
            let t = body.held_result()?.name;
            format!("cta.index_add({ids}, {x}, {t})")
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
            format!("let last = core::cell::Cell::new(None); cta.rows({x}, {y}, |a, y| {{ y.zip(&a, |a| {one}); last.set(Some(a)) }})")
        }
        CellAsked | AtomicAsked | StaticAsked => {
            let (x, y) = (body.main_input().name, body.fresh_result()?.name);
            let [make, set, get] = match fault {
                CellAsked => [
                    body.rng.pick(&["let seen = core::cell::Cell::new(0);", "use core::cell::Cell as Slot; let seen = Slot::new(0);"]),
                    "seen.set(1)",
                    "seen.get()",
                ],
                AtomicAsked => [
                    body.rng.pick(&[
                        "let seen = core::sync::atomic::AtomicU32::new(0);",
                        "use core::sync::atomic::AtomicU32 as Slot; let seen = Slot::new(0);",
                    ]),
                    "seen.store(1, core::sync::atomic::Ordering::Relaxed)",
                    "seen.load(core::sync::atomic::Ordering::Relaxed)",
                ],
                _ => [
                    "",
                    "crate::SEEN.store(1, core::sync::atomic::Ordering::Relaxed)",
                    "crate::SEEN.load(core::sync::atomic::Ordering::Relaxed)",
                ],
            };
            let asked = body.rng.pick(&["if", "while"]);
            let first = match body.rng.below(2) {
                0 => format!("cta.zip({x}, {y}, |a| {{ {set}; {one} }})"),
                _ => format!("cta.generate({x}, {y}, |a, r, c| {{ {set}; a.at(r, c) }})"),
            };
            format!("{make} let made = {first}; {asked} {get} > 0 {{ cta.map(made, |a| a); }}")
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
        OtherElement => {
            let element = body.rng.pick(&Element::NUMBERS.map(|element| if element == number { Element::U32 } else { element }));
            let (x, y) = (body.new_input_of(Kind::Turned, element).name, body.fresh_result()?.name);
            format!("cta.transpose({x}, {y})")
        }
        IdsOfFloats => {
            let ids = body.of_element(Access::Read, Kind::PerRow, number);
            let ids = name(body, ids);
            let region = format!(".., {col}");
            let (table, y) = (body.other(&region, number, &["V", "N"]), body.fresh_result()?.name);
            format!("cta.take({ids}, {table}, {y})")
        }
        IntegersAdded => {
            let ids = body.other("..", Element::U32, &["K"]);
            let x = body.other(".., j", Element::I32, &["K", "N"]);
            let y = body.of_element(Access::Update, Kind::Main, Element::I32);
            format!("cta.index_add({ids}, {x}, {})", name(body, y))
        }
        OtherValue => {
            let (x, y) = (body.main_input().name, body.fresh_result_of(Element::I32)?.name);
            match body.rng.below(3) {
                0 => format!("cta.zip({x}, {y}, |a| {one})"),
                1 => format!("cta.generate({x}, {y}, |a, r, c| a.at(r, c))"),
                _ => format!("cta.generate((), {y}, |_, r, c| 1.0)"),
            }
        }
        Standard => {
            let (x, y) = (body.main_input().name, body.fresh_result()?.name);
            let text = body.rng.pick(&["a.exp()", "small(a.sqrt())", "small(a) + std::f32::consts::PI", "a.tanh() + 1.0"]);
            format!("cta.zip({x}, {y}, |a| {text})")
        }
        other => unreachable!("{other:?} is no operation"),
    };
    body.lines.push(format!("{statement};{WRONG}"));
    Some(())
}
