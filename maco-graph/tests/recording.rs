//! Recordings made at run time and resolved: dimensions against integer arithmetic, views, coverage, and the codes of mistakes.

use maco_graph::ir::{TensorKind, ViewAxis};
use maco_graph::resolve::ResolveError;
use maco_graph::spec::{
    Access, Argument, Axis, BuildError, CallOptions, Code, Dim, DimSpec, Element, ElementSpec, Index, Kind, Owned, Param, Placement,
    Recorder, ScalarType, Storage, TaskKind, TaskSpec, TensorParam, Value,
};
use proptest::prelude::*;

const fn tensor(name: &'static str, access: Access, staged: bool) -> Param {
    let dims = &[DimSpec::Symbol(0), DimSpec::Symbol(1)];
    let region = &[Index::Tile(0), Index::Tile(1)];
    Param::Tensor(TensorParam { name, access, element: ElementSpec::Generic, dims, region, staged })
}

const AXES: &[Axis] = &[Axis { name: "i", tiles: &[64] }, Axis { name: "j", tiles: &[128, 256] }];

static COPY: TaskSpec = TaskSpec {
    name: "copy",
    kind: TaskKind::Tiles,
    axes: AXES,
    dims: &["M", "N"],
    equal: &[],
    gemv: None,
    elements: &[Element::Bf16, Element::F32],
    params: &[tensor("x", Access::Read, false), tensor("y", Access::Write, false)],
};

static SCALE: TaskSpec = TaskSpec {
    name: "scale",
    kind: TaskKind::Tiles,
    axes: AXES,
    dims: &["M", "N"],
    equal: &[],
    gemv: None,
    elements: &[Element::Bf16, Element::F32],
    params: &[tensor("x", Access::Update, false), Param::Scalar { name: "by", ty: ScalarType::F32 }],
};

static COPY3: TaskSpec = TaskSpec {
    name: "copy3",
    axes: &[Axis { name: "h", tiles: &[1] }],
    dims: &["A", "B", "C"],
    params: &[planes("x", Access::Read), planes("y", Access::Write)],
    ..COPY
};

const fn planes(name: &'static str, access: Access) -> Param {
    let dims = &[DimSpec::Symbol(0), DimSpec::Symbol(1), DimSpec::Symbol(2)];
    let region = &[Index::Tile(0), Index::All, Index::All];
    Param::Tensor(TensorParam { name, access, element: ElementSpec::Generic, dims, region, staged: false })
}

/// An expression over three symbols.
#[derive(Clone, Debug)]
enum Expression {
    Symbol(usize),
    Number(u64),
    Binary(char, Box<Expression>, Box<Expression>),
}

/// Why an expression has no value for some sizes.
#[derive(Debug)]
enum NoValue {
    Inexact,
    /// Of a difference, maybe, that is 0 for these sizes only.
    ByZero,
}

fn expression() -> impl Strategy<Value = Expression> {
    let leaf = prop_oneof![(0..3usize).prop_map(Expression::Symbol), (0..7u64).prop_map(Expression::Number)];
    leaf.prop_recursive(4, 16, 2, |inner| {
        (prop::sample::select(vec!['+', '-', '*', '/']), inner.clone(), inner)
            .prop_map(|(operation, left, right)| Expression::Binary(operation, Box::new(left), Box::new(right)))
    })
}

impl Expression {
    fn record(&self, recorder: &mut Recorder<'_>, symbols: &[Dim; 3]) -> Dim {
        match self {
            Expression::Symbol(n) => symbols[*n],
            Expression::Number(number) => recorder.constant(*number, 0),
            Expression::Binary(operation, left, right) => {
                let (left, right) = (left.record(recorder, symbols), right.record(recorder, symbols));
                match operation {
                    '+' => recorder.add(left, right, 0),
                    '-' => recorder.sub(left, right, 0),
                    '*' => recorder.mul(left, right, 0),
                    _ => recorder.div(left, right, 0),
                }
            }
        }
    }

    /// The value, where every division is exact.
    fn value(&self, sizes: &[u64; 3]) -> Result<i128, NoValue> {
        Ok(match self {
            Expression::Symbol(n) => i128::from(sizes[*n]),
            Expression::Number(number) => i128::from(*number),
            Expression::Binary(operation, left, right) => {
                let (left, right) = match (left.value(sizes), right.value(sizes)) {
                    (Err(NoValue::ByZero), _) | (_, Err(NoValue::ByZero)) => return Err(NoValue::ByZero),
                    (left, right) => (left?, right?),
                };
                match operation {
                    '+' => left + right,
                    '-' => left - right,
                    '*' => left * right,
                    _ if right == 0 => return Err(NoValue::ByZero),
                    _ if left % right == 0 => left / right,
                    _ => return Err(NoValue::Inexact),
                }
            }
        })
    }
}

