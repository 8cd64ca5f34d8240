//! What `tune_tiles` tries, and that a plan takes what its file says, in every form and of each element.

use std::path::PathBuf;

use benches::candidates::{Form, GEMV_TILES, Half, TILES, candidates, tuned};
use benches::matrix::{error, numbers};
use clap::ValueEnum;
use maco::{Arguments, Device, PlanOptions, Tensor, Tuning, bf16, f16};

const WORKERS: u32 = 3;

/// The numbers of a rows × columns matrix, or of its transpose.
fn stored<E: Half>(device: &Device, data: &[f32], [rows, cols]: [u64; 2], turned: bool) -> Tensor<E> {
    let at = |n: u64| if turned { data[(n % rows * cols + n / rows) as usize] } else { data[n as usize] };
    let shape = if turned { [cols, rows] } else { [rows, cols] };
    device.upload(&(0..rows * cols).map(|n| E::rounded(at(n))).collect::<Vec<E>>(), shape).unwrap()
}

/// Every candidate, by way of a file.
fn taken<E: Half>(form: Form) {
    let device = Device::cpu_with(WORKERS);
    // Few rows; and five or more tiles of any size, so that the last wave of three workers is not full.
    for shape @ (m, n, k) in [(7, 40, 64), (130, 600, 200)] {
        let (a, b): (Vec<f32>, Vec<f32>) =
            (numbers(1, 1.0).take((m * k) as usize).collect(), numbers(2, 1.0).take((n * k) as usize).collect());
        let (a, b) = (stored::<E>(&device, &a, [m, k], false), stored::<E>(&device, &b, [n, k], false));
        let values = |tensor: &Tensor<E>| tensor.download().unwrap().into_iter().map(E::into).collect::<Vec<f64>>();
        let (x, w) = (values(&a), values(&b));
        let dot = |x: &[f64], w: &[f64]| x.iter().zip(w).map(|(a, b)| a * b).sum::<f64>();
        let expected: Vec<f64> = x.chunks(k as usize).flat_map(|x| w.chunks(k as usize).map(move |w| dot(x, w))).collect();
        let single = |values: &[f64]| values.iter().map(|&v| v as f32).collect::<Vec<f32>>();
        let [rows, turned, result] = form.extents(shape);
        let a = stored::<E>(&device, &single(&x), [m, k], rows != [m, k]);
        let b = stored::<E>(&device, &single(&w), [n, k], turned != [n, k]);
        assert_eq!((a.shape(), b.shape()), (&rows[..], &turned[..]));
        let all = candidates(form, shape, WORKERS);
        assert!(TILES.iter().all(|tile| all.iter().any(|candidate| candidate.tile.as_deref() == Some(tile))));
        let gemv = all.iter().filter(|candidate| GEMV_TILES.iter().any(|tile| candidate.tile.as_deref() == Some(tile))).count();
        assert_eq!(gemv, if form == Form::Linear && m == 7 { GEMV_TILES.len() } else { 0 });
        assert_eq!(all.iter().any(|candidate| candidate.whole > 0), m == 130);
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}_{}_{m}.json", form.task(), E::NAME));
        for (nth, candidate) in all.into_iter().enumerate() {
            let forced = E::plan(&device, form, shape, &PlanOptions::new().shapes(vec![candidate.clone()])).unwrap();
            let call = forced.graph().calls[0].clone();
            assert_eq!((Some(&call.tile), Some(call.parts), call.whole), (candidate.tile.as_ref(), candidate.split, candidate.whole));
            let mut tuning = Tuning::new(&device);
            tuning.add(tuned::<E>(form, shape, WORKERS, &call, 1.5));
            tuning.write(&path).unwrap();
            let read = Tuning::read(&path).unwrap();
            assert_eq!(read.entries[0].nanoseconds, 1500);
            let plan = E::plan(&device, form, shape, &PlanOptions::new().tuning(read)).unwrap();
            let found = &plan.graph().calls[0];
            assert_eq!((&found.tile, found.parts, found.whole), (&call.tile, call.parts, call.whole), "{form:?} {shape:?}");
            // Others differ from these in their parts alone.
            if nth % 4 > 0 {
                continue;
            }
            let mut y = device.zeros::<E>(result).unwrap();
            plan.run(Arguments::new().tensor(&a).tensor(&b).tensor_mut(&mut y)).unwrap();
            let error = error(&y.download().unwrap(), &expected);
            assert!(error < 5e-3, "{form:?} {shape:?} {candidate:?}: {error}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_plan_uses_the_measured_tiles() {
    for &form in Form::value_variants() {
        taken::<bf16>(form);
        taken::<f16>(form);
    }
}

/// Of 148 tiles and 132 workers, 132 are whole and 16 in parts; no more tasks than four waves; no part without a step.
#[test]
fn candidates_split_the_last_wave() {
    let all = candidates(Form::Matmul, (256, 18944, 3584), 132);
    let of = |tile: [u32; 2]| {
        let all = all.iter().filter(move |candidate| candidate.tile.as_deref() == Some(&tile));
        all.map(|candidate| (candidate.split.unwrap(), candidate.whole)).collect::<Vec<_>>()
    };
    let expected = [(1, 0), (2, 0), (2, 132), (3, 0), (3, 132), (4, 132), (5, 132), (6, 132), (8, 132), (12, 132)];
    assert_eq!(of([128, 256]), expected);
    // 592 tiles: more than four waves, whole or not.
    assert_eq!(of([64, 128])[..2], [(1, 0), (2, 528)]);
    let shallow = candidates(Form::Linear, (256, 4096, 130), 132);
    assert_eq!(shallow.iter().filter_map(|candidate| candidate.split).max(), Some(3));
}
