//! The exchanges that the model checker goes through, each with what it is there for.

use maco_device::channel::{
    FifoConsumer, FifoProducer, MemoryChannel, Operation, PacketBuffer, PortChannel, Slots, Stopped, System, Trigger, Waiting,
};

use crate::channel::{Lack, Loom, check, place};

/// No wait looks at clock and stop word.
const PATIENT: u32 = u32::MAX;
/// Numbers wrap in the midst.
const NEAR_THE_END: u32 = u32::MAX - 1;
/// Two ranks, and the words of each thread.
const OWN: usize = 8;

type Thread = Loom<PATIENT>;

fn nothing<const LOOK: u32>(_: &Loom<LOOK>) {}

fn memory(thread: &Thread, rank: u32) -> MemoryChannel {
    let world = &thread.world;
    // SAFETY: addresses of the model.
    unsafe {
        MemoryChannel::new(
            world.at(rank, 0).cast(),
            world.peer(1 - rank, 0),
            world.semaphore(rank, 1 - rank, place::SIGNAL, rank as usize * OWN),
        )
    }
}

const DATA: u64 = 4 * place::DATA as u64;

/// A word of this thread's rank.
fn word(thread: &Thread, rank: u32, at: usize) -> u32 {
    // SAFETY: of the model.
    unsafe { thread.load4(thread.world.at(rank, at)) }
}

fn set(thread: &Thread, rank: u32, at: usize, value: u32) {
    // SAFETY: of the model.
    unsafe { thread.store4(thread.world.at(rank, at), value) };
}

/// Put, signal, wait; the answer says that the words may be put anew.
pub fn put_and_signal(lack: Option<Lack>) -> usize {
    check::<PATIENT>(
        &[
            |thread| {
                let (channel, watch) = (memory(thread, 0), thread.world.watch(0));
                for round in 1..3 {
                    set(thread, 0, place::DATA + 4, round);
                    // SAFETY: (of all) inside the model's memory.
                    unsafe {
                        channel.put(thread, DATA, DATA + 16, 4);
                        channel.signal(thread);
                        channel.wait(thread, &watch).unwrap();
                    }
                }
            },
            |thread| {
                let (channel, watch) = (memory(thread, 1), thread.world.watch(1));
                for round in 1..3 {
                    // SAFETY: as above.
                    unsafe { channel.wait(thread, &watch).unwrap() };
                    assert_eq!(word(thread, 1, place::DATA), round);
                    // SAFETY: as above.
                    unsafe { channel.signal(thread) };
                }
            },
        ],
        nothing,
        NEAR_THE_END,
        0,
        4,
        lack,
    )
}

/// The receiver looks now and then, without a wait.
pub fn look_now_and_then(lack: Option<Lack>) -> usize {
    check::<PATIENT>(
        &[
            |thread| {
                let (channel, watch) = (memory(thread, 0), thread.world.watch(0));
                for round in 1..3 {
                    set(thread, 0, place::DATA + 4, round);
                    // SAFETY: (of all) inside the model's memory.
                    unsafe {
                        channel.put(thread, DATA, DATA + 16, 4);
                        channel.signal(thread);
                        channel.wait(thread, &watch).unwrap();
                    }
                }
            },
            |thread| {
                let channel = memory(thread, 1);
                for round in 1..3 {
                    let mut polls = 0;
                    // SAFETY: as above.
                    while !unsafe { channel.semaphore().try_wait(thread) } {
                        polls += 1;
                        thread.pause(polls);
                    }
                    assert_eq!(word(thread, 1, place::DATA), round);
                    // SAFETY: as above.
                    unsafe { channel.signal(thread) };
                }
            },
        ],
        nothing,
        NEAR_THE_END,
        0,
        4,
        lack,
    )
}

/// A rank gets what its peer has stored, and says that it has.
pub fn get(lack: Option<Lack>) -> usize {
    check::<PATIENT>(
        &[
            |thread| {
                let (channel, watch) = (memory(thread, 0), thread.world.watch(0));
                for round in 1..3 {
                    set(thread, 0, place::DATA, round);
                    // SAFETY: as above.
                    unsafe {
                        channel.signal(thread);
                        channel.wait(thread, &watch).unwrap();
                    }
                }
            },
            |thread| {
                let (channel, watch) = (memory(thread, 1), thread.world.watch(1));
                for round in 1..3 {
                    // SAFETY: as above.
                    unsafe {
                        channel.wait(thread, &watch).unwrap();
                        channel.get(thread, DATA + 16, DATA, 4);
                        channel.signal(thread);
                    }
                    assert_eq!(word(thread, 1, place::DATA + 4), round);
                }
            },
        ],
        nothing,
        NEAR_THE_END,
        0,
        4,
        lack,
    )
}

