//! How systems of several ranks are timed: by events of each rank, which begin together, taking turns in one process.

use anyhow::{Context, ensure};
use maco::{Communicator, Device, Event, Stream};

use crate::timing::Measured;

/// Rounds that do not count: clocks, the first launches, NCCL's set-up.
const WARM_UP: usize = 20;

/// Times what all ranks launch alike.
pub struct RankClock<'a> {
    communicator: &'a Communicator,
    stream: &'a Stream,
    begin: Event,
    end: Event,
    rounds: usize,
}

/// Something that queues work on the clock's stream.
pub type System<'a> = &'a mut dyn FnMut() -> anyhow::Result<()>;

impl<'a> RankClock<'a> {
    /// With so many launches of every system, behind [`WARM_UP`] that do not count.
    pub fn new(communicator: &'a Communicator, device: &Device, stream: &'a Stream, rounds: usize) -> anyhow::Result<RankClock<'a>> {
        ensure!(rounds > 0, "`--rounds` must be 1 or more");
        Ok(RankClock { communicator, stream, begin: Event::new(device)?, end: Event::new(device)?, rounds })
    }

    /// Microseconds of each, in turn; of each round that of the rank that took longest.
    pub fn measure(&self, systems: &mut [System<'_>]) -> anyhow::Result<Vec<Measured>> {
        let mut times = vec![Vec::new(); systems.len()];
        for round in 0..WARM_UP + self.rounds {
            for (system, times) in systems.iter_mut().zip(&mut times) {
                // Ranks begin together, as far as the host can see to it.
                self.communicator.barrier()?;
                self.begin.record(self.stream)?;
                system()?;
                self.end.record(self.stream)?;
                self.end.synchronize()?;
                let own = self.end.since(&self.begin)?.as_secs_f64() * 1e6;
                let all = self.communicator.all_gather_bytes(&own.to_le_bytes())?;
                let time = |bytes: &Vec<u8>| bytes.first_chunk().map(|bytes| f64::from_le_bytes(*bytes)).context("a rank gave no time");
                let all = all.iter().map(time).collect::<anyhow::Result<Vec<_>>>()?;
                if round >= WARM_UP {
                    times.push(all.into_iter().fold(0.0, f64::max));
                }
            }
        }
        Ok(times.iter().map(|times| Measured::of(times)).collect())
    }
}
