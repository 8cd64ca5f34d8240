//! Element types of tensors and how their values look inside a closure.

#[cfg(target_arch = "nvptx64")]
use crate::data::exchange::Exchange;
#[cfg(target_arch = "nvptx64")]
use crate::data::lane_pairs;
use crate::data::number::Number;
use crate::data::pure::Unchanging;
use crate::data::unaligned;
#[cfg(not(target_arch = "nvptx64"))]
use crate::hardware::special;

pub use half::{bf16, f16};

/// A type a tensor may hold.
///
/// # Safety
/// Implementors are plain old data of [`Element::BYTES`] bytes, valid for any bit pattern.
pub unsafe trait Element: Copy + Send + Sync + Unchanging + 'static {
    /// What a closure sees: `f32` for floating-point elements.
    type Value: Number;
    /// Size in bytes.
    const BYTES: u32 = size_of::<Self>() as u32;
    /// Widens to the value.
    fn value(self) -> Self::Value;
    /// Rounds to nearest, ties to even.
    fn element(value: Self::Value) -> Self;
    /// Eight elements as they lie in memory, packed into registers.
    type Eight: Copy + Default + AsRef<[u32]> + AsMut<[u32]>;
    /// Eight elements from 16-byte aligned memory.
    ///
    /// # Safety
    /// `at` is valid for reads of eight elements and aligned to 16 bytes.
    unsafe fn eight(at: *const Self) -> Self::Eight;
    /// The element at `at` if `condition` holds, else one of zero bits; without a branch, behind which its use would wait for it.
    ///
    /// # Safety
    /// If `condition` holds, `at` is valid for reads.
    #[inline(always)]
    unsafe fn read_if(condition: bool, at: *const Self) -> Self {
        // SAFETY: passed on from the caller; of `BYTES` bytes, any bits are an element.
        unsafe { core::mem::transmute_copy(&Self::bits_if(condition, at)) }
    }
    /// The same as bits, which nobody waits for until they are [made a value](Element::of_bits).
    ///
    /// # Safety
    /// As there.
    #[doc(hidden)]
    #[inline(always)]
    unsafe fn bits_if(condition: bool, at: *const Self) -> u32 {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: passed on from the caller.
        unsafe {
            match size_of::<Self>() {
                1 => crate::ptx::memory::load_if::<1>(condition, at.cast()),
                2 => crate::ptx::memory::load_if::<2>(condition, at.cast()),
                _ => crate::ptx::memory::load_if::<4>(condition, at.cast()),
            }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: as above.
        unsafe {
            match (condition, size_of::<Self>()) {
                (false, _) => 0,
                (_, 1) => at.cast::<u8>().read().into(),
                (_, 2) => at.cast::<u16>().read().into(),
                _ => at.cast::<u32>().read(),
            }
        }
    }
    /// The value of an element with these bits.
    #[doc(hidden)]
    #[inline(always)]
    fn of_bits(bits: u32) -> Self::Value {
        const { assert!(Self::BYTES <= 4) };
        // SAFETY: no larger than a word; any bits are an element.
        unsafe { core::mem::transmute_copy::<u32, Self>(&bits) }.value()
    }
    /// The same of any memory: rows that came through the ring are in shared memory.
    ///
    /// # Safety
    /// If `condition` holds, `at` is valid for reads.
    #[inline(always)]
    unsafe fn read_any_if(condition: bool, at: *const Self) -> Self {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: passed on from the caller; any bits are an element.
        unsafe {
            let bits = match size_of::<Self>() {
                1 => crate::ptx::memory::load_any_if::<1>(condition, at.cast()),
                2 => crate::ptx::memory::load_any_if::<2>(condition, at.cast()),
                _ => crate::ptx::memory::load_any_if::<4>(condition, at.cast()),
            };
            core::mem::transmute_copy(&bits)
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: passed on from the caller.
        unsafe {
            Self::read_if(condition, at)
        }
    }
    /// Eight elements from 16-byte aligned memory if `condition` holds, else of zero bits; without a branch.
    ///
    /// # Safety
    /// If `condition` holds, as [`Element::eight`].
    unsafe fn eight_if(condition: bool, at: *const Self) -> Self::Eight;
    /// Eight elements from shared memory.
    ///
    /// # Safety
    /// `at` is a shared address, of eight elements of the CTA's memory and aligned to 16 bytes.
    unsafe fn eight_near(at: u32) -> Self::Eight;
    /// The same where 16 bytes are at `at`, and if that is not all of them the others at `next`.
    ///
    /// # Safety
    /// As of [`Element::eight_near`], of 16 bytes at each.
    #[inline(always)]
    unsafe fn eight_of(at: u32, next: u32) -> Self::Eight {
        let _ = next;
        // SAFETY: passed on from the caller.
        unsafe { Self::eight_near(at) }
    }
    /// Eight elements to 16-byte aligned memory.
    ///
    /// # Safety
    /// `at` is valid for writes of eight elements and aligned to 16 bytes.
    unsafe fn put(at: *mut Self, eight: Self::Eight);
    /// Whether [`Element::spread`] takes blocks of lanes in the order of `lane_pairs::block`, not one behind the other.
    const SPREADS: bool = false;
    /// Writes a block of each lane of a warp, which together are all from `at` on.
    ///
    /// # Safety
    /// Called by all lanes of the warp with the same `at`, which is valid for writes of `lane_pairs::ELEMENTS` elements and aligned to 16 bytes.
    #[inline(always)]
    unsafe fn spread(at: *mut Self, lane: u32, eight: Self::Eight) {
        // SAFETY: passed on from the caller.
        unsafe { Self::put(at.wrapping_add(8 * lane as usize), eight) }
    }
    /// Eight elements to shared memory.
    ///
    /// # Safety
    /// As [`Element::eight_near`]; nobody else writes them.
    unsafe fn put_near(at: u32, eight: Self::Eight);
    /// Elements `from..to` of eight that lie `step` elements apart from `at` on, the others zero; by a call, or `HERE`.
    ///
    /// # Safety
    /// Elements `from..to` are valid for reads.
    unsafe fn gather<const HERE: bool>(at: *const Self, step: u32, from: u32, to: u32) -> Self::Eight;
    /// Writes the first `count` of eight elements, `step` elements apart from `at` on; by a call, or `HERE`.
    ///
    /// # Safety
    /// These are valid for writes, and nobody else writes them.
    unsafe fn scatter<const HERE: bool>(at: *mut Self, step: u32, count: u32, eight: Self::Eight);
    /// Widens eight elements.
    fn open(eight: Self::Eight) -> [Self::Value; 8];
    /// Rounds eight values.
    fn close(values: [Self::Value; 8]) -> Self::Eight;
    /// The transpose of eight lines of eight elements.
    #[inline(always)]
    fn turn(lines: [Self::Eight; 8]) -> [Self::Eight; 8] {
        let [a, b, c, d, e, f, g, h] = lines;
        let low = (Self::open(a), Self::open(b), Self::open(c), Self::open(d));
        let high = (Self::open(e), Self::open(f), Self::open(g), Self::open(h));
        macro_rules! line {
            ($n:literal) => {
                Self::close([low.0[$n], low.1[$n], low.2[$n], low.3[$n], high.0[$n], high.1[$n], high.2[$n], high.3[$n]])
            };
        }
        [line!(0), line!(1), line!(2), line!(3), line!(4), line!(5), line!(6), line!(7)]
    }
    /// Eight values from 16-byte aligned memory.
    ///
    /// # Safety
    /// `at` is valid for reads of eight elements and aligned to 16 bytes.
    #[inline(always)]
    unsafe fn load8(at: *const Self) -> [Self::Value; 8] {
        // SAFETY: passed on from the caller.
        Self::open(unsafe { Self::eight(at) })
    }
    /// Eight values to 16-byte aligned memory.
    ///
    /// # Safety
    /// `at` is valid for writes of eight elements and aligned to 16 bytes.
    #[inline(always)]
    unsafe fn store8(at: *mut Self, values: [Self::Value; 8]) {
        // SAFETY: passed on from the caller.
        unsafe { Self::put(at, Self::close(values)) }
    }
}

/// What the tensor cores take an element as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MmaFormat {
    /// As it is.
    Bf16,
    /// As it is.
    F16,
    /// 8 bits of exponent and 10 of fraction, in 32 bits.
    Tf32,
}