fn packets(thread: &Thread, rank: u32) -> PacketBuffer {
    let world = &thread.world;
    let own = rank as usize * OWN;
    let credit = world.semaphore(rank, 1 - rank, place::CREDIT, own + 2);
    // SAFETY: addresses of the model.
    unsafe {
        PacketBuffer::new(world.at(rank, place::PACKETS).cast(), world.peer(1 - rank, place::PACKETS), credit, world.own(own + 4), 2, 0)
    }
}

/// Three messages through two slots: the third must wait for a credit.
pub fn packets_with_credits(lack: Option<Lack>) -> usize {
    check::<PATIENT>(
        &[
            |thread| {
                let (packets, watch) = (packets(thread, 0), thread.world.watch(0));
                let from = thread.world.at(0, place::DATA).cast_const().cast();
                for message in 1..4 {
                    set(thread, 0, place::DATA, message);
                    set(thread, 0, place::DATA + 1, message + 10);
                    // SAFETY: as above.
                    unsafe { packets.send(thread, &watch, from, 8).unwrap() };
                }
            },
            |thread| {
                let (packets, watch) = (packets(thread, 1), thread.world.watch(1));
                let to = thread.world.at(1, place::DATA).cast();
                for message in 1..4 {
                    // SAFETY: as above.
                    unsafe { packets.receive(thread, &watch, to, 8).unwrap() };
                    assert_eq!([word(thread, 1, place::DATA), word(thread, 1, place::DATA + 1)], [message, message + 10]);
                }
            },
        ],
        nothing,
        NEAR_THE_END,
        0,
        3,
        lack,
    )
}

/// Two ranks that exchange messages: whoever has got a peer's message may send the one after the next, without credits. No fence says so: a rank sends the next
/// message only if it has seen all of the one before, and stores do not come before what they depend on (PTX ISA §8.10, no thin air).
pub fn exchanged_packets(lack: Option<Lack>) -> usize {
    fn exchange(thread: &Thread, rank: u32) {
        thread.world.by_dependency();
        let (packets, watch) = (packets(thread, rank), thread.world.watch(rank));
        let [from, to] = [0, 4].map(|n| thread.world.at(rank, place::DATA + n).cast::<u8>());
        for message in 1..4 {
            let sequence = NEAR_THE_END.wrapping_add(message);
            set(thread, rank, place::DATA, message * 2 + rank);
            // SAFETY: as above.
            unsafe {
                packets.put(thread, sequence, from, 4);
                packets.read(thread, &watch, sequence, to, 4).unwrap();
            }
            assert_eq!(word(thread, rank, place::DATA + 4), message * 2 + 1 - rank);
        }
    }
    check::<PATIENT>(&[|thread| exchange(thread, 0), |thread| exchange(thread, 1)], nothing, NEAR_THE_END, 0, 3, lack)
}

fn slots(thread: &Thread, rank: u32, count: u32) -> Slots {
    let world = &thread.world;
    let own = rank as usize * OWN;
    let semaphore = |word, n: usize| world.semaphore(rank, 1 - rank, word, own + n);
    let (data, credit) = (semaphore(place::SIGNAL, 0), semaphore(place::CREDIT, 2));
    // SAFETY: addresses of the model.
    unsafe { Slots::new(world.at(rank, place::DATA).cast(), world.peer(1 - rank, place::DATA), data, credit, 4, count) }
}

fn send_chunks(thread: &Thread, count: u32, chunks: u32) {
    let (slots, watch) = (slots(thread, 0, count), thread.world.watch(0));
    for chunk in 1..=chunks {
        set(thread, 0, place::DATA + 8, chunk);
        // SAFETY: as above.
        unsafe { slots.send(thread, &watch, thread.world.at(0, place::DATA + 8).cast(), 4).unwrap() };
    }
}

fn receive_chunks(thread: &Thread, count: u32, chunks: u32) {
    let (slots, watch) = (slots(thread, 1, count), thread.world.watch(1));
    for chunk in 1..=chunks {
        // SAFETY: as above.
        unsafe { slots.receive(thread, &watch, thread.world.at(1, place::DATA + 8).cast(), 4).unwrap() };
        assert_eq!(word(thread, 1, place::DATA + 8), chunk);
    }
}

