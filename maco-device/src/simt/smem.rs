//! Scratch of SIMT bodies in shared memory: addresses, accesses, bulk copies, and matrix fragments of a warp.
//!
//! Which pages of the ring these are, and when they are released, does not belong here: see `roles/consumer.rs`. Barriers in scratch are in `mbarrier.rs`.

use core::marker::PhantomData;

use crate::data::element::Element;
use crate::hardware::{fence, scratch};
use crate::simt::Simt;
use crate::simt::mbarrier::Mbarrier;
#[cfg(any(target_arch = "nvptx64", doc))]
use crate::simt::warp::Warp;

/// Bytes that one access of [`Smem::read16`] and [`Smem::write16`] moves, and to whose multiples scratch is divided.
const LINE: usize = 16;

/// Memory of the host that stands for the `SHARED` bytes of a body's scratch, in a reference that has the same code as the body: see
/// [`Simt::alone_with`].
#[repr(C, align(16))]
pub struct Scratch<const SHARED: usize>([u8; SHARED]);

impl<const SHARED: usize> Scratch<SHARED> {
    /// Memory that nobody has used: what is read without having been written looks like NaN, where a GPU has what was there before.
    #[allow(clippy::new_without_default, reason = "not a value that something else would contain")]
    pub fn new() -> Self {
        Scratch([0xff; SHARED])
    }
}

impl<'a, const SHARED: usize> Simt<'a, SHARED> {
    /// One thread that runs the whole body with this scratch: for a reference on the CPU. Copies are made at once there. On a GPU, where nobody
    /// runs references, it ends the kernel.
    pub fn alone_with(scratch: &'a mut Scratch<SHARED>) -> Self {
        Simt { thread: 0, threads: 1, gate: None, scratch: scratch::of_host(&mut scratch.0) }
    }
}

impl<'a, const SHARED: usize> Simt<'a, SHARED> {
    /// `N` elements of the body's scratch from byte `AT` on, a multiple of 16; with scratch that begins at a multiple of 1024. Parts may overlap: they
    /// are places, and who uses which when is the body's affair. What is there at the beginning is what another task left.
    ///
    /// Parts that end beyond `SHARED` bytes do not compile (MACO0020).
    #[inline(always)]
    pub fn shared<T: Element, const AT: usize, const N: usize>(&self) -> Smem<'a, T, N> {
        const {
            assert!(
                AT.is_multiple_of(LINE),
                "MACO0020: a part of shared memory begins at a multiple of 16 bytes\nhelp: 16-byte accesses and bulk copies need that"
            );
            assert!(
                AT + N * size_of::<T>() <= SHARED,
                "MACO0020: this part of shared memory ends beyond what the task asks for\nhelp: write more bytes into `#[task(simt, shared = ..)]`, at most 196608"
            );
        }
        // SAFETY: inside the scratch.
        Smem { at: unsafe { scratch::after(self.place(), AT as u32) }, scratch: PhantomData }
    }

    /// The first byte of the scratch.
    #[inline(always)]
    pub(crate) fn place(&self) -> scratch::Address {
        #[cfg(not(target_arch = "nvptx64"))]
        assert!(!self.scratch.is_null(), "a reference makes its scratch itself: `Simt::alone_with(&mut Scratch::new())`");
        self.scratch
    }

    /// [`Simt::sync`], behind which bulk copies see what threads have written to scratch before, and may overwrite it (PTX ISA §9.7.13.4
    /// `fence.proxy.async`). Every thread of the body comes here.
    #[inline(always)]
    pub fn sync_copies(&self) {
        fence::proxy_async_shared();
        self.sync();
    }

    /// Barrier of `THREADS` threads, whole warps, at most 256, all of which say the same; others do not come here (PTX ISA §9.7.13.1 `bar.sync`
    /// on named barriers 6 to 15). `ID` is below 10; two groups of threads that may be at such a barrier at the same time have two of them. In a
    /// reference, nothing: one thread plays all groups, one after another.
    ///
    /// For bodies with scratch only: they meet before they begin, so that no two of them are at the same barrier.
    #[inline(always)]
    pub fn sync_some<const ID: u32, const THREADS: u32>(&self) {
        const {
            assert!(SHARED > 0, "MACO0017: only a body with `shared = ..` has barriers of some of its threads");
            assert!(ID < 10, "MACO0017: a body has ten barriers of some of its threads, 0 to 9");
            assert!(
                THREADS > 0 && THREADS.is_multiple_of(32) && THREADS <= maco_abi::CONSUMERS,
                "MACO0017: threads come to a barrier in warps of 32, at most 256 of them"
            );
        }
        #[cfg(target_arch = "nvptx64")]
        crate::ptx::barrier::sync_some::<ID, THREADS>();
    }
}

/// `N` elements in the shared memory of a body, in order: made by [`Simt::shared`].
///
/// Elements are plain data, valid whatever their bits are, so nothing here is undefined but which bits a thread reads of an element that another
/// one writes without a barrier between the two. An index beyond the end is a panic on the CPU and ends the kernel on a GPU (`trap`), where the
/// launch is an error.
pub struct Smem<'a, T, const N: usize> {
    at: scratch::Address,
    scratch: PhantomData<(&'a (), *mut T)>,
}

