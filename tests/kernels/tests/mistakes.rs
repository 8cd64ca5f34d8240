//! A mistake in a graph built at run time has the code and the sentence of const evaluation, and help in the words of the builder. Each is
//! written once here: recorded in a const, as `#[megakernel]` does, and built as a `TaskGraph`.

use kernels::random::nudge;
use maco::__private::spec::{CallSite, Code, Kind, Operand, Placement, Storage, Text};
use maco::tasks::{add, all_reduce, bias, copy, linear, relu, scale};
use maco::{Device, Error, Node, TaskGraph, TensorElement, bf16};

maco::task_set! {
    ops: add, all_reduce, bias, copy, linear, nudge, scale
}

maco::task_set! {
    halves: copy<f32>, linear<f16, bf16>
}

/// A graph with a mistake, and what const evaluation says of it.
struct Mistake {
    graph: TaskGraph,
    told: (Code, Text),
}

fn declare<E: TensorElement>(graph: &mut TaskGraph, kind: Kind, name: &str, shape: &[u64]) -> Node {
    if kind == Kind::In {
        return graph.input::<E>(name, shape);
    }
    let node = graph.temp::<E>(name, shape);
    if kind == Kind::Out {
        graph.output(node, name);
    }
    node
}

/// Tensors, then calls, both ways.
macro_rules! mistake {
    (
        $($tensor:ident: $kind:ident<$element:ident> [$($size:literal),*];)*
        =>
        $($task:ident($($argument:expr),*) $(.tile($($tile:literal),+))? $(.split_k($parts:literal))?;)*
    ) => {{
        const TOLD: (Code, Text) = {
            let mut storage = Storage::<128, 8, 1, 8, 32, 8, 64>::new(&[]);
            let mut recorder = storage.recorder();
            let mut site = 0;
            $(
                let shape = [$(recorder.constant($size, site)),*];
                #[allow(unused_variables)]
                let $tensor = recorder.tensor(
                    stringify!($tensor), Kind::$kind, <$element as TensorElement>::ELEMENT, &shape, Placement::Replicated, site,
                );
                site += 1;
            )*
            $(
                let arguments = [$(Operand(&$argument).argument()),*];
                let tile_site = site + 1 + arguments.len() as u32;
                #[allow(unused_mut, unused_assignments)]
                let mut call = CallSite {
                    slot: 0, path: site, arguments: site + 1, result: None, fused: &[], prologue_site: site, epilogue_site: site, fused_arguments: &[], fused_site: site, tile: None, tile_site, split: None, split_site: site,
                    priority: 0, drain: false, via: maco::Via::Automatic, via_site: site, overlap: maco::__private::spec::CallOverlap::NONE,
                };
                $(call.tile = Some(&[$($tile),+]);)?
                $(call.split = Some($parts);)?
                // As it is in a set: without a GEMV form.
                recorder.call(const { &$task::SPEC.own() }, &call, &arguments);
                site = tile_site + 3;
            )*
            let _ = site;
            recorder.finish();
            let recording = storage.recording();
            match recording.first_fault() {
                Some(fault) => (fault.kind.code(), recording.message(fault)),
                None => panic!("there is no mistake"),
            }
        };
        let mut graph = TaskGraph::new("mistaken", ops());
        $(#[allow(unused_variables)]
        let $tensor = declare::<$element>(&mut graph, Kind::$kind, stringify!($tensor), &[$($size),*]);)*
        $(
            graph.custom(&$task::SPEC, [$(maco::Operand::from($argument)),*]);
            $(graph.tile(&[$($tile),+]);)?
            $(graph.split_k($parts);)?
        )*
        Mistake { graph, told: TOLD }
    }};
}

