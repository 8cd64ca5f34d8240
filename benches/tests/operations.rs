//! The memory-bound operations that are measured compute what sums in `f64` say, on the CPU, and move what they are said to.

use std::collections::BTreeSet;

use benches::memory::{CHOSEN, COMBINED, HEADS};
use benches::operations::{COLUMNS, Operands, moved, operations};
use maco::Device;

const ROWS: usize = 64;
const WIDTH: usize = 128;

/// Results of an operation by its name, from its operands by theirs.
fn expected(operation: &str, of: &dyn Fn(&str) -> Vec<f64>) -> Vec<(&'static str, Vec<f64>)> {
    let x = || of("x");
    let each = |f: &dyn Fn(f64) -> f64| x().into_iter().map(f).collect::<Vec<f64>>();
    let pairs = |a: Vec<f64>, b: Vec<f64>, f: &dyn Fn(f64, f64) -> f64| a.iter().zip(&b).map(|(a, b)| f(*a, *b)).collect::<Vec<f64>>();
    let rows = |values: &[f64], f: &dyn Fn(&[f64]) -> Vec<f64>| values.chunks(WIDTH).flat_map(f).collect::<Vec<f64>>();
    let rmsnorm = |values: &[f64]| {
        let weight = of("weight");
        rows(values, &|row| {
            let factor = 1.0 / (row.iter().map(|v| v * v).sum::<f64>() / WIDTH as f64 + 1e-5).sqrt();
            row.iter().zip(&weight).map(|(v, w)| v * factor * w).collect()
        })
    };
    // Columns of a row from the largest element down, the first of equal ones first.
    let order = |row: &[f64]| {
        let mut order: Vec<usize> = (0..WIDTH).collect();
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
        order
    };
    let columns = |f: &dyn Fn(&[f64], usize) -> f64| (0..WIDTH).map(|column| f(&x(), column)).collect::<Vec<f64>>();
    let scale = |row: &[f64]| row.iter().fold(0.0, |most: f64, v| most.max(v.abs())) / 127.0;
    match operation {
        "copy" | "to_f32" | "to_bf16" => vec![("y", x())],
        "add" => vec![("y", pairs(of("a"), of("b"), &|a, b| a + b))],
        "gelu" => {
            vec![("y", each(&|v| 0.5 * v * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v.powi(3))).tanh())))]
        }
        "silu_mul" => vec![("y", pairs(of("gate"), of("up"), &|gate, up| gate / (1.0 + (-gate).exp()) * up))],
        "softmax" => {
            let softmax = |row: &[f64]| {
                let sum: f64 = row.iter().map(|v| v.exp()).sum();
                row.iter().map(|v| v.exp() / sum).collect()
            };
            vec![("y", rows(&x(), &softmax))]
        }
        "rmsnorm" => vec![("y", rmsnorm(&x()))],
        "add_rmsnorm" => {
            let sum = pairs(x(), of("residual"), &|a, b| a + b);
            vec![("y", rmsnorm(&sum)), ("sum", sum)]
        }
        "layernorm" => {
            let (weight, bias) = (of("weight"), of("bias"));
            let layernorm = |row: &[f64]| {
                let mean = row.iter().sum::<f64>() / WIDTH as f64;
                let factor = 1.0 / (row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / WIDTH as f64 + 1e-5).sqrt();
                (0..WIDTH).map(|n| (row[n] - mean) * factor * weight[n] + bias[n]).collect()
            };
            vec![("y", rows(&x(), &layernorm))]
        }
        "sum_rows" => vec![("y", rows(&x(), &|row| vec![row.iter().sum()]))],
        "sum_cols" => vec![("y", columns(&|x, column| x.iter().skip(column).step_by(WIDTH).sum()))],
        "transpose" => {
            let x = x();
            vec![("y", (0..WIDTH).flat_map(|column| x.iter().copied().skip(column).step_by(WIDTH)).collect())]
        }
        "rope" => {
            let (x, positions, cos, sin) = (x(), of("positions"), of("cos"), of("sin"));
            let (head, half) = (WIDTH / HEADS, WIDTH / HEADS / 2);
            let turned = |n: usize| {
                let (position, f) = (positions[n / WIDTH] as usize, n % half);
                let (other, sign) = if n % head < half { (n + half, -1.0) } else { (n - half, 1.0) };
                x[n] * cos[position * half + f] + sign * x[other] * sin[position * half + f]
            };
            vec![("y", (0..x.len()).map(turned).collect())]
        }
        "embedding" => {
            let table = of("table");
            vec![("y", of("ids").iter().flat_map(|id| table[*id as usize * WIDTH..][..WIDTH].to_vec()).collect())]
        }
        "gather" => {
            let x = x();
            vec![("y", of("columns").iter().enumerate().map(|(n, column)| x[n / WIDTH * WIDTH + *column as usize]).collect())]
        }
        "gather_sum" => {
            let (x, ids, weights) = (x(), of("ids"), of("weights"));
            let element = |n: usize| {
                let terms = n / WIDTH * COMBINED..(n / WIDTH + 1) * COMBINED;
                terms.map(|term| weights[term] * x[ids[term] as usize * WIDTH + n % WIDTH]).sum()
            };
            vec![("y", (0..ROWS * WIDTH).map(element).collect())]
        }
        "scatter" => {
            let (x, mut y) = (x(), vec![0.0; ROWS * WIDTH]);
            of("columns").iter().enumerate().for_each(|(n, column)| y[n / WIDTH * WIDTH + *column as usize] = x[n]);
            vec![("y", y)]
        }
        "index_copy" => {
            let (x, mut y) = (x(), vec![0.0; ROWS * WIDTH]);
            for (row, id) in x.chunks(WIDTH).zip(of("ids")) {
                y[id as usize * WIDTH..][..WIDTH].copy_from_slice(row);
            }
            vec![("y", y)]
        }
        "quantise" => {
            let quantised = |row: &[f64]| row.iter().map(|v| (v / scale(row)).round_ties_even()).collect();
            vec![("q", rows(&x(), &quantised)), ("scale", rows(&x(), &|row| vec![scale(row)]))]
        }
        "dequantise" => {
            let scale = of("scale");
            vec![("y", of("q").iter().enumerate().map(|(n, q)| q * scale[n / WIDTH]).collect())]
        }
        "argmax" => vec![("y", rows(&x(), &|row| vec![order(row)[0] as f64]))],
        "top_k" => {
            let of_row = |row: &[f64], f: &dyn Fn(usize) -> f64| order(row)[..CHOSEN].iter().map(|&n| f(n)).collect();
            vec![("values", rows(&x(), &|row| of_row(row, &|n| row[n]))), ("indices", rows(&x(), &|row| of_row(row, &|n| n as f64)))]
        }
        other => panic!("no oracle for `{other}`"),
    }
}

