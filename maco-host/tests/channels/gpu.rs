//! Symmetric memory on GPUs: of ranks that have a GPU each, and of several ranks on one.
//!
//! Tests that need more GPUs than there are say so and are left out. Some need the emulated driver, which can be told to lack things.

mod topology;

use std::time::Duration;
use std::{fs, process, thread};

use maco_host::{ChannelOptions, Communicator, Device, Error, SymmetricBuffer, SymmetricMemory};

use crate::kernel;
use crate::process::{Rendezvous, ends, fine, say};
use crate::setup::{held, one};

/// Whether there are so many GPUs; if not, why the test is left out.
fn are_there(gpus: u32) -> bool {
    let there = Device::gpu(gpus - 1).is_ok();
    if !there {
        eprintln!("left out: needs {gpus} GPUs, and there are fewer");
    }
    there
}

/// Whether the driver is the emulated one, which obeys the environment.
fn is_emulated() -> bool {
    let emulated = Device::gpu(0).is_ok_and(|gpu| gpu.model().contains("emulated"));
    if !emulated {
        eprintln!("left out: needs the emulated driver");
    }
    emulated
}

/// World sizes, and how many GPUs the ranks have together.
const WORLDS: [(u32, u32); 7] = [(1, 1), (2, 1), (3, 1), (2, 2), (3, 3), (4, 2), (4, 4)];

fn gpu_of(ranks: &Communicator, gpus: u32) -> Device {
    Device::gpu(ranks.rank() % gpus).expect("it is there")
}

fn pattern(rank: u32, n: usize) -> u8 {
    (rank as usize * 31 + n * 7 + n / 256) as u8 | 1
}

