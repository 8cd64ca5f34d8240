//! Ranks that are threads: votes, failures and shared memory, by the protocol that processes use.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use maco_ranks::{Arena, Error, Failure, Group, MAX_VALUE, RankMemory, threads};

const SIZES: [u32; 6] = [1, 2, 3, 4, 6, 8];

/// What each rank ends with, and how long it took.
fn each<R: Send>(ranks: u32, run: impl Fn(&Group) -> R + Sync) -> Vec<(R, Duration)> {
    let timed = |group: Group| {
        let begin = Instant::now();
        (run(&group), begin.elapsed())
    };
    threads(ranks, timed).unwrap()
}

/// The one failure of these ranks.
fn failure<T: std::fmt::Debug>(results: &[(Result<T, Error>, Duration)], survivors: impl Fn(usize) -> bool) -> Failure {
    let mut found: Vec<Failure> = Vec::new();
    for (_, (result, _)) in results.iter().enumerate().filter(|(rank, _)| survivors(*rank)) {
        let Err(Error::Failed(failure)) = result else { panic!("{result:?}") };
        found.push((**failure).clone());
    }
    assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "not the same on all ranks: {found:#?}");
    found.pop().unwrap()
}

#[test]
fn values_come_in_the_order_of_ranks() {
    for ranks in SIZES {
        for (rank, (found, _)) in each(ranks, |group| {
            assert_eq!(group.ranks(), ranks);
            group.barrier().unwrap();
            for round in 0..20u32 {
                let values = group.all_gather(&[group.rank() as u8, round as u8]).unwrap();
                assert_eq!(values, (0..ranks).map(|rank| vec![rank as u8, round as u8]).collect::<Vec<_>>());
            }
            assert!(group.all_gather(&group.job().to_le_bytes()).unwrap().iter().all(|job| *job == group.job().to_le_bytes()));
            group.check().unwrap();
            group.rank()
        })
        .into_iter()
        .enumerate()
        {
            assert_eq!(found, rank as u32);
        }
    }
}

#[test]
fn no_two_jobs_have_one_number() {
    let mut numbers: Vec<u64> = (0..4).flat_map(|_| each(2, Group::job)).map(|(number, _)| number).collect();
    numbers.push(Group::single().job());
    numbers.dedup();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 5, "two ranks of each job have the same, and nobody else");
}

/// The clocks of two threads are one, so that what one has seen is in the past of the other.
#[test]
fn the_clock_of_the_host_goes_on() {
    let seen = maco_ranks::host_clock();
    let later = std::thread::spawn(maco_ranks::host_clock).join().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let now = maco_ranks::host_clock();
    assert!(seen <= later && (20_000_000..20_000_000_000).contains(&(now - later)), "{seen} {later} {now}");
}

#[test]
fn large_values_pass_and_larger_ones_are_everybodys_error() {
    for ranks in [1, 3] {
        each(ranks, |group| {
            let own = vec![group.rank() as u8; MAX_VALUE];
            assert!(group.all_gather(&own).unwrap().iter().zip(0..).all(|(value, rank)| *value == vec![rank; MAX_VALUE]));
            let last = group.rank() + 1 == ranks;
            let error = group.all_gather(&vec![0; MAX_VALUE + usize::from(last)]).unwrap_err();
            let words = format!("MACO0096: rank {} failed at `all-gather of bytes`", ranks - 1);
            assert!(error.to_string().starts_with(&words), "{error}");
            // An ordinary answer: the ranks go on.
            group.barrier().unwrap();
        });
    }
}

#[test]
fn an_error_of_one_rank_is_that_of_all() {
    for ranks in SIZES {
        let bad = ranks - 1;
        let results = each(ranks, |group| {
            let value = if group.rank() == bad { Err("no memory") } else { Ok(&b"fine"[..]) };
            let error = group.vote("set-up", value).unwrap_err();
            group.barrier().unwrap();
            error.to_string()
        });
        let expected = format!(
            "MACO0096: rank {bad} failed at `set-up`, so no rank goes on\nhelp: mend what rank {bad} says; the other ranks only repeat it\nbecause: no memory"
        );
        assert!(results.iter().all(|(text, _)| *text == expected), "{results:#?}");
    }
}

