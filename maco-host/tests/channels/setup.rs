//! Symmetric memory is made, used, freed and made again; what goes wrong is the same error on all ranks.

use std::fs;
use std::time::Duration;

use maco_host::{ChannelOptions, Communicator, Device, Error};

/// What each rank's error says; they are all the same.
pub fn one(ranks: u32, run: impl Fn(&Communicator) -> Result<(), Error> + Sync) -> (u16, String) {
    let results = Communicator::threads(ranks, |ranks| {
        ranks.set_deadline(Duration::from_secs(5)).unwrap();
        let result = run(&ranks);
        // The ranks go on.
        ranks.barrier().unwrap();
        result
    });
    let texts: Vec<_> =
        results.unwrap().into_iter().map(|result| result.unwrap_err()).map(|error| (error.code(), error.to_string())).collect();
    assert!(texts.windows(2).all(|pair| pair[0] == pair[1]), "{texts:#?}");
    texts[0].clone()
}

#[test]
fn another_size_is_named() {
    for (ranks, odd) in [(2, 0), (3, 2), (4, 1)] {
        let (code, text) = one(ranks, |ranks| ranks.symmetric(&Device::cpu(), if ranks.rank() == odd { 8192 } else { 4096 }).map(drop));
        assert!(code == 97 && text.contains(&format!("rank {odd}: 8192 bytes")), "{text}");
        // All that comes later is not reached.
        assert!(text.starts_with("MACO0097: `symmetric memory`"), "{text}");
        let (code, text) = one(ranks, |ranks| {
            let memory = ranks.symmetric(&Device::cpu(), 8192)?;
            memory.allocate("x", if ranks.rank() == odd { 300 } else { 200 }).map(drop)
        });
        assert!(code == 97 && text.contains(&format!("rank {odd}: allocation `x`: 300 bytes at offset 0")), "{text}");
        let (code, text) = one(ranks, |ranks| {
            let memory = ranks.symmetric(&Device::cpu(), 1 << 20)?;
            memory.channels(&ChannelOptions::default().slots(if ranks.rank() == odd { 2 } else { 1 })).map(drop)
        });
        assert!(code == 97 && text.contains(&format!("rank {odd}: channels: messages of 8192 bytes, 2 slots")), "{text}");
        let (code, text) = one(ranks, |ranks| {
            let memory = ranks.symmetric(&Device::cpu(), 8192)?;
            let [x, y] = [memory.allocate("x", 1)?, memory.allocate("y", 1)?];
            if ranks.rank() == odd { y.free() } else { x.free() }
        });
        assert!(code == 97 && text.contains(&format!("rank {odd}: allocation `y`")), "{text}");
    }
}

#[test]
fn no_room_is_said_once() {
    let (code, text) = one(3, |ranks| {
        let memory = ranks.symmetric(&Device::cpu(), 4096)?;
        let _first = memory.allocate("first", 1000)?;
        memory.allocate("second", 4000).map(drop)
    });
    assert_eq!(code, 100);
    assert!(text.contains("`second` needs 4000 bytes of symmetric memory, but of 4096 bytes 1024 are used"), "{text}");
    let (code, text) = one(2, |ranks| ranks.symmetric(&Device::cpu(), 1 << 20)?.channels(&ChannelOptions::default().slots(3)).map(drop));
    assert!(code == 100 && text.contains("powers of two"), "{text}");
    for options in [
        ChannelOptions::default().slot_bytes(usize::MAX),
        ChannelOptions::default().packet_bytes(usize::MAX),
        ChannelOptions::default().slot_bytes(1 << 62),
        ChannelOptions::default().slot_bytes(1 << 20),
    ] {
        let (code, text) = one(2, |ranks| ranks.symmetric(&Device::cpu(), 1 << 20)?.channels(&options).map(drop));
        assert_eq!(code, 100, "{text}");
    }
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let results = Communicator::threads(3, |ranks| {
        ranks.set_deadline(Duration::from_millis(500)).unwrap();
        let memory = ranks.symmetric(&Device::cpu(), 1 << 20).unwrap();
        if ranks.rank() == 1 {
            std::thread::sleep(Duration::from_millis(1500));
            return None;
        }
        memory.channels(&ChannelOptions::default()).err().map(|error| error.to_string())
    });
    for text in results.unwrap().iter().flatten() {
        assert!(text.starts_with("MACO0095: rank 1 did not come to `channels` within 500 ms"), "{text}");
    }
}

/// File descriptors, mappings and threads of this process.
pub fn held() -> [usize; 3] {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    [fs::read_dir("/proc/self/fd").unwrap().count(), maps.matches("memfd:maco").count(), fs::read_dir("/proc/self/task").unwrap().count()]
}

/// In a process of its own: other tests make memory, too.
#[test]
fn memory_is_freed_and_made_again() {
    let rendezvous = crate::process::Rendezvous::new();
    crate::process::fine(&crate::process::ends(rendezvous.start(2, "again")));
    rendezvous.nothing_left();
}

