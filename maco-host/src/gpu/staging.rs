//! Copies between pageable host memory and the GPU, through two pinned buffers in turn.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys;

use super::context::Context;
use super::events::EventHandle;
use super::memory::PinnedMemory;
use crate::error::Error;
use crate::tensor::Rows;

/// Bytes of both pinned buffers, unless it is set.
pub(super) const PINNED: usize = 8 << 20;
/// A buffer has whole pages of the host.
const PAGE: usize = 4096;

/// Most bytes from one row to the next in a 2-D copy, of every GPU (CUDA driver API, `cuMemcpy2D`, `CU_DEVICE_ATTRIBUTE_MAX_PITCH`).
const PITCH: usize = i32::MAX as usize;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Upload,
    Download,
}

/// Two pinned buffers: one is filled or emptied by the host while the copy engine works on the other.
pub(super) struct Staging {
    buffers: [Buffer; 2],
    /// Of both, as it was asked for.
    bytes: usize,
}

struct Buffer {
    memory: PinnedMemory,
    /// Recorded behind the last copy.
    done: Arc<EventHandle>,
}

/// A rectangle that fits a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// First row and number of rows.
    row: usize,
    rows: usize,
    /// First byte of each row and number of bytes.
    byte: usize,
    bytes: usize,
}

impl Piece {
    fn size(&self) -> usize {
        self.rows * self.bytes
    }
}

/// Cuts `rows` into pieces of at most `limit` bytes: whole rows, one where they are too far apart for a 2-D copy, or parts of one.
fn pieces(rows: Rows, limit: usize) -> impl Iterator<Item = Piece> {
    let (per_row, per_piece) = match rows.bytes {
        bytes if bytes > limit => (bytes.div_ceil(limit), 1),
        _ if rows.pitch > PITCH => (1, 1),
        bytes => (1, limit / bytes.max(1)),
    };
    let wide = if per_row == 1 { rows.bytes } else { limit };
    (0..rows.count).step_by(per_piece.max(1)).flat_map(move |row| {
        (0..per_row).map(move |part| Piece {
            row,
            rows: per_piece.min(rows.count - row),
            byte: part * wide,
            bytes: wide.min(rows.bytes - part * wide),
        })
    })
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Upload => "an upload",
            Direction::Download => "a download",
        })
    }
}

impl Staging {
    /// The context is current.
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Staging, Error> {
        let each = (bytes / 2).max(1).checked_next_multiple_of(PAGE).unwrap_or(bytes);
        let buffer =
            || Ok::<_, Error>(Buffer { memory: PinnedMemory::new(context, each, "a copy buffer")?, done: EventHandle::new(context)? });
        Ok(Staging { buffers: [buffer()?, buffer()?], bytes })
    }

    /// Whether it was made for so many bytes.
    pub(super) fn has(&self, bytes: usize) -> bool {
        self.bytes == bytes
    }

    /// Its events, for the context to destroy with its own.
    pub(super) fn events(&self) -> impl Iterator<Item = sys::CUevent> {
        self.buffers.iter().map(|buffer| buffer.done.raw())
    }

    /// Copies `rows` between `device` (at their pitch) and `host` (without padding), and waits.
    ///
    /// # Safety
    /// `host` has `rows.count × rows.bytes` bytes, writable for a download; `device` is memory of this GPU with these rows.
    pub(super) unsafe fn copy(
        &mut self,
        context: &Arc<Context>,
        direction: Direction,
        device: u64,
        rows: Rows,
        host: *mut u8,
    ) -> Result<(), Error> {
        // SAFETY: passed on from the caller.
        let result = unsafe { self.pipeline(context, direction, device, rows, host) };
        if result.is_err() && context.alive().is_ok() {
            // Copies that were queued before the failure still use the buffers; those of a lost device keep them.
            // SAFETY: the stream is the context's.
            let _ = unsafe { context.drain(context.copies()) };
        }
        result
    }

    unsafe fn pipeline(&self, context: &Context, direction: Direction, device: u64, rows: Rows, host: *mut u8) -> Result<(), Error> {
        let stream = context.copies();
        let mut pending: [Option<Piece>; 2] = [None; 2];
        for (n, piece) in pieces(rows, self.buffers[0].memory.bytes()).enumerate() {
            let buffer = &self.buffers[n % 2];
            // SAFETY: pieces are parts of the rows and fit a buffer, which the host touches only when the event behind its last copy
            // has passed; the caller promises both sides.
            unsafe {
                buffer.finish(context, direction, rows, host, pending[n % 2].replace(piece))?;
                if direction == Direction::Upload {
                    exchange(direction, piece, rows, host, buffer.memory.pointer());
                }
                enqueue(context, direction, piece, rows.pitch, device, buffer.memory.pointer(), stream)?;
                buffer.done.record(context, stream)?;
            }
        }
        for (buffer, piece) in self.buffers.iter().zip(pending) {
            // SAFETY: as above.
            unsafe { buffer.finish(context, direction, rows, host, piece)? };
        }
        Ok(())
    }
}

impl Buffer {
    /// Waits for the copy in a buffer, and takes what it brought.
    unsafe fn finish(&self, context: &Context, direction: Direction, rows: Rows, host: *mut u8, piece: Option<Piece>) -> Result<(), Error> {
        let Some(piece) = piece else { return Ok(()) };
        self.done.synchronize(context)?;
        if direction == Direction::Download {
            // SAFETY: passed on from the caller; the copy has ended.
            unsafe { exchange(direction, piece, rows, host, self.memory.pointer()) };
        }
        Ok(())
    }
}