#[test]
fn what_differs_is_named() {
    let lines = |second: &str| vec!["tensor w: [8, 8]".to_owned(), second.to_owned(), "call #0: linear(x, w, y)".to_owned()];
    for ranks in [2, 3, 4, 8] {
        let results = each(ranks, |group| {
            group.agree("plan", &lines("tensor x: [4, 5]"), Ok(())).unwrap();
            let own = lines(if group.rank() == ranks - 1 { "tensor x: [4, 6]" } else { "tensor x: [4, 5]" });
            let differs = group.agree("plan", &own, Ok(())).unwrap_err();
            let mut fewer = lines("tensor x: [4, 5]");
            fewer.truncate(if group.rank() == 0 { 2 } else { 3 });
            let shorter = group.agree("plan", &fewer, Err("that is told later")).unwrap_err();
            let refused = group.agree("plan", &lines("tensor x"), if group.rank() == 1 { Err("no room") } else { Ok(()) }).unwrap_err();
            [differs, shorter, refused].map(|error| error.to_string())
        });
        assert!(results.windows(2).all(|pair| pair[0].0 == pair[1].0), "{results:#?}");
        let [differs, shorter, refused] = &results[0].0;
        assert!(
            differs.starts_with("MACO0097: `plan` is not the same on all ranks\n  rank") && differs.contains(": tensor x: [4, 5]\n"),
            "{differs}"
        );
        assert!(differs.contains(&format!("\n  rank {}: tensor x: [4, 6]\n", ranks - 1)), "{differs}");
        assert!(shorter.contains("\n  rank 0: nothing more\n") && shorter.contains(": call #0: linear(x, w, y)\n"), "{shorter}");
        assert!(refused.starts_with("MACO0096: rank 1 failed at `plan`") && refused.ends_with("because: no room"), "{refused}");
    }
}

#[test]
fn a_rank_that_never_comes_is_named_by_the_shortest_deadline() {
    for ranks in [2, 3, 4, 8] {
        for absent in [0, ranks - 1] {
            let short = (absent + 1) % ranks;
            let told = AtomicU32::new(0);
            let results = each(ranks, |group| {
                let deadline = if group.rank() == short { 300 } else { 30_000 };
                group.set_deadline(Duration::from_millis(deadline));
                if group.rank() == absent {
                    while told.load(Ordering::Relaxed) < ranks - 1 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    return group.barrier();
                }
                if group.rank() == short {
                    // Behind the others: it is not the first whose deadline counts.
                    std::thread::sleep(Duration::from_millis(50));
                }
                let result = group.barrier();
                told.fetch_add(1, Ordering::Relaxed);
                result
            });
            let found = failure(&results, |_| true);
            let expected =
                Failure::Late { operation: "barrier".into(), missing: vec![absent], deadline: Duration::from_millis(300), of: short };
            assert_eq!(found, expected);
            assert!(results.iter().all(|(_, elapsed)| (200..10_000).contains(&elapsed.as_millis())), "{results:?}");
            let text = Error::from(found).to_string();
            assert!(
                text.starts_with(&format!("MACO0095: rank {absent} did not come to `barrier` within 300 ms, the deadline of rank {short}")),
                "{text}"
            );
        }
    }
}

#[test]
fn a_rank_that_ends_early_is_noticed_at_once() {
    for ranks in [2, 3, 4, 8] {
        for ended in [0, ranks - 1] {
            let results = threads(ranks, |group| {
                group.barrier()?;
                if group.rank() == ended {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(50));
                let begin = Instant::now();
                let result = group.barrier();
                assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
                assert_eq!(group.barrier().unwrap_err(), result.clone().unwrap_err(), "and stays");
                result
            })
            .unwrap();
            let texts: Vec<String> = results.into_iter().filter_map(|result| result.err().map(|error| error.to_string())).collect();
            assert_eq!(texts.len() as u32, ranks - 1);
            assert!(
                texts.iter().all(|text| text.starts_with(&format!("MACO0095: rank {ended} has ended")) && *text == texts[0]),
                "{texts:#?}"
            );
        }
    }
}

#[test]
fn a_rank_that_panics_is_lost_and_its_panic_goes_on() {
    for panics in [0, 2] {
        let result = std::panic::catch_unwind(|| {
            threads(3, |group| {
                if group.rank() == panics {
                    panic!("out of ideas");
                }
                let begin = Instant::now();
                let error = group.barrier().unwrap_err();
                assert!(begin.elapsed() < Duration::from_secs(5));
                assert!(error.to_string().starts_with(&format!("MACO0095: rank {panics} is gone")), "{error}");
            })
        });
        assert_eq!(result.unwrap_err().downcast_ref::<&str>(), Some(&"out of ideas"));
    }
}

#[test]
fn ranks_at_different_operations_are_told_which() {
    for ranks in [2, 4, 8] {
        let results = each(ranks, |group| if group.rank() == 1 { group.all_gather(&[]).map(drop) } else { group.barrier() });
        let Failure::Order { one, other } = failure(&results, |_| true) else { panic!() };
        let mut places = [one, other];
        places.sort_by_key(|(rank, _)| *rank != 1);
        assert_eq!(places[0], (1, "all-gather of bytes".into()));
        assert_eq!(places[1].1, "barrier");
    }
}

