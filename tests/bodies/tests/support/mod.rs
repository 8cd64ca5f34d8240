//! What generated references are written with.
#![allow(dead_code, reason = "a few seeds do not have all operations")]

use std::ops::Deref;

use maco::{Device, Error, Plan, PlanOptions, Report, Tensor, TensorElement};
pub use maco::{bf16, f16};

/// Whether `MACO_TESTS=short` says that everything is slow.
pub fn short() -> bool {
    std::env::var("MACO_TESTS").is_ok_and(|tests| tests == "short")
}

/// Where a megakernel runs, and how often.
pub struct Setup {
    pub device: Device,
    pub plans: Vec<PlanOptions>,
    /// M, N, K, V and B.
    pub sizes: [usize; 5],
    /// Seeds of delays for each plan.
    pub delays: u32,
}

impl Setup {
    /// Each plan under each seed of delays.
    pub fn each_plan<P: Deref<Target = Plan>>(&self, plan: impl Fn(&PlanOptions) -> Result<P, Error>, run: impl Fn(&P, &str)) {
        for options in &self.plans {
            let plan = plan(options).unwrap_or_else(|error| panic!("{:?}, {options:?}: {error}", self.sizes));
            for seed in 0..self.delays {
                plan.set_delays(seed);
                // What a launch before has left there is no value.
                plan.fill_temporaries(0xff).unwrap_or_else(|error| panic!("{error}"));
                run(&plan, &format!("{:?}, {options:?}, delays {seed}", self.sizes));
            }
        }
    }

    /// Never whether there is nothing to compare.
    pub fn has_run(&self, ran: Result<Report, Error>, what: &str) -> bool {
        ran.unwrap_or_else(|error| panic!("{what}: {error}"));
        false
    }

    /// Whether a read outside of its region has ended the run, as it must on a CPU.
    pub fn is_outside(&self, ran: Result<Report, Error>, what: &str) -> bool {
        if self.device.is_gpu() {
            return self.has_run(ran, what);
        }
        let error = ran.expect_err("a read outside the region");
        assert_eq!(error.code(), 69, "{what}: {error}");
        true
    }
}

/// Integers, row by row. A vector is one row, and planes lie one below the other.
#[derive(Clone, Debug)]
pub struct Matrix {
    pub rows: isize,
    pub cols: isize,
    pub data: Vec<f32>,
    /// What becomes of a number that is put there.
    round: fn(f32) -> f32,
}

impl Matrix {
    /// What no number is equal to.
    pub fn nothing(rows: usize, cols: usize) -> Matrix {
        Matrix { rows: rows as isize, cols: cols as isize, data: vec![f32::NAN; rows * cols], round: |value| value }
    }

    /// With elements of this type.
    pub fn of<E: Number>(self) -> Matrix {
        Matrix { round: |value| E::of(value).number(), ..self }
    }

    /// The same, that rounds nothing.
    pub fn exact(&self) -> Matrix {
        Matrix { round: |value| value, ..self.clone() }
    }

    fn has(&self, row: isize, col: isize) -> bool {
        (0..self.rows).contains(&row) && (0..self.cols).contains(&col)
    }

    /// Zero outside.
    pub fn at(&self, row: isize, col: isize) -> f32 {
        if self.has(row, col) { self.data[(row * self.cols + col) as usize] } else { 0.0 }
    }

    /// Zero outside of these rows and columns, too.
    pub fn within(&self, row: isize, col: isize, rows: (isize, isize), cols: (isize, isize)) -> f32 {
        if (rows.0..rows.1).contains(&row) && (cols.0..cols.1).contains(&col) { self.at(row, col) } else { 0.0 }
    }

    /// Nothing outside.
    pub fn put(&mut self, row: isize, col: isize, value: f32) {
        if self.has(row, col) {
            self.data[(row * self.cols + col) as usize] = (self.round)(value);
        }
    }

    pub fn row(&self, row: isize) -> &[f32] {
        &self.data[(row * self.cols) as usize..][..self.cols as usize]
    }

    pub fn sum(&self, row: isize) -> f32 {
        self.row(row).iter().sum()
    }

    pub fn max(&self, row: isize) -> f32 {
        self.row(row).iter().copied().fold(f32::NEG_INFINITY, f32::max)
    }

    pub fn min(&self, row: isize) -> f32 {
        self.row(row).iter().copied().fold(f32::INFINITY, f32::min)
    }

