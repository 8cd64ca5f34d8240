//! The same on GPUs, one of each rank. Tests that need more than there are say so and are left out.

use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use half::{bf16, f16};
use maco_host::{Communicator, CudaGraph, Device, Error, Reduce, Stream, Tensor};

use crate::{ALL, all_on, check, each, filled, fine, reduced, value};

/// On as many GPUs as ranks.
fn on_gpus(count: u32, run: impl Fn(&Communicator, &Device) -> Result<(), Error> + Sync) {
    if Device::gpu(count - 1).is_err() {
        eprintln!("left out: needs {count} GPUs, and there are fewer");
        return;
    }
    fine(Communicator::threads(count, |ranks| run(&ranks, &Device::gpu(ranks.rank())?)));
}

/// Every collective, of small messages and of large ones.
#[test]
#[ignore = "needs a GPU"]
fn every_element() {
    for count in [1, 2, 3] {
        on_gpus(count, |ranks, device| {
            for size in [0, 1, 7, 1000, 5001] {
                all_on::<f32>(ranks, device, size, Reduce::Sum)?;
                all_on::<bf16>(ranks, device, size, Reduce::Max)?;
                all_on::<f16>(ranks, device, size, Reduce::Mean)?;
                all_on::<i32>(ranks, device, size, Reduce::Min)?;
            }
            all_on::<bf16>(ranks, device, 140_001, Reduce::Mean)
        });
    }
}

#[test]
#[ignore = "needs a GPU"]
fn every_operation() {
    for count in [2, 3] {
        on_gpus(count, |ranks, device| {
            for by in ALL {
                all_on::<f32>(ranks, device, 41, by)?;
                all_on::<bf16>(ranks, device, 43, by)?;
                all_on::<f16>(ranks, device, 47, by)?;
                all_on::<i32>(ranks, device, 53, by)?;
            }
            Ok(())
        });
    }
}

/// Slices that begin anywhere.
#[test]
#[ignore = "needs a GPU"]
fn offsets_and_rows() {
    on_gpus(2, |ranks, device| {
        for (first, size) in [(1, 700), (3, 17), (8, 8)] {
            let mut data = vec![bf16::from_f32(5.0); first + size + 9];
            data[first..][..size].copy_from_slice(&filled::<bf16>(ranks.rank(), size));
            let x = device.upload(&data, [data.len()])?;
            // SAFETY: so many elements, alive and used by nobody else while the tensor is.
            let mut part = unsafe { Tensor::from_raw(device, x.as_ptr().cast_mut().add(first), [size], size as u64)? };
            ranks.all_reduce(&mut part)?;
            drop(part);
            let all = x.download()?;
            check(&all[first..][..size], "a slice", |n| reduced(ranks.ranks(), n, Reduce::Sum));
            assert!(all[..first].iter().chain(&all[first + size..]).all(|value| *value == bf16::from_f32(5.0)));
        }
        Ok(())
    });
}

/// More than all messages hold, and for three ranks in two steps.
#[test]
#[ignore = "needs a GPU"]
fn large() {
    for count in [2, 3] {
        on_gpus(count, |ranks, device| {
            let size = if count == 2 { 600_001 } else { 70_001 };
            let mut x = device.upload(&filled::<f32>(ranks.rank(), size), [size])?;
            ranks.all_reduce(&mut x)?;
            check(&x.download()?, "large", |n| reduced(count, n, Reduce::Sum));
            let x = ranks.all_reduce_async(x, Reduce::Max)?.wait()?;
            check(&x.download()?, "the same on all", |n| reduced(count, n, Reduce::Sum));
            Ok(())
        });
    }
}

