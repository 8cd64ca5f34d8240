//! Epilogue operands are planned as operands of the call: tasks wait for their tiles, writers wait for their readers, and both
//! forms of the task have them.

use std::ptr;

use maco_graph::ir::{Graph, ScalarSource};
use maco_graph::plan::{Hazard, Options, Plan, Relation, oracle, plan};
use maco_graph::spec::{
    Access, Argument, Axis, CallSite, Code, DimSpec, Element, ElementSpec, FusedOp, FusedOperand, Index, Kind, Param, Placement, Recorder,
    Recording, ScalarType, Storage, TaskKind, TaskSpec, TensorParam, Value, View,
};

const fn param(name: &'static str, access: Access, dims: &'static [DimSpec], region: &'static [Index], staged: bool) -> Param {
    Param::Tensor(TensorParam { name, access, element: ElementSpec::Generic, dims, region, staged })
}

const M: DimSpec = DimSpec::Symbol(0);
const K: DimSpec = DimSpec::Symbol(1);
const N: DimSpec = DimSpec::Symbol(2);
const I: Index = Index::Tile(0);
const J: Index = Index::Tile(1);

const AXES: &[Axis] = &[Axis { name: "i", tiles: &[64] }, Axis { name: "j", tiles: &[128] }];

const fn gemm(staged: bool) -> [Param; 3] {
    [
        param("x", Access::Read, &[M, K], &[I, Index::All], staged),
        param("w", Access::Read, &[N, K], &[J, Index::All], staged),
        param("y", Access::Write, &[M, N], &[I, J], staged),
    ]
}

static GEMV: TaskSpec = TaskSpec {
    name: "linear",
    kind: TaskKind::Gemv { operand_b: 1, operand_a: Some(0) },
    axes: &[Axis { name: "i", tiles: &[8] }, Axis { name: "j", tiles: &[8] }],
    dims: &["M", "K", "N"],
    equal: &[],
    gemv: None,
    elements: &[Element::Bf16],
    params: &gemm(false),
};

static LINEAR: TaskSpec = TaskSpec {
    name: "linear",
    kind: TaskKind::Gemm { splits_k: true },
    axes: AXES,
    dims: &["M", "K", "N"],
    equal: &[],
    gemv: Some(&GEMV),
    elements: &[Element::Bf16],
    params: &gemm(true),
};

/// y = x, in place or not.
static COPY: TaskSpec = TaskSpec {
    name: "copy",
    kind: TaskKind::Tiles,
    dims: &["M", "N"],
    gemv: None,
    params: &[
        param("x", Access::Read, &[DimSpec::Symbol(0), DimSpec::Symbol(1)], &[I, J], false),
        param("y", Access::Write, &[DimSpec::Symbol(0), DimSpec::Symbol(1)], &[I, J], false),
    ],
    ..LINEAR
};

/// A row of another one.
static ROW: TaskSpec = TaskSpec {
    name: "row",
    axes: &[Axis { name: "j", tiles: &[128] }],
    dims: &["N"],
    params: &[
        param("a", Access::Read, &[DimSpec::Symbol(0)], &[Index::Tile(0)], false),
        param("b", Access::Write, &[DimSpec::Symbol(0)], &[Index::Tile(0)], false),
    ],
    ..COPY
};

const ADD: FusedOp = FusedOp { name: "add", operand: FusedOperand::Tensor(Element::Bf16), on_operand_a: false };
const MUL: FusedOp = FusedOp { name: "mul", ..ADD };
const SUB: FusedOp = FusedOp { name: "sub", ..ADD };

const SCALE: FusedOp = FusedOp { name: "scale", operand: FusedOperand::Scalar, on_operand_a: false };
const GELU: FusedOp = FusedOp { name: "gelu", operand: FusedOperand::Nothing, on_operand_a: false };

type Tables = Storage<64, 16, 2, 8, 32, 8, 16>;

/// A call with what follows it.
fn call(recorder: &mut Recorder<'_>, task: &'static TaskSpec, tensors: &[View], then: &'static [FusedOp], beside: &[Argument<'_>]) {
    rounding(recorder, task, tensors, None, then, beside);
}

