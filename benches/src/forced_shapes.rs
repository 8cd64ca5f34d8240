//! Tiles and split-K of GEMMs that the command line forces, and those that a plan has.

use maco::CallShape;
use maco_graph::plan::{Plan, PlannedCall};

/// What is forced of GEMMs; what is not, the planner chooses.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Forced {
    /// Tile of each GEMM of a case, or one for all: `64x128`, `auto` for the planner's.
    #[arg(long, value_delimiter = ',', value_parser = tile)]
    tile: Vec<Choice<[u32; 2]>>,
    /// Parts of each GEMM's sums, or one number for all: `2`, `auto` for the planner's.
    #[arg(long, value_delimiter = ',', value_parser = parts)]
    split: Vec<Choice<u32>>,
}

impl Forced {
    /// Of a graph's `calls` calls; with fewer values than calls, the last is for the rest.
    pub fn shapes(&self, calls: usize) -> Vec<CallShape> {
        fn of<T: Copy>(values: &[Choice<T>], call: usize) -> Option<T> {
            values.get(call).or(values.last()).and_then(|value| value.0)
        }
        (0..calls).map(|call| shape(call, of(&self.tile, call), of(&self.split, call))).collect()
    }
}

/// A value, or what the planner chooses.
#[derive(Clone, Copy, Debug)]
struct Choice<T>(Option<T>);

fn choice<T>(text: &str, parse: impl Fn(&str) -> Option<T>, expected: &str) -> Result<Choice<T>, String> {
    match text {
        "auto" => Ok(Choice(None)),
        _ => parse(text).map(|value| Choice(Some(value))).ok_or_else(|| format!("expected {expected} or `auto`")),
    }
}

fn tile(text: &str) -> Result<Choice<[u32; 2]>, String> {
    choice(text, |text| text.split_once('x').and_then(|(i, j)| Some([i.parse().ok()?, j.parse().ok()?])), "a tile such as `64x128`")
}

fn parts(text: &str) -> Result<Choice<u32>, String> {
    choice(text, |text| text.parse().ok(), "a number of parts")
}

fn shape(call: usize, tile: Option<[u32; 2]>, split: Option<u32>) -> CallShape {
    CallShape { call: call as u32, tile: tile.map(Vec::from), split, whole: 0 }
}

/// `calls` calls of one tile in so many parts.
pub fn for_all_calls(calls: usize, tile: [u32; 2], parts: u32) -> Vec<CallShape> {
    (0..calls).map(|call| shape(call, Some(tile), Some(parts))).collect()
}

/// The tile and parts of a call: `128×256 in 2 parts`.
pub fn chosen(call: &PlannedCall) -> String {
    let tile = call.tile.iter().map(u32::to_string).collect::<Vec<_>>().join("×");
    let whole = if call.whole > 0 { format!(" behind {} whole tiles", call.whole) } else { String::new() };
    format!("{tile} in {} part{}{whole}", call.parts, if call.parts == 1 { "" } else { "s" })
}

/// Tile, parts and tasks of each call of a plan; calls that are like the one before are not told again.
pub fn describe(plan: &Plan) -> String {
    let mut calls: Vec<String> = plan.calls.iter().map(|call| format!("{}, {} tasks", chosen(call), call.tasks.len())).collect();
    calls.dedup();
    calls.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_applies_to_all_calls() {
        let forced = Forced { tile: vec![tile("64x128").unwrap()], split: vec![parts("auto").unwrap(), parts("3").unwrap()] };
        let tile = Some(vec![64, 128]);
        let expected = [(0, None), (1, Some(3)), (2, Some(3))].map(|(call, split)| CallShape {
            call,
            tile: tile.clone(),
            split,
            ..CallShape::default()
        });
        assert_eq!(forced.shapes(3), expected);
        assert!(parts("many").is_err() && super::tile("64").is_err());
    }
}