/// A captured call multiplies what all have, again and again; an ordinary one comes between.
#[test]
#[ignore = "needs a GPU"]
fn replays() {
    for count in [2, 3] {
        on_gpus(count, |ranks, device| {
            let size = 3001;
            let data: Vec<i32> = filled(0, size);
            let mut x = device.upload(&data, [size])?;
            let mut y = device.zeros::<f32>([5])?;
            let mut z = device.upload(&filled::<f32>(ranks.rank(), 100_003), [100_003])?;
            let stream = Stream::new(device)?;
            ranks.all_reduce(&mut y)?;
            let graph = CudaGraph::capture(&stream, |stream| {
                ranks.all_reduce_on(stream, &mut x, Reduce::Sum)?;
                ranks.all_reduce_on(stream, &mut z, Reduce::Max)?;
                ranks.all_reduce_on(stream, &mut x, Reduce::Max)
            })?;
            for replay in 1..6 {
                graph.launch(&stream)?;
                ranks.all_reduce(&mut y)?;
                stream.synchronize()?;
                ranks.check_collectives()?;
                check(&x.download()?, "a replay", |n| data[n] * (count as i32).pow(replay));
                check(&z.download()?, "the greatest", |n| reduced(count, n, Reduce::Max));
            }
            Ok(())
        });
    }
}

/// Each collective on a stream, and no two ranks wait on the host for each other between them.
#[test]
#[ignore = "needs a GPU"]
fn each_is_queued_on_a_stream() {
    for count in [1, 2, 3] {
        on_gpus(count, |ranks, device| {
            let stream = Stream::new(device)?;
            for size in [0, 1, 7, 1000, 5001, 70_001] {
                each::<f32>(ranks, device, Some(&stream), size, Reduce::Sum)?;
                each::<bf16>(ranks, device, Some(&stream), size, Reduce::Max)?;
                each::<f16>(ranks, device, Some(&stream), size, Reduce::Mean)?;
                each::<i32>(ranks, device, Some(&stream), size, Reduce::Min)?;
            }
            Ok(())
        });
    }
}

/// Each collective in one graph, whose replays find other numbers in the same tensors; an ordinary call comes between.
#[test]
#[ignore = "needs a GPU"]
fn each_is_replayed() {
    for count in [2, 3] {
        // Packets, data, and more than the messages of all executors.
        for size in [333, 90_001, 600_001] {
            on_gpus(count, |ranks, device| {
                let (rank, planes) = (ranks.rank(), size * count as usize);
                let number = |rank: u32, n: usize, replay: i32| value(rank, n) + 100 * replay;
                let numbers = |size: usize, replay: i32| (0..size).map(|n| number(rank, n, replay)).collect::<Vec<i32>>();
                let new = |size| device.zeros::<i32>([size]);
                let (mut x, mut own, mut told, mut y) = (new(size)?, new(size)?, new(size)?, new(size)?);
                let (mut parts, mut z, mut all) = (new(planes)?, new(planes)?, new(planes)?);
                let mut between = device.zeros::<f32>([5])?;
                let stream = Stream::new(device)?;
                ranks.all_reduce(&mut between)?;
                let graph = CudaGraph::capture(&stream, |stream| {
                    ranks.all_gather_on(stream, &own, &mut all)?;
                    ranks.reduce_scatter_on(stream, &parts, &mut y, Reduce::Sum)?;
                    ranks.broadcast_on(stream, &mut told, 1)?;
                    ranks.all_to_all_on(stream, &parts, &mut z)?;
                    ranks.all_reduce_on(stream, &mut x, Reduce::Max)
                })?;
                for replay in 1..4 {
                    for tensor in [&mut x, &mut own, &mut told] {
                        tensor.upload_from(&numbers(size, replay))?;
                    }
                    parts.upload_from(&numbers(planes, replay))?;
                    graph.launch(&stream)?;
                    ranks.all_reduce(&mut between)?;
                    stream.synchronize()?;
                    ranks.check_collectives()?;
                    let (mine, what) = (rank as usize * size, format!("replay {replay} of {size} elements on {count} ranks"));
                    let all_of = |n| (0..count).map(move |rank| number(rank, n, replay));
                    check(&all.download()?, &what, |n| number((n / size) as u32, n % size, replay));
                    check(&y.download()?, &what, |n| all_of(mine + n).sum());
                    check(&told.download()?, &what, |n| number(1, n, replay));
                    check(&z.download()?, &what, |n| number((n / size) as u32, mine + n % size, replay));
                    check(&x.download()?, &what, |n| all_of(n).max().unwrap());
                }
                Ok(())
            });
        }
    }
}

