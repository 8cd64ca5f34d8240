//! Collectives outside of megakernels on CPU ranks, and on GPUs: every element, operation and size against what they should be, bit by bit, and what goes wrong.
//!
//! Takes a quarter of a minute: every size, element and number of ranks is a case, and ranks that are lost are noticed when a deadline has passed.

use std::thread;
use std::time::{Duration, Instant};

use half::{bf16, f16};
use maco_abi::{LeanOperation, LeanWay};
use maco_host::{Communicator, Device, Error, RankElement, Reduce, Stream, Tensor};

mod failures;
mod gpu;
mod processes;
mod stragglers;

const WORLDS: [u32; 4] = [1, 2, 3, 4];
/// Nothing, one, odd, a block, more than a message (64 KiB), more than a message of each rank.
const SIZES: [usize; 9] = [0, 1, 7, 8, 33, 1000, 16_385, 40_001, 150_003];
const ALL: [Reduce; 4] = [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min];

/// An element whose results can be made on the host.
trait Value: RankElement + PartialEq + std::fmt::Debug {
    /// The sum of integers is exact in each of them.
    fn of(n: i32) -> Self;
    fn reduced(values: &[i32], by: Reduce) -> Self;
}

macro_rules! floats {
    ($($ty:ident, $from:expr);+) => {$(
        impl Value for $ty {
            fn of(n: i32) -> $ty {
                $from(n as f32)
            }
            fn reduced(values: &[i32], by: Reduce) -> $ty {
                let sum = values.iter().fold(0.0, |sum, value| sum + *value as f32);
                match by {
                    Reduce::Sum => $from(sum),
                    Reduce::Mean => $from(sum / values.len() as f32),
                    Reduce::Max => $ty::of(*values.iter().max().unwrap()),
                    Reduce::Min => $ty::of(*values.iter().min().unwrap()),
                }
            }
        }
    )+};
}
floats!(f32, std::convert::identity; bf16, bf16::from_f32; f16, f16::from_f32);

impl Value for i32 {
    fn of(n: i32) -> i32 {
        n
    }
    fn reduced(values: &[i32], by: Reduce) -> i32 {
        let sum: i32 = values.iter().sum();
        match by {
            Reduce::Sum => sum,
            Reduce::Mean => sum / values.len() as i32,
            Reduce::Max => *values.iter().max().unwrap(),
            Reduce::Min => *values.iter().min().unwrap(),
        }
    }
}

/// Element `n` of rank `rank`.
fn value(rank: u32, n: usize) -> i32 {
    (n as i32 * 7 + rank as i32 * 13 + n as i32 / 100) % 41 - 20
}

fn reduced<E: Value>(ranks: u32, n: usize, by: Reduce) -> E {
    E::reduced(&(0..ranks).map(|rank| value(rank, n)).collect::<Vec<_>>(), by)
}

fn filled<E: Value>(rank: u32, size: usize) -> Vec<E> {
    (0..size).map(|n| E::of(value(rank, n))).collect()
}

fn check<E: Value>(found: &[E], what: &str, expected: impl Fn(usize) -> E) {
    if let Some(n) = (0..found.len()).find(|&n| found[n] != expected(n)) {
        panic!("{what}: element {n} is {:?} and should be {:?}", found[n], expected(n));
    }
}

fn all<E: Value>(ranks: &Communicator, size: usize, by: Reduce) -> Result<(), Error> {
    all_on::<E>(ranks, &Device::cpu(), size, by)
}

fn all_on<E: Value>(ranks: &Communicator, device: &Device, size: usize, by: Reduce) -> Result<(), Error> {
    each::<E>(ranks, device, None, size, by)
}

