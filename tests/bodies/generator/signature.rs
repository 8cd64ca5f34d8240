//! What a task's signature says of its parameters, and what a body may do with them.

use super::element::Element;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    Update,
}

impl Access {
    pub fn attribute(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::Update => "update",
        }
    }

    /// The first letter of a parameter's name.
    pub fn letter(self) -> char {
        match self {
            Access::Read => 'x',
            Access::Write => 'y',
            Access::Update => 't',
        }
    }
}

/// How a parameter lies to the result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Element beside element.
    Main,
    /// One row, for every row.
    Vector,
    /// One element for each row.
    PerRow,
    /// Rows are columns.
    Turned,
    /// With rows above and below, columns before and after.
    Halo([u32; 4]),
    /// All of another tensor.
    Everything,
    /// One row for a group of so many.
    Over(u32),
    /// Numbers of rows, one for each row.
    Ids,
    /// Rows that numbers name.
    Table,
    /// What only its own operation knows.
    Other,
    /// The same, and small numbers: of sums that are to be exact.
    Small,
    /// An operand of a GEMM: the same, and addressed by TMA.
    Operand,
    /// The result of a GEMM.
    GemmResult,
}

impl Kind {
    /// Whether a task of one plane may have one plane of it.
    pub fn has_planes(self) -> bool {
        matches!(self, Kind::Main | Kind::Turned | Kind::Halo(_) | Kind::Everything | Kind::Operand | Kind::GemmResult)
    }
}

#[derive(Clone, Debug)]
pub struct Param {
    pub name: String,
    pub access: Access,
    /// Of one plane; nothing if there is no attribute.
    pub region: String,
    pub element: Element,
    /// M, N, K, V, or `{ M / 4 }`, of one plane.
    pub shape: Vec<String>,
    pub kind: Kind,
    /// Each task has one plane of it.
    pub plane: bool,
    /// The rule is broken here.
    pub wrong: bool,
}

impl Param {
    /// All dimensions.
    pub fn dimensions(&self) -> Vec<String> {
        let planes = self.plane.then(|| "B".to_owned());
        planes.into_iter().chain(self.shape.iter().cloned()).collect()
    }

    /// `#[read(b, i, ..)] x: Tensor<f32, B, M, N>,`
    pub fn text(&self) -> String {
        let Param { name, access, region, element, plane, .. } = self;
        let attribute = match (region.as_str(), plane) {
            ("", _) => String::new(),
            (_, true) => format!("#[{}(b, {region})] ", access.attribute()),
            (_, false) => format!("#[{}({region})] ", access.attribute()),
        };
        format!("{attribute}{name}: Tensor<{}, {}>,", element.name(), self.dimensions().join(", "))
    }
}

/// What a body may do with a value, as decision 43 has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Read,
    /// Nothing has written it yet.
    Write,
    Update,
    /// What an operation returned, and of which.
    Written(Access),
}

/// Whether an operation may read `input` by row while it writes `result`.
pub fn apart(input: State, result: State) -> bool {
    let of_write = |state| matches!(state, State::Write | State::Written(Access::Write));
    match input {
        State::Read => true,
        _ if of_write(input) => !of_write(result) || result == State::Write,
        _ => of_write(result),
    }
}

/// A tile of the whole region that a name in the body stands for.
#[derive(Clone, Debug)]
pub struct Value {
    pub name: String,
    /// The parameter that it is of.
    pub of: usize,
    pub element: Element,
    pub state: State,
}

/// What an operation reads.
#[derive(Clone, Debug)]
pub struct Input {
    pub name: String,
    pub tensor: String,
    pub element: Element,
    pub kind: Kind,
    pub state: State,
}

/// Which axes the grid has: rows and columns of what a task writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Elements,
    Rows,
    Columns,
}

impl Layout {
    pub const ALL: [Layout; 3] = [Layout::Elements, Layout::Rows, Layout::Columns];
}