/// The same, with what its sums are rounded to.
fn rounding(
    recorder: &mut Recorder<'_>,
    task: &'static TaskSpec,
    tensors: &[View],
    result: Option<Element>,
    then: &'static [FusedOp],
    beside: &[Argument<'_>],
) {
    let arguments: Vec<Argument<'_>> = tensors.iter().map(|&view| Argument::Tensor(view)).collect();
    let site = CallSite {
        slot: 0,
        path: 0,
        arguments: 1,
        result,
        fused: then,
        prologue_site: 8,
        epilogue_site: 8,
        fused_arguments: beside,
        fused_site: 9,
        tile: None,
        tile_site: 15,
        split: None,
        split_site: 15,
        priority: 0,
        drain: false,
        via: maco_graph::spec::Via::Automatic,
        via_site: 15,
        overlap: maco_graph::spec::CallOverlap::NONE,
    };
    recorder.call(task, &site, &arguments);
}

/// What `body` records with tensors x[M, K], w[N, K], r[M, N], b[N] and y[M, N], and with a scalar.
fn recorded<T>(body: impl FnOnce(&mut Recorder<'_>, [View; 5], Value) -> T, then: impl FnOnce(&Recording<'_>)) -> T {
    let mut tables = Box::new(Tables::new(&["M", "K", "N"]));
    let mut recorder = tables.recorder();
    let [m, k, n] = recorder.dimensions::<3>(&[]);
    let mut tensor = |name, kind, shape: &[_]| recorder.tensor(name, kind, Element::Bf16, shape, Placement::Replicated, 15);
    let tensors = [
        tensor("x", Kind::In, &[m, k]),
        tensor("w", Kind::In, &[n, k]),
        tensor("r", Kind::InOut, &[m, n]),
        tensor("b", Kind::InOut, &[n]),
        tensor("y", Kind::Out, &[m, n]),
    ];
    let by = recorder.scalar("by", ScalarType::F32);
    let made = body(&mut recorder, tensors, by);
    recorder.finish();
    then(&tables.recording());
    made
}

/// Rows, contraction and columns: four tiles by two.
const SIZES: [u64; 3] = [256, 64, 256];

fn graph(sizes: [u64; 3], body: impl FnOnce(&mut Recorder<'_>, [View; 5], Value)) -> Graph {
    let mut graph = None;
    recorded(body, |recording| graph = Some(recording.resolve("k", &sizes).unwrap()));
    graph.unwrap()
}

fn planned(graph: Graph) -> Plan {
    let plan = plan(graph, &Options::new(3)).unwrap();
    assert_eq!(oracle::conflict(&plan), None);
    assert_eq!(plan.verify(), Ok(()));
    plan
}

fn relation(plan: &Plan, tensor: &str, hazard: Hazard) -> Relation {
    let index = plan.graph.tensors.iter().position(|one| one.name == tensor).unwrap() as u32;
    let mut found = plan.relations.iter().filter(|relation| relation.tensor == index && relation.hazard == hazard);
    let first = found.next().unwrap_or_else(|| panic!("nothing of `{tensor}`: {plan}"));
    assert!(found.next().is_none(), "{plan}");
    first.clone()
}

#[test]
fn a_tile_waits_for_the_same_tile_of_epilogue_operands() {
    let plan = planned(graph(SIZES, |recorder, [x, w, r, b, y], _| {
        let [m, n] = [r.axes[0].extent, r.axes[1].extent];
        let residual = recorder.temp("h", Element::Bf16, &[m, n], Placement::Replicated, 15);
        let bias = recorder.temp("c", Element::Bf16, &[n], Placement::Replicated, 15);
        call(recorder, &COPY, &[r, residual], &[], &[]);
        call(recorder, &ROW, &[b, bias], &[], &[]);
        let beside = [Argument::Tensor(bias), Argument::Tensor(residual)];
        call(recorder, &LINEAR, &[x, w, y], &[ADD, GELU, MUL], &beside);
    }));
    assert_eq!(plan.graph.calls[2].fused, ["add", "gelu", "mul"]);
    // Each of eight tiles waits for one of the matrix, and one of two of the row.
    let (of_matrix, of_row) = (relation(&plan, "h", Hazard::Raw), relation(&plan, "c", Hazard::Raw));
    assert_eq!((of_matrix.consumer, of_matrix.edges, of_row.consumer, of_row.edges), (2, 8, 2, 8));
    for (n, relation) in [(0, &of_row), (1, &of_matrix)] {
        assert_eq!(relation.consumer_operand, 3 + n, "behind x, w and y, in the order of the chain");
    }
    assert!(plan.to_string().contains("linear.add.gelu.mul"), "{plan}");
}

#[test]
fn a_write_to_an_epilogue_operand_waits_for_its_readers() {
    let plan = planned(graph(SIZES, |recorder, [x, w, r, b, y], _| {
        call(recorder, &LINEAR, &[x, w, y], &[ADD, ADD], &[Argument::Tensor(r), Argument::Tensor(b)]);
        call(recorder, &COPY, &[y, r], &[], &[]);
    }));
    let war = relation(&plan, "r", Hazard::War);
    assert_eq!((war.producer, war.consumer, war.edges), (0, 1, 8));
}

#[test]
fn scalars_follow_those_of_the_task() {
    let graph = graph(SIZES, |recorder, [x, w, _, b, y], by| {
        let beside = [Argument::Scalar(Value::F32(0.5)), Argument::Tensor(b), Argument::Scalar(by)];
        call(recorder, &LINEAR, &[x, w, y], &[SCALE, ADD, SCALE], &beside);
    });
    let call = &graph.calls[0];
    assert_eq!(call.scalars, [ScalarSource::Literal(0.5f32.to_bits()), ScalarSource::Parameter(0)]);
    assert_eq!(call.operands.len(), 4);
    let names: Vec<&str> = call.task.params.iter().map(Param::name).collect();
    assert_eq!(names, ["x", "w", "y", "scale", "add", "scale"]);
}

#[test]
fn both_forms_have_the_epilogue_operands() {
    let make = |m| {
        graph([m, 512, 2048], |recorder, [x, w, r, b, y], _| {
            call(recorder, &LINEAR, &[x, w, y], &[ADD, MUL], &[Argument::Tensor(b), Argument::Tensor(r)]);
        })
    };
    let gemv = make(4).calls[0].task.gemv.expect("a GEMV form");
    let Param::Tensor(row) = gemv.params[3] else { panic!("a tensor") };
    assert_eq!((row.name, row.region, row.dims, row.staged), ("add", &[J] as &[_], &[N] as &[_], false));
    assert_eq!(gemv.params.len(), 5);
    let plan = planned(make(4));
    assert!(plan.graph.calls[0].task.gemv_operand_b().is_some() && plan.graph.calls[0].task.gemv_operand_a() == Some(0), "{plan}");
    assert_eq!(plan.graph.calls[0].task.params.len(), 5);
}

#[test]
fn equal_call_specs_are_interned() {
    let make = |then: &'static [FusedOp], row: bool| {
        let graph = graph(SIZES, |recorder, [x, w, r, b, y], _| {
            call(recorder, &LINEAR, &[x, w, y], then, &[Argument::Tensor(if row { b } else { r })]);
        });
        graph.calls[0].task
    };
    let [first, again, row, other] = [make(&[ADD], false), make(&[GELU, ADD], false), make(&[ADD], true), make(&[MUL], false)];
    assert!(ptr::eq(first, again));
    assert!(!ptr::eq(first, row) && !ptr::eq(first, other));
    // Those without are the task's own.
    let plain = graph(SIZES, |recorder, [x, w, _, _, y], _| call(recorder, &LINEAR, &[x, w, y], &[GELU], &[]));
    assert!(ptr::eq(plain.calls[0].task, &LINEAR));
}

/// `y` is what the call rounds to.
const fn rounded(staged: bool) -> [Param; 3] {
    let Param::Tensor(y) = gemm(staged)[2] else { panic!("a tensor") };
    [gemm(staged)[0], gemm(staged)[1], Param::Tensor(TensorParam { element: ElementSpec::Result, ..y })]
}

static ROUNDED_GEMV: TaskSpec = TaskSpec { params: &rounded(false), ..GEMV };
static ROUNDED: TaskSpec = TaskSpec { params: &rounded(true), gemv: Some(&ROUNDED_GEMV), ..LINEAR };
/// Its GEMV form has results of the operands' element only.
static HALF_ROUNDED: TaskSpec = TaskSpec { params: &rounded(true), ..LINEAR };

#[test]
fn the_element_of_a_result_is_per_call() {
    let make = |task: &'static TaskSpec, result, m| {
        let body = |recorder: &mut Recorder<'_>, [x, w, _, b, y]: [View; 5], _| {
            let [m, n] = [y.axes[0].extent, y.axes[1].extent];
            let z = recorder.tensor("z", Kind::Out, result, &[m, n], Placement::Replicated, 15);
            let stated = (result != Element::Bf16).then_some(result);
            rounding(recorder, task, &[x, w, z], stated, &[ADD], &[Argument::Tensor(b)]);
            call(recorder, &LINEAR, &[x, w, y], &[], &[]);
        };
        planned(graph([m, 512, 2048], body))
    };
    let held = |task: &TaskSpec| {
        let Param::Tensor(y) = task.params[2] else { panic!("a tensor") };
        y.element
    };
    let plan = make(&ROUNDED, Element::F32, 4);
    let task = plan.graph.calls[0].task;
    assert_eq!(held(task), ElementSpec::Fixed(Element::F32));
    assert!(task.gemv_operand_b().is_some(), "the GEMV form can do it: {plan}");
    assert_eq!(plan.workload(0).bytes, Some(2 * (4 * 512 + 2048 * 512 + 2048) + 4 * 4 * 2048));
    // What cannot do it is not chosen, however few rows there are.
    let plan = make(&HALF_ROUNDED, Element::F32, 4);
    assert!(plan.graph.calls[0].task.gemv_operand_b().is_none(), "{plan}");
    let plan = make(&HALF_ROUNDED, Element::Bf16, 4);
    assert!(plan.graph.calls[0].task.gemv_operand_b().is_some(), "{plan}");
    assert_eq!(held(make(&ROUNDED, Element::Bf16, 128).graph.calls[0].task), ElementSpec::Result);
}