const SYMBOLS: &[&str] = &["M", "K", "R"];
/// Sizes with many divisors, so that divisions are often exact.
fn size() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![1, 2, 3, 4, 6, 12, 24, 60])
}

type Tables = Storage<2048, 4, 1, 1, 2, 1, 4>;

/// Dimensions as recorded, and as resolved.
type Shapes = (Vec<Dim>, Result<Vec<u64>, ResolveError>);

/// Records tensors of these expressions as shapes, and resolves them.
fn shapes(expressions: &[&Expression], sizes: &[u64; 3]) -> Option<Shapes> {
    let mut tables = Box::new(Tables::new(SYMBOLS));
    let mut recorder = tables.recorder();
    let symbols = recorder.dimensions::<3>(&[]);
    let dims: Vec<Dim> = expressions.iter().map(|expression| expression.record(&mut recorder, &symbols)).collect();
    for dim in &dims {
        recorder.tensor("t", Kind::In, Element::F32, &[*dim], Placement::Replicated, 1);
    }
    let recording = tables.recording();
    // Too many terms or a division by zero is a mistake of its own.
    if recording.first_fault().is_some() {
        return None;
    }
    Some((dims, recording.resolve("k", sizes).map(|graph| graph.tensors.iter().map(|tensor| tensor.shape[0]).collect())))
}

proptest! {
    #[test]
    fn normal_form_keeps_the_value(tree in expression(), sizes in prop::array::uniform3(size())) {
        let Some((_, resolved)) = shapes(&[&tree], &sizes) else { return Ok(()) };
        match tree.value(&sizes).map(u64::try_from) {
            Ok(Ok(value)) => prop_assert_eq!(resolved.unwrap(), vec![value]),
            // Negative, or a division that is not exact, also where it cancels.
            Ok(Err(_)) | Err(NoValue::Inexact) => prop_assert_eq!(resolved.unwrap_err().code(), Code::Inexact),
            Err(NoValue::ByZero) => {}
        }
    }

    #[test]
    fn equal_forms_have_equal_values(a in expression(), b in expression(), sizes in prop::array::uniform3(size())) {
        if let Some((dims, _)) = shapes(&[&a, &b], &sizes)
            && dims[0] == dims[1]
            && let (Ok(a), Ok(b)) = (a.value(&sizes), b.value(&sizes))
        {
            prop_assert_eq!(a, b);
        }
    }
}

fn symbol(n: usize) -> Expression {
    Expression::Symbol(n)
}

fn number(n: u64) -> Expression {
    Expression::Number(n)
}

fn binary(operation: char, left: Expression, right: Expression) -> Expression {
    Expression::Binary(operation, Box::new(left), Box::new(right))
}

#[test]
fn identities_hold_for_all_sizes() {
    let (m, k, r) = (|| symbol(0), || symbol(1), || symbol(2));
    let half = || binary('/', k(), number(2));
    let same = [
        (binary('+', m(), k()), binary('+', k(), m())),
        (binary('*', number(2), k()), binary('+', k(), k())),
        (binary('+', half(), half()), k()),
        (binary('*', binary('/', k(), r()), r()), k()),
        (binary('*', r(), binary('/', k(), r())), k()),
        (binary('*', binary('/', k(), binary('+', r(), number(1))), binary('+', r(), number(1))), k()),
        (binary('/', binary('*', number(4), k()), number(8)), half()),
        (binary('/', half(), number(2)), binary('/', k(), number(4))),
        (binary('/', binary('*', m(), k()), m()), k()),
        (binary('/', binary('+', k(), r()), r()), binary('+', binary('/', k(), r()), number(1))),
        (binary('-', binary('*', binary('+', m(), k()), m()), binary('*', m(), k())), binary('*', m(), m())),
    ];
    for (a, b) in &same {
        let (dims, _) = shapes(&[a, b], &[8, 8, 4]).unwrap();
        assert_eq!(dims[0], dims[1], "{a:?} and {b:?}");
    }
    for (a, b) in [(m(), k()), (half(), binary('/', k(), number(3))), (binary('+', m(), number(1)), m())] {
        let (dims, _) = shapes(&[&a, &b], &[8, 8, 4]).unwrap();
        assert_ne!(dims[0], dims[1], "{a:?} and {b:?}");
    }
}

