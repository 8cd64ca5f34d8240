//! Inputs with every kind of number, comparisons with references in `f64`, and tests made twice: for the CPU, and for a GPU where there
//! is one.
#![allow(dead_code)]

pub mod far;
#[path = "../../../kernels/tests/support/rounds.rs"]
pub mod rounds;

use maco::{Device, Schedule, Tensor, TensorElement, bf16, f16};
use proptest::test_runner::{Config, TestRunner};

/// What a test runs on. The pipelined executor of the CPU, which models a CTA's threads, is a device of its own here.
#[derive(Clone)]
pub struct Setup {
    pub device: Device,
    pub options: maco::PlanOptions,
    /// Where tensors of several rows lie, if their rows are far apart.
    pub far: Option<far::Far>,
}

impl Setup {
    /// Of what the documentation states for GPUs and for the CPU, what holds here.
    pub fn pick<T>(&self, gpu: T, cpu: T) -> T {
        if self.device.is_gpu() { gpu } else { cpu }
    }

    pub fn new(device: Device, options: maco::PlanOptions) -> Setup {
        Setup { device, options, far: None }
    }

    pub fn gpu() -> Setup {
        Setup::new(Device::gpu(0).expect("a GPU"), maco::PlanOptions::new())
    }

    pub fn plain(workers: u32) -> Setup {
        Setup::new(Device::cpu_with(workers), maco::PlanOptions::new())
    }

    pub fn pipelined(workers: u32) -> Setup {
        Setup::new(Device::cpu_with(workers), maco::PlanOptions::new().pipelined(true).schedule(Schedule::Static))
    }
}

/// Makes `cpu::name`, `pipelined::name`, `gpu::name`, `far::name` and `gpu_far::name` of every function that takes a set-up, a shape and a seed.
/// Shapes are those of `$edges`, and on one executor of the CPU and on a GPU random ones: `$most` are the largest extents. Of `far` the tensors reach beyond
/// 2³² elements.
#[macro_export]
macro_rules! on_every_device {
    ($($name:ident up to $most:expr, edges $edges:ident);* $(;)?) => {
        mod cpu {
            $(#[test]
            fn $name() {
                for edge in super::$edges {
                    super::$name(&super::support::Setup::plain(1), edge, 1);
                    super::$name(&super::support::Setup::plain(3), edge, 2);
                }
                super::support::random($most, |shape, seed| super::$name(&super::support::Setup::plain(2), shape, seed));
            })*
        }
        mod pipelined {
            $(#[test]
            fn $name() {
                // Odd seeds, which all have special numbers by `kind`; by `any_kind` each kind comes in turn.
                for (nth, edge) in super::$edges.into_iter().enumerate() {
                    super::$name(&super::support::Setup::pipelined(2), edge, 2 * nth as u64 + 3);
                }
            })*
        }
        mod gpu {
            $(#[test]
            #[ignore = "gpu"]
            fn $name() {
                let setup = super::support::Setup::gpu();
                for (nth, edge) in super::$edges.into_iter().enumerate() {
                    for seed in super::support::rounds::seeds(nth) {
                        super::$name(&setup, edge, seed);
                    }
                }
                super::support::random($most, |shape, seed| super::$name(&setup, shape, seed));
            })*
        }
        mod far {
            $(#[test]
            fn $name() {
                let one = |(nth, edge)| super::support::far::on_cpu(|setup| super::$name(setup, edge, nth as u64 + 1));
                let far: usize = super::$edges.into_iter().enumerate().map(one).sum();
                assert!(far > 0, "all tensors were near");
            })*
        }
        mod gpu_far {
            $(#[test]
            #[ignore = "gpu"]
            fn $name() {
                let few = super::support::rounds::short();
                for (nth, edge) in super::$edges.into_iter().enumerate().filter(|(nth, _)| !few || nth % 4 == 3) {
                    super::support::far::on_gpu(|setup| super::$name(setup, edge, nth as u64 + 1));
                }
            })*
        }
    };
}

