//! The jump to the code of an instance, which several may share.

use core::marker::PhantomData;

use super::instance::{Form, INSTANCES};
use super::{Callable, Filter, Instances};
use crate::data::epilogue::{Epilogues, Identity, WithEpilogue};
use crate::data::task::Task;
use crate::data::tile_shape::TileShape;
use crate::role::{Role, Sharing};

/// Instance `N`.
enum Only<const N: u32> {}

impl<const N: u32> Filter for Only<N> {
    const MASK: u128 = 1 << N;
}

/// What is asked of instances when a kernel runs, as masks.
struct Masks<C, F>(PhantomData<(C, F)>);

/// Some instances, and of these those with certain tiles.
#[derive(Clone, Copy)]
struct Tiles {
    all: u128,
    /// Of GEMMs 128 rows, of GEMVs 16.
    tall: u128,
    /// Of GEMMs 256 columns, of GEMVs 16.
    wide: u128,
    /// Of GEMVs 32 columns.
    widest: u128,
    /// Results have elements of four bytes.
    four_bytes: u128,
}

impl<C: Callable, F: Filter> Masks<C, F> {
    const ALL: &'static Instances = &C::INSTANCES;
    /// GEMMs with one sum, and GEMVs.
    const TILES: [Tiles; 2] = {
        let mut tiles = [Tiles { all: 0, tall: 0, wide: 0, widest: 0, four_bytes: 0 }; 2];
        let mut n = 0;
        while n < u128::BITS {
            let one = Self::ALL.0[n as usize];
            let (kind, tall, wide, widest) = match one.form() {
                Form::Gemm(rows, columns) => (0, rows == 128, columns == 256, false),
                Form::Gemv(rows, columns) => (1, rows == 16, columns == 16, columns == 32),
                Form::Function | Form::Other => (2, false, false, false),
            };
            if kind < 2 && F::MASK >> n & 1 != 0 {
                let of = &mut tiles[kind];
                of.all |= 1 << n;
                of.tall |= (tall as u128) << n;
                of.wide |= (wide as u128) << n;
                of.widest |= (widest as u128) << n;
                of.four_bytes |= (one.has_four_bytes() as u128) << n;
            }
            n += 1;
        }
        tiles
    };
    const GEMMS: u128 = Self::TILES[0].all;
}

/// Bit `slot` of `mask`, one of the bits of `of`; no instruction if all of these are the same.
#[inline(always)]
fn bit(mask: u128, of: u128, slot: u32) -> bool {
    if mask == 0 || mask == of {
        return mask != 0;
    }
    match of {
        _ if of <= u32::MAX as u128 => mask as u32 >> slot & 1 != 0,
        _ if of <= u64::MAX as u128 => mask as u64 >> slot & 1 != 0,
        _ => mask >> slot & 1 != 0,
    }
}

/// Whether instance `slot` is a GEMM with one sum, which it ends with.
#[inline(always)]
pub fn is_gemm<C: Callable, F: Filter>(slot: u32) -> bool {
    bit(Masks::<C, F>::GEMMS, F::MASK, slot)
}

/// The tile's shape of such a GEMM.
#[inline(always)]
pub fn gemm_shape<C: Callable, F: Filter>(slot: u32) -> TileShape {
    let [Tiles { all, tall, wide, .. }, _] = const { Masks::<C, F>::TILES };
    TileShape { tall: bit(tall, all, slot), wide: bit(wide, all, slot) }
}

/// Rows and columns of the tile of such a GEMM.
#[inline(always)]
fn gemm_tile<C: Callable, F: Filter>(slot: u32) -> (u32, u32) {
    let shape = gemm_shape::<C, F>(slot);
    (shape.rows(), shape.columns())
}

/// Rows and columns of the tile of a GEMV.
#[inline(always)]
fn gemv_tile<C: Callable, F: Filter>(slot: u32) -> (u32, u32) {
    let [_, Tiles { all, tall, wide, widest, .. }] = const { Masks::<C, F>::TILES };
    let rows = if bit(tall, all, slot) { 16 } else { 8 };
    let columns = if bit(widest, all, slot) { 32 } else { 8 };
    (rows, if bit(wide, all, slot) { 16 } else { columns })
}