/// Three chunks through one slot.
pub fn one_slot(lack: Option<Lack>) -> usize {
    check::<PATIENT>(&[|thread| send_chunks(thread, 1, 3), |thread| receive_chunks(thread, 1, 3)], nothing, NEAR_THE_END, 0, 3, lack)
}

/// Four chunks through two slots.
pub fn two_slots(lack: Option<Lack>) -> usize {
    check::<PATIENT>(&[|thread| send_chunks(thread, 2, 4), |thread| receive_chunks(thread, 2, 4)], nothing, NEAR_THE_END, 0, 2, lack)
}

/// Rank 2's memory has the ring and the proxy's words.
const PROXY: u32 = 2;

fn producer(thread: &Thread, size: u32) -> FifoProducer {
    let world = &thread.world;
    // SAFETY: addresses of the model.
    unsafe { FifoProducer::new(world.peer(PROXY, place::RING), world.own(0), world.at(PROXY, place::PROGRESS), size, 0) }
}

/// Takes so many triggers, copies between ranks 0 and 1, and signals the latter.
fn proxy(thread: &Thread, size: u32, triggers: u32) {
    let world = &thread.world;
    // SAFETY: (of all) addresses of the model.
    let mut fifo = unsafe { FifoConsumer::new(world.at(PROXY, place::RING).cast(), world.at(PROXY, place::PROGRESS), size) };
    let mut taken = 0;
    let mut sent = NEAR_THE_END;
    let mut vain = 0;
    while taken < triggers {
        // SAFETY: as above.
        let Some(trigger) = (unsafe { fifo.take(thread) }) else {
            vain += 1;
            thread.pause(vain);
            continue;
        };
        taken += 1;
        // SAFETY: as above.
        unsafe {
            if trigger.copy {
                world.peer::<u8>(1, 0).at::<u8>(trigger.to).put(
                    thread,
                    world.at(0, 0).cast::<u8>().wrapping_add(trigger.from as usize),
                    trigger.bytes.into(),
                );
            }
            if trigger.signal {
                sent = sent.wrapping_add(1);
                world.peer(1, place::SIGNAL).publish(thread, sent);
            }
            fifo.complete(thread);
        }
    }
}

/// Two copies through a ring of one place; the source of the first is stored anew behind its flush.
pub fn proxy_copies(lack: Option<Lack>) -> usize {
    check::<PATIENT>(
        &[
            |thread| {
                let port = PortChannel::new(producer(thread, 1), thread.world.semaphore(0, 1, place::SIGNAL, 2), 1);
                let watch = thread.world.watch(0);
                for round in 0..2 {
                    set(thread, 0, place::DATA, round + 1);
                    // SAFETY: as above.
                    unsafe { port.put_with_signal_and_flush(thread, &watch, DATA + 4 * u64::from(round), DATA, 4).unwrap() };
                }
            },
            |thread| proxy(thread, 1, 2),
            |thread| {
                let port = PortChannel::new(producer(thread, 1), thread.world.semaphore(1, 0, place::SIGNAL, 4), 1);
                let watch = thread.world.watch(1);
                for round in 0..2 {
                    // SAFETY: as above.
                    unsafe { port.wait(thread, &watch).unwrap() };
                    assert_eq!(word(thread, 1, place::DATA + round), round as u32 + 1);
                }
            },
        ],
        nothing,
        NEAR_THE_END,
        0,
        2,
        lack,
    )
}

/// Three triggers of one thread through two places, none of which waits for its end: the third must wait for room.
pub fn fifo_laps(lack: Option<Lack>) -> usize {
    check::<PATIENT>(
        &[
            |thread| {
                let port = PortChannel::new(producer(thread, 2), thread.world.semaphore(0, 1, place::SIGNAL, 2), 1);
                let watch = thread.world.watch(0);
                for n in 0..3 {
                    set(thread, 0, place::DATA + n, n as u32 + 1);
                    // SAFETY: as above.
                    unsafe { port.put(thread, &watch, DATA + 4 * n as u64, DATA + 4 * n as u64, 4).unwrap() };
                }
            },
            |thread| proxy(thread, 2, 3),
        ],
        |thread| {
            assert_eq!([0, 1, 2].map(|n| word(thread, 1, place::DATA + n)), [1, 2, 3], "copies of the proxy");
        },
        NEAR_THE_END,
        0,
        3,
        lack,
    )
}