#[test]
fn a_lost_rank_is_seen_without_waiting_for_it() {
    threads(3, |group| {
        group.barrier().unwrap();
        if group.rank() == 1 {
            // As if it were killed: no farewell.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _lost = group;
                std::panic::resume_unwind(Box::new(()));
            }));
            return;
        }
        let begin = Instant::now();
        let error = loop {
            match group.check() {
                Ok(()) => assert!(begin.elapsed() < Duration::from_secs(5)),
                Err(error) => break error,
            }
        };
        assert_eq!(error, Failure::Lost { rank: 1, operation: None }.into());
    })
    .unwrap();
}

#[test]
fn every_rank_maps_the_memory_of_all() {
    for ranks in SIZES {
        each(ranks, |group| {
            let memory = group.share(8 * 1000).unwrap();
            assert_eq!((memory.ranks(), memory.rank(), memory.bytes()), (ranks, group.rank(), 8000));
            assert!((0..ranks).all(|rank| memory.words(rank).iter().all(|word| word.load(Ordering::Relaxed) == 0)));
            group.barrier().unwrap();
            // Into the last word of the next rank.
            let next = (group.rank() + 1) % ranks;
            memory.words(next)[999].store(u64::from(group.rank()) + 1, Ordering::Release);
            group.barrier().unwrap();
            let before = (group.rank() + ranks - 1) % ranks;
            assert_eq!(memory.words(group.rank())[999].load(Ordering::Acquire), u64::from(before) + 1);
            // Again, and one that outlives the group.
            let again = group.share(8).unwrap();
            drop(memory);
            again.words(next)[0].fetch_add(1, Ordering::Relaxed);
        });
    }
}

#[test]
fn memory_that_cannot_be_shared_is_everybodys_error() {
    each(3, |group| {
        let error = group.share(if group.rank() == 1 { 12 } else { 16 }).unwrap_err();
        assert!(error.to_string().contains("rank 1 failed at `share memory`") && error.to_string().contains("12 bytes"), "{error}");
        let error = group.share(if group.rank() == 1 { 24 } else { 16 }).unwrap_err();
        assert!(error.to_string().contains("not the same on all ranks\n  ranks 0 and 2: 16 bytes\n  rank 1: 24 bytes\n"), "{error}");
        let error = group.share(1 << 62).unwrap_err();
        assert!(error.to_string().starts_with("MACO0096: ranks 0, 1 and 2 failed at `map shared memory`"), "{error}");
        assert_eq!(group.share(16).unwrap().ranks(), 3);
    });
}

#[test]
fn an_arena_has_the_same_places_on_all_ranks() {
    for ranks in SIZES {
        let places = threads(ranks, |group| {
            let arena = Arena::new(Arc::new(group), 10_000).unwrap();
            assert_eq!((arena.bytes(), arena.used(), arena.high_water()), (10_112, 0, 0));
            let blocks = [1, 129, 4096, 0].map(|bytes| arena.allocate("block", bytes).unwrap());
            let places = blocks.each_ref().map(|block| block.offset());
            assert_eq!(arena.used(), 128 + 256 + 4096 + 128);
            let [_, second, third, _] = blocks;
            // A byte of every rank.
            let at = third.offset() + 7;
            for rank in 0..ranks {
                let own = rank == arena.group().rank();
                // SAFETY: inside the arena; ranks store it by atomics, and meet before they load.
                let byte = unsafe { AtomicU8::from_ptr(arena.pointer(rank).as_ptr().add(at)) };
                assert!(!own || byte.load(Ordering::Relaxed) & 1 << rank == 0);
                byte.fetch_or(1 << arena.group().rank(), Ordering::Relaxed);
            }
            arena.group().barrier().unwrap();
            // SAFETY: as above.
            let byte = unsafe { AtomicU8::from_ptr(arena.pointer(arena.group().rank()).as_ptr().add(at)) };
            assert_eq!(u32::from(byte.load(Ordering::Relaxed)), (1 << ranks) - 1);
            arena.free(second).unwrap();
            arena.free(third).unwrap();
            assert_eq!((arena.used(), arena.high_water()), (256, 4608));
            // Both in one, and zeros.
            let again = arena.allocate("again", 4000).unwrap();
            assert_eq!((again.offset(), again.name(), again.bytes()), (128, "again", 4000));
            assert_eq!(byte.load(Ordering::Relaxed), 0);
            arena.group().barrier().unwrap();
            places
        });
        assert!(places.unwrap().iter().all(|places| *places == [0, 128, 384, 4480]));
    }
}

