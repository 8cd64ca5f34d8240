//! Warpgroup matrix multiply (PTX ISA §9.7.16 `wgmma`): m64 × n × 32 bytes, `f32` accumulators, both operands in shared memory; fences,
//! groups and descriptors. All other shapes and types are in `wgmma_types.rs`.

use core::arch::asm;

use super::warp;

/// Orders register and shared-memory accesses before the next `wgmma`.
#[inline(always)]
pub fn fence() {
    // SAFETY: run by a converged warpgroup.
    unsafe { asm!("wgmma.fence.sync.aligned;", options(nostack)) }
}

/// Closes a group.
#[inline(always)]
pub fn commit() {
    // SAFETY: run by a converged warpgroup.
    unsafe { asm!("wgmma.commit_group.sync.aligned;", options(nostack)) }
}

/// All but the `PENDING` newest groups are complete.
#[inline(always)]
pub fn wait<const PENDING: u32>() {
    // SAFETY: run by a converged warpgroup.
    unsafe { asm!("wgmma.wait_group.sync.aligned {0};", const PENDING, options(nostack)) }
}

/// A shared-memory matrix descriptor (PTX ISA §9.7.16.5.1.2) with 128-byte swizzle.
#[derive(Clone, Copy)]
pub struct Descriptor {
    low: u32,
    high: u32,
}

impl Descriptor {
    /// Of a tile at `address`, the same in all lanes; distances in bytes. Called by whole warps in convergent code.
    ///
    /// Along the contraction (K-major): `stride` is from 8 rows to the next 8, `leading` is unused. Across it (MN-major): `leading` is
    /// from 64 columns to the next 64, `stride` from 8 steps of K to the next 8.
    #[inline(always)]
    pub fn new(address: u32, leading: u32, stride: u32) -> Descriptor {
        Descriptor::swizzled::<128>(address, leading, stride)
    }

    /// The same with a swizzle of 128, 64 or 32 bytes, or none (16), where the meanings are: along the contraction, `leading` is from 16
    /// bytes of K to the next 16; across it, `leading` is from 8 steps of K to the next 8, and `stride` from 8 columns to the next 8.
    #[inline(always)]
    pub fn swizzled<const SWIZZLE: usize>(address: u32, leading: u32, stride: u32) -> Descriptor {
        let mode = match SWIZZLE {
            128 => 1,
            64 => 2,
            32 => 3,
            _ => 0,
        };
        // wgmma takes descriptors from uniform registers, and an address out of a loop over mbarriers is not seen to be uniform.
        Descriptor { low: warp::broadcast((address & 0x3FFFF) >> 4 | (leading >> 4) << 16, 0), high: stride >> 4 | mode << 30 }
    }

    /// Of the tile `bytes` further on. The halves stay apart: a carry between them would be computed in every lane.
    #[inline(always)]
    pub fn after(self, bytes: u32) -> Descriptor {
        Descriptor { low: self.low + (bytes >> 4), ..self }
    }

    /// What the instruction takes.
    #[inline(always)]
    pub fn word(self) -> u64 {
        (self.high as u64) << 32 | self.low as u64
    }
}

macro_rules! begin {
    ($d:ident, $($i:literal)*) => {
        // SAFETY: writes a register; not `pure`, so that it stays where it is.
        $( unsafe { asm!("mov.b32 {0}, 0;", out(reg32) $d[$i], options(nostack, nomem, preserves_flags)) }; )*
    };
}

