//! A consumer's accumulator in registers, and the WGMMA instructions that add to it (PTX ISA §9.7.16 `wgmma`).

use crate::data::element::{MmaElement, MmaFormat};
use crate::data::tile_shape::TileShape;
use crate::ptx::{barrier, wgmma};
use crate::simt::Simt;
use crate::sync::gate::Gate;
use maco_abi::{BOX, CONSUMERS, ROW_BYTES};

/// This thread's part of a sum.
pub type Sum = [f32; 128];

/// Runs a SIMT body as consumer thread `thread`.
#[inline(always)]
pub fn simt<const SHARED: usize>(thread: u32, gate: &mut Gate, scratch: u32, f: impl FnOnce(&mut Simt<'_, SHARED>)) {
    f(&mut Simt { thread, threads: CONSUMERS, gate: Some(gate), scratch });
}

/// Whether any consumer thread has seen the scratch of a body that begins. All meet here, so that they agree, and none is in another body.
#[inline(always)]
pub fn agree(seen: bool) -> bool {
    barrier::any_user(seen)
}

/// The tensor cores of this thread's warpgroup.
pub struct Wgmma;

impl Wgmma {
    #[inline(always)]
    pub fn new() -> Wgmma {
        Wgmma
    }

    /// All zero.
    #[inline(always)]
    pub fn zeros<const I: usize, const J: usize>(&self) -> Sum {
        // Not `[0.0; 128]`: that is a loop, which keeps the array in local memory.
        // SAFETY: all bits zero is 0.0.
        unsafe { core::mem::zeroed() }
    }

    /// Starts `sum += a · bᵀ` over one step; `along` says for each operand whether the contraction runs along
    /// its rows. Those of tf32 have been turned.
    ///
    /// # Safety
    /// Run by a converged warpgroup. `a` and `b` are swizzled boxes in shared memory that stay until the group is complete; `sum` is
    /// not touched until then.
    #[inline(always)]
    pub unsafe fn multiply<E: MmaElement, const I: usize, const J: usize>(&mut self, sum: &mut Sum, a: u32, b: u32, along: (bool, bool)) {
        const STRIDE: u32 = 1024;
        let leading = BOX * ROW_BYTES;
        let da = wgmma::Descriptor::new(a, leading, STRIDE);
        let db = wgmma::Descriptor::new(b, leading, STRIDE);
        wgmma::fence();
        macro_rules! steps {
            ($n:literal, $a:literal, $b:literal) => {
                if E::MMA_FORMAT == MmaFormat::Bf16 { steps!(@typed $n, true, $a, $b) } else { steps!(@typed $n, false, $a, $b) }
            };
            ($n:literal) => {{
                // SAFETY: passed on from the caller. A k8 step is 32 bytes.
                unsafe {
                    wgmma::step_tf32::<$n>(sum, da, db);
                    wgmma::step_tf32::<$n>(sum, da.after(32), db.after(32));
                    wgmma::step_tf32::<$n>(sum, da.after(64), db.after(64));
                    wgmma::step_tf32::<$n>(sum, da.after(96), db.after(96));
                }
            }};
            (@typed $n:literal, $bf16:literal, $a:literal, $b:literal) => {{
                // A k16 step is 32 bytes along the contraction, or 16 rows of 128 bytes across it.
                let (sa, sb) = (if $a { 2048 } else { 32 }, if $b { 2048 } else { 32 });
                // SAFETY: passed on from the caller.
                unsafe {
                    wgmma::step::<$n, $bf16, $a, $b>(sum, da, db);
                    wgmma::step::<$n, $bf16, $a, $b>(sum, da.after(sa), db.after(sb));
                    wgmma::step::<$n, $bf16, $a, $b>(sum, da.after(2 * sa), db.after(2 * sb));
                    wgmma::step::<$n, $bf16, $a, $b>(sum, da.after(3 * sa), db.after(3 * sb));
                }
            }};
        }
        macro_rules! majors {
            ($n:literal) => {
                match along {
                    _ if E::MMA_FORMAT == MmaFormat::Tf32 => steps!($n),
                    (false, false) => steps!($n, false, false),
                    (false, true) => steps!($n, false, true),
                    (true, false) => steps!($n, true, false),
                    (true, true) => steps!($n, true, true),
                }
            };
        }
        match TileShape::of(I as u32, J as u32).own_columns() {
            64 => majors!(64),
            128 => majors!(128),
            _ => majors!(256),
        }
    }

    /// Closes the group of what was started.
    #[inline(always)]
    pub fn commit(&mut self) {
        wgmma::commit();
    }

    /// All groups but the newest are complete.
    #[inline(always)]
    pub fn wait_older(&mut self) {
        wgmma::wait::<1>();
    }

    /// All groups are complete; more will be added to their sums.
    #[inline(always)]
    pub fn wait_newest(&mut self) {
        wgmma::wait::<0>();
    }

    /// All groups are complete.
    #[inline(always)]
    pub fn wait_all<const I: usize, const J: usize>(&mut self, sum: &mut Sum) {
        wgmma::wait::<0>();
        match TileShape::of(I as u32, J as u32).own_columns() {
            64 => wgmma::settle::<64>(sum),
            128 => wgmma::settle::<128>(sum),
            _ => wgmma::settle::<256>(sum),
        }
    }
}

/// A sum of any shape, all zero. Opaque: its registers are written here and nowhere else before products are added, whatever the tile's shape.
#[inline(always)]
pub fn begin() -> Sum {
    // SAFETY: all bits zero is 0.0; as in `Wgmma::zeros`.
    let mut sum: Sum = unsafe { core::mem::zeroed() };
    wgmma::begin(&mut sum);
    sum
}

/// The registers of a sum that an `I` × `J` tile has, into those of one of any shape.
#[inline(always)]
pub fn keep_registers<const I: usize, const J: usize>(sum: &mut Sum, own: &Sum) {
    macro_rules! each {
        ($($at:literal)*) => {$( sum[$at] = own[$at]; )*};
    }
    each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    if TileShape::of(I as u32, J as u32).own_columns() > 64 {
        each!(32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);
    }
    if TileShape::of(I as u32, J as u32).own_columns() > 128 {
        *sum = *own;
    }
}

/// `f` of two sums, element by element. Up to 128 columns: of more, two do not fit the registers.
#[inline(always)]
pub fn combine<const I: usize, const J: usize>(a: &Sum, b: &Sum, f: impl Fn(f32, f32) -> f32) -> Sum {
    const { assert!(TileShape::of(I as u32, J as u32).own_columns() <= 128) };
    // SAFETY: all bits zero is 0.0; as in `Wgmma::zeros`.
    let mut sum: Sum = unsafe { core::mem::zeroed() };
    macro_rules! each {
        ($($at:literal)*) => {$( sum[$at] = f(a[$at], b[$at]); )*};
    }
    each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    if TileShape::of(I as u32, J as u32).own_columns() > 64 {
        each!(32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);
    }
    sum
}