/// Random shapes and seeds; what fails shrinks.
pub fn random<const N: usize>(most: [u64; N], check: impl Fn([u64; N], u64)) {
    use proptest::prelude::*;
    let cases = if rounds::short() {
        6
    } else if cfg!(debug_assertions) {
        12
    } else {
        60
    };
    let config = Config { cases, failure_persistence: None, max_shrink_time: 10_000, ..Config::default() };
    let shape: Vec<_> = most.iter().map(|&most| prop_oneof![0..=most.min(17), 0..=most]).collect();
    TestRunner::new(config)
        .run(&(shape, any::<u64>()), |(shape, seed)| {
            let shape: [u64; N] = shape.try_into().expect("as many as asked for");
            check(shape, seed);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
}

/// An element and its value.
pub trait Number: TensorElement + PartialEq {
    /// The largest relative error of a rounding.
    const UNIT: f64;
    /// The smallest normal number: numbers below are no closer to each other than there.
    const NORMAL: f64;
    /// The largest number.
    const LARGEST: f64;
    fn from64(value: f64) -> Self;
    fn to64(self) -> f64;
    fn bits(self) -> u32;
}

macro_rules! number {
    ($($ty:ty, $unit:expr, $normal:expr, $largest:expr, $from:expr, $to:expr, $bits:expr;)*) => {$(
        impl Number for $ty {
            const UNIT: f64 = $unit;
            const NORMAL: f64 = $normal as f64;
            const LARGEST: f64 = $largest as f64;
            fn from64(value: f64) -> Self {
                $from(value)
            }
            fn to64(self) -> f64 {
                $to(self)
            }
            fn bits(self) -> u32 {
                $bits(self) as u32
            }
        }
    )*};
}
// Of an `f64` the conversions of `half` drop the last 32 bits before they round: of what is just above a tie they make one.
number! {
    bf16, 1.0 / 256.0, f32::MIN_POSITIVE, bf16::MAX.to_f64_const(), |v| bf16::from_f32(v as f32), bf16::to_f64, bf16::to_bits;
    f16, 1.0 / 2048.0, 1.0 / 16384.0, 65504.0, |v| f16::from_f32(v as f32), f16::to_f64, f16::to_bits;
    f32, 1.0 / 16777216.0, f32::MIN_POSITIVE, f32::MAX, |v| v as f32, f64::from, f32::to_bits;
    u32, 0.0, 1.0, u32::MAX, |v| v as u32, f64::from, |v: u32| v;
    i32, 0.0, 1.0, i32::MAX, |v| v as i32, f64::from, |v: i32| v;
    i8, 0.0, 1.0, i8::MAX, |v| v as i8, f64::from, |v: i8| v;
}

/// Which numbers an input has.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// Between −4 and 4, one of eight repeated from before: ties.
    Plain,
    /// Also NaN, infinities, −0, the smallest numbers.
    Special,
    /// Of either sign, with every exponent from −20 to 20 that the element has: sums that cancel, exponentials that saturate, `f16` that overflows.
    Wide,
}

/// A generator of numbers: xorshift.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    /// Below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub fn number(&mut self, kind: Kind) -> f64 {
        if kind == Kind::Wide {
            let exponent = self.below(41) as i32 - 20;
            let fraction = self.below(1 << 21) as f64 / (1 << 20) as f64 - 1.0;
            return (fraction + 1f64.copysign(fraction)) * 2f64.powi(exponent);
        }
        const SPECIAL: [f64; 8] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1e-40, -1e-40, 1e-30];
        match self.below(64) {
            0 | 1 if kind == Kind::Special => SPECIAL[self.below(8) as usize],
            0..8 => (self.below(9) as f64 - 4.0) * 0.5,
            _ => self.below(1 << 20) as f64 / (1 << 17) as f64 - 4.0,
        }
    }

    pub fn fill<E: Number>(&mut self, count: u64, kind: Kind) -> Vec<E> {
        let mut number = || {
            let v = self.number(kind);
            // What overflows in a test is results.
            if kind == Kind::Wide && v.abs() > E::LARGEST { v / 64.0 } else { v }
        };
        (0..count).map(|_| E::from64(number())).collect()
    }
}

/// Of three seeds one has special numbers, and one wide ones.
pub fn any_kind(seed: u64) -> Kind {
    [Kind::Plain, Kind::Special, Kind::Wide][(seed % 3) as usize]
}

/// Every second seed has special numbers.
pub fn kind(seed: u64) -> Kind {
    if seed.is_multiple_of(2) { Kind::Plain } else { Kind::Special }
}

pub fn upload<E: Number>(setup: &Setup, data: &[E], shape: &[u64]) -> Tensor<E> {
    if let Some(mut tensor) = setup.far.as_ref().and_then(|far| far.tensor(&setup.device, shape)) {
        tensor.upload_from(data).expect("upload");
        return tensor;
    }
    match *shape {
        [n] => setup.device.upload(data, [n]),
        [m, n] => setup.device.upload(data, [m, n]),
        [p, m, n] => setup.device.upload(data, [p, m, n]),
        _ => unreachable!("one to three axes"),
    }
    .expect("upload")
}

/// An output full of a number that no reference gives, so that an element nobody writes shows.
pub fn poisoned<E: Number>(setup: &Setup, shape: &[u64]) -> Tensor<E> {
    let poison = vec![E::from64(12345.0); shape.iter().product::<u64>() as usize];
    upload(setup, &poison, shape)
}

pub fn bits<E: Number>(tensor: &Tensor<E>) -> Vec<u32> {
    tensor.download().expect("download").into_iter().map(E::bits).collect()
}

/// Fails unless every element is `expected` within a relative and an absolute error before its rounding, and NaN and infinities are
/// where they should be.
#[track_caller]
pub fn near<E: Number>(tensor: &Tensor<E>, expected: impl Fn(usize) -> f64, relative: f64, absolute: impl Fn(usize) -> f64, what: &str) {
    for (n, found) in tensor.download().expect("download").into_iter().enumerate() {
        let (found, expected) = (found.to64(), expected(n));
        let rounded = E::from64(expected).to64();
        let error = relative * expected.abs() + absolute(n) + 1e-37;
        // Near the largest number a rounding may go either way: of what is that near, infinity is good and so is the largest number. Any error of an
        // infinite number would be within bounds.
        let within = if found.is_infinite() {
            found == E::from64(expected + error.copysign(expected)).to64()
        } else {
            (found - expected).abs() <= error + E::UNIT * (expected.abs() + E::NORMAL)
        };
        let good = found == rounded || found.is_nan() && expected.is_nan() || expected.is_finite() && within;
        assert!(good, "{what}: element {n} is {found}, expected {expected}");
    }
}

/// Fails unless every element has exactly these bits, or both are NaN.
#[track_caller]
pub fn exact<E: Number>(tensor: &Tensor<E>, expected: impl Fn(usize) -> E, what: &str) {
    for (n, found) in tensor.download().expect("download").into_iter().enumerate() {
        let expected = expected(n);
        let nan = found.to64().is_nan() && expected.to64().is_nan();
        assert!(nan || found.bits() == expected.bits(), "{what}: element {n} is {}, expected {}", found.to64(), expected.to64());
    }
}