/// Each collective, waited for or queued on a stream.
fn each<E: Value>(ranks: &Communicator, device: &Device, stream: Option<&Stream>, size: usize, by: Reduce) -> Result<(), Error> {
    let (rank, count) = (ranks.rank(), ranks.ranks());
    let way = if stream.is_some() { "on a stream, " } else { "" };
    let what = format!("{way}{size} elements of {} on {count} ranks by {by:?}", std::any::type_name::<E>());
    let planes = size * count as usize;
    let root = size as u32 % count;

    let mut x = device.upload(&filled::<E>(rank, size), [size])?;
    let mut told = device.upload(&filled::<E>(rank, size), [size])?;
    let own = device.upload(&filled::<E>(rank, size), [size])?;
    let parts = device.upload(&filled::<E>(rank, planes), [planes])?;
    let mut y = device.zeros::<E>([size])?;
    let [mut z, mut all] = [device.zeros::<E>([planes])?, device.zeros::<E>([planes])?];
    match stream {
        None => {
            ranks.all_reduce_by(&mut x, by)?;
            ranks.reduce_scatter(&parts, &mut y, by)?;
            ranks.all_to_all(&parts, &mut z)?;
            ranks.all_gather(&own, &mut all)?;
            ranks.broadcast(&mut told, root)?;
        }
        Some(stream) => {
            ranks.all_reduce_on(stream, &mut x, by)?;
            ranks.reduce_scatter_on(stream, &parts, &mut y, by)?;
            ranks.all_to_all_on(stream, &parts, &mut z)?;
            ranks.all_gather_on(stream, &own, &mut all)?;
            ranks.broadcast_on(stream, &mut told, root)?;
            stream.synchronize()?;
            ranks.check_collectives()?;
        }
    }
    check(&x.download()?, &what, |n| reduced(count, n, by));
    check(&y.download()?, &what, |n| reduced(count, rank as usize * size + n, by));
    check(&z.download()?, &what, |n| E::of(value((n / size) as u32, rank as usize * size + n % size)));
    check(&all.download()?, &what, |n| E::of(value((n / size) as u32, n % size)));
    check(&told.download()?, &what, |n| E::of(value(root, n)));
    Ok(())
}

fn fine(results: Result<Vec<Result<(), Error>>, Error>) {
    results.unwrap().into_iter().collect::<Result<(), _>>().unwrap();
}

#[test]
fn every_element_and_size() {
    for count in WORLDS {
        fine(Communicator::threads(count, |ranks| {
            for size in SIZES {
                all::<f32>(&ranks, size, Reduce::Sum)?;
                all::<bf16>(&ranks, size, Reduce::Sum)?;
                all::<f16>(&ranks, size, Reduce::Sum)?;
                all::<i32>(&ranks, size, Reduce::Sum)?;
            }
            Ok(())
        }));
    }
}

#[test]
fn every_operation() {
    for count in WORLDS {
        fine(Communicator::threads(count, |ranks| {
            for by in ALL {
                for size in [1, 13, 5000] {
                    all::<f32>(&ranks, size, by)?;
                    all::<bf16>(&ranks, size, by)?;
                    all::<f16>(&ranks, size, by)?;
                    all::<i32>(&ranks, size, by)?;
                }
            }
            Ok(())
        }));
    }
}

/// On a CPU they have ended when they return, whoever makes them: the caller, or the thread that calls beside it started.
#[test]
fn each_is_queued_on_a_stream() {
    for count in WORLDS {
        fine(Communicator::threads(count, |ranks| {
            let device = Device::cpu();
            let stream = Stream::new(&device)?;
            for (has_thread, sizes) in [(false, &SIZES[..]), (true, &[1, 1000, 40_001])] {
                if has_thread {
                    ranks.all_reduce_async(device.zeros::<f32>([90_000])?, Reduce::Sum)?.wait()?;
                }
                for &size in sizes {
                    each::<f32>(&ranks, &device, Some(&stream), size, Reduce::Sum)?;
                    each::<bf16>(&ranks, &device, Some(&stream), size, Reduce::Mean)?;
                    each::<f16>(&ranks, &device, Some(&stream), size, Reduce::Max)?;
                    each::<i32>(&ranks, &device, Some(&stream), size, Reduce::Min)?;
                }
            }
            Ok(())
        }));
    }
}

/// Values that are no integers: the sum is of `f32` in the order of ranks, rounded once, and its bits are the same on all ranks.
#[test]
fn sums_are_rounded_once() {
    let part = |rank: u32, n: usize| bf16::from_f32((rank as f32 + 0.37) * (n as f32 * 0.713).sin());
    let results = Communicator::threads(4, |ranks| {
        let mut found = Vec::new();
        for size in [999, 80_001] {
            let data: Vec<bf16> = (0..size).map(|n| part(ranks.rank(), n)).collect();
            let mut x = Device::cpu().upload(&data, [size])?;
            ranks.all_reduce(&mut x)?;
            let sums = x.download()?;
            check(&sums, "a sum", |n| bf16::from_f32((1..4).fold(part(0, n).to_f32(), |sum, rank| sum + part(rank, n).to_f32())));
            found.extend(sums.iter().map(|value| value.to_bits()));
        }
        Ok::<_, Error>(found)
    });
    let results = results.unwrap().into_iter().collect::<Result<Vec<_>, _>>().unwrap();
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
}

