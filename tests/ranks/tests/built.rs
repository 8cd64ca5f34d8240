//! Collectives of graphs that are built at run time.

use maco::{Arguments, Communicator, Device, Node, PlanOptions, Reduced, TaskGraph, Via, tasks};
use ranks::built::built;

/// A sum, all parts of it, and how the sum goes; or the code of an error.
type Found = Result<(Vec<f32>, Vec<f32>, String), u16>;

/// What `ranks` ranks find.
fn of(ranks: u32, partial: bool, via: Via) -> Vec<Found> {
    Communicator::threads(ranks, |communicator| {
        let device = Device::cpu_with(2);
        let mut graph = TaskGraph::new("built", built());
        let x = graph.input::<f32>("x", [128, 256]);
        graph.shard(x, 0);
        let part = graph.elementwise(&tasks::copy::SPEC, x);
        if partial {
            graph.partial(part, Reduced::Sum);
        }
        let sum = graph.all_reduce(part);
        graph.via(via);
        let all = graph.all_gather(x, ranks);
        graph.output(sum, "sum");
        graph.output(all, "all");
        let options = PlanOptions::new().communicator(communicator.clone());
        let compiled = graph.compile_with(&device, &options).map_err(|error| error.code())?;
        let own = vec![1.0 + communicator.rank() as f32; 128 * 256];
        let x = device.upload(&own, [128, 256]).unwrap();
        let outputs = compiled.execute(Arguments::new().tensor(&x)).unwrap();
        let found = |name| outputs.get::<f32>(name).unwrap().download().unwrap();
        Ok((found("sum"), found("all"), compiled.graph().exchange(1).unwrap()))
    })
    .unwrap()
}

#[test]
fn sums_and_parts_are_those_of_all_ranks() {
    for (via, way) in [(Via::OneShot, "one-shot"), (Via::Packets, "packets")] {
        for found in of(2, true, via) {
            let (sum, all, exchange) = found.unwrap();
            assert!(sum.iter().all(|&value| value == 3.0));
            assert!(all.iter().enumerate().all(|(at, &value)| value == 1.0 + (at / (128 * 256)) as f32));
            assert!(exchange.starts_with(way), "{exchange}");
        }
    }
}

/// Part r of the sum of all ranks' tensors is rank r's; the call that is to come first has its priority.
#[test]
fn each_rank_has_its_part_of_a_sum() {
    let ranks = 3;
    let parts = Communicator::threads(ranks, |communicator| {
        let device = Device::cpu_with(2);
        let mut graph = TaskGraph::new("parts", built());
        let mine = graph.input::<f32>("mine", [u64::from(ranks), 70, 30]);
        graph.partial(mine, Reduced::Sum);
        let part = graph.reduce_scatter(mine);
        graph.priority(2);
        graph.output(part, "part");
        let compiled = graph.compile_with(&device, &PlanOptions::new().communicator(communicator.clone())).unwrap();
        assert_eq!(compiled.graph().graph.calls[0].priority, 2);
        let own: Vec<f32> = (0..ranks * 70 * 30).map(|at| ((1 + communicator.rank()) * (at % 1000)) as f32).collect();
        let mine = device.upload(&own, [u64::from(ranks), 70, 30]).unwrap();
        compiled.execute(Arguments::new().tensor(&mine)).unwrap().get::<f32>("part").unwrap().download().unwrap()
    });
    for (rank, part) in (0..).zip(parts.unwrap()) {
        let expected: Vec<f32> = (0..70 * 30).map(|at| (6 * ((rank * 70 * 30 + at) % 1000)) as f32).collect();
        assert_eq!(part, expected, "rank {rank}");
    }
}

#[test]
fn a_sum_of_what_is_not_partial_is_refused() {
    assert!(of(2, false, Via::Automatic).into_iter().all(|found| found == Err(19)));
}

