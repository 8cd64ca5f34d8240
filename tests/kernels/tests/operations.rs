//! Several operations of one body take effect in the order of their calls, also where one reads or overwrites what other threads of another wrote or read.
mod support;

use kernels::operations;
use maco::Device;
use support::{Matrix, poisoned};

on_every_device!(pairs, scattered, mappings);

/// A race need not show: on a GPU, many launches of many tiles; the emulated one reports it in the first.
fn sizes(device: &Device) -> &'static [(usize, usize, usize)] {
    let short = std::env::var("MACO_TESTS").is_ok_and(|tests| tests == "short");
    if device.is_gpu() && !short { &[(64, 64, 3), (1024, 256, 3), (4096, 1024, 20), (8192, 96, 20)] } else { &[(64, 64, 1), (160, 96, 1)] }
}

/// Rows of each tile of 16 in reverse.
fn reversed(x: &Matrix) -> Matrix {
    Matrix::new(x.rows, x.cols, |r, c| x.at(r / 16 * 16 + 15 - r % 16, c))
}

fn pairs(device: &Device) {
    for &(m, n, launches) in sizes(device) {
        let x = Matrix::integers(m, n, 5, 9);
        let old = Matrix::integers(m, n, 6, 9);
        let plan = operations::pairs::plan(device, operations::pairs::Dims { M: m as u64, N: n as u64 }).unwrap();
        let uploaded = x.upload::<f32>(device);
        for _ in 0..launches {
            let mut t = [(); 6].map(|()| old.upload::<f32>(device));
            let mut y = [(); 4].map(|()| poisoned::<f32>(device, m, n));
            let mut columns = device.zeros::<f32>([n as u64]).unwrap();
            let mut turned = poisoned::<f32>(device, n, m);
            plan.run(&uploaded, &mut t, &mut y, &mut columns, &mut turned).unwrap();
            let sums: Vec<f64> = (0..m).map(|r| (0..n).map(|c| 2.0 * x.at(r, c) + 1.0).sum()).collect();
            Matrix::new(m, n, |r, _| sums[r]).exactly(&y[0], "elements, then rows");
            let raised = x.map(|v| v + 1.0);
            reversed(&raised).exactly(&y[1], "elements, then positions");
            reversed(&raised).exactly(&y[2], "rows, then blocks");
            reversed(&old).exactly(&y[3], "read before it is overwritten");
            x.exactly(&t[3], "overwritten after it was read");
            let total: Vec<f32> = (0..n).map(|c| (0..m).map(|r| 3.0 * x.at(r, c)).sum::<f64>() as f32).collect();
            assert_eq!(columns.download().unwrap(), total, "elements, then columns");
            x.map(|v| v + 2.0).t().exactly(&turned, "elements, then transpose");
        }
    }
}

fn scattered(device: &Device) {
    for &(m, n, launches) in sizes(device) {
        let k = 4;
        let x = Matrix::integers(m, n, 7, 9);
        let ids: Vec<u32> = (0..m * k).map(|at| ((at * 7 + at / k) % n) as u32).collect();
        let ones = Matrix::new(m, k, |_, _| 1.0);
        let mut expected = x.clone();
        let mut marks = Matrix::new(m, n, |_, _| 0.0);
        for (at, &id) in ids.iter().enumerate() {
            marks.data[at / k * n + id as usize] = 1.0;
        }
        for (value, mark) in expected.data.iter_mut().zip(&marks.data) {
            *value += mark;
        }
        let dims = operations::scattered::Dims { M: m as u64, K: k as u64, N: n as u64 };
        let plan = operations::scattered::plan(device, dims).unwrap();
        let inputs = (device.upload(&ids, [m as u64, k as u64]).unwrap(), ones.upload::<f32>(device), x.upload::<f32>(device));
        for _ in 0..launches {
            let mut t = Matrix::integers(m, n, 8, 9).upload::<f32>(device);
            let mut y = poisoned::<f32>(device, m, n);
            plan.run(&inputs.0, &inputs.1, &inputs.2, &mut t, &mut y).unwrap();
            marks.exactly(&t, "scattered behind a map");
            expected.exactly(&y, "elements behind a scatter");
        }
    }
}

/// Operations that share one mapping of elements to threads, and one that does not, with another between.
fn mappings(device: &Device) {
    for &(m, n, launches) in sizes(device) {
        let x = Matrix::integers(m, n, 9, 9);
        let plan = operations::mappings::plan(device, operations::mappings::Dims { M: m as u64, N: n as u64 }).unwrap();
        let uploaded = x.upload::<f32>(device);
        let sums: Vec<f64> = (0..m).map(|r| (0..n).map(|c| x.at(r, c)).sum()).collect();
        for _ in 0..launches {
            let mut t = [(); 4].map(|()| poisoned::<f32>(device, m, n));
            let mut y = [(); 3].map(|()| poisoned::<f32>(device, m, n));
            plan.run(&uploaded, &mut t, &mut y).unwrap();
            x.map(|v| 2.0 * (v + 1.0) + 1.0).exactly(&y[0], "elements, three times");
            Matrix::new(m, n, |r, _| sums[r] * (n + 1) as f64).exactly(&y[1], "rows, twice");
            let turned = reversed(&x);
            Matrix::new(m, n, |r, c| turned.at(r, c) + x.at(r, c) + 1.0).exactly(&y[2], "positions, then elements twice");
        }
    }
}