/// A call that waits cannot be captured, nor the first one, which makes the memory.
#[test]
#[ignore = "needs a GPU"]
fn what_waits_is_not_captured() {
    on_gpus(2, |ranks, device| {
        let stream = Stream::new(device)?;
        let (x, mut y) = (device.zeros::<f32>([6])?, device.zeros::<f32>([12])?);
        ranks.all_gather(&x, &mut y)?;
        let refused = CudaGraph::capture(&stream, |_| ranks.all_gather(&x, &mut y));
        assert_eq!(refused.err().map(|error| error.code()), Some(90));
        all_on::<f32>(ranks, device, 500, Reduce::Sum)
    });
}

/// Calls of two communicators in turn: neither uses what is the other's.
#[test]
#[ignore = "needs a GPU"]
fn two_communicators() {
    if Device::gpu(1).is_err() {
        eprintln!("left out: needs 2 GPUs, and there are fewer");
        return;
    }
    let others = [const { Mutex::new(None) }; 2];
    let [ready, end] = [Barrier::new(4), Barrier::new(4)];
    let of = |rank: u32| others[rank as usize].lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        scope.spawn(|| {
            let given = Communicator::threads(2, |ranks| {
                let rank = ranks.rank();
                *of(rank) = Some(ranks);
                ready.wait();
                end.wait();
            });
            given.unwrap();
        });
        fine(Communicator::threads(2, |ranks| {
            ready.wait();
            let run = || {
                let (other, device) = (of(ranks.rank()).take().unwrap(), Device::gpu(ranks.rank())?);
                for size in [3, 900, 2500] {
                    let begun = ranks.all_reduce_async(device.upload(&filled::<f32>(ranks.rank(), size), [size])?, Reduce::Sum)?;
                    all_on::<i32>(&other, &device, size / 2, Reduce::Mean)?;
                    check(&begun.wait()?.download()?, "of the first", |n| reduced(2, n, Reduce::Sum));
                    all_on::<bf16>(&ranks, &device, size / 3, Reduce::Max)?;
                }
                Ok(())
            };
            let result = run();
            end.wait();
            result
        }));
    });
}

#[test]
#[ignore = "needs a GPU"]
fn other_calls_are_named() {
    on_gpus(2, |ranks, device| {
        ranks.all_reduce(&mut device.zeros::<f32>([3])?)?;
        for sizes in [[5, 6], [7, 300_000]] {
            let error = ranks.all_reduce(&mut device.zeros::<f32>([sizes[ranks.rank() as usize]])?).unwrap_err();
            assert!(error.code() == 99 && error.to_string().contains("at another call"), "{error}");
            ranks.recover_collectives()?;
            all_on::<f32>(ranks, device, 500, Reduce::Sum)?;
        }
        Ok(())
    });
}

/// A rank that never calls: the others name it and what they wait for, and then go on.
#[test]
#[ignore = "needs a GPU"]
fn absent() {
    for count in [2, 3] {
        for size in [3, 90_000] {
            // All warps wait for a second, which takes long there.
            if size > 3 && Device::gpu(0).is_ok_and(|gpu| gpu.model().contains("emulated")) {
                continue;
            }
            on_gpus(count, |ranks, device| {
                ranks.all_reduce(&mut device.zeros::<f32>([3])?)?;
                ranks.barrier()?;
                if ranks.rank() != 1 {
                    ranks.set_deadline(Duration::from_secs(1))?;
                    let begin = Instant::now();
                    let error = ranks.all_reduce(&mut device.zeros::<f32>([size])?).unwrap_err();
                    let text = error.to_string();
                    assert!(error.code() == 99 && text.contains("at `all_reduce` for rank 1"), "{error}");
                    eprintln!("{text}\nafter {:?}", begin.elapsed());
                    ranks.set_deadline(Duration::from_secs(60))?;
                }
                ranks.barrier()?;
                ranks.recover_collectives()?;
                all_on::<bf16>(ranks, device, 500, Reduce::Mean)
            });
        }
    }
}