/// See above.
pub fn again(ranks: &Communicator) -> Result<(), Error> {
    ranks.barrier()?;
    let before = held();
    for round in 0..50usize {
        let memory = ranks.symmetric(&Device::cpu(), 1 << 20)?;
        let other = ranks.symmetric(&Device::cpu(), 4096 + round * 128)?;
        assert_eq!((memory.bytes(), other.bytes()), (1 << 20, 4096 + round * 128));
        let buffer = memory.allocate("buffer", 1000)?;
        let mut bytes = vec![1; 1000];
        buffer.read(0, &mut bytes)?;
        assert_eq!(bytes, [0; 1000]);
        buffer.write(0, &[7; 1000])?;
        assert_eq!(memory.used(), 1024);
        buffer.free()?;
        assert_eq!((memory.used(), memory.high_water()), (0, 1024));
        // Zeros again.
        let buffer = memory.allocate("again", 1000)?;
        buffer.read(0, &mut bytes)?;
        assert_eq!(bytes, [0; 1000]);
        let mut channels = memory.channels(&ChannelOptions::default().slots(1))?;
        let peer = 1 - ranks.rank();
        channels.memory(peer).expect("a rank").signal()?;
        channels.memory(peer).expect("a rank").wait()?;
        let port = channels.port(peer).expect("a rank");
        port.put_with_signal(buffer.at(0), buffer.at(500), 4)?;
        port.wait()?;
        // Handed over, and then everything ends: it is done all the same.
        if round % 2 == 0 {
            port.flush()?;
        }
        assert!(held()[1] >= 8);
    }
    assert_eq!(held(), before, "file descriptors, mappings, threads");
    ranks.barrier()
}

/// A proxy ends when it has done what was handed to it.
#[test]
fn what_was_handed_over_is_done_at_the_end() {
    for count in [1, 3] {
        let results = Communicator::threads(count, |ranks| {
            let memory = ranks.symmetric(&Device::cpu(), 4 << 20)?;
            let buffer = memory.allocate("buffer", 2 << 20)?;
            let next = (ranks.rank() + 1) % count;
            for round in 1..20u8 {
                let mut channels = memory.channels(&ChannelOptions::default().packet_bytes(8).slot_bytes(128).fifo(64))?;
                buffer.write(0, &vec![round; 10_000])?;
                let port = channels.port(next).expect("a rank");
                for n in 0..60 {
                    port.put(buffer.at(10_000 + n * 10_000), buffer.at(0), 10_000)?;
                }
                drop(channels);
                // Proxies of all ranks have ended.
                ranks.barrier()?;
                let mut found = vec![0; 600_000];
                buffer.read(10_000, &mut found)?;
                assert!(found.iter().all(|byte| *byte == round), "round {round}");
                ranks.barrier()?;
            }
            Ok::<_, Error>(())
        });
        results.unwrap().into_iter().collect::<Result<(), _>>().unwrap();
    }
}

#[test]
fn places_outside_of_a_buffer_are_refused() {
    let results = Communicator::threads(2, |ranks| {
        let memory = ranks.symmetric(&Device::cpu(), 1 << 20)?;
        let buffer = memory.allocate("buffer", 100)?;
        let mut channels = memory.channels(&ChannelOptions::default().packet_bytes(16).slot_bytes(128))?;
        let peer = 1 - ranks.rank();
        let channel = channels.memory(peer).expect("a rank");
        let refused = |result: Result<(), Error>| assert_eq!(result.unwrap_err().code(), 100);
        for (to, from, bytes) in [(1, 0, 100), (0, 1, 100), (101, 0, 0), (0, usize::MAX, 1), (0, 0, usize::MAX), (100, 0, 1)] {
            refused(channel.put(buffer.at(to), buffer.at(from), bytes));
            refused(channel.get(buffer.at(to), buffer.at(from), bytes));
        }
        channel.put(buffer.at(100), buffer.at(100), 0)?;
        channel.put(buffer.at(0), buffer.at(0), 0)?;
        refused(channel.read(buffer.at(98)).map(drop));
        refused(channel.read(buffer.at(2)).map(drop));
        refused(channel.write(buffer.at(1), 1));
        refused(channel.send_packets(buffer.at(0), 17));
        refused(channel.receive_packets(buffer.at(0), 17));
        refused(channel.send(buffer.at(50), 51));
        refused(channel.receive(buffer.at(50), 51));
        refused(channel.send_chunk(buffer.at(0), 101));
        let big = memory.allocate("big", 1000)?;
        refused(channel.send_chunk(big.at(0), 129));
        refused(channel.receive_chunk(big.at(0), 129));
        refused(buffer.write(99, &[1, 2]));
        refused(buffer.read(99, &mut [1, 2]));
        refused(buffer.read_from(peer, 99, &mut [1, 2]));
        refused(buffer.read_from(2, 0, &mut [1, 2]));
        assert!(format!("{memory:?}").ends_with("of 2, on the CPUs of this host)"), "{memory:?}");
        let port = channels.port(peer).expect("a rank");
        refused(port.put(buffer.at(1), buffer.at(0), 100));
        refused(port.put_with_signal(buffer.at(0), buffer.at(1), 100));
        assert!(channels.memory(2).is_none() && channels.port(2).is_none());
        ranks.barrier()
    });
    results.unwrap().into_iter().collect::<Result<(), _>>().unwrap();
}

#[test]
fn parts_of_other_ranks_can_be_read() {
    let results = Communicator::threads(3, |ranks| {
        let memory = ranks.symmetric(&Device::cpu(), 4096)?;
        let buffer = memory.allocate("buffer", 100)?;
        buffer.write(1, &[ranks.rank() as u8 + 1; 50])?;
        ranks.barrier()?;
        for rank in 0..3 {
            let mut found = [9; 52];
            buffer.read_from(rank, 0, &mut found)?;
            assert_eq!(found, std::array::from_fn(|n| if (1..51).contains(&n) { rank as u8 + 1 } else { 0 }));
        }
        ranks.barrier()
    });
    results.unwrap().into_iter().collect::<Result<(), _>>().unwrap();
}
