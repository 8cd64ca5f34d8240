//! Symmetric memory and channels between ranks: threads of this program, and processes, each of which is this test program with `rank_program`.
//!
//! Takes a minute: ranks that are killed, stopped or absent are noticed when a deadline of seconds has passed, for every kind of channel.

mod failures;
mod gpu;
mod kernel;
mod patterns;
mod process;
mod setup;

use maco_host::Communicator;

use patterns::Case;

const WORLDS: [u32; 6] = [1, 2, 3, 4, 6, 8];

/// A rank of a job, by `process.rs`.
#[test]
#[ignore = "is what other tests start"]
fn rank_program() {
    process::run();
}

fn on_threads(case: Case, worlds: &[u32]) {
    for &ranks in worlds {
        let results = Communicator::threads(ranks, |ranks| case.run(&ranks).map_err(|error| error.to_string())).unwrap();
        assert!(results.iter().all(Result::is_ok), "{case:?} on {ranks} ranks: {results:#?}");
    }
}

fn on_processes(case: Case, worlds: &[u32]) {
    for &ranks in worlds {
        process::fine(&process::ends(process::Rendezvous::new().start(ranks, &format!("{case:?}"))));
    }
}

macro_rules! patterns {
    ($($case:ident $threads:ident $processes:ident;)*) => {$(
        #[test]
        fn $threads() {
            on_threads(Case::$case, &WORLDS);
        }

        #[test]
        fn $processes() {
            on_processes(Case::$case, &[1, 2, 3, 4]);
        }
    )*};
}

patterns! {
    Signals signals_on_threads signals_on_processes;
    Packets packets_on_threads packets_on_processes;
    Direct direct_all_to_all_on_threads direct_all_to_all_on_processes;
    Chunks all_to_all_in_chunks_on_threads all_to_all_in_chunks_on_processes;
    Ports all_to_all_by_proxies_on_threads all_to_all_by_proxies_on_processes;
    Gets gets_and_words_on_threads gets_and_words_on_processes;
    Streams streams_on_threads streams_on_processes;
}

#[test]
fn more_processes() {
    on_processes(Case::Direct, &[6, 8]);
    on_processes(Case::Ports, &[6]);
}
