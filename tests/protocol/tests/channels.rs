//! Every interleaving of small exchanges over channels, and of messages of collectives; and without any one signal, fence, credit or flag each of them fails.
//!
//! Takes a minute: loom goes through every interleaving, and once more for each fence, signal, credit and flag that is taken away.

use std::panic::{catch_unwind, set_hook, take_hook};
use std::sync::Once;

use protocol::channel::{Lack, Role};
use protocol::{channel_cases, message_cases, slot_cases};

macro_rules! models {
    ($cases:ident: $($name:ident)*) => {
        $(#[test]
        fn $name() {
            let start = std::time::Instant::now();
            let interleavings = $cases::$name(None);
            println!("{interleavings} interleavings in {:?}", start.elapsed());
            assert!(interleavings > 1, "nothing was interleaved");
        })*
    };
}

models! { channel_cases:
    put_and_signal
    look_now_and_then
    get
    packets_with_credits
    exchanged_packets
    one_slot
    two_slots
    proxy_copies
    fifo_laps
    two_producers
    reports
    late_signal
    stopped_by_a_peer
}

models! { message_cases:
    all_reduce_of_two
    all_reduce_of_three
    all_gather
    signals_of_two
    signals_of_three
    signals_of_a_gather
    signals_of_lanes
    owners_of_two
    owner_of_three
    turns_of_packets
    turns_of_two_launches
    turns_of_signals
    turns_of_owners
    turns_of_lanes
    ring_of_two
    ring_of_three
    send
    one_credit
    send_by_turns
    broadcast_by_turns
    broadcast
    lanes_that_receive
    lanes_that_send
}

models! { slot_cases:
    puts
    offers
    lanes_of_a_channel
    opens
    lanes_that_open
}

/// Threads of this name fail on purpose.
const MUTANT: &str = "mutant";

fn fails(case: fn(Option<Lack>) -> usize, lack: Lack) -> bool {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |panic| {
            if std::thread::current().name() != Some(MUTANT) {
                hook(panic);
            }
        }));
    });
    let run = move || catch_unwind(|| case(Some(lack))).is_err();
    std::thread::Builder::new().name(MUTANT.into()).spawn(run).expect("a thread").join().expect("the panic was caught")
}

macro_rules! lacks {
    ($cases:ident: $($name:ident: $case:ident without $($lack:expr),+;)*) => {
        $(#[test]
        fn $name() {
            for lack in [$($lack),+] {
                assert!(fails($cases::$case, lack), "{lack:?} goes unnoticed");
            }
        })*
    };
}

lacks! { channel_cases:
    lacks_of_signals: put_and_signal without
        Lack::Signal(Role::Signal, 1), Lack::Signal(Role::Signal, 2), Lack::Publish(Role::Signal), Lack::Blind(Role::Signal),
        Lack::Acquire(0), Lack::Acquire(1);
    lacks_of_looks: look_now_and_then without
        Lack::Signal(Role::Signal, 2), Lack::Publish(Role::Signal), Lack::Blind(Role::Signal), Lack::Acquire(1);
    lacks_of_gets: get without
        Lack::Signal(Role::Signal, 1), Lack::Publish(Role::Signal), Lack::Blind(Role::Signal), Lack::Acquire(0), Lack::Acquire(1);
    lacks_of_packets: packets_with_credits without
        Lack::Mute(Role::Credit), Lack::Publish(Role::Credit), Lack::Blind(Role::Credit), Lack::Acquire(0), Lack::Half;
    lacks_of_one_slot: one_slot without
        Lack::Signal(Role::Signal, 1), Lack::Signal(Role::Signal, 3), Lack::Signal(Role::Credit, 1), Lack::Signal(Role::Credit, 2),
        Lack::Publish(Role::Signal), Lack::Publish(Role::Credit), Lack::Blind(Role::Signal), Lack::Blind(Role::Credit),
        Lack::Acquire(0), Lack::Acquire(1);
    lacks_of_two_slots: two_slots without
        Lack::Signal(Role::Signal, 4), Lack::Mute(Role::Credit), Lack::Publish(Role::Signal),
        Lack::Publish(Role::Credit), Lack::Blind(Role::Signal), Lack::Blind(Role::Credit), Lack::Acquire(0), Lack::Acquire(1);
    lacks_of_a_proxy: proxy_copies without
        Lack::Signal(Role::Signal, 2), Lack::Signal(Role::Completed, 1), Lack::Mute(Role::Taken),
        Lack::Publish(Role::Signal), Lack::Publish(Role::Completed), Lack::Blind(Role::Signal), Lack::Blind(Role::Completed),
        Lack::Acquire(0), Lack::Acquire(1), Lack::Acquire(2), Lack::Release, Lack::Half;
    lacks_of_a_ring: fifo_laps without
        Lack::Mute(Role::Taken), Lack::Publish(Role::Taken), Lack::Blind(Role::Taken), Lack::Acquire(0), Lack::Acquire(1), Lack::Release, Lack::Half;
    lacks_of_two_producers: two_producers without
        Lack::Signal(Role::Taken, 1), Lack::Publish(Role::Taken), Lack::Blind(Role::Taken), Lack::Acquire(1), Lack::Release, Lack::TornTicket;
    lacks_of_reports: reports without
        Lack::Publish(Role::Complete), Lack::Signal(Role::Complete, 1), Lack::Acquire(2), Lack::TornStop;
    lacks_of_a_late_signal: late_signal without Lack::Publish(Role::Signal), Lack::Blind(Role::Signal), Lack::Acquire(0);
    lacks_of_a_stop: stopped_by_a_peer without Lack::Signal(Role::Complete, 1);
}