/// One of each kind that a graph without views, arrays and epilogues can have.
fn mistakes() -> Vec<(Code, Mistake)> {
    vec![
        (
            Code::Overlap,
            mistake! {
                x: In<f32> [8, 8]; y: Out<f32> [8, 8];
                => copy(x, y); add(x, y, y);
            },
        ),
        (
            Code::Unwritten,
            mistake! {
                y: Out<f32> [8, 8]; t: Temp<f32> [8, 8];
                => copy(t, y);
            },
        ),
        (
            Code::Unwritten,
            mistake! {
                x: In<f32> [8, 8]; y: Out<f32> [8, 8];
                => scale(y, 2.0f32); copy(x, y);
            },
        ),
        (
            Code::Unread,
            mistake! {
                x: In<f32> [8, 8]; y: Out<f32> [8, 8]; t: Temp<f32> [8, 8];
                => copy(x, t); copy(x, y);
            },
        ),
        (
            Code::Unread,
            mistake! {
                x: In<f32> [8, 8]; y: Out<f32> [8, 8]; t: Temp<f32> [8, 8];
                => copy(x, t); copy(t, y); copy(x, t);
            },
        ),
        (
            Code::Unread,
            mistake! {
                x: In<f32> [8, 8]; y: Out<f32> [8, 8];
                => copy(x, y); copy(x, y);
            },
        ),
        (
            Code::Rank,
            mistake! {
                x: In<f32> [8, 8]; y: Out<f32> [8, 8];
                => copy(x, y); bias(y, x);
            },
        ),
        (
            Code::Dimension,
            mistake! {
                x: In<f32> [8, 8]; z: In<f32> [8, 9]; y: Out<f32> [8, 8];
                => add(x, z, y);
            },
        ),
        (
            Code::Dimension,
            mistake! {
                x: In<bf16> [8, 16]; w: In<bf16> [4, 17]; y: Out<bf16> [8, 4];
                => linear(x, w, y);
            },
        ),
        (
            Code::Element,
            mistake! {
                x: In<f32> [8, 8]; y: Out<bf16> [8, 8];
                => copy(x, y);
            },
        ),
        (
            Code::Element,
            mistake! {
                x: In<i32> [8, 16]; w: In<i32> [4, 16]; y: Out<i32> [8, 4];
                => linear(x, w, y);
            },
        ),
        (
            Code::Element,
            mistake! {
                x: In<f32> [8, 8]; y: Out<f32> [8, 8];
                => copy(x, y); scale(y, 2i32);
            },
        ),
        (
            Code::Element,
            mistake! {
                x: In<f32> [8, 8]; y: Out<f32> [8, 8];
                => copy(x, y); nudge(y, 3_000_000_000u32);
            },
        ),
        (
            Code::Arity,
            mistake! {
                x: In<f32> [8, 8]; y: Out<f32> [8, 8];
                => add(x, y);
            },
        ),
        (
            Code::Arity,
            mistake! {
                x: In<f32> [8, 8]; y: Out<f32> [8, 8];
                => copy(x, y, 1.0f32);
            },
        ),
        (
            Code::Sort,
            mistake! {
                x: In<f32> [8, 8]; y: Out<f32> [8, 8];
                => add(x, 1.0f32, y);
            },
        ),
        (
            Code::Sort,
            mistake! {
                x: In<f32> [8, 8]; y: Out<f32> [8, 8];
                => copy(x, y); scale(y, x);
            },
        ),
        (
            Code::WritesIn,
            mistake! {
                x: In<f32> [8, 8]; z: In<f32> [8, 8];
                => copy(x, z);
            },
        ),
        (
            Code::OutUnwritten,
            mistake! {
                x: In<f32> [8, 8]; y: Out<f32> [8, 8]; z: Out<f32> [8, 8];
                => copy(x, y);
            },
        ),
        (
            Code::Tile,
            mistake! {
                x: In<bf16> [8, 16]; w: In<bf16> [4, 16]; y: Out<bf16> [8, 4];
                => linear(x, w, y).tile(64, 96);
            },
        ),
        (
            Code::Tile,
            mistake! {
                x: In<f32> [8, 8]; y: Out<f32> [8, 8];
                => copy(x, y).tile(64);
            },
        ),
        (
            Code::CallOption,
            mistake! {
                x: In<f32> [64, 64]; y: Out<f32> [64, 64];
                => copy(x, y).split_k(2);
            },
        ),
        (
            Code::Placement,
            mistake! {
                x: In<f32> [8, 8]; y: Out<f32> [8, 8];
                => all_reduce(x, y);
            },
        ),
        (
            Code::Limit,
            mistake! {
                x: In<f32> [2, 2, 2, 2, 2]; y: Out<f32> [2, 2];
                => copy(x, y);
            },
        ),
    ]
}

