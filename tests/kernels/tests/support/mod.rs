//! Reference computations in `f64`, and tests made twice: for the CPU, and for a GPU where there is one.
#![allow(dead_code)]

pub mod foreign;
pub mod gpu;
pub mod hangs;
pub mod rounds;

use maco::{Device, Element, Tensor, TensorElement, bf16};

/// Makes `cpu_name` and `gpu_name` of every function that takes a device.
#[macro_export]
macro_rules! on_every_device {
    ($($name:ident),* $(,)?) => {
        mod cpu {
            $(#[test]
            fn $name() {
                for workers in [1, 3] {
                    super::$name(&maco::Device::cpu_with(workers));
                }
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

/// A row-major matrix of exactly representable numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    pub rows: usize,
    pub cols: usize,
    pub data: Vec<f64>,
}

impl Matrix {
    pub fn new(rows: usize, cols: usize, mut f: impl FnMut(usize, usize) -> f64) -> Matrix {
        let data = (0..rows * cols).map(|n| f(n / cols, n % cols)).collect();
        Matrix { rows, cols, data }
    }

    /// Small integers, so that every sum of products is exact in `f32` and, below 256, in bf16.
    pub fn integers(rows: usize, cols: usize, seed: u64, limit: i64) -> Matrix {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        Matrix::new(rows, cols, |_, _| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 33) as i64 % (2 * limit + 1) - limit) as f64
        })
    }

    /// Mostly zeros: long sums stay small.
    pub fn sparse(rows: usize, cols: usize, seed: u64) -> Matrix {
        let mut matrix = Matrix::integers(rows, cols, seed, 8);
        for v in &mut matrix.data {
            *v = if v.abs() > 7.0 { v.signum() } else { 0.0 };
        }
        matrix
    }

    pub fn at(&self, row: usize, col: usize) -> f64 {
        self.data[row * self.cols + col]
    }

    pub fn t(&self) -> Matrix {
        Matrix::new(self.cols, self.rows, |r, c| self.at(c, r))
    }

    pub fn times(&self, other: &Matrix) -> Matrix {
        assert_eq!(self.cols, other.rows);
        Matrix::new(self.rows, other.cols, |r, c| (0..self.cols).map(|k| self.at(r, k) * other.at(k, c)).sum())
    }

    pub fn map(&self, f: impl Fn(f64) -> f64) -> Matrix {
        Matrix { rows: self.rows, cols: self.cols, data: self.data.iter().map(|&v| f(v)).collect() }
    }

    /// Rounded to bf16, as a tensor of that type holds it.
    pub fn bf16(&self) -> Matrix {
        self.map(|v| bf16::from_f64(v).to_f64())
    }

    pub fn plus(&self, other: &Matrix) -> Matrix {
        Matrix::new(self.rows, self.cols, |r, c| self.at(r, c) + other.at(r, c))
    }

    pub fn upload<E: TensorElement + From64>(&self, device: &Device) -> Tensor<E> {
        let data: Vec<E> = self.data.iter().map(|&v| E::from64(v)).collect();
        device.upload(&data, [self.rows as u64, self.cols as u64]).expect("upload")
    }

    /// Fails unless the tensor holds exactly this.
    #[track_caller]
    pub fn exactly<E: TensorElement + From64>(&self, tensor: &Tensor<E>, what: &str) {
        self.within(tensor, 0.0, what);
    }

    /// Fails unless every element differs by at most `tolerance` times the larger of 1 and the expected magnitude.
    #[track_caller]
    pub fn within<E: TensorElement + From64>(&self, tensor: &Tensor<E>, tolerance: f64, what: &str) {
        assert_eq!(tensor.shape(), [self.rows as u64, self.cols as u64], "{what}");
        for (n, found) in tensor.download().expect("download").iter().enumerate() {
            let (found, expected) = (found.to64(), self.data[n]);
            assert!(
                (found - expected).abs() <= tolerance * expected.abs().max(1.0),
                "{what}: element ({}, {}) is {found}, expected {expected}",
                n / self.cols,
                n % self.cols
            );
        }
    }
    /// Fails unless the relative error in the Frobenius norm is at most `tolerance`: for chains whose roundings may fall either way.
    #[track_caller]
    pub fn close<E: TensorElement + From64>(&self, tensor: &Tensor<E>, tolerance: f64, what: &str) {
        let found = tensor.download().expect("download");
        let difference: f64 = found.iter().zip(&self.data).map(|(f, e)| (f.to64() - e).powi(2)).sum();
        let error = (difference / self.data.iter().map(|v| v * v).sum::<f64>()).sqrt();
        assert!(error <= tolerance, "{what}: relative error {error:.2e}");
    }
}

/// Poisons an output, so that an element nobody writes shows.
pub fn poisoned<E: TensorElement + From64>(device: &Device, rows: usize, cols: usize) -> Tensor<E> {
    Matrix::new(rows, cols, |_, _| -12345.0).upload(device)
}

pub trait From64: Element {
    fn from64(value: f64) -> Self;
    fn to64(self) -> f64;
}

macro_rules! half {
    ($($ty:ty)*) => {$(
        impl From64 for $ty {
            fn from64(value: f64) -> Self {
                <$ty>::from_f64(value)
            }
            fn to64(self) -> f64 {
                self.to_f64()
            }
        }
    )*};
}
half!(bf16 maco::f16);

macro_rules! plain {
    ($($ty:ty)*) => {$(
        impl From64 for $ty {
            fn from64(value: f64) -> Self {
                value as $ty
            }
            fn to64(self) -> f64 {
                self as f64
            }
        }
    )*};
}
plain!(f32 u32 i32);

pub fn gelu(v: f64) -> f64 {
    0.5 * v * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v * v * v)).tanh())
}