lacks! { message_cases:
    lacks_of_an_all_reduce: all_reduce_of_two without Lack::OnePlace, Lack::SameFlag, Lack::SameLaunch, Lack::Half;
    lacks_of_three_ranks: all_reduce_of_three without Lack::OnePlace, Lack::SameFlag, Lack::SameLaunch, Lack::Half;
    lacks_of_an_all_gather: all_gather without Lack::OnePlace, Lack::SameFlag, Lack::SameLaunch, Lack::Half;
    lacks_of_signals_of_two: signals_of_two without
        Lack::OnePlace, Lack::OneSignal, Lack::SameLaunch, Lack::EarlySignal, Lack::Mute(Role::Signal), Lack::Signal(Role::Signal, 1),
        Lack::Signal(Role::Signal, 2), Lack::Publish(Role::Signal), Lack::Blind(Role::Signal), Lack::Acquire(0), Lack::Acquire(1);
    lacks_of_signals_of_three: signals_of_three without
        Lack::OnePlace, Lack::OneSignal, Lack::SameLaunch, Lack::EarlySignal, Lack::Mute(Role::Signal), Lack::Publish(Role::Signal),
        Lack::Blind(Role::Signal), Lack::Acquire(0), Lack::Acquire(1), Lack::Acquire(2);
    // One place and one signal would be enough: each message answers another one.
    lacks_of_owners_of_two: owners_of_two without
        Lack::SameLaunch, Lack::EarlySignal, Lack::Mute(Role::Signal), Lack::Publish(Role::Signal),
        Lack::Blind(Role::Signal), Lack::Acquire(0), Lack::Acquire(1);
    lacks_of_an_owner_of_three: owner_of_three without
        Lack::SameLaunch, Lack::EarlySignal, Lack::Mute(Role::Signal), Lack::Publish(Role::Signal),
        Lack::Blind(Role::Signal), Lack::Acquire(0), Lack::Acquire(1), Lack::Acquire(2);
    lacks_of_signals_of_a_gather: signals_of_a_gather without
        Lack::OnePlace, Lack::OneSignal, Lack::SameLaunch, Lack::EarlySignal, Lack::Mute(Role::Signal), Lack::Publish(Role::Signal),
        Lack::Blind(Role::Signal), Lack::Acquire(0), Lack::Acquire(1);
    lacks_of_signals_of_lanes: signals_of_lanes without
        Lack::Meet, Lack::OnePlace, Lack::SameLaunch, Lack::EarlySignal, Lack::Publish(Role::Signal), Lack::Blind(Role::Signal),
        Lack::Acquire(0), Lack::Acquire(1), Lack::Acquire(2);
    lacks_of_turns_of_packets: turns_of_packets without
        Lack::SameRound, Lack::SameFlag, Lack::Half, Lack::EarlyCredit, Lack::Mute(Role::Credit), Lack::Publish(Role::Credit),
        Lack::Blind(Role::Credit), Lack::Acquire(0), Lack::Acquire(1);
    lacks_of_turns_of_two_launches: turns_of_two_launches without
        Lack::SameRound, Lack::SameLaunch, Lack::SameFlag, Lack::Half, Lack::EarlyCredit, Lack::Mute(Role::Credit), Lack::Blind(Role::Credit);
    lacks_of_turns_of_signals: turns_of_signals without
        Lack::SameRound, Lack::SameLaunch, Lack::EarlySignal, Lack::EarlyCredit, Lack::Mute(Role::Credit), Lack::Publish(Role::Credit),
        Lack::Blind(Role::Credit), Lack::Mute(Role::Signal), Lack::Publish(Role::Signal), Lack::Blind(Role::Signal), Lack::Acquire(0), Lack::Acquire(1);
    // A rank of one thread sends a tile when it has the result of the one before in the slot, whose parts were read: an early credit is none.
    lacks_of_turns_of_owners: turns_of_owners without
        Lack::SameRound, Lack::EarlySignal, Lack::Mute(Role::Credit), Lack::Publish(Role::Signal), Lack::Blind(Role::Signal),
        Lack::Acquire(0), Lack::Acquire(1);
    lacks_of_turns_of_lanes: turns_of_lanes without
        Lack::SameRound, Lack::Meet, Lack::EarlyCredit, Lack::Mute(Role::Credit), Lack::Publish(Role::Credit), Lack::Blind(Role::Credit), Lack::Half;
    lacks_of_a_ring_of_two: ring_of_two without
        Lack::OnePlace, Lack::SameFlag, Lack::Half, Lack::Uncounted(Role::Sent), Lack::Uncounted(Role::Received);
    lacks_of_a_ring_of_three: ring_of_three without
        Lack::OnePlace, Lack::SameFlag, Lack::Half, Lack::Mute(Role::Credit), Lack::Publish(Role::Credit), Lack::Blind(Role::Credit),
        Lack::EarlyCredit, Lack::ByLaunch, Lack::Acquire(0), Lack::Acquire(1), Lack::Acquire(2),
        Lack::Uncounted(Role::Sent), Lack::Uncounted(Role::Received);
    lacks_of_a_send: send without
        Lack::OnePlace, Lack::SameFlag, Lack::Half, Lack::Mute(Role::Credit), Lack::Publish(Role::Credit), Lack::Blind(Role::Credit),
        Lack::EarlyCredit, Lack::ByLaunch, Lack::Acquire(0), Lack::Uncounted(Role::Sent), Lack::Uncounted(Role::Received);
    lacks_of_a_send_by_turns: send_by_turns without
        Lack::OnePlace, Lack::Mute(Role::Credit), Lack::Publish(Role::Credit), Lack::Blind(Role::Credit), Lack::Acquire(0), Lack::ByLaunch,
        Lack::Uncounted(Role::Sent), Lack::Uncounted(Role::Received);
    lacks_of_a_broadcast: broadcast without
        Lack::OnePlace, Lack::SameFlag, Lack::Half, Lack::Mute(Role::Credit), Lack::Publish(Role::Credit), Lack::Blind(Role::Credit),
        Lack::EarlyCredit, Lack::ByLaunch, Lack::Acquire(0), Lack::Uncounted(Role::Sent), Lack::Uncounted(Role::Received);
    lacks_of_lanes_that_receive: lanes_that_receive without
        Lack::Meet, Lack::Publish(Role::Credit), Lack::Blind(Role::Credit), Lack::Acquire(0), Lack::EarlyCredit, Lack::Half;
    lacks_of_lanes_that_send: lanes_that_send without
        Lack::Meet, Lack::Publish(Role::Credit), Lack::Blind(Role::Credit), Lack::Acquire(0), Lack::Acquire(1);
}