/// A sum over all ranks beside a GEMM that needs nothing of it, by a region or by its nodes: the same bits as one after the other, and the plan says so.
#[test]
fn a_sum_beside_a_gemm_has_the_same_bits() {
    let run = |how: u32| {
        let found = Communicator::threads(2, |communicator| {
            let device = Device::cpu_with(3);
            let mut graph = TaskGraph::new("beside", built());
            let (x, w) = (graph.input::<f32>("x", [256, 64]), graph.input::<f32>("w", [512, 64]));
            graph.shard(x, 1);
            graph.shard(w, 1);
            let part = graph.linear(x, w);
            graph.partial(part, Reduced::Sum);
            let v = graph.input::<f32>("v", [512, 64]);
            let (sum, gate) = match how {
                2 => graph.region(|region| {
                    let sum = region.submit_comm(|graph| graph.all_reduce(part));
                    let gate = region.submit_compute(|graph| graph.linear(x, v));
                    (sum.wait(), gate.wait())
                }),
                _ => {
                    let sum = graph.all_reduce(part);
                    (sum, graph.linear(x, v))
                }
            };
            graph.shard(gate, 1);
            if how == 1 {
                graph.overlap(&[gate], &[sum]).waves(2);
            }
            graph.output(sum, "sum");
            graph.output(gate, "gate");
            let compiled = graph.compile_with(&device, &PlanOptions::new().communicator(communicator.clone())).unwrap();
            let text = compiled.graph().to_string();
            assert_eq!(text.contains("  #1 beside #2"), how > 0, "{text}");
            assert_eq!(text.contains("#1 beside #2, in 2 waves\n"), how == 1, "{text}");
            let numbers = |count: u32, salt: u32| (0..count).map(|at| ((at * 7 + salt) % 13) as f32 - 6.0).collect::<Vec<f32>>();
            let salt = communicator.rank();
            let x = device.upload(&numbers(256 * 64, salt), [256, 64]).unwrap();
            let [w, v] = [1, 2].map(|more| device.upload(&numbers(512 * 64, salt + more), [512, 64]).unwrap());
            let outputs = compiled.execute(Arguments::new().tensor(&x).tensor(&w).tensor(&v)).unwrap();
            let bits = |name| outputs.get::<f32>(name).unwrap().download().unwrap().into_iter().map(f32::to_bits).collect::<Vec<u32>>();
            (bits("sum"), bits("gate"))
        });
        found.unwrap()
    };
    let plain = run(0);
    assert_eq!(plain[0].0, plain[1].0);
    assert!(plain[0].0.iter().any(|&bits| bits != 0));
    assert!(run(1) == plain && run(2) == plain);
}

/// What reads a sum does not hide it.
#[test]
fn what_needs_the_sum_cannot_be_beside_it() {
    let errors = Communicator::threads(2, |communicator| {
        let mut graph = TaskGraph::new("behind", built());
        let part = graph.input::<f32>("part", [256, 64]);
        graph.partial(part, Reduced::Sum);
        let sum = graph.all_reduce(part);
        let y = graph.elementwise(&tasks::copy::SPEC, sum);
        graph.overlap(&[y], &[sum]).auto_waves();
        graph.output(y, "y");
        graph.compile_with(&Device::cpu_with(2), &PlanOptions::new().communicator(communicator)).map(drop).unwrap_err().to_string()
    });
    for error in errors.unwrap() {
        assert!(error.contains("MACO0018: `all_reduce` (call #0) cannot overlap with what it was given"), "{error}");
    }
}

/// How a test has collectives hidden.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// One call for all rows.
    Plain,
    Pipeline(u32),
    Overlapped,
    Phase,
}

/// Whole numbers, so that sums are exact.
fn whole(count: u64, salt: u32) -> Vec<f32> {
    (0..count).map(|at| ((at * 7 + u64::from(salt)) % 13) as f32 - 6.0).collect()
}

