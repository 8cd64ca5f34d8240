//! Every interleaving of small plans: each task runs once, after what it reads from; every launch ends; memory is left as it must be.
//!
//! Takes three minutes: loom goes through every interleaving.

macro_rules! models {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            let start = std::time::Instant::now();
            let (interleavings, aborted) = protocol::cases::$name().check();
            println!("{interleavings} interleavings, {aborted} with an abort, in {:?}", start.elapsed());
            assert!(interleavings > 1, "nothing was interleaved");
        })*
    };
}

models! {
    producer_and_consumer
    two_producers
    diamond_in_lists
    three_signals
    three_waits
    named_by_data
    two_launches_of_lists
    drain
    long_drain
    two_launches_of_a_drain
    tickets
    two_launches_by_ticket
    pushed_join
    pushed_diamond
    pushed_chain
    pushed_ahead
    two_schedulers
    two_launches_of_a_scheduler
    full_mailbox
    ahead_of_one
    ahead_in_a_chain
    several_ahead
    ahead_of_the_last
    ahead_in_a_diamond
    ahead_of_a_message
    two_launches_ahead
    lost_push_ahead
    lost_message_ahead
    early_deadline_ahead
    lost_signal
    lost_push
    lost_message
    early_deadline
    early_deadline_at_the_end
    early_deadline_of_a_drain
    early_deadline_by_ticket
    early_deadline_of_a_scheduler
}