lacks! { slot_cases:
    lacks_of_puts: puts without
        Lack::OnePlace, Lack::Mute(Role::Signal), Lack::Signal(Role::Signal, 4), Lack::Publish(Role::Signal), Lack::Blind(Role::Signal),
        Lack::Acquire(0), Lack::Acquire(1), Lack::Uncounted(Role::Sent);
    lacks_of_offers: offers without
        Lack::OnePlace, Lack::Mute(Role::Signal), Lack::Signal(Role::Signal, 4), Lack::Publish(Role::Signal), Lack::Blind(Role::Signal),
        Lack::Acquire(0), Lack::Acquire(1), Lack::Uncounted(Role::Sent);
    lacks_of_lanes_of_a_channel: lanes_of_a_channel without
        Lack::Meet, Lack::Publish(Role::Signal), Lack::Blind(Role::Signal), Lack::Acquire(0), Lack::Acquire(1), Lack::Acquire(2);
    lacks_of_opens: opens without
        Lack::Mute(Role::Signal), Lack::Signal(Role::Signal, 1), Lack::Signal(Role::Signal, 2), Lack::Publish(Role::Signal), Lack::Blind(Role::Signal),
        Lack::Acquire(0), Lack::Acquire(1), Lack::Uncounted(Role::Sent);
    lacks_of_lanes_that_open: lanes_that_open without
        Lack::Meet, Lack::Publish(Role::Signal), Lack::Blind(Role::Signal), Lack::Acquire(0), Lack::Acquire(1), Lack::Acquire(2);
}
