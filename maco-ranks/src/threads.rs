//! Ranks that are threads of one process, over the same protocol as processes.

use std::panic::resume_unwind;
use std::thread;

use crate::MAX_RANKS;
use crate::error::Error;
use crate::group::{Group, job_number, no_socket, pair};
use crate::hub::Hub;

/// Runs `run` on `ranks` threads, each a rank, and returns what they return in the order of ranks. A panic of a rank goes on when all have ended.
///
/// # Errors
/// MACO0093 for no rank or more than [`MAX_RANKS`], MACO0094 without sockets or threads.
pub fn threads<R: Send>(ranks: u32, run: impl Fn(Group) -> R + Sync) -> Result<Vec<R>, Error> {
    if ranks == 0 || ranks > MAX_RANKS {
        let fault = format!("is {ranks}, expected 1 to {MAX_RANKS}").into();
        return Err(Error::Environment { variable: "the number of ranks", fault, help: "each rank is a thread" });
    }
    let mut ends: Vec<_> = (0..ranks).map(|_| pair()).collect::<Result<_, _>>().map_err(|why| no_socket(0, &why))?;
    let (own, hubs): (Vec<_>, Vec<_>) = ends.drain(..).unzip();
    let (hub, job, run) = (Hub::new(ranks, hubs, None), job_number(), &run);
    thread::scope(|scope| {
        thread::Builder::new().name("maco hub".into()).spawn_scoped(scope, || hub.run()).map_err(|why| no_socket(0, &why))?;
        let mut threads = Vec::with_capacity(own.len());
        for (rank, link) in (0..).zip(own) {
            let group = Group::thread(rank, ranks, job, link);
            let thread = thread::Builder::new().name(format!("rank {rank}")).spawn_scoped(scope, move || run(group));
            threads.push(thread.map_err(|why| no_socket(rank, &why))?);
        }
        let ended: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        ended.into_iter().map(|result| Ok(result.unwrap_or_else(|panic| resume_unwind(panic)))).collect()
    })
}