/// A floating-point element, which closures see as `f32`. The tensor cores multiply it: `bf16` and `f16` as they are, `f32` rounded to tf32.
pub trait MmaElement: Element<Value = f32> {
    #[doc(hidden)]
    const MMA_FORMAT: MmaFormat;
    /// The value that is multiplied.
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    fn operand(self) -> f32 {
        self.value()
    }
}

/// An element of 16 bits that the tensor cores multiply.
#[diagnostic::on_unimplemented(
    message = "MACO0017: `gemv` multiplies `bf16` or `f16`, not `{Self}`",
    note = "cast to one of them (`to_bf16`, `to_f16`), or use `mma`, which takes `f32` as tf32"
)]
pub trait HalfElement: MmaElement + Element<Eight = [u32; 4]> {
    /// Its bits.
    #[doc(hidden)]
    fn half(self) -> u16;
}

/// Loads four 32-bit words; the widest access a thread has (PTX ISA §9.7.9.8 `ld`, `.v4.b32`).
#[inline(always)]
pub(crate) unsafe fn words(at: *const u32) -> [u32; 4] {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller promises 16 readable bytes at a 16-byte boundary.
    unsafe {
        crate::ptx::memory::load4(at)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: the caller promises 16 readable bytes.
    unsafe {
        at.cast::<[u32; 4]>().read()
    }
}

/// The same, if `condition` holds; else zeros.
#[inline(always)]
unsafe fn words_if(condition: bool, at: *const u32) -> [u32; 4] {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller promises 16 readable bytes at a 16-byte boundary.
    unsafe {
        crate::ptx::memory::load4_global_if(condition, at)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: as above.
    unsafe {
        if condition { words(at) } else { [0; 4] }
    }
}

/// The same of shared memory.
#[inline(always)]
unsafe fn words_near(at: u32) -> [u32; 4] {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller promises 16 readable bytes at a 16-byte boundary.
    unsafe {
        crate::ptx::memory::load_shared4(at)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: as above.
    unsafe {
        words(special::generic(at) as *const u32)
    }
}

/// Four words to shared memory.
#[inline(always)]
unsafe fn set_words_near(at: u32, words: [u32; 4]) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller promises 16 writable bytes at a 16-byte boundary.
    unsafe {
        crate::ptx::memory::store_shared4(at, words)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: as above.
    unsafe {
        set_words(special::generic(at) as *mut u32, words)
    }
}

#[inline(always)]
unsafe fn set_words(at: *mut u32, words: [u32; 4]) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller promises 16 writable bytes at a 16-byte boundary.
    unsafe {
        crate::ptx::memory::store4(at, words)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: the caller promises 16 writable bytes.
    unsafe {
        at.cast::<[u32; 4]>().write(words)
    }
}

/// # Safety
/// As [`unaligned::gather`].
#[inline(always)]
unsafe fn gather<const HERE: bool, const BYTES: u32>(at: u64, step: u64, from: u32, to: u32) -> unaligned::Words {
    // SAFETY: passed on from the caller.
    unsafe { if HERE { unaligned::gather_here::<BYTES>(at, step, from, to) } else { unaligned::gather::<BYTES>(at, step, from, to) } }
}

/// # Safety
/// As [`unaligned::scatter`].
#[inline(always)]
unsafe fn scatter<const HERE: bool, const BYTES: u32>(at: u64, step: u64, count: u32, words: unaligned::Words) {
    // SAFETY: passed on from the caller.
    unsafe {
        if HERE { unaligned::scatter_here::<BYTES>(at, step, count, words) } else { unaligned::scatter::<BYTES>(at, step, count, words) }
    }
}

#[inline(always)]
fn split((low, high): unaligned::Words) -> [u32; 4] {
    [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32]
}

#[inline(always)]
fn join(w: [u32; 4]) -> unaligned::Words {
    (u64::from(w[0]) | u64::from(w[1]) << 32, u64::from(w[2]) | u64::from(w[3]) << 32)
}

macro_rules! two_bytes {
    ($ty:ident, $pack:ident, $format:ident) => {
        // SAFETY: `half` types are `repr(transparent)` over `u16`.
        unsafe impl Element for $ty {
            type Value = f32;
            #[inline(always)]
            fn value(self) -> f32 {
                unpack::$ty(self.to_bits())
            }
            #[inline(always)]
            fn element(value: f32) -> Self {
                Self::from_bits(unpack::$pack(value, 0.0) as u16)
            }
            type Eight = [u32; 4];
            /// Halves of words, as they are.
            #[inline(always)]
            fn turn([a, b, c, d, e, f, g, h]: [[u32; 4]; 8]) -> [[u32; 4]; 8] {
                let low = |first: u32, second: u32| first & 0xffff | second << 16;
                let high = |first: u32, second: u32| first >> 16 | second & 0xffff_0000;
                macro_rules! lines {
                    ($word:literal) => {
                        (
                            [low(a[$word], b[$word]), low(c[$word], d[$word]), low(e[$word], f[$word]), low(g[$word], h[$word])],
                            [high(a[$word], b[$word]), high(c[$word], d[$word]), high(e[$word], f[$word]), high(g[$word], h[$word])],
                        )
                    };
                }
                let (first, second, third, fourth) = (lines!(0), lines!(1), lines!(2), lines!(3));
                [first.0, first.1, second.0, second.1, third.0, third.1, fourth.0, fourth.1]
            }
            #[inline(always)]
            unsafe fn eight(at: *const Self) -> [u32; 4] {
                // SAFETY: passed on from the caller.
                unsafe { words(at.cast()) }
            }
            #[inline(always)]
            unsafe fn eight_if(condition: bool, at: *const Self) -> [u32; 4] {
                // SAFETY: passed on from the caller.
                unsafe { words_if(condition, at.cast()) }
            }
            #[inline(always)]
            unsafe fn eight_near(at: u32) -> [u32; 4] {
                // SAFETY: passed on from the caller.
                unsafe { words_near(at) }
            }
            #[inline(always)]
            unsafe fn put_near(at: u32, w: [u32; 4]) {
                // SAFETY: passed on from the caller.
                unsafe { set_words_near(at, w) }
            }
            #[inline(always)]
            unsafe fn put(at: *mut Self, w: [u32; 4]) {
                // SAFETY: passed on from the caller.
                unsafe { set_words(at.cast(), w) }
            }
            #[inline(always)]
            unsafe fn gather<const HERE: bool>(at: *const Self, step: u32, from: u32, to: u32) -> [u32; 4] {
                // SAFETY: passed on from the caller.
                split(unsafe { gather::<HERE, 2>(at as u64, u64::from(step) * 2, from, to) })
            }
            #[inline(always)]
            unsafe fn scatter<const HERE: bool>(at: *mut Self, step: u32, count: u32, w: [u32; 4]) {
                // SAFETY: passed on from the caller.
                unsafe { scatter::<HERE, 2>(at as u64, u64::from(step) * 2, count, join(w)) }
            }
            #[inline(always)]
            fn open(w: [u32; 4]) -> [f32; 8] {
                let low = |w: u32| unpack::$ty(w as u16);
                let high = |w: u32| unpack::$ty((w >> 16) as u16);
                [low(w[0]), high(w[0]), low(w[1]), high(w[1]), low(w[2]), high(w[2]), low(w[3]), high(w[3])]
            }
            #[inline(always)]
            fn close(v: [f32; 8]) -> [u32; 4] {
                [unpack::$pack(v[0], v[1]), unpack::$pack(v[2], v[3]), unpack::$pack(v[4], v[5]), unpack::$pack(v[6], v[7])]
            }
        }
        impl MmaElement for $ty {
            const MMA_FORMAT: MmaFormat = MmaFormat::$format;
        }
        impl HalfElement for $ty {
            #[inline(always)]
            fn half(self) -> u16 {
                self.to_bits()
            }
        }
    };
}
two_bytes!(bf16, pack_bf16, Bf16);
two_bytes!(f16, pack_f16, F16);

macro_rules! four_bytes {
    ($ty:ident) => {
        // SAFETY: a primitive of four bytes, valid for any bit pattern.
        unsafe impl Element for $ty {
            type Value = $ty;
            #[inline(always)]
            fn value(self) -> $ty {
                self
            }
            #[inline(always)]
            fn element(value: $ty) -> Self {
                value
            }
            type Eight = [u32; 8];
            #[inline(always)]
            unsafe fn eight(at: *const Self) -> [u32; 8] {
                // SAFETY: passed on from the caller: 32 bytes at a 16-byte boundary.
                let (a, b) = unsafe { (words(at.cast()), words(at.add(4).cast())) };
                [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
            }
            #[inline(always)]
            unsafe fn eight_if(condition: bool, at: *const Self) -> [u32; 8] {
                // SAFETY: passed on from the caller: 32 bytes at a 16-byte boundary.
                let (a, b) = unsafe { (words_if(condition, at.cast()), words_if(condition, at.wrapping_add(4).cast())) };
                [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
            }
            #[inline(always)]
            unsafe fn eight_near(at: u32) -> [u32; 8] {
                // SAFETY: passed on from the caller: 32 bytes at a 16-byte boundary.
                let (a, b) = unsafe { (words_near(at), words_near(at + 16)) };
                [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
            }
            #[inline(always)]
            unsafe fn eight_of(at: u32, next: u32) -> [u32; 8] {
                // SAFETY: passed on from the caller.
                let (a, b) = unsafe { (words_near(at), words_near(next)) };
                [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
            }
            #[inline(always)]
            unsafe fn put_near(at: u32, w: [u32; 8]) {
                // SAFETY: passed on from the caller.
                unsafe {
                    set_words_near(at, [w[0], w[1], w[2], w[3]]);
                    set_words_near(at + 16, [w[4], w[5], w[6], w[7]]);
                }
            }
            #[inline(always)]
            unsafe fn put(at: *mut Self, w: [u32; 8]) {
                // SAFETY: passed on from the caller.
                unsafe {
                    set_words(at.cast(), [w[0], w[1], w[2], w[3]]);
                    set_words(at.add(4).cast(), [w[4], w[5], w[6], w[7]]);
                }
            }
            const SPREADS: bool = cfg!(target_arch = "nvptx64");
            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn spread(at: *mut Self, lane: u32, w: [u32; 8]) {
                let given = lane_pairs::given(lane, w);
                let got = [given[0].of_lane(1), given[1].of_lane(1), given[2].of_lane(1), given[3].of_lane(1)];
                let (first, second) = lane_pairs::stored(lane, w, got);
                let at = at.wrapping_add(4 * lane as usize);
                // SAFETY: passed on from the caller: each lane's 16 bytes of either half.
                unsafe {
                    set_words(at.cast(), first);
                    set_words(at.wrapping_add(lane_pairs::ELEMENTS as usize / 2).cast(), second);
                }
            }
            #[inline(always)]
            unsafe fn gather<const HERE: bool>(at: *const Self, step: u32, from: u32, to: u32) -> [u32; 8] {
                let step = u64::from(step) * 4;
                // SAFETY: passed on from the caller, for each half.
                let (a, b) = unsafe {
                    (
                        gather::<HERE, 4>(at as u64, step, from, to),
                        gather::<HERE, 4>((at as u64).wrapping_add(4 * step), step, from.saturating_sub(4), to.saturating_sub(4)),
                    )
                };
                let (a, b) = (split(a), split(b));
                [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
            }
            #[inline(always)]
            unsafe fn scatter<const HERE: bool>(at: *mut Self, step: u32, count: u32, w: [u32; 8]) {
                let step = u64::from(step) * 4;
                // SAFETY: passed on from the caller, for each half.
                unsafe {
                    scatter::<HERE, 4>(at as u64, step, count, join([w[0], w[1], w[2], w[3]]));
                    scatter::<HERE, 4>((at as u64).wrapping_add(4 * step), step, count.saturating_sub(4), join([w[4], w[5], w[6], w[7]]));
                }
            }
            #[inline(always)]
            fn open(w: [u32; 8]) -> [$ty; 8] {
                let v = |w: u32| $ty::from_ne_bytes(w.to_ne_bytes());
                [v(w[0]), v(w[1]), v(w[2]), v(w[3]), v(w[4]), v(w[5]), v(w[6]), v(w[7])]
            }
            #[inline(always)]
            fn close(v: [$ty; 8]) -> [u32; 8] {
                let w = |v: $ty| u32::from_ne_bytes(v.to_ne_bytes());
                [w(v[0]), w(v[1]), w(v[2]), w(v[3]), w(v[4]), w(v[5]), w(v[6]), w(v[7])]
            }
        }
    };
}
four_bytes!(f32);
impl MmaElement for f32 {
    const MMA_FORMAT: MmaFormat = MmaFormat::Tf32;
    #[cfg(not(target_arch = "nvptx64"))]
    fn operand(self) -> f32 {
        crate::math::tf32(self)
    }
}
four_bytes!(i32);
four_bytes!(u32);

// SAFETY: a primitive of one byte, valid for any bit pattern.
unsafe impl Element for i8 {
    /// Values outside −128 to 127 become the nearest of these.
    type Value = i32;
    type Eight = [u32; 2];
    #[inline(always)]
    fn value(self) -> i32 {
        self.into()
    }
    #[inline(always)]
    fn element(value: i32) -> i8 {
        value.clamp(-128, 127) as i8
    }
    #[inline(always)]
    unsafe fn eight(at: *const i8) -> [u32; 2] {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: passed on from the caller.
        unsafe {
            crate::ptx::memory::load2(at.cast())
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: passed on from the caller.
        unsafe {
            at.cast::<[u32; 2]>().read()
        }
    }
    #[inline(always)]
    unsafe fn put_near(at: u32, w: [u32; 2]) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: passed on from the caller.
        unsafe {
            crate::ptx::memory::store_shared2(at, w)
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: passed on from the caller.
        unsafe {
            Self::put(special::generic(at) as *mut i8, w)
        }
    }
    #[inline(always)]
    unsafe fn eight_if(condition: bool, at: *const i8) -> [u32; 2] {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: passed on from the caller.
        unsafe {
            crate::ptx::memory::load2_if(condition, at.cast())
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: passed on from the caller.
        unsafe {
            if condition { Self::eight(at) } else { [0; 2] }
        }
    }
    #[inline(always)]
    unsafe fn eight_near(at: u32) -> [u32; 2] {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: passed on from the caller.
        unsafe {
            crate::ptx::memory::load_shared2(at)
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: passed on from the caller.
        unsafe {
            Self::eight(special::generic(at) as *const i8)
        }
    }
    #[inline(always)]
    unsafe fn put(at: *mut i8, w: [u32; 2]) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: passed on from the caller.
        unsafe {
            crate::ptx::memory::store2(at.cast(), w)
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: passed on from the caller.
        unsafe {
            at.cast::<[u32; 2]>().write(w)
        }
    }
    #[inline(always)]
    unsafe fn gather<const HERE: bool>(at: *const i8, step: u32, from: u32, to: u32) -> [u32; 2] {
        // SAFETY: passed on from the caller.
        let w = split(unsafe { gather::<HERE, 1>(at as u64, step.into(), from, to) });
        [w[0], w[1]]
    }
    #[inline(always)]
    unsafe fn scatter<const HERE: bool>(at: *mut i8, step: u32, count: u32, w: [u32; 2]) {
        // SAFETY: passed on from the caller.
        unsafe { scatter::<HERE, 1>(at as u64, step.into(), count, join([w[0], w[1], 0, 0])) }
    }
    #[inline(always)]
    fn open(w: [u32; 2]) -> [i32; 8] {
        let byte = |w: u32, n: u32| (w << (24 - 8 * n)) as i32 >> 24;
        let four = |w| (byte(w, 0), byte(w, 1), byte(w, 2), byte(w, 3));
        let (low, high) = (four(w[0]), four(w[1]));
        [low.0, low.1, low.2, low.3, high.0, high.1, high.2, high.3]
    }
    #[inline(always)]
    fn close(v: [i32; 8]) -> [u32; 2] {
        let byte = |n: usize| u32::from(Self::element(v[n]) as u8);
        let four = |n: usize| byte(n) | byte(n + 1) << 8 | byte(n + 2) << 16 | byte(n + 3) << 24;
        [four(0), four(4)]
    }
}

/// Two `f32` rounded to elements of 16 bits and packed, first one in the low half.
#[inline(always)]
pub fn pack<E: MmaElement>(low: f32, high: f32) -> u32 {
    if E::MMA_FORMAT == MmaFormat::Bf16 { unpack::pack_bf16(low, high) } else { unpack::pack_f16(low, high) }
}

/// An element of the word that [`pack`] makes: the one in the high half, or the low one. Of `f32`, the word.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub(crate) fn unpacked<E: MmaElement>(word: u32, high: bool) -> f32 {
    let half = if high { word >> 16 } else { word };
    match E::MMA_FORMAT {
        MmaFormat::Bf16 => unpack::bf16(half as u16),
        MmaFormat::F16 => unpack::f16(half as u16),
        MmaFormat::Tf32 => f32::from_bits(word),
    }
}

#[cfg(target_arch = "nvptx64")]
mod unpack {
    pub use crate::ptx::convert::{pack_bf16, pack_f16};
    #[inline(always)]
    pub fn bf16(bits: u16) -> f32 {
        f32::from_bits((bits as u32) << 16)
    }
    #[inline(always)]
    pub fn f16(bits: u16) -> f32 {
        crate::ptx::convert::f16_to_f32(bits)
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod unpack {
    #[inline(always)]
    pub fn bf16(bits: u16) -> f32 {
        half::bf16::from_bits(bits).to_f32()
    }
    #[inline(always)]
    pub fn f16(bits: u16) -> f32 {
        half::f16::from_bits(bits).to_f32()
    }
    #[inline(always)]
    pub fn pack_bf16(low: f32, high: f32) -> u32 {
        half::bf16::from_f32(low).to_bits() as u32 | (half::bf16::from_f32(high).to_bits() as u32) << 16
    }
    #[inline(always)]
    pub fn pack_f16(low: f32, high: f32) -> u32 {
        half::f16::from_f32(low).to_bits() as u32 | (half::f16::from_f32(high).to_bits() as u32) << 16
    }
}
