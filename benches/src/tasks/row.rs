//! The peers between the GEMVs of a decoder's layer: plain kernels on one row of `bf16`.

/// What `peer_rmsnorm` works on: y = x / √(mean(x²) + epsilon) · weight.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Norm {
    /// The row, at a 16-byte boundary as the others.
    pub x: *const u32,
    /// A weight for each element.
    pub weight: *const u32,
    /// The result.
    pub y: *mut u32,
    /// Elements, a multiple of 8.
    pub count: u32,
    /// Added to the mean square.
    pub epsilon: f32,
}

/// What `peer_silu_mul` works on: y = silu(gate) · up.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Gated {
    /// The gates and, behind them, as many others.
    pub gate_up: *const u32,
    /// The result.
    pub y: *mut u32,
    /// Elements of the result, a multiple of 8.
    pub count: u32,
}

/// Elements for which a CTA of [`super::plain::THREADS`] threads makes results.
pub const ELEMENTS: u32 = super::plain::THREADS * 8;

#[cfg(target_arch = "nvptx64")]
mod kernels {
    use maco_device::math::{rsqrt, sigmoid};
    use maco_device::ptx::convert::pack_bf16;
    use maco_device::ptx::memory::{load4, load4_if, store4};
    use maco_device::ptx::{special, warp};

    use super::{ELEMENTS, Gated, Norm};

    /// The two elements of a word.
    #[inline(always)]
    fn pair(word: u32) -> (f32, f32) {
        (f32::from_bits(word << 16), f32::from_bits(word & 0xffff_0000))
    }

    /// Two elements from those in the same places of two words.
    #[inline(always)]
    fn each(a: u32, b: u32, f: impl Fn(f32, f32) -> f32) -> u32 {
        let ((a0, a1), (b0, b1)) = (pair(a), pair(b));
        pack_bf16(f(a0, b0), f(a1, b1))
    }

    #[inline(always)]
    fn each4(a: [u32; 4], b: [u32; 4], f: impl Fn(f32, f32) -> f32) -> [u32; 4] {
        [each(a[0], b[0], &f), each(a[1], b[1], &f), each(a[2], b[2], &f), each(a[3], b[3], &f)]
    }

    #[inline(always)]
    fn squares(words: [u32; 4]) -> f32 {
        let square = |word: u32| {
            let (low, high) = pair(word);
            low * low + high * high
        };
        square(words[0]) + square(words[1]) + (square(words[2]) + square(words[3]))
    }

    /// Every warp sums all squares, which is faster than to wait for each other; eight loads are in flight together.
    ///
    /// # Safety
    /// A thread for every eight elements; the memory is live and as large as the struct says.
    #[unsafe(no_mangle)]
    pub unsafe extern "ptx-kernel" fn peer_rmsnorm(p: Norm) {
        let (lane, own) = (special::thread() % 32, (special::block() * ELEMENTS / 8 + special::thread()) * 8);
        let words = |at: *const u32, element: u32| at.wrapping_add((element / 2) as usize);
        let (mut sum, mut first) = (0.0, lane * 8);
        while first - lane * 8 < p.count {
            // SAFETY: passed on from the host; what is behind the end is not read.
            let part = |n: u32| squares(unsafe { load4_if(first + n * 256 < p.count, words(p.x, first + n * 256)) });
            let parts = [part(0), part(1), part(2), part(3), part(4), part(5), part(6), part(7)];
            sum += (parts[0] + parts[1]) + (parts[2] + parts[3]) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));
            first += 8 * 256;
        }
        sum += warp::shuffle_xor(sum, 16);
        sum += warp::shuffle_xor(sum, 8);
        sum += warp::shuffle_xor(sum, 4);
        sum += warp::shuffle_xor(sum, 2);
        sum += warp::shuffle_xor(sum, 1);
        let factor = rsqrt(sum / p.count as f32 + p.epsilon);
        if own < p.count {
            // SAFETY: passed on from the host.
            unsafe {
                let (x, weight) = (load4(words(p.x, own)), load4(words(p.weight, own)));
                store4(words(p.y, own).cast_mut(), each4(x, weight, |x, weight| x * factor * weight));
            }
        }
    }

    /// # Safety
    /// As for [`peer_rmsnorm`].
    #[unsafe(no_mangle)]
    pub unsafe extern "ptx-kernel" fn peer_silu_mul(p: Gated) {
        let own = (special::block() * ELEMENTS / 8 + special::thread()) * 8;
        if own < p.count {
            let words = |element: u32| p.gate_up.wrapping_add((element / 2) as usize);
            // SAFETY: passed on from the host.
            unsafe {
                let (gate, up) = (load4(words(own)), load4(words(p.count + own)));
                store4(p.y.wrapping_add((own / 2) as usize), each4(gate, up, |gate, up| gate * sigmoid(gate) * up));
            }
        }
    }
}
