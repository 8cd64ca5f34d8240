//! Products that bodies ask the tensor cores for themselves: every type, every width, every way in which operands may lie.
use maco::prelude::*;
use maco::{
    Acc, AccElement, E4M3, E5M2, Fragments, HalfOperandType, OperandType, Products, ReadTile, S8, Simt, Swizzled, Tf32, Tile, U8, Warpgroup,
};

/// Bytes of scratch: 128 rows of 128 bytes of operand A, 256 of operand B.
const SHARED: usize = 49152;
/// Where operand B begins.
const SECOND: usize = 16384;

/// Fills a tile with K from `k` on of the rows of a matrix, zeros beyond it: K along its rows, or `ACROSS` them.
///
/// # Safety
/// Called by all threads of a body, whose scratch and tile these are; nobody reads the tile.
#[inline(always)]
unsafe fn fill<T: OperandType, const ROWS: usize, const COLS: usize, const SWIZZLE: usize, const ACROSS: bool, const R: usize>(
    threads: &Simt<'_, SHARED>,
    tile: Swizzled<'_, T, ROWS, COLS, SWIZZLE>,
    from: ReadTile<T::Element, R, 0>,
    k: u32,
) {
    let mut at = threads.thread;
    while at < (ROWS * COLS) as u32 {
        let (row, col) = (at / COLS as u32, at % COLS as u32);
        let (i, k) = if ACROSS { (col, k + row) } else { (row, k + col) };
        let inside = i < from.rows() && k < from.cols();
        // SAFETY: inside the matrix.
        let element = if inside { unsafe { from.pointer(i as i32, k as i32).read() } } else { T::Element::element(Default::default()) };
        tile.write(row, col, element);
        at += threads.threads;
    }
}