/// What each of `ranks` ranks has of a product of `rows` rows, summed over all, plus a residual, and of a second product; with the text of its plan.
fn hidden(ranks: u32, rows: u64, how: How) -> Vec<(Vec<f32>, Vec<f32>, String)> {
    Communicator::threads(ranks, |communicator| {
        let device = Device::cpu_with(2);
        let mut graph = TaskGraph::new("hidden", built());
        let [x, w, residual] =
            [("x", rows, 48), ("w", 512, 48), ("residual", rows, 512)].map(|(name, m, n)| graph.input::<f32>(name, [m, n]));
        graph.shard(x, 1);
        graph.shard(w, 1);
        let layer = |graph: &mut TaskGraph, rows: Node, w: Node| {
            let part = graph.linear(rows, w);
            graph.partial(part, Reduced::Sum);
            graph.all_reduce(part)
        };
        let add = |graph: &mut TaskGraph, a: Node, b: Node, rows: u64| {
            let y = graph.temp::<f32>("added", [rows, 512]);
            graph.custom(&tasks::add::SPEC, [a.into(), b.into(), y.into()]);
            y
        };
        let (sum, y) = match how {
            How::Plain => {
                let sum = layer(&mut graph, x, w);
                (sum, add(&mut graph, sum, residual, rows))
            }
            How::Pipeline(stages) => {
                let [sum, y] = graph.pipeline(stages, x, |stage, rows| {
                    let sum = layer(stage, rows, w);
                    let (own, count) = (stage.rows_of(residual), stage.range().end - stage.range().start);
                    [sum, add(stage, sum, own, count)]
                });
                (sum, y)
            }
            How::Overlapped => {
                let sum = maco::overlapped(&device, layer)(&mut graph, x, w);
                (sum, add(&mut graph, sum, residual, rows))
            }
            How::Phase => {
                let part = graph.linear(x, w);
                graph.partial(part, Reduced::Sum);
                let twice = add(&mut graph, residual, residual, rows);
                let first = graph.phase(|phase| phase.all_reduce(part)).depends_on([twice]);
                let again = graph.linear(x, w);
                graph.partial(again, Reduced::Sum);
                let second = graph.phase(|phase| phase.all_reduce(again)).depends_on((&first, twice));
                graph.output(twice, "twice");
                (second.result, add(&mut graph, first.result, residual, rows))
            }
        };
        graph.output(sum, "sum");
        graph.output(y, "y");
        let compiled = graph.compile_with(&device, &PlanOptions::new().communicator(communicator.clone())).unwrap();
        let salt = communicator.rank();
        let x = device.upload(&whole(rows * 48, salt), [rows, 48]).unwrap();
        let w = device.upload(&whole(512 * 48, salt + 1), [512, 48]).unwrap();
        let residual = device.upload(&whole(rows * 512, 5), [rows, 512]).unwrap();
        let arguments = || Arguments::new().tensor(&x).tensor(&w).tensor(&residual);
        // Twice, for what a launch leaves behind.
        compiled.execute(arguments()).unwrap();
        let outputs = compiled.execute(arguments()).unwrap();
        let found = |name| outputs.get::<f32>(name).unwrap().download().unwrap();
        if how == How::Phase {
            assert!(found("twice").iter().zip(whole(rows * 512, 5)).all(|(found, once)| *found == 2.0 * once));
        }
        (found("sum"), found("y"), compiled.graph().to_string())
    })
    .unwrap()
}

/// What [`hidden`] should find, by the definition.
fn expected(ranks: u32, rows: u64) -> (Vec<f32>, Vec<f32>) {
    let of: Vec<_> = (0..ranks).map(|rank| (whole(rows * 48, rank), whole(512 * 48, rank + 1))).collect();
    let product = |at: usize| -> f32 {
        let (row, column) = (at / 512, at % 512);
        of.iter().map(|(x, w)| (0..48).map(|k| x[row * 48 + k] * w[column * 48 + k]).sum::<f32>()).sum()
    };
    let sum: Vec<f32> = (0..rows as usize * 512).map(product).collect();
    let y = sum.iter().zip(whole(rows * 512, 5)).map(|(sum, residual)| sum + residual).collect();
    (sum, y)
}

