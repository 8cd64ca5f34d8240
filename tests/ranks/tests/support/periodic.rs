//! Numbers that come again and again: gigabytes of them are stored, sent and looked at a piece at a time.

use std::cell::RefCell;

use maco::{Device, Tensor, TensorElement};

use super::Value;

/// A prime, so that no tile, row or part is a multiple of it: what comes from a wrong place is wrong.
const PERIOD: usize = 65_537;
/// Numbers that are copied at a time.
const PIECE: usize = 1 << 17;

/// Number n of them is that of n modulo [`PERIOD`].
pub struct Numbers<E>(Vec<E>);

impl<E: Value + TensorElement> Numbers<E> {
    pub fn new(of: impl Fn(u64) -> E) -> Numbers<E> {
        let mut all: Vec<E> = (0..PERIOD as u64).map(of).collect();
        all.extend_from_within(..);
        all.extend_from_within(..PERIOD + PIECE - all.len());
        Numbers(all)
    }

    fn from(&self, first: usize, count: usize) -> &[E] {
        &self.0[first % PERIOD..][..count]
    }

    /// Stores the numbers from 0 on.
    pub fn fill(&self, tensor: &Tensor<E>) {
        pieces(tensor, |first, mut piece| piece.upload_from(self.from(first, piece.len())).unwrap());
    }

    /// Fails unless `tensor` has the numbers from `first` on.
    #[track_caller]
    pub fn check(&self, tensor: &Tensor<E>, first: usize, what: &str) {
        let mut buffer = vec![E::of(0); PIECE.min(tensor.len())];
        pieces(tensor, |at, piece| {
            let found = &mut buffer[..piece.len()];
            piece.download_into(found).unwrap();
            let expected = self.from(first + at, found.len());
            if found != expected {
                let wrong = (0..found.len()).find(|&n| found[n] != expected[n]).unwrap();
                panic!("{what}: number {} of {} is {:?}, not {:?}", at + wrong, tensor.len(), found[wrong], expected[wrong]);
            }
        });
    }
}

/// What lies around tensors that are a part of something.
const AROUND: i64 = 99;

/// Memory that nobody but a tensor in it may change.
struct Surroundings<E> {
    memory: Tensor<E>,
    first: usize,
    rows: usize,
    columns: usize,
    stride: usize,
}

/// Where a test has its tensors.
pub struct Memory<'a, E> {
    device: &'a Device,
    /// How far behind a boundary they begin, and how many elements lie between two rows.
    place: Option<[usize; 2]>,
    kept: RefCell<Vec<Surroundings<E>>>,
}

impl<'a, E: Value + TensorElement> Memory<'a, E> {
    /// Each in memory of its own.
    pub fn own(device: &'a Device) -> Memory<'a, E> {
        Memory { device, place: None, kept: RefCell::default() }
    }

    /// Each in the middle of other memory: `first` elements behind a boundary, with `gap` elements between two rows.
    pub fn within(device: &'a Device, first: usize, gap: usize) -> Memory<'a, E> {
        Memory { device, place: Some([first, gap]), kept: RefCell::default() }
    }

    pub fn tensor(&self, shape: &[u64]) -> Tensor<E> {
        let Some([first, gap]) = self.place else { return self.device.zeros::<E>(shape).unwrap() };
        let columns = shape.last().map_or(1, |columns| *columns as usize);
        let rows = shape[..shape.len() - 1].iter().product::<u64>() as usize;
        let stride = (columns + gap).max(1);
        let memory = self.device.upload(&vec![E::of(AROUND); first + rows * stride + 9], [first + rows * stride + 9]).unwrap();
        // SAFETY: so many rows are in the memory, which is kept, and used by nobody else before `check`.
        let tensor = unsafe { Tensor::from_raw(self.device, memory.as_ptr().cast_mut().add(first), shape, stride as u64) }.unwrap();
        self.kept.borrow_mut().push(Surroundings { memory, first, rows, columns, stride });
        tensor
    }

    pub fn filled(&self, numbers: &Numbers<E>, shape: &[u64]) -> Tensor<E> {
        let tensor = self.tensor(shape);
        numbers.fill(&tensor);
        tensor
    }

    /// Fails if anything but the tensors has changed.
    #[track_caller]
    pub fn check(self, what: &str) {
        for Surroundings { memory, first, rows, columns, stride } in self.kept.into_inner() {
            for (n, found) in memory.download().unwrap().into_iter().enumerate() {
                let is_in = n >= first && (n - first) / stride < rows && (n - first) % stride < columns;
                assert!(is_in || found == E::of(AROUND), "{what}: element {n} beside the tensor became {found:?}");
            }
        }
    }
}

/// Calls `each` with pieces of the tensor, and which number each begins with.
fn pieces<E: TensorElement>(tensor: &Tensor<E>, mut each: impl FnMut(usize, Tensor<E>)) {
    let columns = tensor.shape().last().map_or(1, |columns| *columns as usize);
    let is_flat = tensor.row_stride() as usize == columns || tensor.len() == columns;
    let mut first = 0;
    while first < tensor.len() {
        let left = tensor.len() - first;
        let piece = if is_flat {
            part(tensor, first, &[left.min(PIECE) as u64])
        } else {
            let rows = (PIECE / columns).clamp(1, left / columns);
            part(tensor, first / columns * tensor.row_stride() as usize, &[rows as u64, columns as u64])
        };
        let count = piece.len();
        each(first, piece);
        first += count;
    }
}

/// A part of `tensor` that begins `offset` elements behind its address, with rows as far apart.
fn part<E: TensorElement>(tensor: &Tensor<E>, offset: usize, shape: &[u64]) -> Tensor<E> {
    let stride = if shape.len() == 1 { shape[0] } else { tensor.row_stride() };
    // SAFETY: inside of the tensor, which the callers keep, and which nobody else uses as long as they have the part.
    unsafe { Tensor::from_raw(tensor.device(), tensor.as_ptr().cast_mut().add(offset), shape, stride) }.unwrap()
}

/// Plane `plane` of a tensor of three axes.
pub fn plane<E: TensorElement>(tensor: &Tensor<E>, plane: u32) -> Tensor<E> {
    let shape = tensor.shape();
    part(tensor, plane as usize * shape[1] as usize * tensor.row_stride() as usize, &shape[1..])
}

/// Elements `first` to `first + count` of a tensor without padding.
pub fn slice<E: TensorElement>(tensor: &Tensor<E>, first: usize, count: usize) -> Tensor<E> {
    part(tensor, first, &[count as u64])
}
