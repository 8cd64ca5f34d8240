//! Parameters that break a rule.

use super::super::body::Body;
use super::super::signature::{Access, Kind, Layout};
use super::Fault::{self, *};

/// Adds the fault; nothing if there is no room for it.
pub fn break_rule(body: &mut Body<'_>, fault: Fault) -> Option<()> {
    if fault == NeverWritten {
        return never_written(body);
    }
    let number = body.number();
    let (row, col) = (body.row(), body.col());
    let mut access = Access::Write;
    let (region, shape): (String, &[&str]) = match fault {
        IndexedWrite => {
            let ids = body.of_kind(Access::Read, Kind::Ids);
            (format!("{}[i], {col}", body.params[ids].name), &["V", "N"])
        }
        HaloWritten if row == "i" => (format!("i + -1..=0, {col}"), &["M", "N"]),
        HaloWritten => (format!("{row}, j + 0..=1"), &["M", "N"]),
        GroupWritten => (format!("i / {}, {col}", body.rng.pick(&[2, 4])), &["V", "N"]),
        PlaneAxis => (format!("{row}, {col}"), &["M", "N"]),
        TwoDimensions => {
            access = body.rng.pick(&[Access::Read, Access::Write]);
            (format!("{row}, {col}"), if row == "i" { &["V", "N"] } else { &["M", "V"] })
        }
        Diagonal => ("i, i".to_owned(), &["M", "M"]),
        NoRegion => (String::new(), &["M", "N"]),
        GridAxis => {
            access = body.rng.pick(&[Access::Update, Access::Write]);
            let one = body.layout == Layout::Elements && body.rng.one_of(2);
            (if one { "i, .." } else { ".., .." }.to_owned(), &["M", "N"])
        }
        other => unreachable!("{other:?} is in no signature"),
    };
    // The axes of the grid are those that a region names.
    let own = body.new_input(Kind::Main).name;
    let y = body.param(access, Kind::Other, region, number, shape);
    (body.params[y].wrong, body.params[y].plane) = (true, false);
    let z = body.fresh_result()?.name;
    body.lines.push(format!("cta.zip({own}, {z}, |a| small(a));"));
    let y = body.params[y].name.clone();
    match access {
        Access::Read => {}
        Access::Update => body.lines.push(format!("cta.map({y}, |a| a + 1.0);")),
        Access::Write => body.lines.push(format!("cta.generate((), {y}, |_, r, c| (r + c) as f32);")),
    }
    Some(())
}

/// The text of the body does not hand it to an operation.
fn never_written(body: &mut Body<'_>) -> Option<()> {
    let y = body.of_kind(Access::Write, Kind::Main);
    body.params[y].wrong = true;
    let y = body.params[y].name.clone();
    let (x, z) = (body.main_input().name, body.fresh_result()?.name);
    let text = match body.rng.below(3) {
        0 => format!("cta.zip({x}, {z}, |a| small(a))"),
        1 => format!("let rows = {y}.rows() as f32; cta.zip({x}, {z}, |a| small(a + rows))"),
        _ => format!("let cols = {y}.cols() as f32; cta.generate({x}, {z}, |a, r, c| a.at(r, c) + cols)"),
    };
    body.lines.push(format!("{text};"));
    Some(())
}