/// Stages that divide the rows and that do not, one, and as many as there are rows.
#[test]
fn pipelines_have_the_same_results() {
    for (ranks, rows, stages) in [(2, 256, 2), (2, 300, 3), (3, 300, 2), (2, 70, 1), (3, 5, 5)] {
        let expected = expected(ranks, rows);
        for (sum, y, text) in hidden(ranks, rows, How::Pipeline(stages)) {
            assert!(sum == expected.0 && y == expected.1, "{ranks} ranks, {rows} rows, {stages} stages");
            // Three calls of each stage, of which the second one waits beside those of the next.
            assert_eq!(text.matches(" beside ").count() as u32, stages - 1, "{text}");
            assert!(stages == 1 || text.contains("  #1 beside #3, #5\n"), "{text}");
        }
    }
}

#[test]
fn an_overlapped_function_has_the_same_results() {
    // Four row tiles of two columns: two workers have a whole wave in each of four stages. Few rows are not cut.
    for (ranks, rows, stages) in [(2, 512, 4), (3, 300, 2), (2, 100, 1)] {
        let (plain, expected) = (hidden(ranks, rows, How::Plain), expected(ranks, rows));
        for (found, plain) in hidden(ranks, rows, How::Overlapped).into_iter().zip(plain) {
            assert!(
                found.0 == expected.0 && found.1 == expected.1 && found.0 == plain.0 && found.1 == plain.1,
                "{ranks} ranks, {rows} rows"
            );
            assert_eq!(found.2.matches("  all_reduce ").count(), stages, "{}", found.2);
        }
    }
}

#[test]
fn phases_have_the_same_results() {
    for ranks in [2, 3] {
        let expected = expected(ranks, 300);
        for (sum, y, text) in hidden(ranks, 300, How::Phase) {
            assert!(sum == expected.0 && y == expected.1, "{ranks} ranks");
            assert!(text.contains("  #2 behind #1\n") && text.contains("  #4 behind #2, #1\n"), "{text}");
        }
    }
}

/// What is gathered, and what is scattered, has its rows along the second axis of the other side.
#[test]
fn parts_of_all_ranks_are_gathered_and_scattered_in_stages() {
    for ranks in [2, 3] {
        let results = Communicator::threads(ranks, |communicator| {
            let device = Device::cpu_with(2);
            let mut graph = TaskGraph::new("moved", built());
            let mine = graph.input::<f32>("mine", [200, 64]);
            graph.shard(mine, 0);
            let parts = graph.input::<f32>("parts", [u64::from(ranks), 200, 64]);
            graph.partial(parts, Reduced::Sum);
            let all = graph.pipeline(3, mine, |stage, rows| {
                let copied = stage.elementwise(&tasks::copy::SPEC, rows);
                stage.shard(copied, 0);
                stage.all_gather(copied, ranks)
            });
            let own = graph.pipeline(2, parts, |stage, rows| stage.reduce_scatter(rows));
            graph.output(all, "all");
            graph.output(own, "own");
            let compiled = graph.compile_with(&device, &PlanOptions::new().communicator(communicator.clone())).unwrap();
            let mine = device.upload(&whole(200 * 64, communicator.rank()), [200, 64]).unwrap();
            let parts = device.upload(&whole(u64::from(ranks) * 200 * 64, communicator.rank()), [u64::from(ranks), 200, 64]).unwrap();
            let outputs = compiled.execute(Arguments::new().tensor(&mine).tensor(&parts)).unwrap();
            ["all", "own"].map(|name| outputs.get::<f32>(name).unwrap().download().unwrap())
        });
        let gathered: Vec<f32> = (0..ranks).flat_map(|rank| whole(200 * 64, rank)).collect();
        for (rank, [all, own]) in results.unwrap().into_iter().enumerate() {
            assert!(all == gathered, "rank {rank} of {ranks}");
            let of: Vec<Vec<f32>> = (0..ranks).map(|other| whole(u64::from(ranks) * 200 * 64, other)).collect();
            let sums = (0..200 * 64).map(|at| of.iter().map(|numbers| numbers[rank * 200 * 64 + at]).sum::<f32>());
            assert!(own.into_iter().eq(sums), "rank {rank} of {ranks}");
        }
    }
}