impl<T, const N: usize> Clone for Smem<'_, T, N> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, const N: usize> Copy for Smem<'_, T, N> {}

impl<T: Element, const N: usize> Smem<'_, T, N> {
    /// Elements of one access of 16 bytes.
    pub const LINE: u32 = LINE as u32 / T::BYTES;

    /// Where elements `first..first + count` begin.
    #[inline(always)]
    fn place(self, first: u32, count: u32) -> scratch::Address {
        if count as usize > N || first > N as u32 - count {
            scratch::out_of_range(first, count, N);
        }
        // SAFETY: inside this part of the scratch.
        unsafe { scratch::after(self.at, first * T::BYTES) }
    }

    /// Element `i` (PTX ISA §9.7.9.8 `ld.shared`).
    #[inline(always)]
    pub fn read(self, i: u32) -> T {
        // SAFETY: an element of the scratch, whose parts are aligned.
        unsafe { scratch::load(self.place(i, 1)) }
    }

    /// Elements `i` to `i + 3`, which may lie anywhere: as many accesses as by [`Smem::read`], but asked once whether they are there.
    #[inline(always)]
    pub fn read_four(self, i: u32) -> [T; 4] {
        let place = self.place(i, 4);
        // SAFETY: as above.
        let element = |n: u32| unsafe { scratch::load(scratch::after(place, n * T::BYTES)) };
        [element(0), element(1), element(2), element(3)]
    }

    /// Makes element `i` be `element` (PTX ISA §9.7.9.11 `st.shared`).
    #[inline(always)]
    pub fn write(self, i: u32, element: T) {
        // SAFETY: as above.
        unsafe { scratch::store(self.place(i, 1), element) }
    }

    /// Writes what [`Smem::read_four`] reads.
    #[inline(always)]
    pub fn write_four(self, i: u32, [a, b, c, d]: [T; 4]) {
        let place = self.place(i, 4);
        // SAFETY: as above.
        let put = |n: u32, element: T| unsafe { scratch::store(scratch::after(place, n * T::BYTES), element) };
        put(0, a);
        put(1, b);
        put(2, c);
        put(3, d);
    }

    /// The [`Smem::LINE`] elements from `i` on, a multiple of as many, as they lie: one access of 16 bytes (`ld.shared.v4.b32`).
    #[inline(always)]
    pub fn read16(self, i: u32) -> [u32; 4] {
        // SAFETY: 16 bytes of the scratch, at a multiple of 16 bytes of an aligned part.
        unsafe { scratch::load4(self.line(i)) }
    }

    /// Writes what [`Smem::read16`] reads (`st.shared.v4.b32`).
    #[inline(always)]
    pub fn write16(self, i: u32, words: [u32; 4]) {
        // SAFETY: as above.
        unsafe { scratch::store4(self.line(i), words) }
    }

    #[inline(always)]
    fn line(self, i: u32) -> scratch::Address {
        if !i.is_multiple_of(Self::LINE) {
            scratch::out_of_range(i, Self::LINE, N);
        }
        self.place(i, Self::LINE)
    }

    /// Asks for elements `first..first + count` from global memory, and goes on: they are there when the phase of `barrier` that expects their
    /// bytes is complete (PTX ISA §9.7.9.25.4 `cp.async.bulk`, with `fence.proxy.async.global` before it, since tasks that wrote `from` wrote
    /// it otherwise). One thread calls.
    ///
    /// # Safety
    /// `from` is `count` readable elements, inside the tensor that it was made from, at a multiple of 16 bytes, as are `first` and `count`, which is
    /// not 0. `barrier` expects the bytes in its present phase ([`Mbarrier::arrive_expect`]), and somebody waits for it before the barrier's
    /// scope ends: the copy must not outlive the body. What threads have written to these elements before lies behind a
    /// [`Simt::sync_copies`], and nobody uses them meanwhile.
    #[inline(always)]
    pub unsafe fn load(self, first: u32, from: *const T, count: u32, barrier: &Mbarrier<'_>) {
        fence::proxy_async_global();
        // SAFETY: passed on from the caller.
        unsafe { scratch::bulk_load(self.place(first, count), from as u64, count * T::BYTES, barrier.at) }
    }

    /// Copies elements `first..first + count` to global memory; when it returns, they are there, as if this thread had stored them (PTX ISA
    /// §9.7.9.25.4 `cp.async.bulk`, its group's `wait_group 0` and `fence.proxy.async.global`). One thread calls.
    ///
    /// # Safety
    /// `to` is `count` writable elements, inside the task's region, at a multiple of 16 bytes, as are `first` and `count`, which is not 0. What
    /// threads have written to these elements lies behind a [`Simt::sync_copies`], and nobody writes them meanwhile.
    #[inline(always)]
    pub unsafe fn store(self, first: u32, to: *mut T, count: u32) {
        // SAFETY: passed on from the caller.
        unsafe { scratch::bulk_store(to as u64, self.place(first, count), count * T::BYTES) };
        scratch::complete();
        fence::proxy_async_global();
    }
}