#[test]
fn sizes_that_do_not_divide_are_named() {
    let (_, resolved) = shapes(&[&binary('+', binary('/', symbol(1), symbol(2)), number(1))], &[1, 10, 3]).unwrap();
    let error = resolved.unwrap_err();
    assert_eq!(error.code(), Code::Inexact);
    assert!(error.to_string().contains("`K / R` is not exact: 10 is not divisible by 3"), "{error}");
    // Also where the quotient cancels: no multiple of R below K is meant.
    for cancelled in [binary('*', symbol(2), binary('/', symbol(1), symbol(2))), binary('*', number(0), binary('/', symbol(1), symbol(2)))]
    {
        let (_, resolved) = shapes(&[&cancelled], &[1, 10, 3]).unwrap();
        let error = resolved.unwrap_err();
        assert!(error.to_string().contains("`K / R` is not exact: 10 is not divisible by 3"), "{error}");
    }
}

fn matrix(graph: &mut Owned, name: &str, kind: Kind, shape: [u64; 2]) -> Argument<'static> {
    Argument::Tensor(graph.tensor(name, kind, Element::Bf16, &shape, Placement::Replicated).unwrap())
}

#[test]
fn a_graph_built_at_run_time_resolves() {
    let mut graph = Owned::new();
    let x = graph.tensor("x", Kind::In, Element::Bf16, &[8, 12], Placement::Replicated).unwrap();
    let by = graph.scalar("by", ScalarType::F32);
    let y = matrix(&mut graph, "y", Kind::Out, [4, 6]);
    let h = matrix(&mut graph, "h", Kind::Temp, [6, 4]);
    let part = graph.slice(x, 0, 2..6).unwrap();
    let part = graph.slice(part, 1, 6..12).unwrap();
    let turned = graph.transposed(part).unwrap();
    graph
        .call(
            &COPY,
            0,
            &[Argument::Tensor(turned), h],
            CallOptions { tile: Some(&[64, 256]), priority: 3, drain: true, ..CallOptions::default() },
        )
        .unwrap();
    graph.call(&SCALE, 4, &[h, Argument::Scalar(by)], CallOptions::default()).unwrap();
    let back = graph.transposed(h.view()).unwrap();
    graph.call(&COPY, 0, &[Argument::Tensor(back), y], CallOptions::default()).unwrap();
    graph.call(&SCALE, 4, &[y, Argument::Scalar(Value::F32(0.5))], CallOptions::default()).unwrap();

    let recording = graph.finish().unwrap();
    assert_eq!(recording.mask(), 0b11_0011, "bf16 instances of both tasks");
    let graph = recording.resolve("g", &[]).unwrap();
    assert_eq!(graph.tensors.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>(), ["x", "y", "h"]);
    assert_eq!(graph.tensors[2].kind, TensorKind::Temp);
    assert_eq!(graph.calls.len(), 4);
    let first = &graph.calls[0];
    assert_eq!((first.tile.as_deref(), first.priority, first.drain), (Some([64, 256].as_slice()), 3, true));
    assert_eq!(first.operands[0].offset, [2, 6]);
    assert_eq!(first.operands[0].axes, [ViewAxis { axis: 1, step: 1, extent: 6 }, ViewAxis { axis: 0, step: 1, extent: 4 }]);
    assert_eq!(graph.scalars[0].name, "by");
}

#[test]
fn a_split_axis_counts_in_steps() {
    let mut graph = Owned::new();
    let x = graph.tensor("x", Kind::In, Element::Bf16, &[8, 12], Placement::Replicated).unwrap();
    let y = matrix(&mut graph, "y", Kind::Out, [3, 4]);
    let heads = graph.split(x, 1, 3).unwrap();
    let row = graph.slice(heads, 0, 5..6).unwrap();
    assert_eq!(row.rank, 3);
    // Rank 3 does not fit a task of rank 2.
    let error = graph.call(&COPY, 0, &[Argument::Tensor(row), y], CallOptions::default()).unwrap_err();
    assert_eq!(error.code, Code::Rank);
    assert!(error.text.contains("`x` of task `copy` has 2 dimensions, but `x` has 3"), "{error}");
}

