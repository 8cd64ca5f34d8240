//! What docs/guide/language.md and docs/guide/gpus.md show runs, on a CPU and on a GPU.

use std::time::Duration;

use guide::language::{layers, mlp, others, sums, views};
use guide::running;
use maco::{Device, Elementwise, Tensor, bf16};

macro_rules! on_every_device {
    ($($name:ident),*) => {
        mod cpu {
            $(#[test]
            fn $name() {
                super::$name(&maco::Device::cpu_with(3));
            })*
        }
        mod gpu {
            $(#[test]
            #[ignore = "gpu"]
            fn $name() {
                super::$name(&maco::Device::gpu(0).expect("a GPU"));
            })*
        }
    };
}

on_every_device!(parameters, loops, slices, calls, regions, errors);

/// Numbers 0, 1, 2, .. 6 over and over.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|n| (n % 7) as f32).collect()
}

fn halves(device: &Device, rows: u64, cols: u64) -> (Vec<f32>, Tensor<bf16>) {
    let values: Vec<f32> = (0..rows * cols).map(|n| (n % 5) as f32 - 2.0).collect();
    let rounded: Vec<bf16> = values.iter().map(|&v| bf16::from_f32(v)).collect();
    (values, device.upload(&rounded, [rows, cols]).unwrap())
}

fn parameters(device: &Device) {
    let (m, n) = (70, 40);
    let values = numbers(m * n);
    let x = device.upload(&values, [m, n]).unwrap();
    let b = [device.upload(&numbers(n), [n]).unwrap(), device.upload(&vec![3.0; n], [n]).unwrap()];
    let (mut sum, mut y) = (device.zeros([m, n]).unwrap(), device.zeros([m, n]).unwrap());
    let plan = sums::plan(device, sums::Dims { M: m as u64, N: n as u64 }).unwrap();
    plan.run(&x, &b, 0.5, &mut sum, &mut y).unwrap();
    plan.run(&x, &b, 0.5, &mut sum, &mut y).unwrap();
    let expected: Vec<f32> = (0..m * n).map(|at| 2.0 * (0.5 * values[at] + (at % n % 7) as f32) + 3.0).collect();
    assert_eq!(y.download().unwrap(), expected);
    assert_eq!(sum.download().unwrap(), expected.iter().map(|v| 2.0 * v).collect::<Vec<_>>());
}

/// A plan of `layers`, its arguments and what comes of them.
struct Layered {
    plan: layers::Plan,
    x: Tensor<f32>,
    b: [Tensor<f32>; 3],
    y: Tensor<f32>,
    expected: Vec<f32>,
}

impl Layered {
    fn new(device: &Device) -> Layered {
        let (m, n) = (65, 33);
        let values = numbers(m * n);
        let biases = [1.0, 2.0, 3.0];
        Layered {
            plan: layers::plan(device, layers::Dims { M: m as u64, N: n as u64 }).unwrap(),
            x: device.upload(&values, [m, n]).unwrap(),
            b: biases.map(|b| device.upload(&vec![b; n], [n]).unwrap()),
            y: device.zeros([m, n]).unwrap(),
            expected: values.iter().map(|&v| biases.iter().fold(v, |v, b| 0.5 * v + b)).collect(),
        }
    }
}

fn loops(device: &Device) {
    let Layered { plan, x, b, mut y, expected } = Layered::new(device);
    plan.run(&x, &b, &mut y).unwrap();
    assert_eq!(y.download().unwrap(), expected);
    running::on_a_stream(&plan, &x, &b, &mut y).unwrap();
    assert_eq!(y.download().unwrap(), expected);
    if device.is_gpu() {
        running::captured(&plan, &x, &b, &mut y).unwrap();
        assert_eq!(y.download().unwrap(), expected);
    } else {
        assert_eq!(running::captured(&plan, &x, &b, &mut y).unwrap_err().code(), 56);
    }
}

/// A run is aborted, by `LostArrive` as no signal is needed for that, and the next one is right.
fn errors(device: &Device) {
    let Layered { plan, x, b, mut y, expected } = Layered::new(device);
    plan.set_deadline(Duration::from_millis(200)).unwrap();
    plan.inject(Some(maco::Fault::LostArrive(0))).unwrap();
    assert_eq!(plan.run(&x, &b, &mut y).unwrap_err().code(), 47);
    plan.inject(None).unwrap();
    running::twice(&plan, &x, &b, &mut y).unwrap();
    assert_eq!(y.download().unwrap(), expected);
}

fn slices(device: &Device) {
    let (m, h) = (20, 12);
    let values = numbers(m * 2 * h);
    let x = device.upload(&values, [m, 2 * h]).unwrap();
    let (mut swapped, mut heads) = (device.zeros([m, 2 * h]).unwrap(), device.zeros([2, m, h]).unwrap());
    let plan = views::plan(device, views::Dims { M: m as u64, H: h as u64 }).unwrap();
    plan.run(&x, &mut swapped, &mut heads).unwrap();
    let at = |r: usize, c: usize| values[r * 2 * h + c];
    let expected: Vec<f32> = (0..m * 2 * h).map(|n| at(n / (2 * h), (n % (2 * h) + h) % (2 * h))).collect();
    assert_eq!(swapped.download().unwrap(), expected);
    let expected: Vec<f32> = (0..2 * m * h).map(|n| at(n / h % m, n / (m * h) * h + n % h)).collect();
    assert_eq!(heads.download().unwrap(), expected);
}

