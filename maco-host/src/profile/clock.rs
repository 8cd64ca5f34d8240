//! Where a rank's times lie on the clock of its host, which all ranks of the host have. How a GPU's timer is read does not belong here (`gpu`).

use maco_device::modelled::{TICK, stamp};
use maco_ranks::host_clock;

use crate::communicator::Communicator;

/// Looks at the clock of a CPU's threads: the least of them was not interrupted.
const LOOKS: u32 = 32;

/// Which of several ranks a profile is of, and when its times begin on the clock of the host, `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankClock {
    /// The rank, from 0.
    pub rank: u32,
    /// How many ranks there are.
    pub ranks: u32,
    /// A number that the ranks of a job have in common, and no other job has.
    pub job: u64,
    /// Nanosecond of the host's clock at time 0 of the profile.
    pub origin: u64,
    /// Nanoseconds by which a time of the profile, and `origin`, may be wrong on the host's clock, either way.
    pub error: u64,
}

/// A look at the clock of the executors, between two at that of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) before: u64,
    pub(crate) shown: u64,
    pub(crate) after: u64,
}

/// One moment on both clocks: that of the executors, and that of the host, which may be wrong by `error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    shown: u64,
    host: u64,
    error: u64,
}

impl Moment {
    /// The look that took least. The clock of the executors stands still for `resolution` nanoseconds between two numbers.
    pub(crate) fn of(looks: impl IntoIterator<Item = Look>, resolution: u64) -> Option<Moment> {
        let look = looks.into_iter().min_by_key(|look| look.after - look.before)?;
        let half = (look.after - look.before).div_ceil(2);
        Some(Moment { shown: look.shown, host: look.before + half, error: half + resolution })
    }

    /// Now, for the threads of a CPU: their clock is the host's, counted from another moment.
    pub(crate) fn of_threads() -> Option<Moment> {
        let look = |_| Look { before: host_clock(), shown: stamp().nanoseconds, after: host_clock() };
        Moment::of((0..LOOKS).map(look), TICK)
    }

    fn offset(&self) -> i64 {
        self.host as i64 - self.shown as i64
    }
}

impl RankClock {
    /// Of a rank that has others on its host; hosts have no clock in common.
    pub(crate) fn of(communicator: &Communicator) -> Option<RankClock> {
        let group = communicator.group();
        let several = group.ranks() > 1 && group.one_host();
        several.then(|| RankClock { rank: group.rank(), ranks: group.ranks(), job: group.job(), origin: 0, error: 0 })
    }

    /// For a profile that begins when the clock of the executors shows `start`, and lasts `elapsed`. That clock was looked at twice, around the launch if it may drift.
    ///
    /// Between the two moments and behind them it drifts as it did from one to the other. What it drifts until the nearer one, and in the launch, is not trusted and
    /// counts as an error.
    pub(crate) fn at(self, start: u64, elapsed: u64, [first, last]: [Moment; 2]) -> RankClock {
        let since = |moment: Moment| start as i64 - moment.shown as i64;
        let apart = since(first) - since(last);
        let drift = if apart > 0 { (last.offset() - first.offset()) as f64 / apart as f64 } else { 0.0 };
        let origin = start as i64 + last.offset() + (drift * since(last) as f64).round() as i64;
        let untrusted = since(first).unsigned_abs().min(since(last).unsigned_abs()) + elapsed;
        let error = first.error.max(last.error) + (drift.abs() * untrusted as f64).ceil() as u64;
        RankClock { origin: origin as u64, error, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANK: RankClock = RankClock { rank: 1, ranks: 2, job: 3, origin: 0, error: 0 };

    /// A timer that began at another time, runs faster by `parts` of a billion, ticks each `tick` nanoseconds, and is read over a way that takes some time there and back.
    struct Timer {
        began: u64,
        parts: u64,
        tick: u64,
        random: u64,
    }

    impl Timer {
        fn exact(&self, host: u64) -> u64 {
            self.began + host + (u128::from(host) * u128::from(self.parts) / 1_000_000_000) as u64
        }

        fn way(&mut self) -> u64 {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            200 + (self.random >> 33) % 3000
        }

        fn looks(&mut self, mut host: u64) -> Vec<Look> {
            let look = |_| {
                let before = host;
                host += self.way();
                let shown = self.exact(host) / self.tick * self.tick;
                host += self.way();
                Look { before, shown, after: host }
            };
            (0..20).map(look).collect()
        }
    }

    #[test]
    fn the_error_covers_offset_and_drift() {
        for (seed, parts, tick) in (0..300).map(|seed| (seed, [0, 7_000, 60_000][seed as usize % 3], [1, 32, 1000][seed as usize / 3 % 3]))
        {
            let mut timer = Timer { began: 1_700_000_000_000_000_000, parts, tick, random: seed };
            let (launch, elapsed) = (5_000_000_000 + seed * 77_000_000, 3_000_000);
            let first = Moment::of(timer.looks(1_000_000_000), tick).unwrap();
            let last = Moment::of(timer.looks(launch + elapsed + 1_000_000), tick).unwrap();
            let clock = RANK.at(timer.exact(launch), elapsed, [first, last]);
            let wrong = clock.origin.abs_diff(launch);
            assert!(wrong <= clock.error, "{wrong} ns, not {} at most", clock.error);
            // The last time of the profile, too.
            let end = clock.origin + (timer.exact(launch + elapsed) - timer.exact(launch));
            assert!(end.abs_diff(launch + elapsed) <= clock.error);
            assert!(clock.error < 1500 + 2 * tick + parts * 5 / 1000, "{} ns say nothing", clock.error);
            assert_eq!((clock.rank, clock.ranks, clock.job), (1, 2, 3));
        }
    }

    #[test]
    fn the_look_that_took_least_counts() {
        let looks = [(100, 5000, 900), (1000, 6000, 1031), (2000, 7000, 2500)];
        let looks = looks.map(|(before, shown, after)| Look { before, shown, after });
        assert_eq!(Moment::of(looks, 3), Some(Moment { shown: 6000, host: 1016, error: 19 }));
        assert_eq!(Moment::of([], 3), None);
    }

    #[test]
    fn one_moment_is_enough_without_drift() {
        let moment = Moment { shown: 5000, host: 9000, error: 20 };
        let clock = RANK.at(4000, 1_000_000, [moment; 2]);
        assert_eq!((clock.origin, clock.error), (8000, 20));
    }

    #[test]
    fn threads_of_a_cpu_have_the_clock_of_the_host() {
        let before = host_clock();
        let shown = stamp().nanoseconds;
        let after = host_clock();
        let moment = Moment::of_threads().unwrap();
        let clock = RANK.at(shown, 0, [moment; 2]);
        assert!(before <= clock.origin + clock.error && clock.origin <= after + clock.error, "{before} {clock:?} {after}");
        assert!(clock.error < 100_000, "{clock:?}");
    }
}
