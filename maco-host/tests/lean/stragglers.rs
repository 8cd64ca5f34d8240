//! Ranks that are late, each at other places: on a CPU before any access to what ranks share, on GPUs between calls.

use std::thread;
use std::time::Duration;

use half::{bf16, f16};
use maco_device::modelled::Delays;
use maco_host::{Communicator, Device, Error, Reduce};

use crate::{all_on, check, filled, fine, random, reduced};

/// By seeds of which no two ranks have one at the same time.
#[test]
fn each_rank_is_late_at_other_places() {
    for count in [2, 3, 4] {
        fine(Communicator::threads(count, |ranks| {
            for round in 0..24 {
                // Each is without delays now and then: the others are late for it.
                let seed = if round % (count + 1) == ranks.rank() { 0 } else { 1 + round * count + ranks.rank() };
                Delays::new(seed, ranks.rank(), 0).enter(|| {
                    for size in [1, 300, 17_000] {
                        all_on::<f32>(&ranks, &Device::cpu(), size, Reduce::Sum)?;
                        all_on::<bf16>(&ranks, &Device::cpu(), size, Reduce::Max)?;
                        all_on::<f16>(&ranks, &Device::cpu(), size, Reduce::Mean)?;
                        all_on::<i32>(&ranks, &Device::cpu(), size, Reduce::Min)?;
                    }
                    Ok::<_, Error>(())
                })?;
            }
            Ok(())
        }));
    }
}

/// Late by up to half a millisecond, with calls that are begun and waited for later.
#[test]
#[ignore = "needs a GPU"]
fn gpu_each_rank_is_late_at_other_times() {
    for count in [2, 3, 4] {
        if Device::gpu(count - 1).is_err() {
            eprintln!("left out: needs {count} GPUs, and there are fewer");
            continue;
        }
        fine(Communicator::threads(count, |ranks| {
            let device = Device::gpu(ranks.rank())?;
            let mut own = 1 + u64::from(ranks.rank());
            let mut late = || thread::sleep(Duration::from_micros((random(&mut own) % 500) as u64));
            for round in 0..200 {
                let size = round * 37 % 3000 + if round % 20 == 0 { 100_000 } else { 0 };
                let first = ranks.all_reduce_async(device.upload(&filled::<f32>(ranks.rank(), size), [size])?, Reduce::Sum)?;
                late();
                let second = ranks.all_reduce_async(device.upload(&filled::<i32>(ranks.rank(), size), [size])?, Reduce::Max)?;
                late();
                check(&second.wait()?.download()?, "late, the greatest", |n| reduced(count, n, Reduce::Max));
                check(&first.wait()?.download()?, "late, the sum", |n| reduced(count, n, Reduce::Sum));
                late();
                all_on::<bf16>(&ranks, &device, size / 50, Reduce::Mean)?;
            }
            Ok(())
        }));
    }
}