fn calls(device: &Device) {
    let (m, k, h) = (70, 128, 136);
    let ((x, dx), (up, dup), (down, ddown)) = (halves(device, m, k), halves(device, h, k), halves(device, k, h));
    let b = device.zeros::<bf16>([h]).unwrap();
    let mut y = device.zeros::<bf16>([m, k]).unwrap();
    mlp::plan(device, mlp::Dims { M: m, K: k, H: h }).unwrap().run(&dx, &dup, &b, &ddown, &mut y).unwrap();
    let (m, k, h) = (m as usize, k as usize, h as usize);
    let times = |x: &[f32], w: &[f32], k: usize| -> Vec<f32> {
        x.chunks(k).flat_map(|x| w.chunks(k).map(move |w| x.iter().zip(w).map(|(x, w)| x * w).sum())).collect()
    };
    let hidden: Vec<f32> = times(&x, &up, k).into_iter().map(|v| bf16::from_f32(maco::tasks::gelu::apply(v)).to_f32()).collect();
    let expected = times(&hidden, &down, h);
    assert_eq!(expected.len(), m * k);
    for (found, expected) in y.download().unwrap().iter().zip(expected) {
        assert!((found.to_f32() - expected).abs() <= 0.02 * expected.abs().max(1.0), "{found} {expected}");
    }
}

fn regions(device: &Device) {
    let (m, n, r, g, t, d, p, k) = (40, 24, 9, 2, 10, 16, 128, 64);
    let values = numbers(m * n);
    let x = device.upload(&values, [m, n]).unwrap();
    let chosen: Vec<u32> = (0..r as u32).map(|r| 3 * r).collect();
    let ids = device.upload(&chosen, [r]).unwrap();
    let q = device.upload(&numbers(4 * g * t * d), [4 * g, t, d]).unwrap();
    let shared = device.upload(&numbers(g * t * d), [g, t, d]).unwrap();
    let ((a, da), (w, dw)) = (halves(device, m as u64, k as u64), halves(device, p as u64, k as u64));
    let zeros = |shape: &[usize]| device.zeros::<f32>([shape[0], shape[1]]).unwrap();
    let (mut blurred, mut looked, mut cubes) = (zeros(&[m, n]), zeros(&[r, n]), zeros(&[m, n]));
    let mut planes = device.zeros::<f32>([4 * g, t, d]).unwrap();
    let mut multiplied = device.zeros::<bf16>([m, p]).unwrap();
    let (mut deviations, mut squares) = (zeros(&[m, n]), zeros(&[m, n]));
    let [sizes_m, sizes_n, sizes_r, sizes_g, sizes_t, sizes_d, sizes_p, sizes_k] = [m, n, r, g, t, d, p, k].map(|size| size as u64);
    let dims = others::Dims { M: sizes_m, N: sizes_n, R: sizes_r, G: sizes_g, T: sizes_t, D: sizes_d, P: sizes_p, K: sizes_k };
    let plan = others::plan(device, dims).unwrap();
    plan.run(
        &x,
        &ids,
        &q,
        &shared,
        &da,
        &dw,
        &mut blurred,
        &mut looked,
        &mut cubes,
        &mut planes,
        &mut multiplied,
        &mut deviations,
        &mut squares,
    )
    .unwrap();
    let at = |r: i64, c: usize| if (0..m as i64).contains(&r) { values[r as usize * n + c] } else { 0.0 };
    let by_element = |f: &dyn Fn(i64, usize) -> f32| -> Vec<f32> { (0..m * n).map(|e| f((e / n) as i64, e % n)).collect() };
    assert_eq!(blurred.download().unwrap(), by_element(&|r, c| at(r - 1, c) + at(r, c) + at(r + 1, c)));
    assert_eq!(cubes.download().unwrap(), by_element(&|r, c| at(r, c).powi(3)));
    let rows: Vec<f32> = chosen.iter().flat_map(|&row| values[row as usize * n..][..n].to_vec()).collect();
    assert_eq!(looked.download().unwrap(), rows);
    let (whole, few) = (numbers(4 * g * t * d), numbers(g * t * d));
    let expected: Vec<f32> = (0..4 * g * t * d).map(|e| whole[e] * few[e / (4 * t * d) * t * d + e % (t * d)]).collect();
    assert_eq!(planes.download().unwrap(), expected);
    let products = a.chunks(k).flat_map(|a| w.chunks(k).map(move |w| a.iter().zip(w).map(|(a, w)| a * w).sum::<f32>()));
    for (found, expected) in multiplied.download().unwrap().iter().zip(products) {
        assert_eq!(*found, bf16::from_f32(expected));
    }
    let means: Vec<f32> = values.chunks(n).map(|row| row.iter().sum::<f32>() / n as f32).collect();
    for (at, (found, square)) in deviations.download().unwrap().iter().zip(squares.download().unwrap()).enumerate() {
        let expected = values[at] - means[at / n];
        assert!((found - expected).abs() < 1e-5 && (square - found * found).abs() < 1e-5, "{found} {expected} {square}");
    }
}

#[test]
fn a_plan_with_options_runs() {
    let y = running::with_options().unwrap();
    assert!(y.iter().all(|&v| v == 0.125));
}

#[test]
fn plans_of_other_configurations_take_the_same_weights() {
    let (first, next) = running::switched(&Device::cpu_with(3)).unwrap();
    assert!(first.iter().chain(&next).all(|&value| value == 0.125) && (first.len(), next.len()) == (128 * 128, 128));
    assert_eq!(running::by_settings().unwrap().graph().schedule, maco::Schedule::Static);
}
