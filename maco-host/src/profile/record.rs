//! From records in ticks of many clocks to spans on one. What spans mean does not belong here.

use maco_device::abi::{self, KIND_LOAD, KIND_RUN, KIND_STORE, KIND_WAIT, ROLES, Record};

use super::{Kind, Profile, Span};

/// Ticks by which the first record of a role may lie before the worker's stamp, which is made meanwhile: far more than it takes.
const EARLY: u32 = 1 << 24;

/// Bytes of the records of `workers` workers, and of their profiles in front.
pub(crate) fn bytes(workers: u32, records: u32) -> u64 {
    u64::from(workers) * (size_of::<abi::Profile>() as u64 + u64::from(ROLES) * u64::from(records) * size_of::<Record>() as u64)
}

/// Room for each role where nobody asked for more or less: two records for each of twice the tasks that a worker would have if all had
/// as many, and for all tasks of a small plan, in 64 MB for the whole device.
pub(crate) fn room(workers: u32, tasks: usize) -> u32 {
    let most = (64 << 20) / u64::from(workers.max(1)) / u64::from(ROLES) / size_of::<Record>() as u64;
    let share = (2 * tasks.div_ceil(workers.max(1) as usize)).max(512).min(tasks);
    (2 * share as u64).clamp(16, most.max(16)) as u32
}

/// What the workers of one launch wrote.
pub(crate) struct Recorded<'a> {
    pub(crate) profiles: &'a [abi::Profile],
    /// Worker after worker, role after role.
    pub(crate) records: &'a [Record],
    /// Of each role.
    pub(crate) room: u32,
    /// Whether workers are multiprocessors.
    pub(crate) gpu: bool,
}

impl Recorded<'_> {
    /// Fills in the spans. False if not every worker has ended a launch that recorded.
    pub(crate) fn fill(&self, profile: &mut Profile) -> bool {
        if self.profiles.is_empty() || self.profiles.iter().any(|worker| worker.written == 0) {
            return false;
        }
        let rate = self.rate();
        let first = self.profiles.iter().map(|worker| worker.begin.nanoseconds).min().unwrap_or(0);
        // Nanoseconds, which may be before the first stamp by a little.
        let mut spans: Vec<(i64, i64, Span)> = Vec::new();
        for (number, worker) in self.profiles.iter().enumerate() {
            let begin = (worker.begin.nanoseconds - first) as f64;
            let time = |ticks: i64| (begin + ticks as f64 * rate).round() as i64;
            for role in 0..ROLES as usize {
                let made = worker.made[role];
                profile.dropped += u64::from(made.saturating_sub(self.room));
                let at = (number * ROLES as usize + role) * self.room as usize;
                let (mut last, mut ticks) = (worker.begin.ticks as u32, 0i64);
                for (position, record) in self.records[at..at + made.min(self.room) as usize].iter().enumerate() {
                    let on = record.start.wrapping_sub(last);
                    ticks += if position == 0 && on > u32::MAX - EARLY { i64::from(on as i32) } else { i64::from(on) };
                    last = record.start;
                    let Some(kind) = kind(record.kind) else { continue };
                    let (start, end) = (time(ticks), time(ticks + i64::from(record.ticks)));
                    spans.push((start, end, Span { worker: number as u32, kind, task: record.task, start: 0, end: 0 }));
                }
            }
        }
        let origin = spans.iter().map(|span| span.0).min().unwrap_or(0).min(0);
        let ends = self.profiles.iter().map(|worker| {
            let ticks = worker.end.ticks.saturating_sub(worker.begin.ticks);
            (worker.begin.nanoseconds - first) as i64 + (ticks as f64 * rate).round() as i64
        });
        let end = ends.chain(spans.iter().map(|span| span.1)).max().unwrap_or(0);
        profile.elapsed = (end - origin) as u64;
        let tasks = profile.tasks.len() as u32;
        profile.spans = spans
            .into_iter()
            .filter(|(_, _, span)| span.task < tasks)
            .map(|(start, end, span)| Span { start: (start - origin) as u64, end: (end - origin) as u64, ..span })
            .collect();
        if self.gpu {
            profile.multiprocessors = self.profiles.iter().map(|worker| worker.sm).collect();
        }
        true
    }

    /// Nanoseconds per tick. All workers' clocks have one rate. The first stamp of each is made where the shared clock ticks, the last
    /// one at any time, so that it may be late by part of a tick: the largest quotient is the one nearest to the truth.
    fn rate(&self) -> f64 {
        let of = |worker: &abi::Profile| {
            let ticks = worker.end.ticks.saturating_sub(worker.begin.ticks);
            let nanoseconds = worker.end.nanoseconds.saturating_sub(worker.begin.nanoseconds);
            (ticks > 0).then(|| nanoseconds as f64 / ticks as f64)
        };
        let most = self.profiles.iter().filter_map(of).fold(0.0, f64::max);
        if most > 0.0 { most } else { 1.0 }
    }
}

