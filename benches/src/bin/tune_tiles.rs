//! Tunes single GEMMs on this GPU: measures the fastest tiles and split-K, and writes them to a file.

use std::path::PathBuf;

use anyhow::Context;
use benches::candidates::{Form, Half, candidates, tuned};
use benches::matrix::{ROUNDED, agree, numbers, sets};
use benches::rows::{Row, Run, Work};
use benches::shapes::{self, SHAPES, SMALL, Shape, name};
use benches::timing::{Clock, System};
use benches::{forced_shapes, tuning_file};
use clap::{Parser, ValueEnum};
use maco::{Arguments, CudaGraph, Device, Tensor, Tuning, bf16, f16};
use maco_graph::plan::PlannedCall;

/// Measures GEMMs in every tile: whole, in several numbers of parts, and with the last wave's tiles in parts.
///
/// Each is a launch of its own, sixteen of them one behind the other in a CUDA graph, on random operands that together are five times the second-level
/// cache. Candidates take turns after two seconds of warm-up; medians of the rounds. All have to agree with what the planner chooses by itself.
#[derive(Parser)]
struct Options {
    /// M, N and K of GEMMs, such as `256x8192x4096`; without, the published shapes of up to 1024 rows
    #[arg(long, value_delimiter = ',', value_parser = shapes::parse)]
    shape: Vec<Shape>,
    /// How the operands are stored; without, every way
    #[arg(long, value_delimiter = ',')]
    form: Vec<Form>,
    /// What they hold; without, `bf16` and `f16`
    #[arg(long, value_delimiter = ',')]
    element: Vec<Element>,
    /// Write the fastest of each GEMM here, for `PlanOptions::tuning`. What the file has already stays, unless it is about the same calls
    #[arg(long)]
    tuning: Option<PathBuf>,
    /// Write the rows here as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Rounds per case
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// GPU
    #[arg(long, default_value_t = 0)]
    gpu: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum Element {
    Bf16,
    F16,
}

/// Launches of a sample.
const LAUNCHES: usize = 16;
const METRIC: &str = "alone";

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let device = Device::gpu(options.gpu)?;
    println!("{device}");
    let all = |given: &[Form]| if given.is_empty() { Form::value_variants().to_vec() } else { given.to_vec() };
    let elements = if options.element.is_empty() { Element::value_variants().to_vec() } else { options.element.clone() };
    let small = || SHAPES.into_iter().filter(|shape| shape.0 <= SMALL).collect();
    let shapes: Vec<Shape> = if options.shape.is_empty() { small() } else { options.shape.clone() };
    let mut tuning = tuning_file::opened(options.tuning.as_deref(), &device)?;
    let clock = Clock::new(&device, options.rounds)?;
    let forms = all(&options.form);
    let mut run = Run::new(shapes.len() * forms.len() * elements.len(), options.json.as_deref());
    for &shape in &shapes {
        for &form in &forms {
            for element in &elements {
                let case = format!("{} {}", form.task(), name(shape));
                run.case(&case, || {
                    let rows = match element {
                        Element::Bf16 => measure::<bf16>(&device, &clock, form, shape, &mut tuning),
                        Element::F16 => measure::<f16>(&device, &clock, form, shape, &mut tuning),
                    }?;
                    // Now: what takes long may be stopped.
                    options.tuning.iter().try_for_each(|path| tuning.write(path))?;
                    Ok(rows)
                })?;
            }
        }
    }
    run.finish()
}

/// Operands that launches take in turn, and a result for each.
struct Operands<E> {
    operands: Vec<[Tensor<E>; 2]>,
    results: Vec<Tensor<E>>,
}

impl<E: Half> Operands<E> {
    fn new(device: &Device, form: Form, shape: Shape) -> anyhow::Result<Operands<E>> {
        let [a, b, y] = form.extents(shape);
        let sets = sets((a[0] * a[1] + b[0] * b[1]) * 2).min(LAUNCHES) as u64;
        let random = |extents: [u64; 2], seed: u64, scale: f32| {
            let data: Vec<E> = numbers(seed, scale).take((extents[0] * extents[1]) as usize).map(E::rounded).collect();
            device.upload(&data, extents)
        };
        let operands = (0..sets).map(|set| Ok([random(a, 2 * set + 1, 1.0)?, random(b, 2 * set + 2, 0.02)?]));
        let results = (0..LAUNCHES).map(|_| device.zeros(y)).collect::<Result<_, _>>()?;
        Ok(Operands { operands: operands.collect::<anyhow::Result<_>>()?, results })
    }

    fn of(&mut self, launch: usize) -> Arguments<'_> {
        let [a, b] = &self.operands[launch % self.operands.len()];
        Arguments::new().tensor(a).tensor(b).tensor_mut(&mut self.results[launch])
    }
}

/// A GEMM in all its tiles and parts; `tuning` gets the fastest.
fn measure<E: Half>(device: &Device, clock: &Clock, form: Form, shape: Shape, tuning: &mut Tuning) -> anyhow::Result<Vec<Row>> {
    let stream = &clock.stream;
    let mut operands = Operands::<E>::new(device, form, shape)?;
    let preferred = E::plan(device, form, shape, &benches::options())?;
    let (workers, chosen) = (preferred.workers(), forced_shapes::chosen(&preferred.graph().calls[0]));
    preferred.run(operands.of(LAUNCHES - 1))?;
    let expected = device.upload(&operands.results[LAUNCHES - 1].download()?, form.extents(shape)[2])?;
    let mut measured: Vec<(PlannedCall, Vec<_>, CudaGraph)> = Vec::new();
    for candidate in candidates(form, shape, workers) {
        let plan = E::plan(device, form, shape, &benches::options().shapes(vec![candidate]))?;
        let call = plan.graph().calls[0].clone();
        let bound = (0..LAUNCHES).map(|launch| plan.bind(operands.of(launch))).collect::<Result<Vec<_>, _>>()?;
        // What it leaves out would be there from the one before.
        let last = &mut operands.results[LAUNCHES - 1];
        last.upload_from(&vec![E::rounded(0.0); last.len()])?;
        let graph = CudaGraph::capture(stream, |stream| bound.iter().try_for_each(|bound| bound.launch_on(stream)))?;
        graph.launch(stream)?;
        stream.synchronize()?;
        plan.check()?;
        agree(&operands.results[LAUNCHES - 1], &expected, ROUNDED).with_context(|| forced_shapes::chosen(&call))?;
        measured.push((call, bound, graph));
    }
    let mut systems: Vec<System<'_>> =
        measured.iter().map(|(_, _, graph)| -> System<'_> { Box::new(|| Ok(graph.launch(stream)?)) }).collect();
    let times: Vec<_> = clock.measure(&mut systems)?.into_iter().map(|time| time.map(|time| time / LAUNCHES as f64)).collect();
    let fastest = measured.iter().zip(&times).min_by(|(_, a), (_, b)| a.value.total_cmp(&b.value));
    if let Some(((call, ..), time)) = fastest {
        tuning.add(tuned::<E>(form, shape, workers, call, time.value));
    }
    let rows = measured.iter().zip(&times).map(|((call, ..), &time)| {
        let found = forced_shapes::chosen(call);
        let mark = if found == chosen { ", the planner's" } else { "" };
        let case = format!("{} of {}, {}, {found}{mark}", form.task(), E::NAME, name(shape));
        Row::without_peer("tune", case, METRIC, time).of(Work::gemm(shape.0, shape.1, shape.2))
    });
    Ok(rows.collect())
}