/// On a GPU only: a warp of a reference has one lane, and a reference moves elements.
#[cfg(any(target_arch = "nvptx64", doc))]
impl<T: Element, const N: usize> Smem<'_, T, N> {
    /// The shared address of the first element, for PTX of one's own (`.shared::cta`).
    #[inline(always)]
    pub fn address(self) -> u32 {
        self.at as _
    }

    /// `X` matrices of 8 × 8 elements of 16 bits, 1, 2 or 4 (PTX ISA §9.7.15.5.15 `ldmatrix`). Lane `8m + r` says where row `r` of matrix `m`
    /// begins, an element whose number is a multiple of 8; lanes from `8 * X` on any such number. Of matrix `m`, word `m` of lane `4g + t` has
    /// the elements at columns 2t (low half) and 2t + 1 of row g; of a `TRANSPOSED` one, at rows 2t and 2t + 1 of column g.
    ///
    /// What other threads have written is there behind a barrier.
    #[inline(always)]
    pub fn load_matrix<const X: usize, const TRANSPOSED: bool>(self, _: &Warp<'_>, row: u32) -> [u32; X] {
        // SAFETY: a token of the whole warp, which promises with it to come here together; eight elements of the scratch, at a multiple of 16
        // bytes.
        unsafe { crate::ptx::matrix::load::<X, TRANSPOSED>(self.matrix_row::<X>(row)) }
    }

    /// Writes what [`Smem::load_matrix`] reads (PTX ISA §9.7.15.5.16 `stmatrix`).
    #[inline(always)]
    pub fn store_matrix<const X: usize, const TRANSPOSED: bool>(self, _: &Warp<'_>, row: u32, fragments: [u32; X]) {
        // SAFETY: as above; rows that lanes name twice are as undecided as elements that threads write twice.
        unsafe { crate::ptx::matrix::store::<X, TRANSPOSED>(self.matrix_row::<X>(row), fragments) }
    }

    #[inline(always)]
    fn matrix_row<const X: usize>(self, row: u32) -> u32 {
        const {
            assert!(T::BYTES == 2, "MACO0017: `ldmatrix` and `stmatrix` are for elements of 16 bits: bf16 and f16");
            assert!(X == 1 || X == 2 || X == 4, "MACO0017: `ldmatrix` and `stmatrix` move 1, 2 or 4 matrices");
        }
        self.line(row) as _
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;
    use crate::data::element::bf16;

    #[test]
    fn parts_are_places() {
        let mut scratch = Scratch::<64>::new();
        let cta = Simt::alone_with(&mut scratch);
        let (all, low, high) = (cta.shared::<f32, 0, 16>(), cta.shared::<bf16, 0, 16>(), cta.shared::<bf16, 32, 16>());
        assert!(all.read(3).is_nan());
        low.write(1, bf16::from_f32(1.5));
        low.write(0, bf16::from_f32(0.0));
        assert_eq!(all.read(0), 1.5);
        all.write16(8, [0, 1.25f32.to_bits(), 2, 3]);
        assert_eq!((high.read(3).to_f32(), high.read16(0)), (1.25, [0, 1.25f32.to_bits(), 2, 3]));
    }

    #[test]
    #[should_panic = "elements 15..17 of a `Smem` of 16"]
    fn a_copy_stays_inside() {
        let mut scratch = Scratch::<64>::new();
        let cta = Simt::alone_with(&mut scratch);
        // SAFETY: refused.
        unsafe { cta.shared::<f32, 0, 16>().store(15, core::ptr::dangling_mut(), 2) };
    }

    #[test]
    #[should_panic = "elements 16..17 of a `Smem` of 16"]
    fn an_index_stays_inside() {
        let mut scratch = Scratch::<64>::new();
        Simt::alone_with(&mut scratch).shared::<f32, 0, 16>().write(16, 0.0);
    }

    #[test]
    #[should_panic = "elements 2..6 of a `Smem` of 16"]
    fn lines_are_aligned() {
        let mut scratch = Scratch::<64>::new();
        Simt::alone_with(&mut scratch).shared::<f32, 0, 16>().read16(2);
    }

    #[test]
    fn four_elements_may_lie_anywhere_inside() {
        let mut scratch = Scratch::<64>::new();
        let cta = Simt::alone_with(&mut scratch);
        let part = cta.shared::<u32, 16, 9>();
        part.write_four(5, [1, 2, 3, 4]);
        assert_eq!(part.read_four(4), [u32::MAX, 1, 2, 3]);
        assert_eq!([5, 6, 7, 8].map(|i| part.read(i)), [1, 2, 3, 4]);
    }

    #[test]
    #[should_panic = "elements 6..10 of a `Smem` of 9"]
    fn four_elements_do_not_reach_over_the_end() {
        let mut scratch = Scratch::<64>::new();
        let _ = Simt::alone_with(&mut scratch).shared::<u32, 16, 9>().read_four(6);
    }
}