/// The instances of `F` that are GEMMs with one sum.
pub struct Gemms<C, F>(PhantomData<(C, F)>);

impl<C: Callable, F: Filter> Filter for Gemms<C, F> {
    const MASK: u128 = Masks::<C, F>::GEMMS;
}

/// The instances of `F` that are no GEMMs with one sum.
pub struct NotGemms<C, F>(PhantomData<(C, F)>);

impl<C: Callable, F: Filter> Filter for NotGemms<C, F> {
    const MASK: u128 = F::MASK & !Masks::<C, F>::GEMMS;
}

/// [`Role::SHARING`] in the megakernel `C`.
const fn sharing<C: Callable, R: Role, F: Filter>() -> Sharing {
    let (all, mut n) = (Masks::<C, F>::ALL, 0);
    while n < C::SLOTS && (n as usize) < INSTANCES {
        if matches!(all.0[n as usize].form(), Form::Gemm(..)) {
            return R::SHARING;
        }
        n += 1;
    }
    if matches!(R::SHARING, Sharing::Gemvs) { Sharing::None } else { R::SHARING }
}

/// The first of the instances that have one code with instance `n`.
const fn code_of<C: Callable, R: Role, F: Filter>(n: u32) -> u32 {
    let (all, sharing) = (Masks::<C, F>::ALL, sharing::<C, R, F>());
    let mut first = 0;
    while first < n {
        if F::MASK >> first & 1 != 0 && all.0[first as usize].shares(all.0[n as usize], sharing) {
            return first;
        }
        first += 1;
    }
    n
}

/// The first of the instances that end as instance `n`.
const fn end_of<C: Callable, F: Filter>(n: u32) -> u32 {
    let all = Masks::<C, F>::ALL;
    let mut first = 0;
    while first < n {
        if F::MASK >> first & 1 != 0
            && matches!(all.0[first as usize].form(), Form::Gemm(..))
            && all.0[first as usize].ends_as(all.0[n as usize])
        {
            return first;
        }
        first += 1;
    }
    n
}

/// A number for each instance, eight of them in a word; nothing if each has its own.
type Numbers = Option<[u64; INSTANCES / 8]>;

/// [`code_of`] of all instances.
const fn codes<C: Callable, R: Role, F: Filter>() -> Numbers {
    let (mut numbers, mut shared, mut n) = ([0; INSTANCES / 8], false, 0);
    while n < C::SLOTS && (n as usize) < INSTANCES {
        let code = code_of::<C, R, F>(n);
        shared |= F::MASK >> n & 1 != 0 && code != n;
        numbers[n as usize / 8] |= (code as u64) << (n % 8 * 8);
        n += 1;
    }
    if shared { Some(numbers) } else { None }
}

/// [`end_of`] of all instances.
const fn ends<C: Callable, F: Filter>() -> Numbers {
    let (mut numbers, mut shared, mut n) = ([0; INSTANCES / 8], false, 0);
    while n < C::SLOTS && (n as usize) < INSTANCES {
        let end = end_of::<C, F>(n);
        shared |= Masks::<C, F>::GEMMS >> n & 1 != 0 && end != n;
        numbers[n as usize / 8] |= (end as u64) << (n % 8 * 8);
        n += 1;
    }
    if shared { Some(numbers) } else { None }
}

/// Word `n` of numbers, which are needed.
const fn word_of(numbers: Numbers, n: usize) -> u64 {
    match numbers {
        Some(words) => words[n],
        None => 0,
    }
}

/// The word of `words` that has the number of instance `slot`, one of `count`.
#[inline(always)]
fn word_with(words: [u64; 16], count: u32, slot: u32) -> u64 {
    // Half of them at a time, as long as there are any in the other half.
    let half = |first: u32, bit: u32, low: u64, high: u64| if count > first * 8 && slot & bit != 0 { high } else { low };
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = words;
    let low = half(2, 16, half(1, 8, a, b), half(3, 8, c, d));
    let low = half(4, 32, low, half(6, 16, half(5, 8, e, f), half(7, 8, g, h)));
    let high = half(10, 16, half(9, 8, i, j), half(11, 8, k, l));
    let high = half(12, 32, high, half(14, 16, half(13, 8, m, n), half(15, 8, o, p)));
    half(8, 64, low, high)
}

