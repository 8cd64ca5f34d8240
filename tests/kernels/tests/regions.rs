//! In-place updates, halos, views, rows, gathers and raw SIMT: right on every device.
mod support;

use kernels::{regions, uneven};
use maco::{Device, Schedule};
use support::{Matrix, poisoned};

on_every_device!(blurred, halves, normed, embedded, reversed, accumulated, served, outside);

/// Schedulers that nobody asked for but the kernel's attribute.
fn served(device: &Device) {
    let (m, n) = (130, 70);
    let x = Matrix::integers(m, n, 11, 99);
    // As many workers as the attribute asks for.
    let four = Device::cpu_with(4);
    let device = if device.is_gpu() { device } else { &four };
    let plan = uneven::served::plan(device, uneven::served::Dims { M: m as u64, N: n as u64 }).unwrap();
    assert_eq!((plan.graph().schedule, plan.workers()), (Schedule::Schedulers(2), 4));
    for _ in 0..3 {
        let mut y = poisoned::<f32>(device, m, n);
        plan.run(&x.upload(device), 3.0, &mut y).unwrap();
        x.map(|v| 4.0 * v).exactly(&y, "served");
    }
}

fn blur(x: &Matrix) -> Matrix {
    let at = |r: isize, c: usize| if r < 0 || r as usize >= x.rows { 0.0 } else { x.at(r as usize, c) };
    Matrix::new(x.rows, x.cols, |r, c| at(r as isize - 1, c) + at(r as isize, c) + at(r as isize + 1, c))
}

fn blurred(device: &Device) {
    for (m, n) in [(32, 64), (97, 130), (1, 5), (300, 64)] {
        let x = Matrix::integers(m, n, 7, 9);
        let plan = regions::blurred::plan(device, regions::blurred::Dims { M: m as u64, N: n as u64 }).unwrap();
        let mut y = poisoned::<f32>(device, m, n);
        let mut inout = x.upload::<f32>(device);
        plan.run(&mut inout, 3.0, &mut y).unwrap();
        x.map(|v| v * 3.0).exactly(&inout, "scaled in place");
        blur(&blur(&x)).plus(&x.map(|v| v * 3.0)).exactly(&y, &format!("blurred {m} × {n}"));
    }
}

fn halves(device: &Device) {
    for (m, h) in [(64, 64), (70, 36), (1, 1)] {
        let (x, b) = (Matrix::integers(m, 2 * h, 1, 99), Matrix::integers(1, h, 2, 99));
        let plan = regions::halves::plan(device, regions::halves::Dims { M: m as u64, H: h as u64 }).unwrap();
        let (mut y, mut z) = (poisoned::<f32>(device, m, 2 * h), poisoned::<f32>(device, 2 * h, m));
        let bias: Vec<f32> = b.data.iter().map(|&v| v as f32).collect();
        plan.run(&x.upload(device), &device.upload(&bias, [h as u64]).unwrap(), &mut y, &mut z).unwrap();
        let expected = Matrix::new(m, 2 * h, |r, c| x.at(r, (c + h) % (2 * h)) + if c < h { b.at(0, c) } else { 0.0 });
        expected.exactly(&y, "halves");
        expected.t().exactly(&z, "transposed");
    }
}

fn normed(device: &Device) {
    for (m, n) in [(8, 64), (37, 130), (3, 1)] {
        let x = Matrix::integers(m, n, 3, 3);
        let weight = Matrix::integers(1, n, 4, 3);
        let plan = regions::normed::plan(device, regions::normed::Dims { M: m as u64, N: n as u64 }).unwrap();
        let (mut soft, mut rms, mut sums) = (poisoned::<f32>(device, m, n), poisoned::<f32>(device, m, n), poisoned::<f32>(device, m, 1));
        let w: Vec<f32> = weight.data.iter().map(|&v| v as f32).collect();
        plan.run(&x.upload(device), &device.upload(&w, [n as u64]).unwrap(), &mut soft, &mut rms, &mut sums).unwrap();
        let exponentials = x.map(f64::exp);
        let total = |r: usize| (0..n).map(|c| exponentials.at(r, c)).sum::<f64>();
        Matrix::new(m, n, |r, c| exponentials.at(r, c) / total(r)).within(&soft, 1e-5, "softmax");
        let scale = |r: usize| ((0..n).map(|c| x.at(r, c).powi(2)).sum::<f64>() / n as f64 + 1e-5).powf(-0.5);
        // 1e-5: rows of zeros are multiplied by 1/√epsilon, about 316.
        Matrix::new(m, n, |r, c| x.at(r, c) * scale(r) * weight.at(0, c)).within(&rms, 1e-5, "rmsnorm");
        Matrix::new(m, 1, |_, _| 1.0).within(&sums, 1e-5, "sums");
    }
}

