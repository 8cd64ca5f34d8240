//! Element types of tensors and how their values look inside a closure.

pub use half::{bf16, f16};

/// A type a tensor may hold.
///
/// # Safety
/// Implementors are plain old data of [`Element::BYTES`] bytes, valid for any bit pattern.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// What a closure sees: `f32` for floating-point elements.
    type Value: Copy + Default;
    /// Size in bytes.
    const BYTES: u32 = size_of::<Self>() as u32;
    /// Widens to the value.
    fn value(self) -> Self::Value;
    /// Rounds to nearest, ties to even.
    fn element(value: Self::Value) -> Self;
    /// Eight elements from 16-byte aligned memory.
    ///
    /// # Safety
    /// `at` is valid for reads of eight elements and aligned to 16 bytes.
    unsafe fn load8(at: *const Self) -> [Self::Value; 8];
    /// Eight elements to 16-byte aligned memory.
    ///
    /// # Safety
    /// `at` is valid for writes of eight elements and aligned to 16 bytes.
    unsafe fn store8(at: *mut Self, values: [Self::Value; 8]);
}

/// A floating-point element: closures see `f32`.
pub trait FloatElement: Element<Value = f32> {}

impl<E: Element<Value = f32>> FloatElement for E {}

/// An element the tensor cores multiply.
pub trait MmaElement: FloatElement {
    /// Whether the wgmma type is `bf16` (else `f16`).
    const BF16: bool;
}

/// Loads four 32-bit words; the widest access a thread has (PTX ISA §9.7.9.8 `ld`, `.v4.b32`).
#[inline(always)]
unsafe fn words(at: *const u32) -> [u32; 4] {
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

macro_rules! two_bytes {
    ($ty:ident, $pack:ident, $bf16:literal) => {
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
            #[inline(always)]
            unsafe fn load8(at: *const Self) -> [f32; 8] {
                // SAFETY: passed on from the caller.
                let w = unsafe { words(at.cast()) };
                let low = |w: u32| unpack::$ty(w as u16);
                let high = |w: u32| unpack::$ty((w >> 16) as u16);
                [low(w[0]), high(w[0]), low(w[1]), high(w[1]), low(w[2]), high(w[2]), low(w[3]), high(w[3])]
            }
            #[inline(always)]
            unsafe fn store8(at: *mut Self, v: [f32; 8]) {
                let w = [unpack::$pack(v[0], v[1]), unpack::$pack(v[2], v[3]), unpack::$pack(v[4], v[5]), unpack::$pack(v[6], v[7])];
                // SAFETY: passed on from the caller.
                unsafe { set_words(at.cast(), w) }
            }
        }
        impl MmaElement for $ty {
            const BF16: bool = $bf16;
        }
    };
}
two_bytes!(bf16, pack_bf16, true);
two_bytes!(f16, pack_f16, false);

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
            #[inline(always)]
            unsafe fn load8(at: *const Self) -> [$ty; 8] {
                // SAFETY: passed on from the caller: 32 bytes at a 16-byte boundary.
                let (a, b) = unsafe { (words(at.cast()), words(at.add(4).cast())) };
                let v = |w: u32| $ty::from_ne_bytes(w.to_ne_bytes());
                [v(a[0]), v(a[1]), v(a[2]), v(a[3]), v(b[0]), v(b[1]), v(b[2]), v(b[3])]
            }
            #[inline(always)]
            unsafe fn store8(at: *mut Self, v: [$ty; 8]) {
                let w = |v: $ty| u32::from_ne_bytes(v.to_ne_bytes());
                // SAFETY: passed on from the caller.
                unsafe {
                    set_words(at.cast(), [w(v[0]), w(v[1]), w(v[2]), w(v[3])]);
                    set_words(at.add(4).cast(), [w(v[4]), w(v[5]), w(v[6]), w(v[7])]);
                }
            }
        }
    };
}
four_bytes!(f32);
four_bytes!(i32);
four_bytes!(u32);

/// Two `f32` rounded and packed, first one in the low half.
#[inline(always)]
pub fn pack<E: MmaElement>(low: f32, high: f32) -> u32 {
    if E::BF16 { unpack::pack_bf16(low, high) } else { unpack::pack_f16(low, high) }
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
