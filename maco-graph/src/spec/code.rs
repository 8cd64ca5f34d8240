//! The table of error codes: one number per promise, the same in macros, const evaluation, builder and plan.
//!
//! The texts of single messages do not belong here.

/// A coded error, shown as `MACO0007`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Code {
    /// Two tiles of one grid may touch the same elements while one of them writes.
    Overlap = 1,
    /// A temp or an `Out` is read before anything wrote it.
    Unwritten = 2,
    /// What a call writes, or a temp as a whole, is never read.
    Unread = 3,
    /// A tensor has more or fewer axes than the parameter.
    Rank = 4,
    /// Two dimensions that must agree do not.
    Dimension = 5,
    /// Two element or scalar types that must agree do not.
    Element = 6,
    /// A call has too many or too few arguments.
    Arity = 7,
    /// A scalar where a tensor is due, or the reverse.
    Sort = 8,
    /// A task writes an `In`.
    WritesIn = 9,
    /// An `Out` is never written.
    OutUnwritten = 10,
    /// A dimension that no parameter introduces.
    UnknownDimension = 11,
    /// An attribute that does not follow the grammar.
    Attribute = 12,
    /// A region names something that is no tile index of the task.
    UnknownIndex = 13,
    /// A written region does not name every grid axis.
    MissingAxis = 14,
    /// A signature a task or megakernel cannot have.
    Signature = 15,
    /// A statement or expression a megakernel cannot have.
    Statement = 16,
    /// A tile shape that is not among the variants, or that a region cannot have.
    Tile = 17,
    /// A call option that is not supported there.
    CallOption = 18,
    /// A tensor's placement across ranks does not fit the task.
    Placement = 19,
    /// The tiles of a staged task do not fit the ring in shared memory.
    SharedMemory = 20,
    /// Workers or schedulers out of range, or tasks that cannot be confined to the workers named.
    Workers = 21,
    /// An index beyond the end of an array of tensors.
    Index = 22,
    /// More operands, dimensions, axes or instances than there is room for.
    Limit = 23,
    /// A write through a data-dependent region that is not marked unsafe.
    UnsafeWrite = 24,
    /// A view beyond the tensor it is made from.
    View = 25,
    /// A dimension expression that is not exact, or negative.
    Inexact = 26,
    /// More tiles than a plan takes.
    TooManyTasks = 27,
    /// A grid index that runs over two different dimensions, or over none.
    GridAxis = 28,
    /// An operation on tiles in a body with a GEMM.
    Operations = 68,
    /// A body that hands a `#[write]` parameter to no operation.
    NeverWritten = 74,
    /// A condition, a bound or a number of a megakernel that is no constant.
    NotConstant = 80,
    /// What a task's body uses of the standard library, which a GPU has not.
    Std = 81,
    /// A megakernel calls what is neither a task nor a graph.
    NotATask = 82,
    /// A body holds something that can change behind its outline.
    Changing = 101,
}

impl Code {
    /// The digits: `7` for `MACO0007`.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// `b"MACO0007"`.
    pub const fn label(self) -> [u8; 8] {
        let n = self as u16;
        [
            b'M',
            b'A',
            b'C',
            b'O',
            b'0' + (n / 1000 % 10) as u8,
            b'0' + (n / 100 % 10) as u8,
            b'0' + (n / 10 % 10) as u8,
            b'0' + (n % 10) as u8,
        ]
    }
}

impl core::fmt::Display for Code {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "MACO{:04}", self.number())
    }
}
