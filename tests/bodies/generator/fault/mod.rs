//! Bodies and calls that break one rule, in the midst of operations that keep all of them.

mod body;
mod call;
mod gemm;
mod kind;
mod operations;
mod signature;

use super::body::WRONG;
use super::signature::Layout;
use super::{HELPERS, Rng};

/// Where a rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Site {
    /// An operation of a body.
    Operation,
    /// A parameter of a task.
    Signature,
    /// A body that multiplies.
    Gemm,
    /// A body of another kind than it looks like.
    Kind,
    /// A call of a right task.
    Call,
}

const ANY: &[Layout] = &Layout::ALL;
const ROWS: &[Layout] = &[Layout::Rows];
const COLUMNS: &[Layout] = &[Layout::Columns];
const ELEMENTS: &[Layout] = &[Layout::Elements];
const TILES_OF_ROWS: &[Layout] = &[Layout::Elements, Layout::Rows];
const LONG: &[Layout] = &[Layout::Rows, Layout::Columns];

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident: $code:literal, $site:ident, $layouts:ident;)*) => {
        /// One way to break one rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }

        /// All of them.
        pub const FAULTS: &[Fault] = &[$(Fault::$name),*];

        impl Fault {
            /// What the compiler must say: a code of MACO's, or one of rustc's where its own rules refuse.
            pub fn code(self) -> &'static str {
                match self {
                    $(Fault::$name => $code,)*
                }
            }

            fn site(self) -> Site {
                match self {
                    $(Fault::$name => Site::$site,)*
                }
            }

            /// The grids that a body of it may have.
            fn layouts(self) -> &'static [Layout] {
                match self {
                    $(Fault::$name => $layouts,)*
                }
            }
        }
    };
}