/// Zeros, of which the compiler knows nothing.
#[inline(always)]
pub fn begin(d: &mut [f32; 128]) {
    begin!(d, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    begin!(d, 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);
    begin!(d, 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95);
    begin!(d, 96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127);
}

macro_rules! settle {
    ($d:ident, $($i:literal)*) => {
        // SAFETY: an empty instruction; it makes the compiler believe that the register changes here.
        $( unsafe { asm!("/* {0} */", inout(reg32) $d[$i], options(nostack, preserves_flags)) }; )*
    };
}

/// Keeps every use of the first `N` / 2 accumulators behind the wait before this point.
#[inline(always)]
pub fn settle<const N: usize>(d: &mut [f32; 128]) {
    settle!(d, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    if N >= 128 {
        settle!(d, 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);
    }
    if N >= 256 {
        settle!(d, 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127);
    }
}

macro_rules! mma {
    ($name:ident, $shape:literal $k:literal, $ty:literal, $majors:literal, $first:literal $($i:literal)*) => {
        // SAFETY of callers: see `step`.
        #[inline(always)]
        unsafe fn $name(d: &mut [f32; 128], a: u64, b: u64) {
            // SAFETY: a converged warpgroup, descriptors of live shared memory: promised by the caller.
            unsafe {
                asm!(
                    concat!(
                        "{{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.", $shape, $k, ".f32.", $ty, ".", $ty,
                        " {{{", $first, "}", $(", {", $i, "}",)* "}}, {a}, {b}, p, 1, 1", $majors, ";}}"
                    ),
                    inout(reg32) d[$first],
                    $(inout(reg32) d[$i],)*
                    a = in(reg64) a,
                    b = in(reg64) b,
                    options(nostack)
                )
            }
        }
    };
}
macro_rules! n64 { ($name:ident, $k:literal, $ty:literal, $majors:literal) => { mma!($name, "m64n64" $k, $ty, $majors, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31); } }
macro_rules! n128 { ($name:ident, $k:literal, $ty:literal, $majors:literal) => { mma!($name, "m64n128" $k, $ty, $majors, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63); } }
macro_rules! n256 { ($name:ident, $k:literal, $ty:literal, $majors:literal) => { mma!($name, "m64n256" $k, $ty, $majors, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127); } }
n64!(mma_64_bf16_00, "k16", "bf16", ", 0, 0");
n64!(mma_64_bf16_01, "k16", "bf16", ", 0, 1");
n64!(mma_64_bf16_10, "k16", "bf16", ", 1, 0");
n64!(mma_64_bf16_11, "k16", "bf16", ", 1, 1");
n64!(mma_64_f16_00, "k16", "f16", ", 0, 0");
n64!(mma_64_f16_01, "k16", "f16", ", 0, 1");
n64!(mma_64_f16_10, "k16", "f16", ", 1, 0");
n64!(mma_64_f16_11, "k16", "f16", ", 1, 1");
n64!(mma_64_tf32, "k8", "tf32", "");
n128!(mma_128_bf16_00, "k16", "bf16", ", 0, 0");
n128!(mma_128_bf16_01, "k16", "bf16", ", 0, 1");
n128!(mma_128_bf16_10, "k16", "bf16", ", 1, 0");
n128!(mma_128_bf16_11, "k16", "bf16", ", 1, 1");
n128!(mma_128_f16_00, "k16", "f16", ", 0, 0");
n128!(mma_128_f16_01, "k16", "f16", ", 0, 1");
n128!(mma_128_f16_10, "k16", "f16", ", 1, 0");
n128!(mma_128_f16_11, "k16", "f16", ", 1, 1");
n128!(mma_128_tf32, "k8", "tf32", "");
n256!(mma_256_bf16_00, "k16", "bf16", ", 0, 0");
n256!(mma_256_bf16_01, "k16", "bf16", ", 0, 1");
n256!(mma_256_bf16_10, "k16", "bf16", ", 1, 0");
n256!(mma_256_bf16_11, "k16", "bf16", ", 1, 1");
n256!(mma_256_f16_00, "k16", "f16", ", 0, 0");
n256!(mma_256_f16_01, "k16", "f16", ", 0, 1");
n256!(mma_256_f16_10, "k16", "f16", ", 1, 0");
n256!(mma_256_f16_11, "k16", "f16", ", 1, 1");
n256!(mma_256_tf32, "k8", "tf32", "");

/// `d += a · b`, one k16 step of an m64 × `N` tile; `ACROSS_A`, `ACROSS_B`: the operand is MN-major.
///
/// # Safety
/// Run by a converged warpgroup after [`fence`]; `a` and `b` describe tiles in shared memory that stay until the group is complete;
/// `d` is not touched until then.
#[inline(always)]
pub unsafe fn step<const N: usize, const BF16: bool, const ACROSS_A: bool, const ACROSS_B: bool>(
    d: &mut [f32; 128],
    a: Descriptor,
    b: Descriptor,
) {
    const { assert!(N == 64 || N == 128 || N == 256) };
    let (a, b) = (a.word(), b.word());
    // SAFETY: passed on from the caller.
    unsafe {
        match (N, BF16, ACROSS_A, ACROSS_B) {
            (64, true, false, false) => mma_64_bf16_00(d, a, b),
            (64, true, false, true) => mma_64_bf16_01(d, a, b),
            (64, true, true, false) => mma_64_bf16_10(d, a, b),
            (64, true, true, true) => mma_64_bf16_11(d, a, b),
            (64, false, false, false) => mma_64_f16_00(d, a, b),
            (64, false, false, true) => mma_64_f16_01(d, a, b),
            (64, false, true, false) => mma_64_f16_10(d, a, b),
            (64, false, true, true) => mma_64_f16_11(d, a, b),
            (128, true, false, false) => mma_128_bf16_00(d, a, b),
            (128, true, false, true) => mma_128_bf16_01(d, a, b),
            (128, true, true, false) => mma_128_bf16_10(d, a, b),
            (128, true, true, true) => mma_128_bf16_11(d, a, b),
            (128, false, false, false) => mma_128_f16_00(d, a, b),
            (128, false, false, true) => mma_128_f16_01(d, a, b),
            (128, false, true, false) => mma_128_f16_10(d, a, b),
            (128, false, true, true) => mma_128_f16_11(d, a, b),
            (256, true, false, false) => mma_256_bf16_00(d, a, b),
            (256, true, false, true) => mma_256_bf16_01(d, a, b),
            (256, true, true, false) => mma_256_bf16_10(d, a, b),
            (256, true, true, true) => mma_256_bf16_11(d, a, b),
            (256, false, false, false) => mma_256_f16_00(d, a, b),
            (256, false, false, true) => mma_256_f16_01(d, a, b),
            (256, false, true, false) => mma_256_f16_10(d, a, b),
            (256, false, true, true) => mma_256_f16_11(d, a, b),
            _ => {}
        }
    }
}

/// `d += a · b`, one k8 step of an m64 × `N` tile of tf32, whose operands are K-major always (PTX ISA §9.7.16.5.1, major-ness).
///
/// # Safety
/// As [`step`].
#[inline(always)]
pub unsafe fn step_tf32<const N: usize>(d: &mut [f32; 128], a: Descriptor, b: Descriptor) {
    const { assert!(N == 64 || N == 128 || N == 256) };
    let (a, b) = (a.word(), b.word());
    // SAFETY: passed on from the caller.
    unsafe {
        match N {
            64 => mma_64_tf32(d, a, b),
            128 => mma_128_tf32(d, a, b),
            _ => mma_256_tf32(d, a, b),
        }
    }
}