/// A part is read and written in its tensor.
#[test]
fn slices_are_parts_of_their_tensor() {
    let mut graph = TaskGraph::new("slices", built());
    let x = graph.input::<f32>("x", [6, 8]);
    let y = graph.temp::<f32>("y", [6, 8]);
    // Rows 4 and 5 in front, then rows 0 to 3; of these the columns by halves.
    let (last, first) = (graph.rows(x, 4..6), graph.rows(x, 0..4));
    let (top, rest) = (graph.rows(y, 0..2), graph.rows(y, 2..6));
    graph.custom(&tasks::copy::SPEC, [last.into(), top.into()]);
    for half in [0..4, 4..8] {
        let [from, to] = [first, rest].map(|part| graph.slice(part, 1, half.clone()));
        graph.custom(&tasks::copy::SPEC, [from.into(), to.into()]);
    }
    graph.output(y, "y");
    let device = Device::cpu_with(2);
    let numbers: Vec<f32> = (0..48).map(|at| at as f32).collect();
    let x = device.upload(&numbers, [6, 8]).unwrap();
    let outputs = graph.compile(&device).unwrap().execute(Arguments::new().tensor(&x)).unwrap();
    assert_eq!(outputs.get::<f32>("y").unwrap().download().unwrap(), [&numbers[32..], &numbers[..32]].concat());
}

/// Each mistake has a code and names what the user named.
#[test]
fn what_cannot_be_hidden_is_refused() {
    let refused = |code: u16, text: &str, build: &dyn Fn(&mut TaskGraph, Node)| {
        let mut graph = TaskGraph::new("refused", built());
        let x = graph.input::<f32>("x", [3, 8]);
        graph.partial(x, Reduced::Sum);
        build(&mut graph, x);
        let error =
            graph.compile_with(&Device::cpu_with(2), &PlanOptions::new().communicator(Communicator::single())).map(drop).unwrap_err();
        assert!(error.code() == code && error.to_string().contains(text), "{error}");
    };
    let output = |graph: &mut TaskGraph, y: Node| graph.output(y, "y");
    refused(25, "a pipeline of 4 stages cannot cut `x`, which has 3 rows", &|graph, x| {
        let y = graph.pipeline(4, x, |stage, rows| stage.all_reduce(rows));
        output(graph, y);
    });
    refused(25, "a pipeline of 0 stages cannot cut `x`", &|graph, x| {
        let y = graph.pipeline(0, x, |stage, rows| stage.all_reduce(rows));
        output(graph, y);
    });
    refused(25, "the result of a stage of a pipeline, is no tensor that a call of it has made", &|graph, x| {
        let y = graph.pipeline(2, x, |_, rows| rows);
        output(graph, y);
    });
    refused(25, "`0`..`4` is not inside the axis of `x`", &|graph, x| {
        let rows = graph.rows(x, 0..4);
        let y = graph.all_reduce(rows);
        output(graph, y);
    });
    refused(71, "it is a part of `x`", &|graph, x| {
        let rows = graph.rows(x, 0..2);
        output(graph, rows);
    });
    refused(18, "a phase has no collective", &|graph, x| {
        let y = graph.all_reduce(x);
        let phase = graph.phase(|phase| phase.elementwise(&tasks::copy::SPEC, y)).depends_on(y);
        output(graph, phase.result);
    });
    refused(
        18,
        "`all_reduce` (call #0) cannot be in a phase that depends on what it was given: call #0 does not come before it",
        &|graph, x| {
            let mut inside = x;
            let phase = graph.phase(|phase| {
                inside = phase.all_reduce(x);
                inside
            });
            let phase = phase.depends_on(inside);
            output(graph, phase.result);
        },
    );
}