/// Slices that begin anywhere, and rows with something between them that is left alone.
#[test]
fn offsets_and_rows() {
    fn slices<E: Value>(ranks: &Communicator) -> Result<(), Error> {
        for (first, size) in [(1, 4000), (3, 17), (5, 70_000), (8, 8)] {
            let mut memory = vec![E::of(5); first + size + 9];
            memory[first..][..size].copy_from_slice(&filled::<E>(ranks.rank(), size));
            // SAFETY: so many elements, alive and unshared while the tensor is.
            let mut x = unsafe { Tensor::from_raw(&Device::cpu(), memory.as_mut_ptr().add(first), [size], size as u64)? };
            ranks.all_reduce(&mut x)?;
            drop(x);
            check(&memory[first..][..size], "a slice", |n| reduced(ranks.ranks(), n, Reduce::Sum));
            assert!(memory[..first].iter().chain(&memory[first + size..]).all(|value| *value == E::of(5)));
        }
        let mut memory = vec![E::of(5); 9 * 13];
        for (row, part) in memory.chunks_mut(13).enumerate() {
            part[..11].copy_from_slice(&filled::<E>(ranks.rank(), 99)[11 * row..][..11]);
        }
        // SAFETY: as above, of nine rows of 13.
        let mut x = unsafe { Tensor::from_raw(&Device::cpu(), memory.as_mut_ptr(), [9, 11], 13)? };
        ranks.all_reduce_by(&mut x, Reduce::Max)?;
        drop(x);
        for (n, value) in memory.iter().enumerate() {
            let expected = if n % 13 < 11 { reduced(ranks.ranks(), n / 13 * 11 + n % 13, Reduce::Max) } else { E::of(5) };
            assert_eq!(*value, expected, "{n}");
        }
        Ok(())
    }
    for count in [2, 3] {
        fine(Communicator::threads(count, |ranks| {
            slices::<f32>(&ranks)?;
            slices::<bf16>(&ranks)?;
            slices::<i32>(&ranks)
        }));
    }
}

/// The same on all ranks.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 40) as usize
}

/// 200 calls of random kinds and sizes, one behind the other; some ranks are late.
fn mixed(ranks: &Communicator, seed: u64) -> Result<(), Error> {
    let mut state = seed;
    for call in 0..200 {
        let size = [random(&mut state) % 40, random(&mut state) % 3000, random(&mut state) % 60_000][random(&mut state) % 3];
        let (by, kind) = (ALL[random(&mut state) % 4], random(&mut state) % 5);
        if (call + ranks.rank() as usize).is_multiple_of(17) {
            thread::sleep(Duration::from_millis(1));
        }
        match kind {
            0 => all::<f32>(ranks, size / 4, by)?,
            1 => all::<bf16>(ranks, size / 4, by)?,
            2 => all::<i32>(ranks, size / 4, by)?,
            3 => {
                let mut x = Device::cpu().upload(&filled::<f16>(ranks.rank(), size), [size])?;
                ranks.all_reduce_by(&mut x, by)?;
                check(&x.download()?, "mixed", |n| reduced(ranks.ranks(), n, by));
            }
            _ => {
                let x = Device::cpu().upload(&filled::<f32>(ranks.rank(), size), [size])?;
                let x = ranks.all_reduce_async(x, by)?.wait()?;
                check(&x.download()?, "mixed", |n| reduced(ranks.ranks(), n, by));
            }
        }
    }
    Ok(())
}

#[test]
fn calls_of_all_kinds_follow_each_other() {
    for count in [2, 3, 4] {
        fine(Communicator::threads(count, |ranks| mixed(&ranks, 7 + u64::from(count))));
    }
}

/// Of two communicators, each with threads of its own, at the same time.
#[test]
fn two_communicators_at_once() {
    thread::scope(|scope| {
        for seed in [1, 2] {
            scope.spawn(move || fine(Communicator::threads(2, |ranks| mixed(&ranks, seed))));
        }
    });
}