#[test]
fn operations_compute_what_the_oracle_says() {
    let device = Device::cpu_with(2);
    for operation in operations() {
        let plan = operation.plan(&device, ROWS as u64, WIDTH as u64).unwrap();
        let mut operands = Operands::random(&device, &plan, 7).unwrap();
        plan.run(operands.arguments()).unwrap();
        for (name, oracle) in expected(operation.name, &|name| operands.values(name).unwrap()) {
            let found = operands.values(name).unwrap();
            assert_eq!(found.len(), oracle.len(), "{} {name}", operation.name);
            let largest = oracle.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
            // Integers may differ where a quotient lies between two.
            let allowed = match name {
                "q" => 1.0,
                "indices" => 0.0,
                _ => largest / 200.0,
            };
            for (n, (a, b)) in found.iter().zip(&oracle).enumerate() {
                assert!((a - b).abs() <= allowed, "{} {name}[{n}]: {a}, expected {b}", operation.name);
            }
        }
        operation.check(&device).unwrap();
    }
}

#[test]
fn rows_are_as_many_as_the_bytes_say() {
    let bytes = 8 << 20;
    for operation in operations() {
        let rows = operation.rows(bytes).unwrap();
        let moved = moved(&operation.plan(&Device::cpu_with(2), rows, COLUMNS).unwrap());
        assert!(moved.abs_diff(bytes) < bytes / 4, "{}: {rows} rows move {moved} bytes", operation.name);
    }
}

#[test]
fn pytorch_knows_every_operation() {
    let script = include_str!("../peers/memory.py");
    let ours: BTreeSet<&str> = operations().map(|operation| operation.name).collect();
    let table = script.split("OPERATIONS = {").nth(1).and_then(|text| text.split("\n}").next()).unwrap();
    let theirs: BTreeSet<&str> = table.lines().filter_map(|line| line.strip_prefix("    \"")?.split('"').next()).collect();
    assert_eq!(ours, theirs);
    for (name, value) in [("HEADS", HEADS), ("CHOSEN", CHOSEN), ("COMBINED", COMBINED)] {
        assert!(script.contains(&format!("\n{name} = {value}\n")), "{name}");
    }
}