#[test]
fn results_have_the_element_that_the_call_says() {
    let told = |stated: Option<Element>, found: Element| {
        let mut told = None;
        recorded(
            |recorder, [x, w, _, _, y], _| {
                let [m, n] = [y.axes[0].extent, y.axes[1].extent];
                let z = recorder.tensor("z", Kind::Out, found, &[m, n], Placement::Replicated, 15);
                rounding(recorder, &ROUNDED, &[x, w, y], None, &[], &[]);
                rounding(recorder, &ROUNDED, &[x, w, z], stated, &[], &[]);
            },
            |recording| told = recording.first_fault().map(|fault| (fault.kind.code(), recording.message(fault).as_str().to_owned())),
        );
        told
    };
    for right in [(None, Element::Bf16), (Some(Element::F16), Element::F16), (Some(Element::F32), Element::F32)] {
        assert_eq!(told(right.0, right.1), None);
    }
    let (code, text) = told(None, Element::F32).unwrap();
    assert!(code == Code::Element && text.contains("`z` holds f32, but this call of task `linear` rounds `y` to bf16"), "{text}");
    let (code, text) = told(Some(Element::F32), Element::Bf16).unwrap();
    assert!(code == Code::Element && text.contains("`z` holds bf16, but this call of task `linear` rounds `y` to f32"), "{text}");
    let (code, text) = told(Some(Element::U32), Element::U32).unwrap();
    assert!(code == Code::Element && text.contains("`z` holds u32, but `y` of task `linear` can be bf16, f16"), "{text}");
}

