//! A rank that is killed, or leaves a signal out, is an error on every rank that waits, in time, which names who waited for what.

use std::time::{Duration, Instant};
use std::{process, thread};

use maco_host::{ChannelOptions, Communicator, Device, Error, MemoryChannel};

use crate::process::{Ended, Rendezvous, ends, say};

/// What ranks of these tests wait for.
const KINDS: [&str; 5] = ["wait", "packets", "credit", "slots", "port"];

fn set_up(ranks: &Communicator) -> Result<(maco_host::SymmetricMemory, maco_host::SymmetricBuffer, maco_host::Channels), Error> {
    let memory = ranks.symmetric(&Device::cpu(), 4 << 20)?;
    let buffer = memory.allocate("buffer", 4096)?;
    let channels = memory.channels(&ChannelOptions::default().packet_bytes(64).slot_bytes(128).slots(2).fifo(2))?;
    Ok((memory, buffer, channels))
}

/// Rank by rank in a ring: each sends to the right and waits for the left. The special one ends its part of the last round too early.
fn ring(ranks: &Communicator, kind: &str, rounds: u32, lost: impl Fn()) -> Result<(), Error> {
    let (memory, buffer, channels) = set_up(ranks)?;
    let (rank, count) = (ranks.rank(), ranks.ranks());
    let (right, left) = ((rank + 1) % count, (rank + count - 1) % count);
    let (mut memory_channels, mut ports) = channels.into_parts();
    for round in 0..rounds {
        let to =
            |channels: &mut Vec<MemoryChannel>, peer: u32, step: fn(&mut MemoryChannel, maco_host::SymmetricPlace) -> Result<(), Error>| {
                step(&mut channels[peer as usize], buffer.at(0))
            };
        if round + 1 == rounds {
            lost();
        }
        match kind {
            "wait" => {
                to(&mut memory_channels, right, |channel, _| channel.signal())?;
                to(&mut memory_channels, left, |channel, _| channel.wait())?;
            }
            "packets" => {
                to(&mut memory_channels, right, |channel, at| channel.send_packets(at, 9))?;
                to(&mut memory_channels, left, |channel, at| channel.receive_packets(at, 9))?;
            }
            _ => {
                ports[right as usize].put_with_signal(buffer.at(0), buffer.at(64), 32)?;
                ports[left as usize].wait()?;
            }
        }
    }
    ranks.barrier()?;
    drop(memory);
    Ok(())
}

/// What a process does in a case of this file.
pub fn run(case: &str, ranks: &Communicator, special: bool) -> Result<(), Error> {
    let (what, kind) = case.split_once(' ').unwrap_or((case, ""));
    let begin = Instant::now();
    let result = match what {
        "killed" => ring(ranks, kind, 20, || {
            if special {
                // As by SIGKILL: no farewell.
                process::abort();
            }
        }),
        "absent" => ring(ranks, kind, 20, || {
            if special {
                // It never comes, and lives.
                thread::sleep(Duration::from_secs(15));
            }
        }),
        _ => panic!("no case {case}"),
    };
    if result.is_err() {
        say(format!("after {} ms", begin.elapsed().as_millis()));
    }
    result
}

fn started(case: &str, ranks: u32, special: u32, deadline: u32) -> Vec<Ended> {
    let rendezvous = Rendezvous::new();
    let children = (0..ranks)
        .map(|rank| {
            let mut command = rendezvous.rank(rank, ranks, case);
            command.env("SPECIAL", special.to_string()).env("DEADLINE", deadline.to_string()).spawn().unwrap()
        })
        .collect();
    let ended = ends(children);
    rendezvous.nothing_left();
    ended
}

/// Milliseconds to the error.
fn after(ended: &Ended) -> u64 {
    let text = ended.said.iter().find_map(|text| text.strip_prefix("after ")?.strip_suffix(" ms"));
    text.unwrap_or_else(|| panic!("{ended:?}")).parse().unwrap()
}

#[test]
fn a_killed_rank_ends_all_waits_at_once() {
    for kind in ["wait", "packets", "port"] {
        for (ranks, special) in [(2, 1), (3, 0), (4, 2)] {
            // Rank 0 has the hub: without it the others learn of it by their own connection.
            let ended = started(&format!("killed {kind}"), ranks, special, 20_000);
            for (rank, ended) in ended.iter().enumerate().filter(|(rank, _)| *rank as u32 != special) {
                let text = ended.said.last().unwrap_or_else(|| panic!("rank {rank}: {ended:?}"));
                // Its right neighbour waits for it in a channel, and the others there or at the barrier behind that.
                let waits = rank as u32 == (special + 1) % ranks;
                assert!(ended.status == Some(99) || ended.status == Some(95) && !waits, "{kind}, rank {rank} of {ranks}: {}", ended.all);
                assert!(text.contains(&format!("rank {special} is gone")), "{text}");
                assert!(after(ended) < 10_000, "{ended:?}");
            }
        }
    }
}

#[test]
fn a_rank_that_does_not_come_is_named_at_the_deadline() {
    for (kind, operation) in [("wait", "`wait`"), ("packets", "`receive packets`"), ("port", "`wait`")] {
        let (ranks, special) = (3, 1);
        let ended = started(&format!("absent {kind}"), ranks, special, 1500);
        for (rank, ended) in ended.iter().enumerate().filter(|(rank, _)| *rank as u32 != special) {
            let text = ended.said.last().unwrap_or_else(|| panic!("rank {rank}: {ended:?}"));
            // Rank 2 waits for rank 1 in a channel; rank 0 has come to the barrier behind that.
            if rank == 2 {
                // The slot of a message still holds the one before the last.
                let found = if kind == "packets" { "found 18; the deadline passed" } else { "found 19; the deadline passed" };
                let words = [operation, "rank 2 waited 1.5 s at ", "for rank 1: expected number 20", found];
                assert!(ended.status == Some(99) && words.iter().all(|word| text.contains(word)), "{kind}: {text}");
            } else {
                assert!(matches!(ended.status, Some(95 | 99)), "{kind}, rank {rank}: {}", ended.all);
            }
            assert!((1200..10_000).contains(&after(ended)), "{ended:?}");
        }
    }
}

