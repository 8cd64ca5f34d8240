//! Tensor maps, in an encoding of this emulator, and the boxes that they describe.

pub const BYTES: usize = 128;
const MAGIC: u32 = 0x4D41_5054;

/// What a box holds, by the driver's numbers of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Map {
    pub ty: u8,
    pub rank: u8,
    pub swizzle: u8,
    pub address: u64,
    pub extents: [u64; 5],
    /// Bytes from one to the next; the first is an element.
    pub strides: [u64; 5],
    pub boxes: [u32; 5],
    pub steps: [u32; 5],
    pub nan_fill: bool,
}

pub const TFLOAT32: u8 = 11;
pub const TFLOAT32_FTZ: u8 = 12;

/// Bytes of an element of a type of the driver.
pub fn element_bytes(ty: u8) -> u64 {
    match ty {
        0 => 1,
        1 | 6 | 9 => 2,
        2 | 3 | 7 | 10 | 11 | 12 => 4,
        _ => 8,
    }
}

impl Map {
    pub fn pack(&self) -> [u64; 16] {
        let mut words = [0u64; 16];
        words[0] = u64::from(MAGIC)
            | u64::from(self.ty) << 32
            | u64::from(self.rank) << 40
            | u64::from(self.swizzle) << 48
            | (self.nan_fill as u64) << 56;
        words[1] = self.address;
        words[2..7].copy_from_slice(&self.extents);
        words[7..11].copy_from_slice(&self.strides[1..]);
        for at in 0..5 {
            words[11 + at / 2] |= u64::from(self.boxes[at]) << (at % 2 * 32);
        }
        for at in 0..5 {
            words[14] |= u64::from(self.steps[at]) << (at * 8);
        }
        words[15] = words[..15].iter().fold(0x9E37, |sum, &word| (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23));
        words
    }

    pub fn unpack(words: &[u64; 16]) -> Option<Map> {
        let mut map = Map {
            ty: (words[0] >> 32) as u8,
            rank: (words[0] >> 40) as u8,
            swizzle: (words[0] >> 48) as u8,
            nan_fill: words[0] >> 56 != 0,
            address: words[1],
            ..Map::default()
        };
        map.extents.copy_from_slice(&words[2..7]);
        map.strides[0] = element_bytes(map.ty);
        map.strides[1..].copy_from_slice(&words[7..11]);
        for at in 0..5 {
            map.boxes[at] = (words[11 + at / 2] >> (at % 2 * 32)) as u32;
            map.steps[at] = (words[14] >> (at * 8)) as u32 & 0xFF;
        }
        (words[0] as u32 == MAGIC && map.pack() == *words).then_some(map)
    }

    /// Bytes of a box in shared memory.
    pub fn bytes(&self) -> u32 {
        self.boxes[..self.rank as usize].iter().product::<u32>() * element_bytes(self.ty) as u32
    }

    /// Calls `each` with every run of elements along the first dimension: offset in the box, address, bytes in front that lie outside, bytes
    /// inside, bytes in all.
    pub fn runs(&self, at: &[i32], mut each: impl FnMut(u32, u64, u32, u32, u32) -> Result<(), String>) -> Result<(), String> {
        let rank = self.rank as usize;
        let element = element_bytes(self.ty) as i64;
        let width = i64::from(self.boxes[0]);
        let rows: u32 = self.boxes[1..rank].iter().product();
        for row in 0..rows {
            let (mut rest, mut inside, mut address) = (row, true, self.address as i64);
            for (dim, &first) in at.iter().enumerate().take(rank).skip(1) {
                let index = i64::from(first) + i64::from(rest % self.boxes[dim]);
                rest /= self.boxes[dim];
                inside &= index >= 0 && index < self.extents[dim] as i64;
                address += index * self.strides[dim] as i64;
            }
            let first = i64::from(at[0]);
            let from = (-first).clamp(0, width);
            let to = (self.extents[0] as i64 - first).clamp(from, width);
            let count = if inside { to - from } else { 0 };
            let begin = address + (first + from) * element;
            each(
                row * (width * element) as u32,
                begin as u64,
                (from * element) as u32,
                (count * element) as u32,
                (width * element) as u32,
            )?;
        }
        Ok(())
    }
}

/// Where a byte of a swizzled box lies: bits of the address that count 128-byte lines are added to those that count 16-byte chunks.
#[inline(always)]
pub fn swizzled(swizzle: u8, address: u32) -> u32 {
    match swizzle {
        1 => address ^ (address >> 7 & 1) << 4,
        2 => address ^ (address >> 7 & 3) << 4,
        3 => address ^ (address >> 7 & 7) << 4,
        _ => address,
    }
}