#[test]
fn several_are_begun_before_one_is_waited_for() {
    fine(Communicator::threads(3, |ranks| {
        let begun = (0..20).map(|n| {
            let x = Device::cpu().upload(&filled::<f32>(ranks.rank(), 500 * n), [500 * n])?;
            ranks.all_reduce_async(x, Reduce::Sum)
        });
        let begun = begun.collect::<Result<Vec<_>, _>>()?;
        // In its turn, behind them.
        let mut last = Device::cpu().upload(&filled::<i32>(ranks.rank(), 77), [77])?;
        ranks.all_reduce(&mut last)?;
        check(&last.download()?, "the last", |n| reduced(3, n, Reduce::Sum));
        for begun in begun {
            while !begun.is_done()? {
                thread::yield_now();
            }
            check(&begun.wait()?.download()?, "begun", |n| reduced(3, n, Reduce::Sum));
        }
        // One that nobody waits for.
        drop(ranks.all_reduce_async(Device::cpu().zeros::<f32>([90_000])?, Reduce::Sum)?);
        ranks.barrier()
    }));
}

/// What the ranks say when one of them makes another call; they all say the same kind of error, and repeat it.
fn odd(count: u32, run: impl Fn(&Communicator, bool) -> Result<(), Error> + Sync) -> Vec<String> {
    let results = Communicator::threads(count, |ranks| {
        ranks.set_deadline(Duration::from_secs(20)).unwrap();
        let begin = Instant::now();
        // One that goes well.
        ranks.all_reduce(&mut Device::cpu().zeros::<f32>([3]).unwrap()).unwrap();
        // A rank that is late would have the error of the next call.
        ranks.barrier().unwrap();
        let error = run(&ranks, ranks.rank() == 1).and_then(|()| ranks.all_reduce(&mut Device::cpu().zeros::<f32>([1])?)).unwrap_err();
        assert!(error.code() == 99 && begin.elapsed() < Duration::from_secs(10), "{error}");
        let again = ranks.all_reduce(&mut Device::cpu().zeros::<f32>([1]).unwrap()).unwrap_err();
        assert_eq!((again.to_string(), again.code()), (error.to_string(), 99));
        assert_eq!(ranks.check_collectives().unwrap_err().to_string(), error.to_string());
        ranks.barrier().unwrap();
        ranks.recover_collectives().unwrap();
        ranks.check_collectives().unwrap();
        all::<f32>(&ranks, 333, Reduce::Sum).unwrap();
        error.to_string()
    });
    results.unwrap()
}

#[test]
fn other_calls_are_named() {
    let device = Device::cpu;
    for count in [2, 3, 4] {
        for (sizes, words) in [([5, 6], "elements"), ([0, 100], "elements"), ([100_000, 30], "elements")] {
            let run = |ranks: &Communicator, odd: bool| ranks.all_reduce(&mut device().zeros::<f32>([sizes[usize::from(odd)]])?);
            for text in odd(count, run) {
                assert!(text.starts_with("MACO0099: rank ") && text.contains("at another call") && text.contains(words), "{text}");
                assert!(text.contains(&sizes[0].to_string()) && text.contains(&sizes[1].to_string()), "{text}");
            }
        }
        let elements = |ranks: &Communicator, odd: bool| {
            if odd { ranks.all_reduce(&mut device().zeros::<i32>([5])?) } else { ranks.all_reduce(&mut device().zeros::<f32>([5])?) }
        };
        for text in odd(count, elements) {
            assert!(text.contains("`all_reduce` of i32 (Sum)") && text.contains("`all_reduce` of f32 (Sum)"), "{text}");
        }
        let operations = |ranks: &Communicator, odd: bool| {
            let mut x = device().zeros::<f32>([5])?;
            if odd { ranks.broadcast(&mut x, 0) } else { ranks.all_reduce_by(&mut x, Reduce::Max) }
        };
        for text in odd(count, operations) {
            assert!(text.contains("`broadcast` of f32") && text.contains("`all_reduce` of f32 (Max)"), "{text}");
        }
        for text in odd(count, |ranks, odd| ranks.broadcast(&mut device().zeros::<f32>([5])?, u32::from(odd))) {
            assert!(text.contains("at `broadcast`") && text.contains("root ") && text.contains("0") && text.contains(" here, "), "{text}");
        }
    }
}

