//! A rank that ends early, and one that gives up before the others: who waits says so in time, names rank and operation, and its device works on.

use std::time::{Duration, Instant};

use half::bf16;
use maco_host::{Communicator, Device, Error, Reduce};

use crate::all_on;

/// Collectives of one rank, in the process whose ranks are lost.
pub fn works_on(device: &Device) -> Result<(), Error> {
    let alone = Communicator::single();
    for size in [5, 40_001] {
        all_on::<f32>(&alone, device, size, Reduce::Sum)?;
        all_on::<bf16>(&alone, device, size, Reduce::Max)?;
    }
    Ok(())
}

fn gpu(ranks: &Communicator) -> Device {
    Device::gpu(ranks.local_rank()).unwrap()
}

/// World sizes for which there are GPUs.
fn worlds_of_gpus() -> impl Iterator<Item = u32> {
    [2, 3, 4].into_iter().filter(|count| {
        let are_there = Device::gpu(count - 1).is_ok();
        if !are_there {
            eprintln!("left out: needs {count} GPUs, and there are fewer");
        }
        are_there
    })
}

/// Rank 1 says farewell, and is not there for the second call of the others.
fn ends_early(count: u32, device: impl Fn(&Communicator) -> Device + Sync) {
    let results = Communicator::threads(count, |ranks| {
        let device = device(&ranks);
        all_on::<f32>(&ranks, &device, 50, Reduce::Sum)?;
        ranks.barrier()?;
        if ranks.rank() == 1 {
            return Ok(None);
        }
        ranks.set_deadline(Duration::from_millis(700))?;
        let begin = Instant::now();
        let error = ranks.all_reduce(&mut device.zeros::<f32>([70_000])?).unwrap_err();
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        ranks.set_deadline(Duration::from_secs(20))?;
        // All ranks would have to come.
        let lost = ranks.recover_collectives().unwrap_err().to_string();
        assert!(lost.starts_with("MACO0095: rank 1 has ended"), "{lost}");
        works_on(&device)?;
        Ok::<_, Error>(Some(error.to_string()))
    });
    let texts: Vec<String> = results.unwrap().into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(texts.len() as u32, count - 1);
    for text in texts {
        assert!(text.starts_with("MACO0099: rank ") && text.contains(" at `all_reduce` for rank 1: "), "{text}");
    }
}

#[test]
fn a_rank_that_ends_early_is_named() {
    for count in [2, 3, 4] {
        ends_early(count, |_| Device::cpu());
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_rank_that_ends_early_is_named() {
    worlds_of_gpus().for_each(|count| ends_early(count, gpu));
}

/// Rank 0 waits for less long than the others: when it gives up, all do, by what it says. Then they go on together.
fn one_gives_up(count: u32, device: impl Fn(&Communicator) -> Device + Sync) {
    let results = Communicator::threads(count, |ranks| {
        let device = device(&ranks);
        all_on::<f32>(&ranks, &device, 50, Reduce::Sum)?;
        ranks.barrier()?;
        let mut said = None;
        if ranks.rank() != 1 {
            ranks.set_deadline(if ranks.rank() == 0 { Duration::from_millis(300) } else { Duration::from_secs(60) })?;
            let begin = Instant::now();
            let error = ranks.all_reduce_by(&mut device.zeros::<f32>([70_000])?, Reduce::Min).unwrap_err();
            assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
            ranks.set_deadline(Duration::from_secs(60))?;
            said = Some(error.to_string());
        }
        ranks.barrier()?;
        ranks.recover_collectives()?;
        for size in [3, 40_001] {
            all_on::<bf16>(&ranks, &device, size, Reduce::Mean)?;
        }
        Ok::<_, Error>(said)
    });
    let texts: Vec<String> = results.unwrap().into_iter().filter_map(Result::unwrap).collect();
    assert!(texts.len() as u32 == count - 1 && texts.windows(2).all(|pair| pair[0] == pair[1]), "{texts:#?}");
    let words = ["MACO0099: rank 0 waited ", " ms at `all_reduce` for rank 1: ", "the deadline passed"];
    assert!(words.iter().all(|words| texts[0].contains(words)), "{}", texts[0]);
}

#[test]
fn the_shortest_deadline_is_that_of_all() {
    for count in [2, 3, 4] {
        one_gives_up(count, |_| Device::cpu());
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_the_shortest_deadline_is_that_of_all() {
    worlds_of_gpus().for_each(|count| one_gives_up(count, gpu));
}