/// One rank does not receive, or does not signal: every other one that waits has the error, and the one that was left out is named.
#[test]
fn lost_signals_are_reported() {
    for kind in KINDS {
        for count in [2, 3, 4] {
            let begin = Instant::now();
            let results = Communicator::threads(count, |ranks| lost(&ranks, kind)).unwrap();
            let waited = results.iter().flatten().count();
            assert!(waited >= 1, "{kind}: nobody waited in vain");
            for text in results.iter().flatten() {
                let (operation, seen) = match kind {
                    "wait" | "port" => ("`wait` for rank 0", "expected number 3"),
                    "packets" => ("`receive packets` for rank 0", "expected number 3"),
                    _ => ("`send (for a slot that is free)` for rank 0", "expected number 1"),
                };
                assert!(text.starts_with("MACO0099: rank ") && text.contains(operation) && text.contains(seen), "{kind}: {text}");
                assert!(text.contains("the deadline passed"), "{text}");
            }
            assert!(begin.elapsed() < Duration::from_secs(15), "{kind}");
        }
    }
}

/// Rank 0 leaves its part out in the third round; the other ranks, in a star around it, wait for that. What they say.
fn lost(ranks: &Communicator, kind: &str) -> Option<String> {
    ranks.set_deadline(Duration::from_millis(400)).unwrap();
    let (_memory, buffer, mut channels) = set_up(ranks).unwrap();
    let (rank, at) = (ranks.rank(), buffer.at(0));
    let run = || -> Result<(), Error> {
        for round in 0..3 {
            for peer in 0..ranks.ranks() {
                let lost = round == 2;
                if (rank == 0) == (peer == 0) {
                    continue;
                }
                let port = channels.port(peer).expect("a rank");
                match kind {
                    "port" if rank == 0 && !lost => port.signal()?,
                    "port" if rank != 0 => port.wait()?,
                    _ => {}
                }
                let channel = channels.memory(peer).expect("a rank");
                match kind {
                    "wait" if rank == 0 && !lost => channel.signal()?,
                    "wait" if rank != 0 => channel.wait()?,
                    "packets" if rank == 0 && !lost => channel.send_packets(at, 12)?,
                    "packets" if rank != 0 => channel.receive_packets(at, 12)?,
                    // Nobody receives: two slots are free.
                    "credit" if rank != 0 => channel.send_packets(at, 12)?,
                    "slots" if rank != 0 => channel.send_chunk(at, 12)?,
                    _ => {}
                }
            }
        }
        Ok(())
    };
    let mut run = run;
    let error = run().err()?;
    assert_eq!(error.code(), 99);
    // From now on.
    let again = channels.memory(0).expect("a rank").signal().unwrap_err();
    assert_eq!(again.to_string(), error.to_string());
    Some(error.to_string())
}

/// Whoever stops tells the others.
#[test]
fn the_shortest_deadline_ends_all_waits() {
    let results = Communicator::threads(4, |ranks| {
        ranks.set_deadline(Duration::from_secs(if ranks.rank() == 2 { 1 } else { 60 }))?;
        let (_memory, _buffer, mut channels) = set_up(&ranks)?;
        let begin = Instant::now();
        let error = channels.memory(0).expect("a rank").wait().unwrap_err();
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        Ok::<_, Error>(error.to_string())
    });
    let texts = results.unwrap().into_iter().collect::<Result<Vec<_>, _>>().unwrap();
    assert!(texts.windows(2).all(|pair| pair[0] == pair[1]), "{texts:#?}");
    assert!(texts[0].starts_with("MACO0099: rank 2 waited 1.0 s at `wait` for rank 0: expected number 1"), "{}", texts[0]);
}

#[test]
fn after_an_error_ranks_set_up_anew() {
    let results = Communicator::threads(3, |ranks| {
        for _ in 0..3 {
            ranks.set_deadline(Duration::from_millis(300))?;
            {
                let (_memory, _buffer, mut channels) = set_up(&ranks)?;
                let error = channels.memory((ranks.rank() + 1) % 3).expect("a rank").wait().unwrap_err();
                assert_eq!(error.code(), 99, "{error}");
            }
            ranks.set_deadline(Duration::from_secs(20))?;
            ring(&ranks, "wait", 50, || {})?;
            ring(&ranks, "port", 50, || {})?;
        }
        Ok::<_, Error>(())
    });
    results.unwrap().into_iter().collect::<Result<(), _>>().unwrap();
}

#[test]
fn a_rank_may_stop_all() {
    let results = Communicator::threads(3, |ranks| {
        let (memory, _buffer, mut channels) = set_up(&ranks)?;
        if ranks.rank() == 2 {
            thread::sleep(Duration::from_millis(50));
            memory.stop();
        }
        let error = channels.memory(2).expect("a rank").wait().unwrap_err();
        assert!(error.code() == 100 && error.to_string().contains("were stopped"), "{error}");
        ranks.barrier()
    });
    results.unwrap().into_iter().collect::<Result<(), _>>().unwrap();
}