fn kind(kind: u32) -> Option<Kind> {
    match kind {
        KIND_WAIT => Some(Kind::Wait),
        KIND_RUN => Some(Kind::Run),
        KIND_LOAD => Some(Kind::Load),
        KIND_STORE => Some(Kind::Store),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Operation, TaskPlace};
    use abi::Stamp;

    fn empty(workers: u32) -> Profile {
        Profile {
            megakernel: "m".into(),
            device: "d".into(),
            schedule: "static".into(),
            workers,
            multiprocessors: vec![],
            elapsed: 0,
            dropped: 0,
            roofline: None,
            operations: vec![Operation { name: "a".into(), tile: vec![], tasks: 2, bytes: None, flops: 0 }],
            tasks: vec![TaskPlace { operation: 0, tile: vec![] }; 2],
            spans: vec![],
            dependencies: vec![],
        }
    }

    /// Two clocks that show very different numbers, one of which wraps, at two ticks per nanosecond.
    #[test]
    fn clocks_are_brought_together() {
        let near = u64::from(u32::MAX) - 999;
        let worker = |ticks: u64, nanoseconds: u64| abi::Profile {
            begin: Stamp { ticks, nanoseconds },
            end: Stamp { ticks: ticks + 4000, nanoseconds: nanoseconds + 2000 },
            made: [1, 0, 0],
            written: 1,
            ..abi::Profile::default()
        };
        let profiles = [worker(near, 7000), worker(50, 7100)];
        let record = |start: u64| Record { start: start as u32, ticks: 200, kind: KIND_RUN, task: 1 };
        let mut records = vec![Record::default(); 2 * ROLES as usize];
        records[0] = record(near + 1400);
        // Before the stamp, which was made meanwhile.
        records[ROLES as usize] = record(10);
        let mut profile = empty(2);
        assert!(Recorded { profiles: &profiles, records: &records, room: 1, gpu: true }.fill(&mut profile));
        let times: Vec<_> = profile.spans.iter().map(|span| (span.worker, span.start, span.end)).collect();
        assert_eq!(times, [(0, 700, 800), (1, 80, 180)]);
        assert_eq!((profile.elapsed, profile.dropped, &profile.multiprocessors[..]), (2100, 0, &[0, 0][..]));
    }

    #[test]
    fn what_found_no_room_is_counted() {
        let profiles = [abi::Profile { made: [5, 0, 3], written: 1, ..abi::Profile::default() }];
        let records = vec![Record { kind: KIND_RUN, ..Record::default() }; 2 * ROLES as usize];
        let mut profile = empty(1);
        assert!(Recorded { profiles: &profiles, records: &records, room: 2, gpu: false }.fill(&mut profile));
        assert_eq!((profile.dropped, profile.spans.len()), (4, 4));
        let unwritten = [abi::Profile { written: 0, ..profiles[0] }];
        assert!(!Recorded { profiles: &unwritten, records: &records, room: 2, gpu: false }.fill(&mut empty(1)));
    }

    #[test]
    fn the_default_has_room_for_every_task_of_a_small_plan() {
        assert_eq!(room(4, 100), 200);
        assert!(room(132, 100_000) >= 2 * 2 * 100_000 / 132);
        assert!(bytes(132, room(132, 1 << 20)) <= 65 << 20);
        assert!(room(1 << 16, 1 << 20) >= 16);
    }
}