/// What the builder says about one call with a fresh `x` (In), `y` (Out) and `h` (Temp) of 8 × 8.
fn mistake(call: impl FnOnce(&mut Owned, [Argument<'static>; 3]) -> Result<(), BuildError>) -> Code {
    let mut graph = Owned::new();
    let x = matrix(&mut graph, "x", Kind::In, [8, 8]);
    let y = matrix(&mut graph, "y", Kind::Out, [8, 8]);
    let h = matrix(&mut graph, "h", Kind::Temp, [8, 8]);
    match call(&mut graph, [x, y, h]) {
        Err(error) => error.code,
        Ok(()) => graph.finish().map(|_| ()).expect_err("a mistake").code,
    }
}

#[test]
fn the_builder_reports_the_codes_of_const_evaluation() {
    let two = Argument::Scalar(Value::F32(2.0));
    assert_eq!(mistake(|g, [_, y, h]| g.call(&COPY, 0, &[h, y], CallOptions::default())), Code::Unwritten);
    assert_eq!(mistake(|g, [x, _, h]| g.call(&COPY, 0, &[x, h], CallOptions::default())), Code::OutUnwritten);
    assert_eq!(mistake(|g, [x, y, _]| g.call(&COPY, 0, &[x, y], CallOptions::default())), Code::Unread);
    assert_eq!(mistake(|g, [x, _, _]| g.call(&SCALE, 0, &[x, two], CallOptions::default())), Code::WritesIn);
    assert_eq!(mistake(|g, [x, _, _]| g.call(&COPY, 0, &[x], CallOptions::default())), Code::Arity);
    assert_eq!(mistake(|g, [x, y, _]| g.call(&COPY, 0, &[x, y, two], CallOptions::default())), Code::Arity);
    assert_eq!(mistake(|g, [_, y, _]| g.call(&COPY, 0, &[two, y], CallOptions::default())), Code::Sort);
    assert_eq!(mistake(|g, [x, y, _]| g.call(&SCALE, 0, &[y, x], CallOptions::default())), Code::Sort);
    assert_eq!(mistake(|g, [_, y, _]| g.call(&SCALE, 0, &[y, Argument::Scalar(Value::Integer(2))], CallOptions::default())), Code::Element);
    assert_eq!(
        mistake(|g, [x, y, _]| g.call(&COPY, 0, &[x, y], CallOptions { tile: Some(&[64, 64]), ..CallOptions::default() })),
        Code::Tile
    );
    assert_eq!(mistake(|g, [x, y, _]| g.call(&COPY, 127, &[x, y], CallOptions::default())), Code::Limit);
    assert_eq!(
        mistake(|g, [x, y, _]| {
            let short = g.slice(x.view(), 0, 0..4)?;
            g.call(&COPY, 0, &[Argument::Tensor(short), y], CallOptions::default())
        }),
        Code::Dimension
    );
    assert_eq!(mistake(|g, [x, _, _]| g.slice(x.view(), 1, 4..9).map(|_| ())), Code::View);
    assert_eq!(mistake(|g, [x, _, _]| g.split(x.view(), 2, 2).map(|_| ())), Code::View);
    assert_eq!(
        mistake(|g, [x, y, _]| {
            g.call(&COPY, 0, &[x, y], CallOptions::default())?;
            g.call(&COPY, 0, &[y, y], CallOptions::default())
        }),
        Code::Overlap
    );
}

#[test]
fn slices_of_one_tensor_may_touch_but_not_overlap() {
    let copy = |from: std::ops::Range<u64>, to: std::ops::Range<u64>| {
        let mut graph = Owned::new();
        let x = matrix(&mut graph, "x", Kind::InOut, [8, 8]).view();
        let (from, to) = (graph.slice(x, 0, from).unwrap(), graph.slice(x, 0, to).unwrap());
        graph.call(&COPY, 0, &[Argument::Tensor(from), Argument::Tensor(to)], CallOptions::default())
    };
    assert!(copy(0..4, 4..8).is_ok());
    assert!(copy(4..8, 0..4).is_ok());
    assert_eq!(copy(0..4, 3..7).unwrap_err().code, Code::Overlap);
}

#[test]
fn elements_that_slices_leave_unwritten_are_found() {
    let build = |write: std::ops::Range<u64>, read: std::ops::Range<u64>| {
        let mut graph = Owned::new();
        let x = matrix(&mut graph, "x", Kind::In, [8, 8]).view();
        let y = matrix(&mut graph, "y", Kind::Out, [8, 8]).view();
        let h = matrix(&mut graph, "h", Kind::Temp, [8, 8]).view();
        let rows = |graph: &mut Owned, view, range: &std::ops::Range<u64>| Argument::Tensor(graph.slice(view, 0, range.clone()).unwrap());
        let (from, to) = (rows(&mut graph, x, &write), rows(&mut graph, h, &write));
        graph.call(&COPY, 0, &[from, to], CallOptions::default()).unwrap();
        let (from, to) = (rows(&mut graph, h, &read), rows(&mut graph, y, &read));
        graph.call(&COPY, 0, &[from, to], CallOptions::default()).unwrap();
        let resolved = graph.finish().unwrap().resolve("g", &[]);
        resolved.map(|_| ()).map_err(|error| (error.code(), error.to_string()))
    };
    assert_eq!(build(0..8, 0..8), Ok(()));
    let (code, text) = build(2..8, 0..8).unwrap_err();
    assert_eq!(code, Code::Unwritten);
    assert!(text.contains("task `copy` reads elements [0..2, 0..8] of `h`"), "{text}");
    let (code, text) = build(0..8, 0..5).unwrap_err();
    assert_eq!(code, Code::OutUnwritten);
    assert!(text.contains("elements [5..8, 0..8] of the `Out` `y`"), "{text}");
}

#[test]
fn halves_of_a_split_are_distinguished() {
    let copy = |inner: std::ops::Range<u64>, columns: std::ops::Range<u64>| {
        let mut graph = Owned::new();
        let x = matrix(&mut graph, "x", Kind::InOut, [8, 8]).view();
        let groups = graph.split(x, 1, 2).unwrap();
        let from = graph.slice(groups, 2, inner).unwrap();
        let to = graph.slice(x, 1, columns).unwrap();
        let to = graph.split(to, 1, 2).unwrap();
        graph.call(&COPY3, 0, &[Argument::Tensor(from), Argument::Tensor(to)], CallOptions::default()).map_err(|error| error.code)
    };
    // Columns 0, 1, 4 and 5 against 4..8.
    assert_eq!(copy(0..2, 4..8), Err(Code::Overlap));
    let mut graph = Owned::new();
    let x = matrix(&mut graph, "x", Kind::InOut, [8, 8]).view();
    let groups = graph.split(x, 1, 2).unwrap();
    let (first, second) = (graph.slice(groups, 1, 0..1).unwrap(), graph.slice(groups, 1, 1..2).unwrap());
    assert_eq!(graph.call(&COPY3, 0, &[Argument::Tensor(first), Argument::Tensor(second)], CallOptions::default()), Ok(()));
}

#[test]
fn views_that_are_not_boxes_are_accepted() {
    let mut graph = Owned::new();
    let x = matrix(&mut graph, "x", Kind::In, [8, 4]).view();
    let y = matrix(&mut graph, "y", Kind::Out, [8, 8]);
    let h = matrix(&mut graph, "h", Kind::Temp, [8, 8]);
    let from = graph.split(x, 1, 2).unwrap();
    let to = graph.split(h.view(), 1, 2).unwrap();
    let to = graph.slice(to, 2, 0..2).unwrap();
    graph.call(&COPY3, 0, &[Argument::Tensor(from), Argument::Tensor(to)], CallOptions::default()).unwrap();
    graph.call(&COPY, 0, &[h, y], CallOptions::default()).unwrap();
    assert!(graph.finish().unwrap().resolve("g", &[]).is_ok());
}

#[test]
fn a_group_beyond_the_planes_is_found() {
    static GROUPED: TaskSpec = TaskSpec {
        name: "grouped",
        axes: &[Axis { name: "h", tiles: &[1] }],
        dims: &["H", "B", "C", "G"],
        params: &[
            Param::Tensor(TensorParam {
                name: "k",
                access: Access::Read,
                element: ElementSpec::Generic,
                dims: &[DimSpec::Symbol(3), DimSpec::Symbol(1), DimSpec::Symbol(2)],
                region: &[Index::TileOver(0, 4), Index::All, Index::All],
                staged: false,
            }),
            planes("y", Access::Write),
        ],
        ..COPY
    };
    let resolve = |heads: u64, groups: u64| {
        let mut graph = Owned::new();
        let k = graph.tensor("k", Kind::In, Element::Bf16, &[groups, 2, 2], Placement::Replicated).unwrap();
        let y = graph.tensor("y", Kind::Out, Element::Bf16, &[heads, 2, 2], Placement::Replicated).unwrap();
        graph.call(&GROUPED, 0, &[Argument::Tensor(k), Argument::Tensor(y)], CallOptions::default()).unwrap();
        graph.finish().unwrap().resolve("g", &[]).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(resolve(8, 2), Ok(()));
    assert_eq!(resolve(7, 2), Ok(()));
    assert_eq!(resolve(0, 1), Ok(()));
    assert!(resolve(9, 2).unwrap_err().contains("`k` of task `grouped` reaches plane 2 by `h / 4`, but `k` has 2"));
}