faults! {
    /// Input and result exchanged.
    Swapped: "MACO0073", Operation, ANY;
    /// A `#[write]` parameter is read that nothing has written.
    ReadsUnwritten: "MACO0073", Operation, ANY;
    /// The same in place.
    MapsUnwritten: "MACO0073", Operation, ANY;
    /// A `#[read]` parameter is written.
    WritesRead: "MACO0073", Operation, ANY;
    /// One of two results is `#[read]`.
    WritesReadRow: "MACO0073", Operation, ROWS;
    /// A part of a `#[write]` parameter is written.
    PartOfUnwritten: "MACO0073", Operation, LONG;
    /// A result beside which is read by position holds values.
    NotFresh: "MACO0073", Operation, ANY;
    /// Rows of what is written are read by an input.
    RowsInPlace: "MACO0073", Operation, ROWS;
    /// So are rows that numbers name.
    IndexedInPlace: "MACO0073", Operation, COLUMNS;
    /// What is kept takes the place of a row that is only lent.
    KeptInLent: "MACO0073", Operation, ROWS;
    /// One number for each row, beside elements.
    VectorAlongRows: "MACO0075", Operation, ANY;
    /// Rows beside columns.
    Turned: "MACO0075", Operation, ANY;
    /// Rows of a reduction beside columns.
    RowsTurned: "MACO0075", Operation, ROWS;
    /// Another dimension.
    OtherDimension: "MACO0075", Operation, LONG;
    /// Another dimension, row by row.
    OtherColumns: "MACO0075", Operation, ROWS;
    /// A margin beside elements.
    HaloBeside: "MACO0075", Operation, ANY;
    /// One row of a group beside every row.
    GroupBeside: "MACO0075", Operation, TILES_OF_ROWS;
    /// What is not turned is transposed.
    NotTurned: "MACO0075", Operation, ANY;
    /// Columns are reduced into more rows than one.
    ManyRows: "MACO0075", Operation, ANY;
    /// Columns of one tensor into those of another.
    OtherReduced: "MACO0075", Operation, COLUMNS;
    /// One index for each column.
    IdsAlongColumns: "MACO0075", Operation, ELEMENTS;
    /// Rows of another length are taken.
    OtherTable: "MACO0075", Operation, ROWS;
    /// Indices and elements of two shapes.
    OtherScattered: "MACO0075", Operation, ROWS;
    /// Fewer indices than rows.
    FewerIds: "MACO0075", Operation, COLUMNS;
    /// A transposition between two types of elements.
    OtherElement: "E0308", Operation, ANY;
    /// Rows are taken by numbers that are no positions.
    IdsOfFloats: "E0308", Operation, TILES_OF_ROWS;
    /// Integers are added by index.
    IntegersAdded: "E0271", Operation, COLUMNS;
    /// A value of another type.
    OtherValue: "E0308", Operation, ANY;
    /// What only Rust's standard library has.
    Standard: "MACO0081", Operation, ANY;
    /// A `#[write]` parameter is given to two operations.
    WrittenTwice: "E0382", Operation, ANY;
    /// A row outlives its call.
    RowEscapes: "MACO0101", Operation, ROWS;
    /// A loop or a condition asks for a value that a closure has left in a cell.
    CellAsked: "MACO0101", Operation, ANY;
    /// So it does for one in an atomic.
    AtomicAsked: "MACO0101", Operation, ANY;
    /// So it does for one in a static.
    StaticAsked: "MACO0101", Operation, ANY;
    /// A row is written while it is read.
    RowReadAndWritten: "E0499", Operation, ROWS;
    /// A row is reduced by single lanes.
    ReducedByLanes: "E0277", Operation, ROWS;
    /// A `#[write]` parameter that no operation gets.
    NeverWritten: "MACO0074", Signature, ANY;
    /// Tiles of one axis write the same.
    GridAxis: "MACO0014", Signature, ANY;
    /// Tiles of all planes write the same.
    PlaneAxis: "MACO0014", Signature, ANY;
    /// Neighbouring tiles write the same.
    HaloWritten: "MACO0001", Signature, ANY;
    /// Tiles of a group write the same.
    GroupWritten: "MACO0001", Signature, TILES_OF_ROWS;
    /// Nothing says that indices differ.
    IndexedWrite: "MACO0024", Signature, TILES_OF_ROWS;
    /// An axis runs over two dimensions.
    TwoDimensions: "MACO0028", Signature, ANY;
    /// One axis for rows and columns.
    Diagonal: "MACO0028", Signature, ROWS;
    /// A parameter without a region.
    NoRegion: "MACO0012", Signature, ANY;
    /// Operands of a GEMM the other way round.
    GemmTurned: "MACO0075", Gemm, ELEMENTS;
    /// Operands of two contracted dimensions.
    OtherContracted: "MACO0075", Gemm, ELEMENTS;
    /// A GEMM into what is `#[read]`.
    GemmIntoRead: "MACO0073", Gemm, ELEMENTS;
    /// An operation beside a GEMM.
    BesideGemm: "MACO0068", Gemm, ELEMENTS;
    /// Operands of two types.
    OtherOperand: "E0271", Gemm, ELEMENTS;
    /// The second operands of a pair have two contracted dimensions.
    PairContracted: "MACO0075", Gemm, ELEMENTS;
    /// A GEMV of a type that it does not have.
    GemvOfF32: "MACO0017", Gemm, ELEMENTS;
    /// A helper multiplies, and the task does not say so.
    HiddenGemm: "MACO0068", Kind, ANY;
    /// A helper writes beside a GEMM.
    HiddenOperation: "MACO0068", Kind, ANY;
    /// A helper has operations that it does not name.
    OtherOperations: "MACO0068", Kind, ANY;
    /// A GEMV multiplies by another parameter than it names.
    OtherOperandB: "MACO0068", Kind, ANY;
    /// An operation that loads ahead, twice in one body.
    OperationTwice: "E0382", Kind, ANY;
    /// A result that one path writes.
    SomePaths: "MACO0074", Kind, ANY;
    /// A result that a helper is handed, and forgets.
    HelperForgets: "MACO0074", Kind, ANY;
    /// A helper is handed a result for an input.
    HelperAccess: "MACO0073", Kind, ANY;
    /// A helper is handed a tile that does not lie as its others.
    HelperRegion: "MACO0075", Kind, ANY;
    /// A helper is handed other elements.
    HelperElement: "MACO0006", Kind, ANY;
    /// A helper is handed a number for a tile.
    HelperNumber: "MACO0008", Kind, ANY;
    /// A helper returns another result.
    HelperResult: "MACO0074", Kind, ANY;
    /// One tensor twice in a call, once to write.
    Aliased: "MACO0001", Call, ANY;
    /// So are two parts of it that overlap.
    Overlaps: "MACO0001", Call, ANY;
    /// A call reads what no call has written.
    ReadsNothing: "MACO0002", Call, ANY;
    /// What a call writes is never read.
    ReadByNobody: "MACO0003", Call, ANY;
    /// A vector where a matrix must be.
    OtherRank: "MACO0004", Call, ANY;
    /// A call's shapes disagree.
    Shape: "MACO0005", Call, ANY;
    /// `where M == N`, and they are not.
    NotEqual: "MACO0005", Call, ANY;
    /// A tensor of another type.
    OtherTensor: "MACO0006", Call, ANY;
    /// An argument too few, or too many.
    Arguments: "MACO0007", Call, ANY;
    /// A tensor where a number must be.
    NotANumber: "MACO0008", Call, ANY;
    /// A call writes an `In`.
    WritesIn: "MACO0009", Call, ANY;
    /// A dimension that no parameter has.
    UnknownDimension: "MACO0011", Call, ANY;
    /// A slice that ends outside, or of an axis that is not there.
    SliceOutside: "MACO0025", Call, ANY;
    /// A condition that is known when the plan is made.
    Condition: "MACO0080", Call, ANY;
}

/// What a body must not name.
const STATIC: &str = "static SEEN: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);";

/// A program that must be refused.
pub struct Wrong {
    pub name: String,
    pub fault: Fault,
    /// `MACO0073`, or `E0382`.
    pub code: &'static str,
    pub source: String,
    /// The line of the broken rule.
    pub line: u32,
}

/// A program with this fault.
pub fn wrong(rng: &mut Rng, fault: Fault, seed: u64, number: usize) -> Wrong {
    let text = loop {
        let made = match fault.site() {
            Site::Operation | Site::Signature => body::body(rng, fault),
            Site::Gemm => Some(gemm::gemm(rng, fault)),
            Site::Kind => Some(kind::body(rng, fault)),
            Site::Call => call::call(rng, fault),
        };
        // Until there is room for all of it.
        if let Some(text) = made {
            break text;
        }
    };
    let source = format!("#![allow(unused)]\nuse maco::prelude::*;\n{STATIC}\n{HELPERS}\n{text}\nfn main() {{}}\n");
    let line = source.lines().position(|line| line.ends_with(WRONG)).unwrap_or_else(|| panic!("{fault:?} is on no line:\n{source}"));
    Wrong { name: format!("seed{seed}_{number}_{fault:?}"), fault, code: fault.code(), source, line: line as u32 + 1 }
}