/// Sums of `N` columns into columns `at..at + N` of y, over all of K, `step` elements at a time: `fill` fills scratch from an element of K on, and
/// `multiply` adds the product of 64 rows, from the first or from the 65th on.
///
/// # Safety
/// Called by all threads of a body, whose region y is.
#[inline(always)]
unsafe fn sums<T: AccElement, V: Element, const N: usize>(
    threads: &mut Simt<'_, SHARED>,
    (cols, step): (u32, usize),
    y: Tile<V, 128, 0>,
    at: u32,
    fill: impl Fn(&Simt<'_, SHARED>, u32),
    multiply: impl Fn(&Warpgroup<'_>, &mut Acc<T, N>, u32),
    element: impl Fn(T::Value) -> V,
) {
    let (mut block, count) = (threads.thread / 128, threads.threads.div_ceil(128));
    while block < 2 {
        let mut acc = Acc::<T, N>::zeros();
        let mut k = 0;
        while k < cols {
            threads.sync();
            fill(threads, k);
            threads.sync_copies();
            multiply(&threads.warpgroup(), &mut acc, 64 * block);
            k += step as u32;
        }
        acc.for_each(&threads.warpgroup(), |row, col, sum| {
            let row = row + 64 * block;
            if row < y.rows() {
                // SAFETY: inside the tile; each element is one thread's.
                unsafe { y.pointer(row as i32, (at + col) as i32).write(element(sum)) };
            }
        });
        block += count;
    }
}

/// [`sums`] with K along the rows of both operands, operand A in shared memory or in `REGISTERS`.
///
/// # Safety
/// As [`sums`].
#[inline(always)]
unsafe fn along<
    T: Products<A, B>,
    A: OperandType,
    B: OperandType,
    V: Element,
    const N: usize,
    const K: usize,
    const SWIZZLE: usize,
    const REGISTERS: bool,
>(
    threads: &mut Simt<'_, SHARED>,
    (x, w): (ReadTile<A::Element, 128, 0>, ReadTile<B::Element, 0, 0>),
    y: Tile<V, 128, 0>,
    at: u32,
    element: impl Fn(T::Value) -> V,
) {
    let a = threads.swizzled_by::<A, 0, 128, K, SWIZZLE>();
    let b = threads.swizzled_by::<B, SECOND, 256, K, SWIZZLE>();
    // SAFETY: all threads come here.
    unsafe {
        sums::<T, V, N>(
            threads,
            (x.cols(), K),
            y,
            at,
            |threads, k| {
                fill::<A, 128, K, SWIZZLE, false, 128>(threads, a, x, k);
                fill::<B, 256, K, SWIZZLE, false, 0>(threads, b, w, k);
            },
            |warpgroup, acc, row| {
                if REGISTERS {
                    let a = Fragments::<A, 4>::load(warpgroup, a.along(row));
                    warpgroup.multiply(acc, |queue| queue.add(&a, b.along(0)));
                } else {
                    warpgroup.multiply(acc, |queue| queue.add(a.along(row), b.along(0)));
                }
            },
            element,
        );
    }
}

/// [`sums`] with K along the columns of operand A (`FIRST`), of operand B (`SECOND_TOO`), or of both; the product twice added and once
/// subtracted.
///
/// # Safety
/// As [`sums`].
#[inline(always)]
unsafe fn across<
    T: Products<E, E>,
    E: HalfOperandType,
    V: Element,
    const N: usize,
    const SWIZZLE: usize,
    const FIRST: bool,
    const BOTH: bool,
>(
    threads: &mut Simt<'_, SHARED>,
    (x, w): (ReadTile<E::Element, 128, 0>, ReadTile<E::Element, 0, 0>),
    y: Tile<V, 128, 0>,
    at: u32,
    element: impl Fn(T::Value) -> V,
) {
    let a = threads.swizzled_by::<E, 0, 128, 64, SWIZZLE>();
    let turned = threads.swizzled_by::<E, 0, 64, 128, SWIZZLE>();
    let b = threads.swizzled_by::<E, SECOND, 256, 64, SWIZZLE>();
    let both = threads.swizzled_by::<E, SECOND, 64, 256, SWIZZLE>();
    // SAFETY: all threads come here.
    unsafe {
        sums::<T, V, N>(
            threads,
            (x.cols(), 64),
            y,
            at,
            |threads, k| {
                if FIRST {
                    fill::<E, 64, 128, SWIZZLE, true, 128>(threads, turned, x, k);
                } else {
                    fill::<E, 128, 64, SWIZZLE, false, 128>(threads, a, x, k);
                }
                if BOTH {
                    fill::<E, 64, 256, SWIZZLE, true, 0>(threads, both, w, k);
                } else {
                    fill::<E, 256, 64, SWIZZLE, false, 0>(threads, b, w, k);
                }
            },
            |warpgroup, acc, row| match (FIRST, BOTH) {
                (true, true) => warpgroup.multiply(acc, |queue| {
                    queue.add(turned.across(row), both.across(0));
                    queue.subtract(turned.across(row), both.across(0));
                    queue.commit();
                    queue.add(turned.across(row), both.across(0));
                    queue.commit();
                    queue.wait::<1>();
                }),
                (true, false) => warpgroup.multiply(acc, |queue| queue.add(turned.across(row), b.along(0))),
                (false, true) => {
                    let a = Fragments::<E, 4>::load(warpgroup, a.along(row));
                    warpgroup.multiply(acc, |queue| {
                        queue.add(&a, both.across(0));
                        queue.subtract(&a, both.across(0));
                        queue.add(&a, both.across(0));
                    });
                }
                (false, false) => warpgroup.multiply(acc, |queue| queue.add(a.along(row), b.along(0))),
            },
            element,
        );
    }
}

/// A body, its reference by one thread, and the task: each column range of y is a product of x with the first rows of w.
macro_rules! every {
    ($(#[$doc:meta])* $task:ident $by:ident $reference:ident $entry:ident: $x:ident $y:ident, $threads:ident $xw:ident $out:ident $body:block) => {
        /// # Safety
        /// Called by all threads of a body, whose tiles these are.
        #[inline(always)]
        unsafe fn $by($threads: &mut Simt<'_, SHARED>, x: ReadTile<$x, 128, 0>, w: ReadTile<$x, 0, 0>, $out: Tile<$y, 128, 0>) {
            let $xw = (x, w);
            // SAFETY: all threads come here.
            unsafe { $body }
        }

        fn $reference(x: ReadTile<$x, 128, 0>, w: ReadTile<$x, 0, 0>, y: Tile<$y, 128, 0>) {
            // SAFETY: this thread is all there are.
            unsafe { $by(&mut Simt::alone_with(&mut maco::Scratch::new()), x, w, y) }
        }

        $(#[$doc])*
        ///
        /// # Safety
        /// None of its own: it stays in its rows.
        #[maco::task(simt, shared = 49152, tile(i = 128), cpu = $reference)]
        pub unsafe fn $task(
            cta: &mut Cta,
            #[read(i, ..)] x: Tensor<$x, M, K>,
            #[read(.., ..)] w: Tensor<$x, R, K>,
            #[write(i, ..)] y: Tensor<$y, M, N>,
        ) {
            // SAFETY: all threads come here.
            unsafe { $by(cta, x, w, y) }
        }

        #[maco::megakernel]
        pub fn $entry(x: In<$x, M, K>, w: In<$x, R, K>, y: Out<$y, M, N>) {
            $task(x, w, y);
        }
    };
}

/// Widths of each entry's sums: one behind the other they are y.
pub const BF16: [u32; 12] = [8, 24, 64, 136, 256, 40, 48, 64, 32, 72, 24, 8];
pub const F16: [u32; 9] = [8, 256, 8, 24, 64, 136, 256, 40, 48];
pub const TF32: [u32; 4] = [8, 136, 64, 24];
/// Of both formats with both: in `f32`, then in `f16`.
pub const FP8: [u32; 8] = [24, 64, 136, 8, 72, 24, 256, 8];
/// Of signed and unsigned ones with both.
pub const INTEGERS: [u32; 8] = [8, 256, 24, 80, 64, 16, 24, 128];

every! {
    /// bf16: widths; registers; MN-major operands; swizzles.
    bf16_sums bf16_by bf16_reference products_bf16: bf16 f32, threads xw y {
        along::<f32, bf16, bf16, f32, 8, 64, 128, false>(threads, xw, y, 0, |v| v);
        along::<f32, bf16, bf16, f32, 24, 64, 128, false>(threads, xw, y, 8, |v| v);
        along::<f32, bf16, bf16, f32, 64, 64, 128, true>(threads, xw, y, 32, |v| v);
        along::<f32, bf16, bf16, f32, 136, 64, 128, false>(threads, xw, y, 96, |v| v);
        along::<f32, bf16, bf16, f32, 256, 64, 128, false>(threads, xw, y, 232, |v| v);
        across::<f32, bf16, f32, 40, 128, true, false>(threads, xw, y, 488, |v| v);
        across::<f32, bf16, f32, 48, 128, false, true>(threads, xw, y, 528, |v| v);
        across::<f32, bf16, f32, 64, 128, true, true>(threads, xw, y, 576, |v| v);
        across::<f32, bf16, f32, 32, 64, true, true>(threads, xw, y, 640, |v| v);
        across::<f32, bf16, f32, 72, 32, true, true>(threads, xw, y, 672, |v| v);
        across::<f32, bf16, f32, 24, 16, true, true>(threads, xw, y, 744, |v| v);
        across::<f32, bf16, f32, 8, 16, false, false>(threads, xw, y, 768, |v| v);
    }
}

every! {
    /// f16, in `f32` and in itself.
    f16_sums f16_by f16_reference products_f16: f16 f32, threads xw y {
        along::<f32, f16, f16, f32, 8, 64, 128, true>(threads, xw, y, 0, |v| v);
        along::<f32, f16, f16, f32, 256, 64, 128, false>(threads, xw, y, 8, |v| v);
        along::<f16, f16, f16, f32, 8, 64, 128, false>(threads, xw, y, 264, |v| v);
        along::<f16, f16, f16, f32, 24, 64, 64, false>(threads, xw, y, 272, |v| v);
        along::<f16, f16, f16, f32, 64, 64, 128, true>(threads, xw, y, 296, |v| v);
        along::<f16, f16, f16, f32, 136, 64, 128, false>(threads, xw, y, 360, |v| v);
        along::<f16, f16, f16, f32, 256, 64, 128, false>(threads, xw, y, 496, |v| v);
        across::<f32, f16, f32, 40, 128, true, true>(threads, xw, y, 752, |v| v);
        across::<f16, f16, f32, 48, 128, true, true>(threads, xw, y, 792, |v| v);
    }
}

every! {
    /// `f32` as tf32; swizzles.
    tf32_sums tf32_by tf32_reference products_tf32: f32 f32, threads xw y {
        along::<f32, Tf32, Tf32, f32, 8, 32, 128, false>(threads, xw, y, 0, |v| v);
        along::<f32, Tf32, Tf32, f32, 136, 32, 128, true>(threads, xw, y, 8, |v| v);
        along::<f32, Tf32, Tf32, f32, 64, 32, 64, false>(threads, xw, y, 144, |v| v);
        along::<f32, Tf32, Tf32, f32, 24, 32, 32, false>(threads, xw, y, 208, |v| v);
    }
}

every! {
    /// Both formats of eight bits, of the same bits.
    fp8_sums fp8_by fp8_reference products_fp8: i8 f32, threads xw y {
        along::<f32, E4M3, E4M3, f32, 24, 128, 128, false>(threads, xw, y, 0, |v| v);
        along::<f32, E4M3, E5M2, f32, 64, 128, 64, true>(threads, xw, y, 24, |v| v);
        along::<f32, E5M2, E4M3, f32, 136, 128, 32, false>(threads, xw, y, 88, |v| v);
        along::<f32, E5M2, E5M2, f32, 8, 128, 16, false>(threads, xw, y, 224, |v| v);
        along::<f16, E4M3, E4M3, f32, 72, 128, 128, true>(threads, xw, y, 232, |v| v);
        along::<f16, E4M3, E5M2, f32, 24, 128, 128, false>(threads, xw, y, 304, |v| v);
        along::<f16, E5M2, E4M3, f32, 256, 128, 128, false>(threads, xw, y, 328, |v| v);
        along::<f16, E5M2, E5M2, f32, 8, 128, 128, false>(threads, xw, y, 584, |v| v);
    }
}

every! {
    /// Integers of eight bits, signed and not, of the same bits.
    integer_sums integer_by integer_reference products_integers: i8 i32, threads xw y {
        along::<i32, S8, S8, i32, 8, 128, 128, false>(threads, xw, y, 0, |v| v);
        along::<i32, S8, U8, i32, 256, 128, 128, false>(threads, xw, y, 8, |v| v);
        along::<i32, U8, S8, i32, 24, 128, 128, false>(threads, xw, y, 264, |v| v);
        along::<i32, U8, U8, i32, 80, 128, 128, false>(threads, xw, y, 288, |v| v);
        along::<i32, S8, S8, i32, 64, 128, 128, true>(threads, xw, y, 368, |v| v);
        along::<i32, S8, U8, i32, 16, 128, 128, true>(threads, xw, y, 432, |v| v);
        along::<i32, U8, S8, i32, 24, 128, 128, true>(threads, xw, y, 448, |v| v);
        along::<i32, U8, U8, i32, 128, 128, 128, true>(threads, xw, y, 472, |v| v);
    }
}

/// Four widths: of each, its column of y has the sum of 64 rows' sums of so many columns, each times 1 or 2 by
/// where it is.
///
/// # Safety
/// Called by all threads of a body, whose tiles these are.
#[inline(always)]
unsafe fn widths<const A: usize, const B: usize, const C: usize, const D: usize>(
    threads: &mut Simt<'_, SHARED>,
    (x, w): (ReadTile<bf16, 128, 0>, ReadTile<bf16, 0, 0>),
    y: Tile<f32, 128, 0>,
) {
    let a = threads.swizzled::<bf16, 0, 128, 64>();
    let b = threads.swizzled::<bf16, SECOND, 256, 64>();
    // SAFETY: all threads come here, and nobody reads the tiles.
    unsafe {
        fill::<bf16, 128, 64, 128, false, 128>(threads, a, x, 0);
        fill::<bf16, 256, 64, 128, false, 0>(threads, b, w, 0);
    }
    threads.sync_copies();
    let warpgroup = threads.warpgroup();
    let mut block = warpgroup.index;
    while block < 2 {
        macro_rules! widths {
            ($($n:ident)*) => {$({
                let mut acc = Acc::<f32, $n>::zeros();
                warpgroup.multiply(&mut acc, |queue| queue.set(a.along(64 * block), b.along(0)));
                let mut sum = 0.0;
                acc.for_each(&warpgroup, |row, col, value| sum += value * ((row + col) % 2 + 1) as f32);
                let sum = warpgroup.sum(sum);
                let mut row = warpgroup.thread;
                while row < 64 {
                    if 64 * block + row < y.rows() {
                        // SAFETY: inside the tile; each element is one thread's.
                        unsafe { y.pointer((64 * block + row) as i32, ($n / 8 - 1) as i32).write(sum) };
                    }
                    row += warpgroup.threads;
                }
            })*};
        }
        widths!(A B C D);
        block += warpgroup.count;
    }
}

/// Every width, a few in each entry: bodies are inlined into it, or their products would be serialised, and with many of them it spills.
macro_rules! every_width {
    ($($kernel:ident $task:ident $reference:ident: $($n:literal)*;)*) => {
        $(
            fn $reference(x: ReadTile<bf16, 128, 0>, w: ReadTile<bf16, 0, 0>, y: Tile<f32, 128, 0>) {
                // SAFETY: this thread is all there are.
                unsafe { widths::<$($n),*>(&mut Simt::alone_with(&mut maco::Scratch::new()), (x, w), y) }
            }

            /// # Safety
            /// None of its own: it stays in its rows.
            #[maco::task(simt, shared = 49152, tile(i = 128), cpu = $reference)]
            pub unsafe fn $task(
                cta: &mut Cta,
                #[read(i, ..)] x: Tensor<bf16, M, K>,
                #[read(.., ..)] w: Tensor<bf16, R, K>,
                #[update(i, ..)] y: Tensor<f32, M, N>,
            ) {
                // SAFETY: all threads come here.
                unsafe { widths::<$($n),*>(cta, (x, w), y) }
            }

            #[maco::megakernel]
            pub fn $kernel(x: In<bf16, M, K>, w: In<bf16, R, K>, y: InOut<f32, M, N>) {
                $task(x, w, y);
            }
        )*
    };
}
every_width! {
    products_widths0 widths0 widths0_reference: 8 16 24 32;
    products_widths1 widths1 widths1_reference: 40 48 56 64;
    products_widths2 widths2 widths2_reference: 72 80 88 96;
    products_widths3 widths3 widths3_reference: 104 112 120 128;
    products_widths4 widths4 widths4_reference: 136 144 152 160;
    products_widths5 widths5 widths5_reference: 168 176 184 192;
    products_widths6 widths6 widths6_reference: 200 208 216 224;
    products_widths7 widths7 widths7_reference: 232 240 248 256;
}