/// One rank never calls: who waits says whom for.
#[test]
fn a_rank_that_does_not_call_is_named() {
    for count in [2, 3, 4] {
        for is_async in [false, true] {
            let results = Communicator::threads(count, |ranks| {
                ranks.set_deadline(Duration::from_millis(800)).unwrap();
                let x = || Device::cpu().zeros::<f32>([70_000]);
                ranks.all_reduce(&mut x()?)?;
                if ranks.rank() == 1 {
                    thread::sleep(Duration::from_millis(2500));
                    return Ok(None);
                }
                let begin = Instant::now();
                let error =
                    if is_async { ranks.all_reduce_async(x()?, Reduce::Min)?.wait().map(drop) } else { ranks.all_reduce(&mut x()?) };
                assert!(begin.elapsed() < Duration::from_millis(2400), "{:?}", begin.elapsed());
                Ok::<_, Error>(Some(error.unwrap_err()))
            });
            for error in results.unwrap().into_iter().collect::<Result<Vec<_>, _>>().unwrap().into_iter().flatten() {
                let text = error.to_string();
                assert!(
                    error.code() == 99 && text.contains("at `all_reduce` for rank 1") && text.contains("the deadline passed"),
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn wrong_tensors_are_refused() {
    fine(Communicator::threads(2, |ranks| {
        let device = Device::cpu();
        let (x, mut y) = (device.zeros::<f32>([6])?, device.zeros::<f32>([6])?);
        let stream = Stream::new(&device)?;
        assert_eq!(ranks.all_gather(&x, &mut y).unwrap_err().code(), 35);
        assert_eq!(ranks.all_gather_on(&stream, &x, &mut y).unwrap_err().code(), 35);
        assert_eq!(ranks.reduce_scatter(&x, &mut y, Reduce::Sum).unwrap_err().code(), 35);
        assert_eq!(ranks.reduce_scatter_on(&stream, &x, &mut y, Reduce::Sum).unwrap_err().code(), 35);
        let (x, mut odd) = (device.zeros::<f32>([3])?, device.zeros::<f32>([3])?);
        assert_eq!(ranks.all_to_all(&x, &mut odd).unwrap_err().code(), 35);
        assert_eq!(ranks.all_to_all_on(&stream, &x, &mut odd).unwrap_err().code(), 35);
        assert_eq!(ranks.broadcast(&mut y, 2).unwrap_err().code(), 100);
        assert_eq!(ranks.broadcast_on(&stream, &mut y, 2).unwrap_err().code(), 100);
        let other = Device::cpu_with(2);
        assert_eq!(ranks.all_gather(&x, &mut other.zeros::<f32>([6])?).unwrap_err().code(), 33);
        assert_eq!(ranks.all_gather_on(&stream, &x, &mut other.zeros::<f32>([6])?).unwrap_err().code(), 33);
        let others = Stream::new(&other)?;
        let planes = device.zeros::<f32>([6])?;
        for (call, error) in [
            ("all_reduce", ranks.all_reduce_on(&others, &mut y, Reduce::Sum)),
            ("all_gather", ranks.all_gather_on(&others, &x, &mut y)),
            ("reduce_scatter", ranks.reduce_scatter_on(&others, &planes, &mut odd, Reduce::Sum)),
            ("all_to_all", ranks.all_to_all_on(&others, &planes, &mut y)),
            ("broadcast", ranks.broadcast_on(&others, &mut y, 1)),
        ] {
            let error = error.unwrap_err();
            assert!(error.code() == 33 && error.to_string().contains("the stream"), "{call}: {error}");
        }
        // Nothing of it has reached the other rank.
        ranks.all_gather(&x, &mut y)
    }));
}

/// Benchmarks name what is chosen: of a CPU rank, one executor with 64 KiB.
#[test]
fn the_way_of_a_call_is_told() {
    for count in [2, 3] {
        fine(Communicator::threads(count, |ranks| {
            let way = |operation, bytes: usize| ranks.lean_way::<f32>(&Device::cpu(), operation, bytes / 4);
            let large = if count == 2 { LeanWay::OneStep } else { LeanWay::TwoSteps };
            assert_eq!([0, 1 << 10].map(|bytes| way(LeanOperation::AllReduce, bytes)), [LeanWay::Packets; 2]);
            assert_eq!([(1 << 10) + 4, 100 << 10].map(|bytes| way(LeanOperation::AllReduce, bytes)), [LeanWay::OneStep; 2]);
            assert_eq!(way(LeanOperation::AllReduce, 128 << 10), large);
            assert_eq!([1 << 10, 128 << 10].map(|bytes| way(LeanOperation::AllGather, bytes)), [LeanWay::Packets, LeanWay::OneStep]);
            Ok(())
        }));
    }
}