#[test]
fn the_codes_and_words_of_const_evaluation() {
    let device = Device::cpu_with(1);
    let mistakes = mistakes();
    let mut codes: Vec<u16> = mistakes.iter().map(|(code, _)| code.number()).collect();
    codes.dedup();
    assert!(codes.len() >= 12, "{codes:?}");
    for (code, Mistake { graph, told: (told, text) }) in mistakes {
        let text = text.as_str();
        assert_eq!(told, code, "{text}");
        assert!(text.starts_with(&code.to_string()), "{text}");
        let Err(error) = graph.compile(&device) else { panic!("compiled: {text}") };
        assert_eq!(error.code(), code.number(), "{error}");
        assert!(matches!(error, Error::Build(_)), "{error:?}");
        let (told, found) = (text.lines().collect::<Vec<_>>(), error.to_string());
        let found: Vec<&str> = found.lines().collect();
        assert_eq!((found.len(), found[0]), (told.len(), told[0]));
        // What the builder does not have.
        for word in ["`In", "`Out`", "`.", "#[", "parameter`", "remove the parameter"] {
            assert!(!found[1..].concat().contains(word), "{word} in {found:?}");
        }
    }
}

#[test]
fn mistakes_that_only_a_builder_can_make() {
    let device = Device::cpu_with(1);
    let build = |make: &dyn Fn(&mut TaskGraph)| {
        let mut graph = TaskGraph::new("mistaken", ops());
        make(&mut graph);
        let error = graph.compile(&device).map(drop).unwrap_err();
        (error.code(), error.to_string())
    };
    // A task that the set lacks.
    let (code, text) = build(&|graph| {
        let x = graph.input::<f32>("x", [8, 8]);
        let y = graph.elementwise(&relu::SPEC, x);
        graph.output(y, "y");
    });
    assert!(code == 61 && text.contains("graph `mistaken` calls task `relu`") && text.contains("task_set!"), "{text}");

    // A task that the set has for other elements.
    let mut graph = TaskGraph::new("mistaken", halves());
    let (x, w) = (graph.input::<f32>("x", [8, 8]), graph.input::<f32>("w", [8, 8]));
    let y = graph.linear(x, w);
    graph.output(y, "y");
    let error = graph.compile(&device).map(drop).unwrap_err();
    let told = "graph `mistaken` calls task `linear` on `f32`, which its task set leaves out\nhelp: write `linear<f32>`";
    assert!(error.code() == 61 && error.to_string().contains(told), "{error}");
    let mut graph = TaskGraph::new("halves", halves());
    let (x, w) = (graph.input::<bf16>("x", [8, 8]), graph.input::<bf16>("w", [8, 8]));
    let y = graph.linear(x, w);
    graph.output(y, "y");
    graph.compile(&device).unwrap();

    // A tensor of another graph.
    let mut larger = TaskGraph::new("larger", ops());
    let foreign = [(); 9].map(|()| larger.input::<f32>("x", [8, 8]))[8];
    let (code, text) = build(&|graph| {
        let y = graph.elementwise(&copy::SPEC, foreign);
        graph.output(y, "y");
        graph.output(foreign, "z");
        graph.name(foreign, "z");
        let _ = graph.linear(foreign, foreign);
        graph.custom(&copy::SPEC, [foreign.into(), y.into()]);
    });
    assert_eq!((code, text.lines().next().unwrap()), (70, "MACO0070: call `copy` of graph `mistaken` is given tensor 8 of graph `larger`"));

    // Also one that the own graph has as many of, or that has the same name.
    let mut same = TaskGraph::new("mistaken", ops());
    let foreign = same.input::<f32>("x", [8, 8]);
    type Use = fn(&mut TaskGraph, Node);
    let uses: [(&str, Use); 4] = [
        ("`output`", |graph, node| graph.output(node, "y")),
        ("`name`", |graph, node| graph.name(node, "y")),
        ("call `add`", |graph, node| graph.custom(&add::SPEC, [node.into(), node.into(), node.into()])),
        ("call `linear`", |graph, node| _ = graph.linear(node, node)),
    ];
    for (by, make) in uses {
        let (code, text) = build(&|graph| {
            let x = graph.input::<f32>("x", [8, 8]);
            make(graph, foreign);
            let y = graph.elementwise(&copy::SPEC, x);
            graph.output(y, "z");
        });
        assert!(code == 70 && text.contains(&format!("{by} of graph `mistaken` is given tensor 0 of graph `mistaken`")), "{text}");
    }

    // Outputs that would be lost.
    type Outputs = fn(&mut TaskGraph, [Node; 3]);
    let lost: [(&str, Outputs); 5] = [
        ("another output has this name", |graph, [_, y, z]| {
            graph.output(y, "same");
            graph.output(z, "same");
        }),
        ("the tensor is an output already, as `first`", |graph, [_, y, z]| {
            graph.output(y, "first");
            graph.output(z, "other");
            graph.output(y, "same");
        }),
        ("the tensor is input `x`", |graph, [x, ..]| graph.output(x, "same")),
        ("`name(.., \"other\")` after it would take this name away", |graph, [_, y, z]| {
            graph.output(y, "same");
            graph.output(z, "other");
            graph.name(y, "same");
            graph.name(y, "other");
        }),
        ("`name(.., \"hidden\")` after it would take this name away", |graph, [_, y, z]| {
            graph.output(y, "same");
            graph.name(y, "hidden");
            graph.output(z, "same");
        }),
    ];
    for (told, make) in lost {
        let (code, text) = build(&|graph| {
            let x = graph.input::<f32>("x", [8, 8]);
            let (y, z) = (graph.elementwise(&copy::SPEC, x), graph.elementwise(&copy::SPEC, x));
            make(graph, [x, y, z]);
        });
        assert!(code == 71 && text.contains("`output(.., \"same\")` of graph `mistaken`") && text.contains(told), "{text}");
    }

    // Outputs are not counted among the inputs.
    let mut graph = TaskGraph::new("counted", ops());
    let (x, z) = (graph.input::<f32>("x", [8, 8]), graph.input::<f32>("z", [8, 8]));
    let y = graph.temp::<f32>("y", [8, 8]);
    graph.custom(&add::SPEC, [x.into(), z.into(), y.into()]);
    graph.output(y, "y");
    let graph = graph.compile(&device).unwrap();
    let ones = device.upload(&[1.0f32; 64], [8, 8]).unwrap();
    for count in [0usize, 1, 3, 4] {
        let arguments = (0..count).fold(maco::Arguments::new(), |arguments, _| arguments.tensor(&ones));
        let error = graph.execute(arguments).map(drop).unwrap_err();
        let told = format!("MACO0030: megakernel `counted` takes 2 inputs, found {count}");
        assert_eq!(error.to_string().lines().next(), Some(told.as_str()));
    }

    // Shapes that no tensor has.
    for (shape, code) in [(vec![], 4), (vec![2; 5], 23), (vec![2; 100], 23), (vec![8, u64::MAX], 23), (vec![8, 1 << 62], 27)] {
        let (found, text) = build(&|graph| {
            let x = graph.input::<f32>("x", shape.clone());
            let y = graph.temp::<f32>("y", shape.clone());
            graph.custom(&copy::SPEC, [x.into(), y.into()]);
            graph.output(y, "y");
        });
        assert_eq!(found, code, "{shape:?}: {text}");
    }

    // A tile before any call forces nothing; an empty graph is a plan.
    let mut graph = TaskGraph::new("empty", ops());
    graph.tile(&[64, 64]);
    let outputs = graph.compile(&device).unwrap().execute(maco::Arguments::new()).unwrap();
    assert_eq!(outputs.report().tasks, 0);
    assert!(outputs.get::<f32>("y").is_none());
}

/// Two tasks that differ in their bodies only.
mod once {
    #[maco::task(tile(i = 8, j = 8))]
    pub fn same(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
        cta.zip(x, y, |v| v)
    }
}
mod twice {
    #[maco::task(tile(i = 8, j = 8))]
    pub fn same(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
        cta.zip(x, y, |v| v + v)
    }
}
maco::task_set! {
    namesakes: once::same, twice::same, copy
}

/// A graph never runs one for the other.
#[test]
fn namesakes_are_refused() {
    let device = Device::cpu_with(1);
    let compile = |spec| {
        let mut graph = TaskGraph::new("namesakes", namesakes());
        let x = graph.input::<f32>("x", [1, 1]);
        let y = graph.elementwise(spec, x);
        graph.output(y, "y");
        graph.compile(&device).map(drop)
    };
    for spec in [&once::same::SPEC, &twice::same::SPEC] {
        let error = compile(spec).unwrap_err();
        assert!(error.code() == 61 && error.to_string().contains("two of that name"), "{error}");
    }
    compile(&copy::SPEC).unwrap();
}