/// The number of an instance among [`Numbers`], which are known at compile time: `slot` of as many as `C` has. Each word is a constant in the code: what is looked up in
/// memory is waited for by the first task of every launch, some 0.7 µs in each role.
macro_rules! number {
    ($numbers:expr, $count:expr, $slot:expr) => {
        number!($numbers, $count, $slot, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    ($numbers:expr, $count:expr, $slot:expr, $($n:literal)*) => {
        match const { $numbers.is_some() } {
            true => (word_with([$(const { word_of($numbers, $n) }),*], $count, $slot) >> ($slot % 8 * 8)) as u32 & 0xff,
            false => $slot,
        }
    };
}

/// Calls a macro with the number of every instance that can be asked for.
macro_rules! each_instance {
    ($call:ident) => {
        $call!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127)
    };
}

/// Runs instance `slot` of a whole megakernel: one jump, however many callables there are and however deep they are nested. Every
/// arm is compiled for one instance; others that have the same code as this role go there too.
///
/// `slot` is an instance of `C` in `F`: what a plan for `C` puts into a descriptor.
#[inline(always)]
pub fn dispatch<C: Callable, R: Role, F: Filter>(role: &mut R, task: Task, slot: u32) {
    let code = number!(codes::<C, R, F>(), C::SLOTS, slot);
    macro_rules! jump {
        ($($n:literal)*) => {
            match code {
                $($n => if const { $n < C::SLOTS && F::MASK >> $n & 1 != 0 && code_of::<C, R, F>($n) == $n } {
                    match const { (sharing::<C, R, F>(), Masks::<C, F>::ALL.0[$n].form()) } {
                        (Sharing::Bodies, Form::Gemm(..)) => {
                            role.set_tile(Some(gemm_tile::<C, F>(slot)));
                            let [Tiles { all, four_bytes, .. }, _] = const { Masks::<C, F>::TILES };
                            role.set_four_bytes(bit(four_bytes, all, slot));
                        }
                        (Sharing::Bodies | Sharing::Gemvs, Form::Gemv(..)) => role.set_tile(Some(gemv_tile::<C, F>(slot))),
                        (Sharing::Bodies | Sharing::Gemvs, _) => role.set_tile(None),
                        (Sharing::None | Sharing::Loops, _) => {}
                    }
                    if const { matches!(Masks::<C, F>::ALL.0[$n].form(), Form::Gemv(..) | Form::Function) } {
                        role.begin_function();
                    }
                    C::dispatch::<R, Identity, Only<$n>>(role, task, $n)
                } else {
                    // SAFETY: as above.
                    unsafe { core::hint::unreachable_unchecked() }
                })*
                // SAFETY: as above.
                _ => unsafe { core::hint::unreachable_unchecked() },
            }
        };
    }
    each_instance!(jump)
}

/// The epilogues of the GEMMs of `C` in `F`.
pub struct ChosenEpilogue<C, F>(PhantomData<(C, F)>);

impl<C: Callable, F: Filter> Epilogues for ChosenEpilogue<C, F> {
    #[inline(always)]
    fn with<W: WithEpilogue>(slot: u32, what: W) -> W::Output {
        let end = number!(ends::<C, F>(), C::SLOTS, slot);
        macro_rules! jump {
            ($($n:literal)*) => {
                match end {
                    $($n => if const { Masks::<C, F>::GEMMS >> $n & 1 != 0 && end_of::<C, F>($n) == $n } {
                        C::with_epilogue::<W, Identity, Only<$n>>($n, what)
                    } else {
                        // SAFETY: as above.
                        unsafe { core::hint::unreachable_unchecked() }
                    })*
                    // SAFETY: as above.
                    _ => unsafe { core::hint::unreachable_unchecked() },
                }
            };
        }
        each_instance!(jump)
    }
}