/// Moves a piece between the user's memory and a pinned buffer.
unsafe fn exchange(direction: Direction, piece: Piece, rows: Rows, host: *mut u8, pinned: *mut u8) {
    for row in 0..piece.rows {
        // SAFETY: the caller promises rows of `rows.bytes` bytes at `host` and a buffer that the piece fits.
        unsafe {
            let user = host.add((piece.row + row) * rows.bytes + piece.byte);
            let packed = pinned.add(row * piece.bytes);
            match direction {
                Direction::Upload => packed.copy_from_nonoverlapping(user, piece.bytes),
                Direction::Download => packed.copy_to_nonoverlapping(user, piece.bytes),
            }
        }
    }
}

/// Queues the copy of a piece; more than one row is a 2-D copy.
unsafe fn enqueue(
    context: &Context,
    direction: Direction,
    piece: Piece,
    pitch: usize,
    device: u64,
    pinned: *mut u8,
    stream: sys::CUstream,
) -> Result<(), Error> {
    let at = device + (piece.row * pitch + piece.byte) as u64;
    // SAFETY: the caller promises both sides; the stream is the context's.
    unsafe {
        match (direction, piece.rows) {
            (Direction::Upload, 1) => {
                context.check("cuMemcpyHtoDAsync", sys::cuMemcpyHtoDAsync_v2(at, pinned.cast(), piece.size(), stream))
            }
            (Direction::Download, 1) => {
                context.check("cuMemcpyDtoHAsync", sys::cuMemcpyDtoHAsync_v2(pinned.cast(), at, piece.size(), stream))
            }
            _ => context.check("cuMemcpy2DAsync", sys::cuMemcpy2DAsync_v2(&rectangle(direction, piece, pitch, at, pinned), stream)),
        }
    }
}

fn rectangle(direction: Direction, piece: Piece, pitch: usize, device: u64, pinned: *mut u8) -> sys::CUDA_MEMCPY2D {
    let (host, gpu) = (sys::CUmemorytype::CU_MEMORYTYPE_HOST, sys::CUmemorytype::CU_MEMORYTYPE_DEVICE);
    let up = direction == Direction::Upload;
    sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: if up { host } else { gpu },
        srcHost: if up { pinned.cast_const().cast() } else { std::ptr::null() },
        srcDevice: if up { 0 } else { device },
        srcArray: std::ptr::null_mut(),
        srcPitch: if up { piece.bytes } else { pitch },
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: if up { gpu } else { host },
        dstHost: if up { std::ptr::null_mut() } else { pinned.cast() },
        dstDevice: if up { device } else { 0 },
        dstArray: std::ptr::null_mut(),
        dstPitch: if up { pitch } else { piece.bytes },
        WidthInBytes: piece.bytes,
        Height: piece.rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_every_byte_once_and_fit() {
        for (count, bytes, limit) in
            [(1, 10, 100), (1, 100, 100), (1, 101, 100), (7, 30, 100), (7, 100, 100), (3, 250, 100), (1, 1, 1), (5, 3, 2)]
        {
            let rows = Rows { count, bytes, pitch: bytes + 5 };
            let mut seen = vec![0; count * bytes];
            for piece in pieces(rows, limit) {
                assert!(piece.size() <= limit && piece.size() > 0, "{piece:?}");
                for row in piece.row..piece.row + piece.rows {
                    seen[row * bytes + piece.byte..][..piece.bytes].iter_mut().for_each(|n| *n += 1);
                }
            }
            assert!(seen.iter().all(|&n| n == 1), "{count} × {bytes} by {limit}");
        }
    }

    #[test]
    fn rows_beyond_the_2d_pitch_limit_are_copied_singly() {
        for (pitch, count) in [(PITCH, 1), (PITCH + 1, 3), (1 << 33, 3)] {
            let pieces: Vec<Piece> = pieces(Rows { count: 3, bytes: 10, pitch }, 100).collect();
            assert_eq!((pieces.len(), pieces.iter().map(|piece| piece.rows).sum::<usize>()), (count, 3), "{pitch}");
        }
    }

    #[test]
    fn exchange_packs_and_unpacks() {
        let rows = Rows { count: 4, bytes: 6, pitch: 8 };
        let mut user: Vec<u8> = (0..24).collect();
        let original = user.clone();
        let mut pinned = vec![0u8; 6];
        for piece in pieces(rows, 4) {
            // SAFETY: four rows of six bytes; every piece has at most four bytes.
            unsafe {
                exchange(Direction::Upload, piece, rows, user.as_mut_ptr(), pinned.as_mut_ptr());
                let at = piece.row * rows.bytes + piece.byte;
                assert_eq!(&pinned[..piece.bytes], &original[at..at + piece.bytes]);
                pinned[..piece.bytes].iter_mut().for_each(|byte| *byte += 100);
                exchange(Direction::Download, piece, rows, user.as_mut_ptr(), pinned.as_mut_ptr());
            }
        }
        assert!(user.iter().zip(&original).all(|(new, old)| *new == old + 100));
    }

    #[test]
    fn rectangles_have_the_pitch_on_the_device_side() {
        let piece = Piece { row: 2, rows: 3, byte: 0, bytes: 10 };
        let up = rectangle(Direction::Upload, piece, 16, 0x1000, std::ptr::dangling_mut());
        assert_eq!((up.srcPitch, up.dstPitch, up.dstDevice, up.WidthInBytes, up.Height), (10, 16, 0x1000, 10, 3));
        let down = rectangle(Direction::Download, piece, 16, 0x1000, std::ptr::dangling_mut());
        assert_eq!((down.srcPitch, down.dstPitch, down.srcDevice, down.WidthInBytes, down.Height), (16, 10, 0x1000, 10, 3));
    }
}