#[test]
fn mistakes_name_the_fused_function() {
    let told = |then: &'static [FusedOp], beside: &dyn Fn([View; 5]) -> Vec<Argument<'static>>| {
        let mut told = None;
        recorded(
            |recorder, tensors, _| {
                let [x, w, _, _, y] = tensors;
                call(recorder, &LINEAR, &[x, w, y], then, &beside(tensors));
            },
            |recording| {
                let fault = recording.first_fault().expect("a mistake");
                told = Some((fault.kind.code(), recording.message(fault).as_str().to_owned()));
            },
        );
        told.unwrap()
    };
    let (code, text) = told(&[ADD], &|[x, ..]| vec![Argument::Tensor(x)]);
    assert!(code == Code::Dimension && text.contains("`x` (as `add`) has `K`"), "{text}");
    let (code, text) = told(&[MUL], &|[.., y]| vec![Argument::Tensor(y)]);
    assert!(code == Code::Overlap && text.contains("as `mul`"), "{text}");
    const FOUR: &[FusedOp] = &[ADD, MUL, ADD, SUB];
    let (code, text) =
        told(FOUR, &|[_, _, r, b, _]| vec![Argument::Tensor(r), Argument::Tensor(b), Argument::Tensor(r), Argument::Tensor(b)]);
    assert!(code == Code::Limit && text.contains("`.then(sub(..))` is one more"), "{text}");
}
