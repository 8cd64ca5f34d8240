//! What a program computes, call after call in `f64`: exact, since all numbers are integers below 2²⁴.

use super::op::Op;
use super::recipe::{Element, Node, Program, Step};
use maco::bf16;

/// A mistake, to see that it shows.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub step: usize,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// The call never happens: its readers see what was there before.
    Skipped,
    /// The call comes after the next one: its readers come too early, or it sees what the next one writes.
    Late,
    /// One element of the result is one too large.
    OffByOne,
}

/// What input `node` is filled with in launch `launch`.
pub fn input(program: &Program, node: usize, launch: u64) -> Vec<f64> {
    let Node { element, shape, bound, .. } = &program.nodes[node];
    let mut state = (node as u64 * 31 + launch * 1_000_003 + 17).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let values = (0..shape.iter().product()).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let number = (state >> 33) as i64;
        if *element == Element::Ids { number % *bound as i64 } else { number % (2 * *bound as i64 + 1) - *bound as i64 }
    });
    values.map(|value| value as f64).collect()
}

/// Every tensor after the last call.
pub fn run(program: &Program, launch: u64, fault: Option<Fault>) -> Vec<Vec<f64>> {
    let filled = |(n, node): (usize, &Node)| if node.input { input(program, n, launch) } else { vec![0.0; node.shape.iter().product()] };
    let mut values: Vec<Vec<f64>> = program.nodes.iter().enumerate().map(filled).collect();
    let mut order: Vec<usize> = (0..program.steps.len()).collect();
    match fault {
        Some(Fault { step, kind: Kind::Skipped }) => drop(order.remove(step)),
        Some(Fault { step, kind: Kind::Late }) if step + 1 < order.len() => order.swap(step, step + 1),
        _ => {}
    }
    for n in order {
        let step = &program.steps[n];
        let mut result = apply(program, step, &values);
        if let Some(Fault { step, kind: Kind::OffByOne }) = fault
            && step == n
            && let Some(last) = result.last_mut()
        {
            *last += 1.0;
        }
        if program.nodes[step.write].element == Element::Bf16 {
            result.iter_mut().for_each(|v| *v = bf16::from_f64(*v).to_f64());
        }
        assert!(result.iter().all(|v| v.fract() == 0.0 && v.abs() <= (1 << 24) as f64), "the oracle is not exact: {step:?}");
        values[step.write] = result;
    }
    values
}

fn apply(program: &Program, step: &Step, values: &[Vec<f64>]) -> Vec<f64> {
    let read = |n: usize| &values[step.reads[n]];
    let x = read(0);
    let shape = &program.nodes[step.reads[0]].shape;
    let (rows, cols) = (shape[0], shape[1]);
    let zip = |f: &dyn Fn(f64, f64) -> f64| x.iter().zip(read(1)).map(|(&x, &b)| f(x, b)).collect();
    let map = |f: &dyn Fn(f64) -> f64| x.iter().map(|&x| f(x)).collect();
    let number = step.number as f64;
    match step.op {
        Op::Linear => {
            let w = read(1);
            x.chunks(cols).flat_map(|x| w.chunks(cols).map(|w| x.iter().zip(w).map(|(x, w)| x * w).sum())).collect()
        }
        Op::Matmul => {
            let (b, n) = (read(1), read(1).len() / cols);
            let mut y = vec![0.0; rows * n];
            for (y, x) in y.chunks_mut(n).zip(x.chunks(cols)) {
                for (&x, b) in x.iter().zip(b.chunks(n)) {
                    y.iter_mut().zip(b).for_each(|(y, b)| *y += x * b);
                }
            }
            y
        }
        Op::Add | Op::Accumulate => zip(&|x, b| x + b),
        Op::Mul => zip(&|x, b| x * b),
        Op::Copy | Op::Widen | Op::Narrow => x.clone(),
        Op::Wrap => map(&|x| x - 8.0 * (x / 8.0).round_ties_even()),
        Op::Nudge | Op::Lift => map(&|x| x + number),
        Op::Negate => map(&|x| -x),
        Op::Bias => x.chunks(cols).flat_map(|x| x.iter().zip(read(1)).map(|(x, b)| x + b)).collect(),
        Op::Transpose => (0..cols).flat_map(|c| (0..rows).map(move |r| x[r * cols + c])).collect(),
        Op::Merge => {
            let [b, c, d, e] = [read(1), read(2), read(3), read(4)];
            (0..x.len()).map(|n| x[n] + 2.0 * b[n] - c[n] - d[n] + 3.0 * e[n]).collect()
        }
        Op::Pick => read(1).iter().flat_map(|&id| x[id as usize * cols..][..cols].iter().copied()).collect(),
        Op::SumRows => x.chunks(cols).map(|x| x.iter().sum()).collect(),
        Op::ColumnSums => (0..cols).map(|c| x.iter().skip(c).step_by(cols).sum()).collect(),
        Op::Stencil => {
            let at = |r: isize, c: isize| {
                let inside = r >= 0 && c >= 0 && (r as usize) < rows && (c as usize) < cols;
                if inside { x[r as usize * cols + c as usize] } else { 0.0 }
            };
            let element = |r: isize, c: isize| at(r, c) + 2.0 * at(r - 2, c - 1) - at(r + 1, c + 1);
            (0..rows as isize).flat_map(|r| (0..cols as isize).map(move |c| (r, c))).map(|(r, c)| element(r, c)).collect()
        }
    }
}
