//! What generated references are written with.
#![allow(dead_code, reason = "a few seeds do not have all operations")]

use std::ops::Deref;

use maco::{Device, Error, Plan, PlanOptions, Report, Tensor, TensorElement};

/// Whether `MACO_TESTS=short` says that everything is slow.
pub fn short() -> bool {
    std::env::var("MACO_TESTS").is_ok_and(|tests| tests == "short")
}

/// Where a megakernel runs, and how often.
pub struct Setup {
    pub device: Device,
    pub plans: Vec<PlanOptions>,
    /// M, N, K and V.
    pub sizes: [usize; 4],
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

/// Small integers, row by row. A vector is one row.
#[derive(Clone, Debug)]
pub struct Matrix {
    pub rows: isize,
    pub cols: isize,
    pub data: Vec<f32>,
}

impl Matrix {
    /// What no number is equal to.
    pub fn nothing(rows: usize, cols: usize) -> Matrix {
        Matrix { rows: rows as isize, cols: cols as isize, data: vec![f32::NAN; rows * cols] }
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
            self.data[(row * self.cols + col) as usize] = value;
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

    /// `size` rows or columns from `from` on. The axis of a vector is its columns.
    pub fn slice(&self, axis: usize, from: usize, size: usize) -> Matrix {
        let (row, col, mut part) = self.part(axis, from, size);
        each(&mut part, |_, r, c| self.at(r + row, c + col));
        part
    }

    /// Overwrites them.
    pub fn store(&mut self, axis: usize, from: usize, part: &Matrix) {
        let size = if axis == 0 && self.rows > 1 { part.rows } else { part.cols };
        let (row, col, _) = self.part(axis, from, size as usize);
        for r in 0..part.rows {
            for c in 0..part.cols {
                self.put(r + row, c + col, part.at(r, c));
            }
        }
    }

    fn part(&self, axis: usize, from: usize, size: usize) -> (isize, isize, Matrix) {
        if axis == 0 && self.rows > 1 {
            (from as isize, 0, Matrix::nothing(size, self.cols as usize))
        } else {
            (0, from as isize, Matrix::nothing(self.rows as usize, size))
        }
    }

    pub fn upload<E: Number>(&self, device: &Device, rank: usize) -> Tensor<E> {
        let data: Vec<E> = self.data.iter().map(|&value| E::of(value)).collect();
        let shape = [self.rows as u64, self.cols as u64];
        device.upload(&data, &shape[2 - rank..]).expect("upload")
    }

    /// Every element is the same.
    pub fn compare(&self, found: &Tensor<f32>, name: &str, what: &str) {
        assert!(self.data.iter().all(|value| value.is_finite()), "the reference leaves elements of {name} out: {what}");
        let found = found.download().expect("download");
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
}

impl Number for f32 {
    fn of(value: f32) -> f32 {
        value
    }
}

impl Number for u32 {
    fn of(value: f32) -> u32 {
        value as u32
    }
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
