//! What docs/guide/gpus.md shows.
use std::time::Duration;

use maco::{Context, CudaGraph, Device, Error, PlanOptions, Schedule, Settings, SmConfig, Stream, Tensor};

use crate::language::layers;

/// A plan with options, run on the device that is there.
pub fn with_options() -> Result<Vec<f32>, Error> {
    let device = Device::best()?; // GPU 0 if there is one with a driver, else the CPU
    let options = PlanOptions::new().deadline(Duration::from_secs(10));
    let plan = layers::plan_with(&device, layers::Dims { M: 128, N: 128 }, &options)?;

    let x = device.upload(&vec![1.0; 128 * 128], [128, 128])?;
    let b = [device.zeros([128])?, device.zeros([128])?, device.zeros([128])?];
    let mut y = device.zeros([128, 128])?;
    let report = plan.run(&x, &b, &mut y)?; // checks the arguments, uploads them, launches, waits
    println!("{} tasks in {:?}", report.tasks, report.elapsed);
    y.download()
}

/// Launches beside other work, waited for later.
pub fn on_a_stream(plan: &layers::Plan, x: &Tensor<f32>, b: &[Tensor<f32>; 3], y: &mut Tensor<f32>) -> Result<(), Error> {
    let stream = Stream::new(plan.device())?;
    let pending = plan.run_on(&stream, x, b, y)?;
    // other work of this thread
    pending.wait()?;
    Ok(())
}

/// A CUDA graph of sixteen launches. Launches of bound arguments upload nothing.
pub fn captured(plan: &layers::Plan, x: &Tensor<f32>, b: &[Tensor<f32>; 3], y: &mut Tensor<f32>) -> Result<(), Error> {
    let stream = Stream::new(plan.device())?;
    let bound = plan.bind(maco::Arguments::new().tensor(x).tensors(b).tensor_mut(y))?;
    let graph = CudaGraph::capture(&stream, |stream| (0..16).try_for_each(|_| bound.launch_on(stream)))?;
    graph.launch(&stream)?;
    stream.synchronize()?;
    plan.check() // what the launches in it reported
}

/// One run, and if it was aborted one more.
pub fn twice(plan: &layers::Plan, x: &Tensor<f32>, b: &[Tensor<f32>; 3], y: &mut Tensor<f32>) -> Result<(), Error> {
    if let Err(error) = plan.run(x, b, y) {
        eprintln!("{error}"); // which task, which tile, what it waited for
        plan.recover()?;
        plan.run(x, b, y)?;
    }
    Ok(())
}

/// Two plans of one megakernel, of which each has its configuration; the same weights.
pub fn switched(device: &Device) -> Result<(Vec<f32>, Vec<f32>), Error> {
    let b = [device.zeros([128])?, device.zeros([128])?, device.zeros([128])?];
    let (prompt, token) = (device.upload(&vec![1.0; 128 * 128], [128, 128])?, device.upload(&vec![1.0; 128], [1, 128])?);
    let (mut first, mut next) = (device.zeros([128, 128])?, device.zeros([1, 128])?);

    let prefill = PlanOptions::new().sms(SmConfig::automatic());
    let decode = PlanOptions::new().sms(SmConfig::automatic().tasks(&["affine"], 0..2));
    let [many, one] = [
        layers::plan_with(device, layers::Dims { M: 128, N: 128 }, &prefill)?,
        layers::plan_with(device, layers::Dims { M: 1, N: 128 }, &decode)?,
    ];
    many.run(&prompt, &b, &mut first)?;
    one.run(&token, &b, &mut next)?; // the same weights: another plan, another launch, nothing else
    Ok((first.download()?, next.download()?))
}

/// A plan by settings, of the program or of the environment.
pub fn by_settings() -> Result<layers::Plan, Error> {
    let context = Context::new(Settings::new().policy(Schedule::Static).debug(true))?;
    let plan = layers::plan_in(&context, layers::Dims { M: 128, N: 128 })?;
    Ok(plan)
}