#[test]
fn an_allocation_is_the_same_on_all_ranks_or_on_none() {
    let texts = threads(3, |group| {
        let odd = group.rank() == 1;
        let arena = Arena::new(Arc::new(group), 4096).unwrap();
        let mut texts = Vec::new();
        for (name, bytes) in
            [(if odd { "x" } else { "y" }, 8), ("z", if odd { 9 } else { 8 }), ("all", 4097), ("some", if odd { 8000 } else { 8 })]
        {
            texts.push(arena.allocate(name, bytes).unwrap_err().to_string());
            assert_eq!(arena.used(), 0);
        }
        // As if nothing had happened.
        assert_eq!(arena.allocate("all", 4096).unwrap().offset(), 0);
        arena.group().barrier().unwrap();
        texts
    })
    .unwrap();
    assert!(texts.windows(2).all(|pair| pair[0] == pair[1]), "{texts:#?}");
    let [first, second, third, fourth] = &texts[0][..] else { panic!() };
    assert!(
        first.starts_with("MACO0097: `allocate symmetric memory`") && first.contains("rank 1: allocation `x`: 8 bytes at offset 0"),
        "{first}"
    );
    assert!(second.contains("rank 1: allocation `z`: 9 bytes"), "{second}");
    assert!(third.starts_with("MACO0100: `all` needs 4097 bytes"), "{third}");
    assert!(fourth.starts_with("MACO0097: ") && fourth.contains("rank 1: allocation `some`: 8000 bytes\n"), "{fourth}");
}

#[test]
fn nothing_is_left_open() {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let once = || {
        threads(4, |group| {
            let memory = group.share(1 << 16).unwrap();
            group.barrier().unwrap();
            memory.bytes()
        })
        .unwrap();
    };
    once();
    // Other tests of this process open files too: the least of many tries counts.
    let least = |n: usize| {
        (0..n)
            .map(|_| {
                once();
                open()
            })
            .min()
            .unwrap()
    };
    let before = least(20);
    let after = least(200);
    assert!(after <= before + 8, "{before} open files before, {after} after");
}

#[test]
fn a_number_of_ranks_is_checked() {
    for ranks in [0, maco_ranks::MAX_RANKS + 1] {
        assert_eq!(threads(ranks, |_| ()).unwrap_err().code(), 93);
    }
}

/// Memory that fails on one rank.
struct Broken {
    clear: bool,
    settle: bool,
}

impl RankMemory for Broken {
    fn bytes(&self) -> usize {
        1024
    }

    fn settle(&self) -> Result<(), String> {
        if self.settle { Err("something hangs".into()) } else { Ok(()) }
    }

    fn clear(&self, _bytes: Range<usize>) -> Result<(), String> {
        if self.clear { Err("the memory is gone".into()) } else { Ok(()) }
    }
}

#[test]
fn memory_that_fails_later_is_everybodys_error() {
    let texts = threads(3, |group| {
        let odd = group.rank() == 2;
        let arena = Arena::over(Arc::new(group), Broken { clear: odd, settle: false });
        // Nothing was there before: it is not cleared.
        let block = arena.allocate("first", 256).unwrap();
        arena.free(block).unwrap();
        let clear = arena.allocate("second", 512).unwrap_err();
        assert_eq!(arena.used(), 0);
        let arena = Arena::over(arena.group().clone(), Broken { clear: false, settle: odd });
        let block = arena.allocate("third", 512).unwrap();
        let settle = arena.free(block).unwrap_err();
        assert_eq!(arena.used(), 512);
        [clear, settle].map(|error| error.to_string())
    })
    .unwrap();
    assert!(texts.windows(2).all(|pair| pair[0] == pair[1]), "{texts:#?}");
    let [clear, settle] = &texts[0];
    assert!(
        clear.starts_with("MACO0096: rank 2 failed at `allocate symmetric memory`") && clear.ends_with("the memory is gone"),
        "{clear}"
    );
    assert!(settle.starts_with("MACO0096: rank 2 failed at `free symmetric memory`") && settle.ends_with("something hangs"), "{settle}");
}

#[test]
fn files_come_in_the_order_of_ranks() {
    for ranks in SIZES {
        each(ranks, |group| {
            let own = || {
                let mut file = tempfile::tempfile().unwrap();
                write!(file, "of rank {}", group.rank()).unwrap();
                file
            };
            let files = group.exchange_files("exchange", Ok((&[group.rank() as u8], own().into()))).unwrap();
            for (rank, (value, file)) in files.into_iter().enumerate() {
                let (mut file, mut text) = (File::from(file), String::new());
                // The place in a file is one for all that have it.
                if rank as u32 == group.rank() {
                    file.rewind().unwrap();
                    file.read_to_string(&mut text).unwrap();
                    assert_eq!(text, format!("of rank {rank}"));
                }
                assert_eq!(value, [rank as u8]);
            }
            // Whoever has none is everybody's error, and nobody's file is kept.
            let last = group.rank() + 1 == ranks;
            let given = if last { Err("no file") } else { Ok((&[][..], own().into())) };
            let error = group.exchange_files("exchange", given).unwrap_err();
            assert!(error.code() == 96 && error.to_string().ends_with("because: no file"), "{error}");
            group.barrier().unwrap();
        });
    }
}
