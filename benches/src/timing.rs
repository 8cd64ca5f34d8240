//! How systems are timed: by events around one launch or several, taking turns in one process.

use std::time::{Duration, Instant};

use anyhow::ensure;
use indicatif::{ProgressBar, ProgressStyle};
use maco::{Device, Event, Stream};

/// Something that queues work on the stream it was made for.
pub type System<'a> = Box<dyn FnMut() -> anyhow::Result<()> + 'a>;

/// Microseconds: the median of all launches, and the medians of every other one, which show how far it is uncertain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Of all launches.
    pub value: f64,
    /// Of the even and of the odd launches: the same system twice, interleaved.
    pub halves: [f64; 2],
}

impl Measured {
    /// Of launches in the order in which they ran.
    pub fn of(times: &[f64]) -> Measured {
        let half = |first: usize| median(times.iter().copied().skip(first).step_by(2).collect());
        Measured { value: median(times.to_vec()), halves: [half(0), if times.len() > 1 { half(1) } else { half(0) }] }
    }

    /// Of both, value by value.
    pub fn with(self, other: Measured, f: impl Fn(f64, f64) -> f64) -> Measured {
        let halves = [f(self.halves[0], other.halves[0]), f(self.halves[1], other.halves[1])];
        Measured { value: f(self.value, other.value), halves }
    }

    /// Every value changed alike.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Measured {
        Measured { value: f(self.value), halves: self.halves.map(f) }
    }

    /// What each of `steps` more steps cost beyond `self`.
    pub fn slope(self, longer: Measured, steps: f64) -> Measured {
        self.with(longer, |short, long| (long - short) / steps)
    }

    /// The same system against itself.
    pub fn spread(self) -> f64 {
        self.halves[1] / self.halves[0]
    }

    /// The median of several, value by value.
    pub fn middle(all: &[Measured]) -> Measured {
        let of = |f: fn(&Measured) -> f64| median(all.iter().map(f).collect());
        Measured { value: of(|m| m.value), halves: [of(|m| m.halves[0]), of(|m| m.halves[1])] }
    }
}

/// The middle of the values; NaN of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// How long systems run before they are timed.
const WARM_UP: Duration = Duration::from_secs(2);
/// How long a sample of [`Clock::measure`] is.
const SAMPLE: Duration = Duration::from_millis(2);

/// Times systems on one stream.
pub struct Clock {
    /// Where the systems queue their work.
    pub stream: Stream,
    begin: Event,
    end: Event,
    rounds: usize,
}

impl Clock {
    /// With so many launches of every system.
    pub fn new(device: &Device, rounds: usize) -> anyhow::Result<Clock> {
        ensure!(rounds > 0, "`--rounds` must be 1 or more");
        Ok(Clock { stream: Stream::new(device)?, begin: Event::new(device)?, end: Event::new(device)?, rounds })
    }

    /// Microseconds of one launch.
    pub fn once(&self, system: &mut System<'_>) -> anyhow::Result<f64> {
        self.begin.record(&self.stream)?;
        system()?;
        self.end.record(&self.stream)?;
        Ok(self.end.since(&self.begin)?.as_secs_f64() * 1e6)
    }

    /// Every system once a round, in turn, after two rounds that do not count.
    pub fn compare(&self, systems: &mut [System<'_>]) -> anyhow::Result<Vec<Measured>> {
        let times = self.sample(systems, self.rounds, 1)?;
        Ok(times.iter().map(|times| Measured::of(times)).collect())
    }

    /// As [`Clock::compare`] after two seconds of warm-up, for systems that follow on themselves: up to 16 launches back to back, about two
    /// milliseconds of them, are one sample, so that what the host takes for the first of them does not count. Microseconds of one launch.
    pub fn measure(&self, systems: &mut [System<'_>]) -> anyhow::Result<Vec<Measured>> {
        let launches = self.warm_up(systems)?;
        let times = self.sample(systems, self.rounds, launches)?;
        Ok(times.iter().map(|times| Measured::of(times)).collect())
    }

    /// Runs all systems for two seconds, until clocks are steady. Returns how many launches of the fastest take two milliseconds, at most 16.
    pub fn warm_up(&self, systems: &mut [System<'_>]) -> anyhow::Result<u32> {
        let begin = Instant::now();
        while begin.elapsed() < WARM_UP {
            systems.iter_mut().try_for_each(|system| system())?;
            self.stream.synchronize()?;
        }
        let mut fastest = f64::INFINITY;
        for system in systems {
            fastest = fastest.min(self.once(system)?);
        }
        Ok((SAMPLE.as_secs_f64() * 1e6 / fastest).clamp(1.0, 16.0) as u32)
    }

    /// So many samples of every system in turn, after two rounds that do not count; each is the mean of `launches` back to back.
    pub fn sample(&self, systems: &mut [System<'_>], rounds: usize, launches: u32) -> anyhow::Result<Vec<Vec<f64>>> {
        let mut times = vec![Vec::with_capacity(rounds); systems.len()];
        for round in 0..rounds + 2 {
            for (system, times) in systems.iter_mut().zip(&mut times) {
                let mut several: System<'_> = Box::new(|| (0..launches).try_for_each(|_| system()));
                let time = self.once(&mut several)? / f64::from(launches);
                if round >= 2 {
                    times.push(time);
                }
            }
        }
        Ok(times)
    }

    /// Samples of every system that [`Clock::compare`] and [`Clock::measure`] take.
    pub fn rounds(&self) -> usize {
        self.rounds
    }
}

/// A bar for so many steps, with the name of the current one.
pub fn progress(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(steps as u64).with_style(style)
}

/// Small random numbers: reproducible from the seed that a run prints.
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A seed that differs from run to run.
    pub fn fresh_seed() -> u64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        u64::from(now.subsec_nanos()) ^ (now.as_secs() << 20)
    }

    /// Any word (xorshift, the upper half).
    pub fn word(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u32) -> u32 {
        ((u64::from(self.word()) * u64::from(end)) >> 32) as u32
    }

    /// 0..n in random order.
    pub fn permutation(&mut self, n: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n).collect();
        for last in (1..n).rev() {
            order.swap(last as usize, self.below(last + 1) as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_every_other_launch() {
        let measured = Measured::of(&[1.0, 10.0, 2.0, 20.0, 3.0, 30.0]);
        assert_eq!(measured.halves, [2.0, 20.0]);
        assert_eq!(measured.spread(), 10.0);
        assert_eq!(Measured::of(&[5.0]).halves, [5.0, 5.0]);
    }

    #[test]
    fn slopes_are_per_step() {
        let (short, long) = (Measured::of(&[1000.0]), Measured::of(&[4000.0]));
        assert_eq!(short.slope(long, 3000.0).value, 1.0);
    }

    #[test]
    fn permutations_have_every_number() {
        let mut order = Random::new(7).permutation(100);
        assert_ne!(order, (0..100).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }
}
