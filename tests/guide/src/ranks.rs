//! What docs/guide/ranks.md shows.
use std::path::Path;
use std::sync::atomic::Ordering;

use maco::profile::RankProfiles;
use maco::{ChannelOptions, Communicator, Device, Error, PlanOptions, Reduce, bf16};

use crate::language::{exchanged, layers, row_parallel, stored};

/// What every rank does; also one rank alone.
pub fn step(ranks: &Communicator) -> Result<Vec<f32>, Error> {
    let device = Device::cpu_with(2); // on GPUs: Device::gpu(ranks.local_rank())
    let options = PlanOptions::new().communicator(ranks.clone());
    let plan = layers::plan_with(&device, layers::Dims { M: 128, N: 128 }, &options)?; // all ranks have a plan now, or the same error

    let x = device.upload(&vec![1.0; 128 * 128], [128, 128])?;
    let b = [device.zeros([128])?, device.zeros([128])?, device.zeros([128])?];
    let mut y = device.zeros([128, 128])?;
    plan.run(&x, &b, &mut y)?;
    ranks.barrier()?;
    y.download()
}

/// A process that a launcher has started.
pub fn of_a_job() -> Result<(), Error> {
    let ranks = Communicator::from_env()?; // returns when all are there
    println!("rank {} of {}", ranks.rank(), ranks.ranks());
    step(&ranks)?;
    Ok(())
}

/// Ranks without processes.
pub fn as_threads() -> Result<Vec<f32>, Error> {
    let results = Communicator::threads(4, |ranks| step(&ranks))?; // the results of all ranks, in their order
    let all: Vec<Vec<f32>> = results.into_iter().collect::<Result<_, _>>()?;
    Ok(all.concat())
}

/// A GEMM whose terms are spread over the ranks; `count` divides 64.
pub fn row_parallel_on(ranks: &Communicator) -> Result<Vec<bf16>, Error> {
    let device = Device::cpu_with(2);
    let options = PlanOptions::new().communicator(ranks.clone());
    let count = u64::from(ranks.ranks());
    let own = vec![bf16::from_f32(0.5); (16 * 64 / count) as usize];
    let x = device.upload(&own, [16, 64 / count])?;
    let w = device.upload(&[&own[..], &own[..]].concat(), [32, 64 / count])?;
    let mut y = device.zeros([16, 32])?;
    let plan = row_parallel::plan_with(&device, row_parallel::Dims { M: 16, N: 32, K: 64 / count }, &options)?;
    plan.run(&x, &w, &mut y)?; // x and w are this rank's columns; y is the same on all ranks
    y.download()
}

/// An exchange over a memory channel, and back over a port channel: what each rank had.
pub fn exchanged_on(ranks: &Communicator) -> Result<(Vec<f32>, Vec<f32>), Error> {
    let device = Device::cpu_with(2);
    let options = PlanOptions::new().communicator(ranks.clone());
    let count = u64::from(ranks.ranks());
    let own: Vec<f32> = (0..count * 20 * 300).map(|at| (u64::from(ranks.rank()) << 20 | at) as f32).collect();
    let x = device.upload(&own, [count, 20, 300])?;
    let mut y = device.zeros([count, 20, 300])?;
    let plan = exchanged::plan_with(&device, exchanged::Dims { R: count, M: 20, N: 300 }, &options)?;
    plan.run(&x, &mut y)?;
    Ok((own, y.download()?))
}

/// The same straight into the tensors of other ranks.
pub fn stored_on(ranks: &Communicator) -> Result<(Vec<f32>, Vec<f32>), Error> {
    let device = Device::cpu_with(2);
    let options = PlanOptions::new().communicator(ranks.clone());
    let count = u64::from(ranks.ranks());
    let own: Vec<f32> = (0..count * 20 * 304).map(|at| (u64::from(ranks.rank()) << 20 | at) as f32).collect();
    let x = device.upload(&own, [count, 20, 304])?;
    let plan = stored::plan_with(&device, stored::Dims { R: count, M: 20, N: 304 }, &options)?;
    let mut y = ranks.symmetric_tensor::<f32>(&device, [count, 20, 304])?; // a call of all ranks
    plan.run(&x, &mut y)?;
    Ok((own, y.download()?))
}

/// Collectives without a megakernel: a mean of maxima of sums.
pub fn collectives(ranks: &Communicator) -> Result<Vec<f32>, Error> {
    let device = Device::cpu();
    let mut x = device.upload(&[1.0f32, 2.0, 3.0], [3])?;
    ranks.all_reduce(&mut x)?; // the sum over all ranks, the same bits on each
    ranks.all_reduce_by(&mut x, Reduce::Max)?;
    let begun = ranks.all_reduce_async(x, Reduce::Mean)?; // goes on beside this thread
    let x = begun.wait()?; // the tensor comes back
    x.download()
}

/// Each rank sends a number to the next one.
pub fn channels(ranks: &Communicator) -> Result<u8, Error> {
    let (right, left) = ((ranks.rank() + 1) % ranks.ranks(), (ranks.rank() + ranks.ranks() - 1) % ranks.ranks());
    let memory = ranks.symmetric(&Device::cpu(), 4 << 20)?; // of each rank, mapped by all
    let buffer = memory.allocate("numbers", 2)?; // at the same place on all ranks
    let mut channels = memory.channels(&ChannelOptions::default())?;

    buffer.write(0, &[ranks.rank() as u8])?;
    let to_right = channels.memory(right).expect("a rank");
    to_right.put(buffer.at(1), buffer.at(0), 1)?; // from byte 0 here to byte 1 there
    to_right.signal()?; // it is there
    channels.memory(left).expect("a rank").wait()?;

    let mut number = [0];
    buffer.read(1, &mut number)?;
    Ok(number[0])
}

/// What all ranks did, and when, also in a file of each.
pub fn timeline(ranks: &Communicator, folder: &Path) -> Result<RankProfiles, Error> {
    let device = Device::cpu_with(2);
    let options = PlanOptions::new().communicator(ranks.clone());
    let plan = layers::plan_with(&device, layers::Dims { M: 128, N: 128 }, &options)?;
    let x = device.upload(&vec![1.0; 128 * 128], [128, 128])?;
    let b = [device.zeros([128])?, device.zeros([128])?, device.zeros([128])?];
    let mut y = device.zeros([128, 128])?;

    plan.profile(true)?;
    plan.run(&x, &b, &mut y)?;
    plan.profile_report()?.write_chrome(folder.join(format!("trace.rank{}.json", ranks.rank())))?; // of this rank
    let all = plan.profile_of_ranks(ranks)?; // or: of all ranks; a call of all, which each get all
    println!("{}", all.summary());
    Ok(all)
}

/// Memory of all ranks, below communicators.
pub fn shared() -> Result<(), Error> {
    let sums = maco::ranks::threads(3, |group| {
        let memory = group.share(4096)?; // 4096 bytes of each rank, mapped by all
        memory.words(0)[0].fetch_add(1, Ordering::AcqRel); // a word of rank 0
        group.barrier()?;
        Ok(memory.words(0)[0].load(Ordering::Acquire))
    })?;
    for sum in sums {
        assert_eq!(sum.map_err(|error: maco::ranks::Error| error)?, 3);
    }
    Ok(())
}