fn embedded(device: &Device) {
    let (m, v, n) = (50, 20, 33);
    let table = Matrix::integers(v, n, 5, 999);
    let ids: Vec<u32> = (0..m as u32).map(|i| i * 7 % v as u32).collect();
    let plan = regions::embedded::plan(device, regions::embedded::Dims { M: m as u64, V: v as u64, N: n as u64 }).unwrap();
    let mut y = poisoned::<f32>(device, m, n);
    plan.run(&device.upload(&ids, [m as u64]).unwrap(), &table.upload(device), 0.5, &mut y).unwrap();
    Matrix::new(m, n, |r, c| table.at(ids[r] as usize, c) * 0.5).exactly(&y, "embedded");
}

fn reversed(device: &Device) {
    let n = 1024usize;
    let data: Vec<f32> = (0..n).map(|v| v as f32).collect();
    let plan = regions::reversed::plan(device, regions::reversed::Dims { N: n as u64 }).unwrap();
    let mut y = device.zeros::<f32>([n as u64]).unwrap();
    plan.run(&device.upload(&data, [n as u64]).unwrap(), &mut y).unwrap();
    let expected: Vec<f32> = (0..n).map(|i| (i / 256 * 256 + 255 - i % 256) as f32).collect();
    assert_eq!(y.download().unwrap(), expected);
}

fn accumulated(device: &Device) {
    let (m, n) = (70, 33);
    let x = Matrix::integers(m, n, 1, 50);
    let plan = regions::accumulated::plan(device, regions::accumulated::Dims { M: m as u64, N: n as u64 }).unwrap();
    let mut sum = device.zeros::<f32>([m as u64, n as u64]).unwrap();
    let uploaded = x.upload(device);
    for _ in 0..5 {
        plan.run(&uploaded, &mut sum).unwrap();
    }
    x.map(|v| v * 5.0).exactly(&sum, "state after five launches");
}

/// What a body reads by position at (r + dr, c + dc) where (0, 0) is declared with `halo` around it: rows above and below, columns before and after. Outside
/// the tensor zero; `None`: outside the region but inside the tensor.
fn shifted(x: &Matrix, (dr, dc): (i32, i32), halo: [i32; 4]) -> Vec<Option<f64>> {
    let inside = |at: i32, extent: usize| (0..extent as i32).contains(&at);
    let each = |at: usize| {
        let (r, c) = ((at / x.cols) as i32, (at % x.cols) as i32);
        let (row, col) = (r + dr, c + dc);
        if !inside(row, x.rows) || !inside(col, x.cols) {
            return Some(0.0);
        }
        let (first, left) = (r / 16 * 16, c / 24 * 24);
        let declared = (first - halo[0]..first + 16 + halo[1]).contains(&row) && (left - halo[2]..left + 24 + halo[3]).contains(&col);
        declared.then(|| x.at(row as usize, col as usize))
    };
    (0..x.rows * x.cols).map(each).collect()
}

/// Every distance from well inside the declared region to beyond it, in tensors of one tile and of several. Outside of it a GPU reads zero, and the
/// CPU says which task, which parameter and where.
fn outside(device: &Device) {
    for (m, n) in [(48, 72), (10, 20), (33, 49)] {
        let x = Matrix::integers(m, n, 12, 99);
        let uploaded = x.upload::<f32>(device);
        let (dims, blocks) =
            (regions::offsets::Dims { M: m as u64, N: n as u64 }, regions::block_offsets::Dims { M: m as u64, N: n as u64 });
        let one = regions::offsets::plan(device, dims).unwrap();
        let eight = regions::block_offsets::plan(device, blocks).unwrap();
        for (dr, dc) in
            (-3..=2).flat_map(|dr| (-2..=2).map(move |dc| (dr, dc))).chain([(-17, 0), (16, 0), (0, -25), (0, 24), (i32::MIN / 2, 0)])
        {
            for by_eight in [false, true] {
                let expected = shifted(&x, (dr, dc), if by_eight { [0; 4] } else { [2, 1, 1, 1] });
                let mut y = poisoned::<f32>(device, m, n);
                let ran = if by_eight { eight.run(&uploaded, dr, dc, &mut y) } else { one.run(&uploaded, dr, dc, &mut y) };
                let what = format!("{m} × {n}, {dr} rows and {dc} columns away, by eight: {by_eight}");
                let Err(error) = ran else {
                    assert!(device.is_gpu() || expected.iter().all(Option::is_some), "{what}: read");
                    let data = expected.iter().map(|value| value.unwrap_or(0.0)).collect();
                    Matrix { rows: m, cols: n, data }.exactly(&y, &what);
                    continue;
                };
                assert_eq!(error.code(), 69, "{what}: {error}");
                let text = error.to_string();
                let (task, rows) =
                    if by_eight { ("offset_blocks", "rows 0..16, columns 0..24") } else { ("offset", "rows 0..19, columns 0..26") };
                assert!(
                    text.contains(&format!("task `{task}` tile [")) && text.contains("reads `x` at (") && text.contains(rows),
                    "{text}"
                );
                if by_eight { eight.recover() } else { one.recover() }.unwrap();
            }
        }
    }
}
