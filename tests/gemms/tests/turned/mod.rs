//! Matrices as transposed forms have them in memory.

use crate::support::Number;

/// `rows` × `cols`, transposed.
pub fn turned<E: Number>(data: &[E], rows: u64, cols: u64) -> Vec<E> {
    (0..cols).flat_map(|col| (0..rows).map(move |row| data[(row * cols + col) as usize])).collect()
}

/// Matrices of `rows` × `cols`, each transposed.
pub fn turned_planes<E: Number>(data: &[E], rows: u64, cols: u64) -> Vec<E> {
    data.chunks((rows * cols).max(1) as usize).flat_map(|plane| turned(plane, rows, cols)).collect()
}