/// Every rank finds what all have written, at the same place.
fn exchange(ranks: &Communicator, device: &Device) -> Result<(), Error> {
    // More than a granule, and no multiple of it.
    let memory = ranks.symmetric(device, (2 << 20) + 4096)?;
    assert_eq!(memory.bytes(), (2 << 20) + 4096);
    let _first = memory.allocate("first", 100)?;
    // Over the end of a granule, and from no word.
    let size = memory.bytes() - 128 - 1000;
    let buffer = memory.allocate("buffer", size)?;
    assert_eq!((memory.used(), memory.high_water()), (128 + size.next_multiple_of(128), 128 + size.next_multiple_of(128)));
    let mut found = vec![1; size];
    for rank in 0..ranks.ranks() {
        buffer.read_from(rank, 0, &mut found)?;
        assert!(found.iter().all(|byte| *byte == 0), "rank {rank} does not begin with zeros");
    }
    ranks.barrier()?;
    let own: Vec<u8> = (0..size - 3).map(|n| pattern(ranks.rank(), n)).collect();
    buffer.write(3, &own)?;
    ranks.barrier()?;
    for rank in 0..ranks.ranks() {
        buffer.read_from(rank, 0, &mut found)?;
        assert_eq!(found[..3], [0; 3]);
        let wrong = (0..size - 3).find(|n| found[n + 3] != pattern(rank, *n));
        assert_eq!(wrong, None, "of rank {rank}, seen by rank {}", ranks.rank());
    }
    // A part, and the own one by another name.
    let mut part = [0; 5];
    buffer.read_from(ranks.rank(), 1000, &mut part)?;
    assert_eq!(part, std::array::from_fn(|n| pattern(ranks.rank(), 997 + n)));
    ranks.barrier()?;

    // Zeros again where something was.
    buffer.free()?;
    let again = memory.allocate("again", size)?;
    again.read(0, &mut found)?;
    assert!(found.iter().all(|byte| *byte == 0), "what was freed is not cleared");
    ranks.barrier()
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_threads_share_memory() {
    for (world, gpus) in WORLDS.into_iter().filter(|(_, gpus)| are_there(*gpus)) {
        let results = Communicator::threads(world, |ranks| exchange(&ranks, &gpu_of(&ranks, gpus)).map_err(|error| error.to_string()));
        let results = results.unwrap();
        assert!(results.iter().all(Result::is_ok), "{world} ranks on {gpus} GPUs: {results:#?}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_processes_share_memory() {
    for (world, gpus) in [(2, 1), (2, 2), (4, 2), (3, 3)].into_iter().filter(|(_, gpus)| are_there(*gpus)) {
        let rendezvous = Rendezvous::new();
        fine(&ends(rendezvous.start(world, &format!("gpu exchange {gpus}"))));
        rendezvous.nothing_left();
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_it_says_how_gpus_reach_each_other() {
    for gpus in [1, 2].into_iter().filter(|gpus| are_there(*gpus)) {
        let results = Communicator::threads(2, |ranks| {
            let memory = ranks.symmetric(&gpu_of(&ranks, gpus), 4096).unwrap();
            (format!("{memory:?}"), memory.table())
        });
        for (rank, (text, table)) in results.unwrap().into_iter().enumerate() {
            let (own, other) = if gpus == 1 { (0, 0) } else { (rank, 1 - rank) };
            assert!(text.starts_with(&format!("SymmetricMemory(4096 bytes of rank {rank} of 2, on GPU {own} (")), "{text}");
            assert!(text.contains(&format!("; rank {}: GPU {other} (", 1 - rank)), "{text}");
            assert!(if gpus == 1 { text.contains("the same GPU") } else { text.contains("peer access with") }, "{text}");
            assert!(table.control != 0 && table.bases.len() == 2 && table.bases[0] != table.bases[1], "{table:?}");
            assert!(table.bases.iter().all(|base| base.is_multiple_of(2 << 20)), "{table:?}");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_what_differs_is_named_and_ranks_go_on() {
    let device = |ranks: &Communicator| Device::gpu(if Device::gpu(ranks.rank()).is_ok() { ranks.rank() } else { 0 }).unwrap();
    for (world, odd) in [(2, 0), (3, 2)] {
        let (code, text) = one(world, |ranks| {
            let bytes = if ranks.rank() == odd { 8192 } else { 4096 };
            let result = ranks.symmetric(&device(ranks), bytes).map(drop);
            exchange(ranks, &device(ranks)).unwrap();
            result
        });
        assert!(code == 97 && text.contains(&format!("rank {odd}: 8192 bytes on a GPU")), "{text}");
        let (code, text) = one(world, |ranks| {
            let device = if ranks.rank() == odd { Device::cpu() } else { device(ranks) };
            ranks.symmetric(&device, 4096).map(drop)
        });
        assert!(code == 97 && text.contains(&format!("rank {odd}: 4096 bytes on a CPU")), "{text}");
        let (code, text) = one(world, |ranks| {
            let memory = ranks.symmetric(&device(ranks), 8192)?;
            memory.allocate("x", if ranks.rank() == odd { 300 } else { 200 }).map(drop)
        });
        assert!(code == 97 && text.contains(&format!("rank {odd}: allocation `x`: 300 bytes at offset 0")), "{text}");
    }
    let (code, text) = one(2, |ranks| ranks.symmetric(&device(ranks), 8192)?.allocate("x", 8193).map(drop));
    assert!(code == 100 && text.contains("`x` needs 8193 bytes of symmetric memory, but of 8192 bytes 0 are used"), "{text}");
    let (code, text) = one(2, |ranks| ranks.symmetric(&device(ranks), 0).map(drop));
    assert!(code == 100 && text.contains("0 bytes of symmetric memory"), "{text}");
    let (code, text) = one(2, |ranks| ranks.symmetric(&device(ranks), 1 << 20)?.channels(&ChannelOptions::default()).map(drop));
    assert!(code == 100 && text.contains("threads do not load and store memory of GPUs"), "{text}");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_too_little_memory_is_everybodys_error() {
    for bytes in [1 << 46, usize::MAX] {
        let (code, text) = one(2, |ranks| {
            let result = ranks.symmetric(&Device::gpu(0).unwrap(), bytes).map(drop);
            exchange(ranks, &Device::gpu(0).unwrap()).unwrap();
            result
        });
        // Free bytes are told, which may differ between the two.
        assert!((code == 45 || code == 96) && text.contains("MACO0045") && text.contains("symmetric memory"), "{text}");
    }
}

/// Ranks that are processes, the driver of each of which is told something; what each of them says, which is the same.
fn told(world: u32, case: &str, variables: impl Fn(u32) -> Vec<(&'static str, &'static str)>) -> String {
    let rendezvous = Rendezvous::new();
    let start = |rank| rendezvous.rank(rank, world, case).envs(variables(rank)).spawn().unwrap();
    let ended = ends((0..world).map(start).collect());
    rendezvous.nothing_left();
    fine(&ended);
    let said: Vec<_> = ended.iter().map(|ended| ended.said.join("\n")).collect();
    assert!(said.windows(2).all(|pair| pair[0] == pair[1]), "{said:#?}");
    said[0].clone()
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_without_files_of_memory_is_an_error() {
    if !is_emulated() {
        return;
    }
    let text = told(2, "gpu refused 1", |_| vec![("EMU_NO_DESCRIPTORS", "1")]);
    assert!(text.starts_with("MACO0100: GPU 0 (") && text.contains("has no memory that is passed on as a file descriptor"), "{text}");
    // Of one rank alone it is everybody's, too.
    let text = told(2, "gpu refused 1", |rank| vec![("EMU_NO_DESCRIPTORS", if rank == 1 { "1" } else { "0" })]);
    assert!(text.starts_with("MACO0096: rank 1 failed at `symmetric memory`") && text.contains("passed on as a file descriptor"), "{text}");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_memory_is_freed_and_made_again() {
    for gpus in [1, 2].into_iter().filter(|gpus| are_there(*gpus)) {
        for case in ["again", "threads"] {
            let rendezvous = Rendezvous::new();
            // A process of its own: other tests make memory, too.
            fine(&ends(rendezvous.start(if case == "again" { 2 } else { 1 }, &format!("gpu {case} {gpus}"))));
            rendezvous.nothing_left();
        }
    }
}

/// Made, used and dropped many times, and in between refused.
fn again(ranks: &Communicator, device: &Device, ordinal: u32) -> Result<(), Error> {
    const ROUNDS: usize = 100;
    const BYTES: usize = 8 << 20;
    let round = |round: usize| {
        let memory = ranks.symmetric(device, BYTES + round * 128)?;
        let buffer = memory.allocate("buffer", 1000)?;
        buffer.write(0, &[round as u8 + 1; 1000])?;
        ranks.barrier()?;
        let mut found = [0; 1000];
        buffer.read_from((ranks.rank() + 1) % ranks.ranks(), 0, &mut found)?;
        assert_eq!(found, [round as u8 + 1; 1000]);
        // The last user keeps it.
        drop(memory);
        buffer.read_from(0, 0, &mut found)?;
        assert_eq!(found, [round as u8 + 1; 1000]);
        let refused = ranks.symmetric(device, 1 << 46).unwrap_err();
        assert!(matches!(refused.code(), 45 | 96), "{refused}");
        Ok::<_, Error>(())
    };
    round(0)?;
    ranks.barrier()?;
    // One after the other: to look opens a file.
    let in_turn = || {
        let mut found = [0; 3];
        for rank in 0..ranks.ranks() {
            if rank == ranks.rank() {
                found = held();
            }
            ranks.barrier()?;
        }
        Ok::<_, Error>(found)
    };
    let (before, free) = (in_turn()?, kernel::free(ordinal));
    ranks.barrier()?;
    (1..ROUNDS).try_for_each(round)?;
    ranks.barrier()?;
    assert_eq!(in_turn()?, before, "file descriptors, mappings, threads");
    // Ranks of one GPU leak together; others of this machine may use some.
    let now = kernel::free(ordinal);
    assert!(now + (64 << 20) > free, "{free} bytes were free, and {now} are: {} were made", ROUNDS * BYTES);
    ranks.barrier()
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_memory_outlives_a_killed_rank() {
    for gpus in [1, 2].into_iter().filter(|gpus| are_there(*gpus)) {
        let rendezvous = Rendezvous::new();
        let ended = ends(rendezvous.start(3, &format!("gpu killed {gpus}")));
        rendezvous.nothing_left();
        assert_eq!(ended[1].status, None, "{ended:?}");
        for ended in [&ended[0], &ended[2]] {
            assert_eq!(ended.status, Some(0), "{}", ended.all);
            assert!(ended.said[0].starts_with("MACO0095: rank 1 is gone"), "{ended:?}");
        }
    }
}

/// Rank 1 dies before it has made anything, and the others keep nothing.
#[test]
#[ignore = "needs a GPU"]
fn gpu_a_rank_that_is_killed_at_set_up_is_named() {
    let ended = ends(Rendezvous::new().start(3, "gpu lost 1"));
    for ended in [&ended[0], &ended[2]] {
        assert_eq!(ended.status, Some(0), "{}", ended.all);
        assert!(ended.said[0].starts_with("MACO0095: rank 1 is gone, while others wait for `symmetric memory`"), "{ended:?}");
    }
}

/// Rank 1 dies when the others have mapped what it has.
fn killed(ranks: &Communicator, device: &Device) -> Result<(), Error> {
    let memory = ranks.symmetric(device, 1 << 20)?;
    let buffer = memory.allocate("buffer", 100_001)?;
    buffer.write(0, &(0..100_000).map(|n| pattern(ranks.rank(), n)).collect::<Vec<_>>())?;
    ranks.barrier()?;
    if ranks.rank() == 1 {
        process::abort();
    }
    say(ranks.barrier().unwrap_err());
    thread::sleep(Duration::from_millis(100));
    let mut found = vec![0; 100_000];
    for rank in [0, 1, 2] {
        buffer.read_from(rank, 0, &mut found)?;
        assert!((0..100_000).all(|n| found[n] == pattern(rank, n)), "rank {rank}");
    }
    // Where nobody else looks.
    buffer.write(100_000, &[1])
}

/// A kernel that polls its control block, and what it found.
fn stopped(
    memory: &SymmetricMemory,
    buffer: &SymmetricBuffer,
    ordinal: u32,
    stop: impl FnOnce() -> Result<(), Error>,
) -> Result<u32, Error> {
    let table = memory.table();
    let rank = table.bases.len() as u32 - 1;
    // The first buffer is at the beginning.
    let found = table.bases[rank as usize];
    // SAFETY: the control block begins with the word; both are mapped for this GPU as long as `memory` lives.
    let running = unsafe { kernel::start(ordinal, c"await_word", [table.control, found]) };
    thread::sleep(Duration::from_millis(50));
    assert!(!running.has_ended(), "nobody has stopped it");
    stop()?;
    running.wait();
    let mut word = [0; 4];
    buffer.read(0, &mut word)?;
    Ok(u32::from_le_bytes(word))
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_stop_of_the_host_reaches_running_kernels() {
    let case = |ranks: &Communicator, device: &Device, ordinal: u32| {
        let memory = ranks.symmetric(device, 4096)?;
        let buffer = memory.allocate("found", 4)?;
        ranks.barrier()?;
        if ranks.rank() + 1 < ranks.ranks() {
            // The last rank's kernel runs by then; stopping is for all, whoever does it.
            ranks.barrier()?;
            memory.stop();
            return ranks.barrier();
        }
        let found = stopped(&memory, &buffer, ordinal, || {
            ranks.barrier()?;
            if ranks.ranks() == 1 {
                memory.stop();
            }
            Ok(())
        })?;
        assert_eq!(found, u32::MAX);
        ranks.barrier()
    };
    for (world, gpus) in [(1, 1), (2, 1), (2, 2)].into_iter().filter(|(_, gpus)| are_there(*gpus)) {
        let results = Communicator::threads(world, |ranks| case(&ranks, &gpu_of(&ranks, gpus), ranks.rank() % gpus));
        results.unwrap().into_iter().collect::<Result<(), _>>().unwrap();
    }
}

/// A kernel leaves a report in its control block, as `Watch::report` does: it is the error of all ranks.
#[test]
#[ignore = "needs a GPU"]
fn gpu_a_report_of_a_kernel_is_everybodys_error() {
    // Of a wait, in the order of `Control`: which, for whom, at which word, seen, expected, because of the deadline, polls, 2 s. Then the two before.
    let report = [2, 0, 192, 6, 7, 0, 100_000, 2_000_000_000, 0].into_iter().zip(2u64..).chain([(2, 0), (1, 1)]);
    for gpus in [1, 2].into_iter().filter(|gpus| are_there(*gpus)) {
        let (code, text) = one(2, |ranks| {
            let (ordinal, last) = (ranks.rank() % gpus, ranks.rank() == 1);
            let memory = ranks.symmetric(&Device::gpu(ordinal)?, 4096)?;
            memory.check().expect("nothing has happened");
            ranks.barrier()?;
            for (value, word) in report.clone().filter(|_| last) {
                // SAFETY: words of the control block, mapped for this GPU as long as `memory` lives.
                unsafe { kernel::start(ordinal, c"store_word", [memory.table().control + 4 * word, value]) }.wait();
            }
            // Rank 0 learns of it from rank 1's host.
            let error = if last { memory.check() } else { Ok(()) };
            ranks.barrier()?;
            error.and(memory.check())
        });
        assert_eq!(code, 99);
        let words = "MACO0099: rank 1 waited 2.0 s at `receive packets` for rank 0: expected number 7";
        assert!(text.starts_with(words) && text.contains("found 6; the deadline passed"), "{text}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_kernels_store_into_memory_of_other_gpus() {
    if !are_there(2) {
        return;
    }
    for (case, world) in [("threads", 0), ("processes", 2)] {
        if world == 0 {
            let results = Communicator::threads(2, |ranks| kernels(&ranks, &gpu_of(&ranks, 2)));
            results.unwrap().into_iter().collect::<Result<(), _>>().unwrap_or_else(|error| panic!("{case}: {error}"));
        } else {
            fine(&ends(Rendezvous::new().start(world, "gpu kernels 2")));
        }
    }
}

/// Rank 0's kernel waits for a word that rank 1's stores, on another GPU.
fn kernels(ranks: &Communicator, device: &Device) -> Result<(), Error> {
    let (memory, rank) = (ranks.symmetric(device, 4096)?, ranks.rank());
    let buffer = memory.allocate("words", 256)?;
    let table = memory.table();
    ranks.barrier()?;
    if rank == 0 {
        // SAFETY: (of both) the two words are mapped for this GPU as long as `memory` lives.
        let running = unsafe { kernel::start(rank, c"await_word", [table.bases[0] + 128, table.bases[0]]) };
        ranks.barrier()?;
        running.wait();
        let mut word = [0; 4];
        buffer.read(0, &mut word)?;
        assert_eq!(u32::from_le_bytes(word), 0xABCD);
    } else {
        ranks.barrier()?;
        // SAFETY: as above.
        unsafe { kernel::start(rank, c"store_word", [table.bases[0] + 128, 0xABCD]) }.wait();
    }
    ranks.barrier()
}

/// What a process does in a case of this file.
pub fn run(case: &str, ranks: &Communicator) -> Result<(), Error> {
    let words: Vec<&str> = case.split(' ').collect();
    let [_, what, gpus] = words[..] else { panic!("no case {case}") };
    let gpus: u32 = gpus.parse().unwrap();
    let (device, ordinal) = (gpu_of(ranks, gpus), ranks.rank() % gpus);
    match what {
        "exchange" => exchange(ranks, &device),
        "again" => again(ranks, &device, ordinal),
        "threads" => {
            let results = Communicator::threads(2, |ranks| {
                let ordinal = ranks.rank() % gpus;
                again(&ranks, &Device::gpu(ordinal)?, ordinal)
            });
            results.unwrap().into_iter().collect()
        }
        "killed" => killed(ranks, &device),
        "lost" => {
            ranks.barrier()?;
            if ranks.rank() == 1 {
                process::abort();
            }
            let before = held();
            say(ranks.symmetric(&device, 1 << 20).unwrap_err());
            // Fewer are there: the connection is closed, and the hub's thread may have ended.
            let now = held();
            assert!(now.iter().zip(before).all(|(now, before)| *now <= before), "{before:?} {now:?}");
            Ok(())
        }
        "kernels" => kernels(ranks, &device),
        "refused" => {
            let maps = |text: &str| fs::read_to_string("/proc/self/maps").unwrap().matches(text).count();
            let before = (maps("memfd:"), fs::read_dir("/proc/self/fd").unwrap().count());
            let error = ranks.symmetric(&device, 1 << 20).unwrap_err();
            assert_eq!((maps("memfd:"), fs::read_dir("/proc/self/fd").unwrap().count()), before, "something is left");
            say(error);
            // On the CPU it can be made.
            let memory = ranks.symmetric(&Device::cpu(), 4096)?;
            memory.allocate("x", 8)?;
            ranks.barrier()
        }
        _ => panic!("no case {case}"),
    }
}