/// Two threads push through a ring of one place.
pub fn two_producers(lack: Option<Lack>) -> usize {
    fn produce(thread: &Thread, n: usize) {
        let fifo = producer(thread, 1);
        set(thread, 0, place::DATA + n, n as u32 + 1);
        let at = DATA + 4 * n as u64;
        let trigger = Trigger { channel: 1, copy: true, from: at, to: at, bytes: 4, ..Trigger::default() };
        // SAFETY: as above.
        unsafe { fifo.push(thread, &thread.world.watch(0), trigger).unwrap() };
    }
    check::<PATIENT>(
        &[|thread| produce(thread, 0), |thread| proxy(thread, 1, 2), |thread| produce(thread, 1)],
        |thread| assert_eq!([0, 1].map(|n| word(thread, 1, place::DATA + n)), [1, 2], "copies of the proxy"),
        NEAR_THE_END,
        0,
        2,
        lack,
    )
}

/// Two waits of a rank end by their deadlines: one of them reports, and a peer that sees that it is complete reads all of it.
pub fn reports(lack: Option<Lack>) -> usize {
    fn wait(thread: &Loom<1>, word: usize) {
        let semaphore = thread.world.semaphore(0, 1, word, word * 4);
        // SAFETY: as above.
        let outcome = unsafe { semaphore.wait(thread, &thread.world.watch(0)) };
        assert_eq!(outcome, Err(Stopped));
    }
    check::<1>(
        &[
            |thread| wait(thread, place::SIGNAL),
            |thread| wait(thread, place::CREDIT),
            |thread| {
                // SAFETY: as above.
                unsafe {
                    let mut polls = 0;
                    while thread.load4(thread.world.at(0, place::CONTROL + 1)) == 0 {
                        polls += 1;
                        thread.pause(polls);
                    }
                    thread.acquire();
                    assert_eq!(thread.load4(thread.world.at(0, place::CONTROL)), 1);
                    assert_eq!(thread.load4(thread.world.at(0, place::CONTROL + 2)), Operation::Wait as u32);
                    assert_eq!(thread.load4(thread.world.at(0, place::CONTROL + 6)), NEAR_THE_END.wrapping_add(1));
                }
            },
        ],
        |thread| {
            assert_eq!(thread.world.reports(), 1, "reports");
            // SAFETY: as above.
            assert_eq!(unsafe { thread.load4(thread.world.at(0, place::CONTROL + 1)) }, 1, "the report is not complete");
        },
        NEAR_THE_END,
        0,
        2,
        lack,
    )
}

/// A signal that comes late: the wait ends either with it or with the report of it, and never both.
pub fn late_signal(lack: Option<Lack>) -> usize {
    check::<1>(
        &[
            |thread| {
                let semaphore = thread.world.semaphore(0, 1, place::SIGNAL, 0);
                // SAFETY: (of all) as above.
                let outcome = unsafe { semaphore.wait(thread, &thread.world.watch(0)) };
                assert_eq!(thread.world.reports(), u32::from(outcome.is_err()));
                if outcome.is_ok() {
                    // SAFETY: as above.
                    assert_eq!(unsafe { thread.load4(thread.world.at(0, place::DATA)) }, 7);
                }
            },
            |thread| {
                let semaphore = thread.world.semaphore(1, 0, place::SIGNAL, 4);
                // SAFETY: as above.
                unsafe {
                    thread.world.peer::<u32>(0, place::DATA).store(thread, 7);
                    semaphore.signal(thread);
                }
            },
        ],
        nothing,
        NEAR_THE_END,
        0,
        4,
        lack,
    )
}

/// A rank that another one stops goes on.
pub fn stopped_by_a_peer(lack: Option<Lack>) -> usize {
    check::<1>(
        &[
            |thread| {
                let watch = maco_device::channel::Watch { deadline_ns: u64::MAX, ..thread.world.watch(0) };
                let waiting = Waiting { operation: Operation::Wait, peer: 1, word: 0, expected: 1 };
                // SAFETY: as above.
                assert_eq!(unsafe { watch.until(thread, waiting, |_| (false, 0)) }, Err(Stopped));
                assert_eq!(thread.world.reports(), 0);
            },
            |thread| {
                // SAFETY: as above.
                unsafe { thread.world.peer::<u32>(0, place::CONTROL).publish(thread, 2) };
            },
        ],
        nothing,
        NEAR_THE_END,
        0,
        4,
        lack,
    )
}