    /// The view whose element (r, c) is at `place(r, c)`.
    pub fn view(&self, rows: usize, cols: usize, place: impl Fn(isize, isize) -> (isize, isize)) -> Matrix {
        let mut part = Matrix { round: self.round, ..Matrix::nothing(rows, cols) };
        each(&mut part, |_, r, c| self.there(place(r, c)));
        part
    }

    /// Overwrites it.
    pub fn store(&mut self, part: &Matrix, place: impl Fn(isize, isize) -> (isize, isize)) {
        for r in 0..part.rows {
            for c in 0..part.cols {
                let (row, col) = place(r, c);
                self.there((row, col));
                self.put(row, col, part.at(r, c));
            }
        }
    }

    /// What is there.
    fn there(&self, (row, col): (isize, isize)) -> f32 {
        assert!(self.has(row, col), "a view ends inside its tensor");
        self.at(row, col)
    }

    /// Plane `plane` of `count`.
    pub fn plane(&self, plane: usize, count: usize) -> Matrix {
        let rows = self.rows as usize / count;
        self.view(rows, self.cols as usize, |r, c| (r + (plane * rows) as isize, c))
    }

    /// Overwrites it.
    pub fn set_plane(&mut self, plane: usize, count: usize, part: &Matrix) {
        let rows = self.rows / count as isize;
        self.store(part, |r, c| (r + plane as isize * rows, c));
    }

    pub fn upload<E: Number, const RANK: usize>(&self, device: &Device, shape: [u64; RANK]) -> Tensor<E> {
        let data: Vec<E> = self.data.iter().map(|&value| E::of(value)).collect();
        device.upload(&data, shape).expect("upload")
    }

    /// Every element is the same.
    pub fn compare<E: Number>(&self, found: &Tensor<E>, name: &str, what: &str) {
        assert!(self.data.iter().all(|value| value.is_finite()), "the reference leaves elements of {name} out: {what}");
        let found: Vec<f32> = found.download().expect("download").into_iter().map(E::number).collect();
        assert_eq!(found.len(), self.data.len());
        let all = self.data.iter().zip(&found).enumerate();
        let wrong: Vec<usize> = all.filter(|(_, (expected, found))| expected != found).map(|(n, _)| n).collect();
        let Some(&first) = wrong.first() else { return };
        let place = (first / self.cols as usize, first % self.cols as usize);
        let (expected, found) = (self.data[first], found[first]);
        panic!(
            "{} of {} elements of {name} are wrong, the first at {place:?}: {found}, not {expected}: {what}",
            wrong.len(),
            self.data.len()
        );
    }
}

/// Sets every element.
pub fn each(matrix: &mut Matrix, f: impl Fn(&Matrix, isize, isize) -> f32) {
    for r in 0..matrix.rows {
        row(matrix, r, |matrix, c| f(matrix, r, c));
    }
}

/// Sets every element of a row.
pub fn row(matrix: &mut Matrix, row: isize, f: impl Fn(&Matrix, isize) -> f32) {
    for c in 0..matrix.cols {
        let value = f(matrix, c);
        matrix.put(row, c, value);
    }
}

/// Elements of tensors.
pub trait Number: TensorElement {
    fn of(value: f32) -> Self;
    fn number(self) -> f32;
}

macro_rules! number {
    ($($ty:ty: $of:expr, $number:expr;)*) => {$(
        impl Number for $ty {
            fn of(value: f32) -> $ty {
                $of(value)
            }
            fn number(self) -> f32 {
                $number(self)
            }
        }
    )*};
}
number! {
    f32: |value| value, |value| value;
    bf16: bf16::from_f32, bf16::to_f32;
    f16: f16::from_f32, f16::to_f32;
    // Nothing is a number that no formula makes.
    i32: |value: f32| if value.is_nan() { i32::MIN } else { value as i32 }, |value| value as f32;
    u32: |value| value as u32, |value| value as f32;
}

/// The same at every run.
pub struct Numbers(u64);

impl Numbers {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Numbers {
        Numbers(0x9e37_79b9_7f4a_7c15)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) % n
    }

    /// From -8 to 8.
    pub fn matrix(&mut self, rows: usize, cols: usize) -> Matrix {
        let data = (0..rows * cols).map(|_| self.below(17) as f32 - 8.0).collect();
        Matrix { data, ..Matrix::nothing(rows, cols) }
    }

    /// Some of equal value, some of no row.
    pub fn indices(&mut self, rows: usize, cols: usize) -> Matrix {
        let data = (0..rows * cols).map(|_| self.below(14) as f32).collect();
        Matrix { data, ..Matrix::nothing(rows, cols) }
    }
}
