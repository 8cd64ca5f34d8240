//! Converts records in ticks of many clocks to spans on one clock. What spans mean does not belong here.

use maco_abi::{self as abi, KIND_LOAD, KIND_RUN, KIND_STORE, KIND_WAIT, ROLES, Record, RecordKind, served};

use super::{Busy, Kind, Profile, Scheduler, Span};

/// Ticks by which the first record of a role may end before the worker's stamp, which is made meanwhile, and another one before that which lies in front of
/// it, since a warp looks at its clock before it signals and at the list of records behind that: far more than it takes.
const EARLY: u32 = 1 << 24;

/// Who records, and how much: what lies where in the memory of a plan's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) workers: u32,
    pub(crate) schedulers: u32,
    /// Most records of each role of a worker.
    pub(crate) room: u32,
}

impl Shape {
    /// With room for what is recorded of so many tasks, where nobody asked for more or less: two records for each of twice the tasks that a worker
    /// would have if all had as many, and for all tasks of a small plan, in 64 MB for the whole device. A scheduler has the room of a role of
    /// all workers that it pushes to: it notes at most a record for each message.
    pub(crate) fn of(workers: u32, schedulers: u32, tasks: usize) -> Shape {
        let one = Shape { workers, schedulers, room: 1 };
        let most = (64 << 20) / one.records().max(1) / size_of::<Record>() as u64;
        let share = (2 * tasks.div_ceil(workers.max(1) as usize)).max(512).min(tasks);
        Shape { room: (2 * share as u64).clamp(16, most.max(16)) as u32, ..one }
    }

    /// Profiles: of workers, then of schedulers.
    pub(crate) fn profiles(self) -> u64 {
        u64::from(self.workers) + u64::from(self.schedulers)
    }

    /// Records: worker after worker, role after role, then scheduler after scheduler.
    pub(crate) fn records(self) -> u64 {
        u64::from(self.workers) * u64::from(ROLES) * u64::from(self.room) + u64::from(self.schedulers) * self.served()
    }

    /// Most records of a scheduler.
    fn served(self) -> u64 {
        u64::from(served(self.room, self.workers, self.schedulers))
    }

    /// Bytes of the profiles, and of the records behind them.
    pub(crate) fn bytes(self) -> u64 {
        self.profiles() * size_of::<abi::Profile>() as u64 + self.records() * size_of::<Record>() as u64
    }
}

/// What the workers and schedulers of one launch wrote.
pub(crate) struct Recorded<'a> {
    pub(crate) profiles: &'a [abi::Profile],
    pub(crate) records: &'a [Record],
    pub(crate) shape: Shape,
    /// Whether workers are multiprocessors.
    pub(crate) gpu: bool,
}

impl Recorded<'_> {
    /// Fills in the spans. What the executors' clock showed at time 0 of the profile; none if not everybody has ended a launch that recorded.
    pub(crate) fn fill(&self, profile: &mut Profile) -> Option<u64> {
        if self.profiles.is_empty() || self.profiles.iter().any(|executor| executor.written == 0) {
            return None;
        }
        let (workers, schedulers) = self.profiles.split_at(self.shape.workers as usize);
        let first = self.profiles.iter().map(|executor| executor.begin.nanoseconds).min().unwrap_or(0);
        let room = self.shape.room;
        let mut spans: Vec<(i64, i64, Span)> = Vec::new();
        for (number, worker) in workers.iter().enumerate() {
            for role in 0..ROLES as usize {
                let made = worker.made[role];
                profile.dropped += u64::from(made.saturating_sub(room));
                let at = (number * ROLES as usize + role) * room as usize;
                let from = spans.len();
                for (record, start, end) in times(worker, first, &self.records[at..at + made.min(room) as usize]) {
                    let RecordKind { kind: code, warp } = RecordKind::decode(record.kind);
                    let Some(kind) = kind(code) else { continue };
                    if warp.is_none_or(|warp| warp < Span::WARPS) {
                        spans.push((start, end, Span { worker: number as u32, warp, kind, task: record.task, start: 0, end: 0 }));
                    }
                }
                // Warps that run tasks by themselves note in one list.
                spans[from..].sort_by_key(|&(start, end, span)| (span.warp, start, end));
            }
        }
        let mut busy: Vec<Vec<(i64, i64)>> = Vec::new();
        let served = self.shape.served() as usize;
        for (number, scheduler) in schedulers.iter().enumerate() {
            let made = scheduler.made[0] as usize;
            profile.dropped += made.saturating_sub(served) as u64;
            let at = workers.len() * ROLES as usize * room as usize + number * served;
            let times = times(scheduler, first, &self.records[at..at + made.min(served)]);
            busy.push(times.map(|(_, start, end)| (start, end)).collect());
        }
        let starts = spans.iter().map(|span| span.0).chain(busy.iter().flatten().map(|busy| busy.0));
        let origin = starts.min().unwrap_or(0).min(0);
        let ends = self.profiles.iter().map(|executor| {
            let ticks = executor.end.ticks.saturating_sub(executor.begin.ticks);
            (executor.begin.nanoseconds - first) as i64 + (ticks as f64 * rate(executor)).round() as i64
        });
        let end = ends.chain(spans.iter().map(|span| span.1)).chain(busy.iter().flatten().map(|busy| busy.1)).max().unwrap_or(0);
        profile.elapsed = (end - origin) as u64;
        profile.schedulers = schedulers
            .iter()
            .zip(busy)
            .map(|(scheduler, busy)| Scheduler {
                multiprocessor: self.gpu.then_some(scheduler.sm),
                busy: busy.into_iter().map(|(start, end)| Busy { start: (start - origin) as u64, end: (end - origin) as u64 }).collect(),
            })
            .collect();
        let tasks = profile.tasks.len() as u32;
        profile.spans = spans
            .into_iter()
            .filter(|(_, _, span)| span.task < tasks)
            .map(|(start, end, span)| Span { start: (start - origin) as u64, end: (end - origin) as u64, ..span })
            .collect();
        if self.gpu {
            profile.multiprocessors = workers.iter().map(|worker| worker.sm).collect();
        }
        Some(first.saturating_add_signed(origin))
    }
}

/// Nanoseconds per tick of an executor's clock: parts of a GPU have clocks of their own, which differ by parts of a percent under load. The first stamp is
/// made where the shared clock ticks, the last one at any time, so that what it says may be late by part of a tick.
fn rate(executor: &abi::Profile) -> f64 {
    let ticks = executor.end.ticks.saturating_sub(executor.begin.ticks);
    let nanoseconds = executor.end.nanoseconds.saturating_sub(executor.begin.nanoseconds);
    if ticks > 0 && nanoseconds > 0 { nanoseconds as f64 / ticks as f64 } else { 1.0 }
}

/// The records of one role of `executor`, from when to when each lasted: in nanoseconds from `first`, which may be before the first stamp by a little.
///
/// Words of the clock say no more than distances. Each record ends after the one before it, or earlier by at most [`EARLY`]; but what a warp has waited for
/// lies behind what it then ran, and ends where that began ([`Record`]).
fn times<'a>(executor: &abi::Profile, first: u64, records: &'a [Record]) -> impl Iterator<Item = (&'a Record, i64, i64)> {
    let (begin, rate) = ((executor.begin.nanoseconds - first) as f64, rate(executor));
    let time = move |ticks: i64| (begin + ticks as f64 * rate).round() as i64;
    let (mut last, mut ended) = (executor.begin.ticks as u32, 0i64);
    let mut former: Option<(&Record, i64)> = None;
    records.iter().map(move |record| {
        let end = record.start.wrapping_add(record.ticks);
        let begun = former.filter(|(run, _)| is_wait_of(record, run)).map(|(_, start)| start);
        let until = begun.unwrap_or_else(|| {
            let on = end.wrapping_sub(last);
            ended += if on > u32::MAX - EARLY { i64::from(on as i32) } else { i64::from(on) };
            last = end;
            ended
        });
        let start = until - i64::from(record.ticks);
        former = Some((record, start));
        (record, time(start), time(until))
    })
}

/// Whether a warp noted with `run` that it had waited until then.
fn is_wait_of(record: &Record, run: &Record) -> bool {
    let (waited, ran) = (RecordKind::decode(record.kind), RecordKind::decode(run.kind));
    waited.warp.is_some() && waited.warp == ran.warp && (waited.kind, ran.kind) == (KIND_WAIT, KIND_RUN) && record.task == run.task
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
            rank: None,
            device: "d".into(),
            schedule: "static".into(),
            workers,
            multiprocessors: vec![],
            schedulers: vec![],
            elapsed: 0,
            dropped: 0,
            roofline: None,
            operations: vec![Operation { name: "a".into(), tile: vec![], tasks: 2, bytes: None, flops: 0 }],
            tasks: vec![TaskPlace { operation: 0, tile: vec![] }; 2],
            spans: vec![],
            dependencies: vec![],
        }
    }

    /// Two clocks that show very different numbers, one of which wraps, at two ticks per nanosecond and at one and a quarter.
    #[test]
    fn clocks_are_aligned() {
        let near = u64::from(u32::MAX) - 999;
        let worker = |ticks: u64, nanoseconds: u64, lasted: u64| abi::Profile {
            begin: Stamp { ticks, nanoseconds },
            end: Stamp { ticks: ticks + lasted, nanoseconds: nanoseconds + 2000 },
            made: [1, 0, 0],
            written: 1,
            ..abi::Profile::default()
        };
        let profiles = [worker(near, 7000, 4000), worker(50, 7100, 2500)];
        let record = |start: u64| Record { start: start as u32, ticks: 200, kind: KIND_RUN, task: 1 };
        let mut records = vec![Record::default(); 2 * ROLES as usize];
        records[0] = record(near + 1400);
        // Before the stamp, which was made meanwhile.
        records[ROLES as usize] = record(10);
        let mut profile = empty(2);
        let shape = Shape { workers: 2, schedulers: 0, room: 1 };
        assert_eq!(Recorded { profiles: &profiles, records: &records, shape, gpu: true }.fill(&mut profile), Some(7000));
        let times: Vec<_> = profile.spans.iter().map(|span| (span.worker, span.start, span.end)).collect();
        assert_eq!(times, [(0, 700, 800), (1, 68, 228)]);
        assert_eq!((profile.elapsed, profile.dropped, &profile.multiprocessors[..]), (2100, 0, &[0, 0][..]));
    }

    /// Warps note in the order in which they end, what they have waited behind what they have run; the clock's word wraps in the midst of it.
    #[test]
    fn warps_record_in_one_list() {
        let base = (1u64 << 33) - 500;
        let profiles = [abi::Profile {
            begin: Stamp { ticks: base, nanoseconds: 7000 },
            end: Stamp { ticks: base + 100_000, nanoseconds: 107_000 },
            made: [7, 0, 0],
            written: 1,
            ..abi::Profile::default()
        }];
        let record = |warp: Option<u32>, kind, task, start: u64, end: u64| Record {
            start: (base + start) as u32,
            ticks: (end - start) as u32,
            kind: RecordKind { kind, warp }.encode(),
            task,
        };
        let mut records = vec![Record::default(); 7 * ROLES as usize];
        records[..7].copy_from_slice(&[
            record(None, KIND_RUN, 0, 0, 10),
            record(Some(3), KIND_RUN, 1, 20, 480),
            record(Some(0), KIND_RUN, 2, 15, 510),
            // Ended before the one above, and noted behind it; it has waited since long before that.
            record(Some(7), KIND_RUN, 3, 490, 505),
            record(Some(7), KIND_WAIT, 3, 5, 490),
            // More than [`EARLY`] behind: forward.
            record(Some(3), KIND_RUN, 4, 90_000_000, 90_000_100),
            record(Some(3), KIND_WAIT, 4, 480, 90_000_000),
        ]);
        let mut profile = Profile { tasks: vec![TaskPlace { operation: 0, tile: vec![] }; 5], ..empty(1) };
        let shape = Shape { workers: 1, schedulers: 0, room: 7 };
        assert!(Recorded { profiles: &profiles, records: &records, shape, gpu: true }.fill(&mut profile).is_some());
        let spans: Vec<_> = profile.spans.iter().map(|span| (span.warp, span.kind, span.task, span.start, span.end)).collect();
        assert_eq!(
            spans,
            [
                (None, Kind::Run, 0, 0, 10),
                (Some(0), Kind::Run, 2, 15, 510),
                (Some(3), Kind::Run, 1, 20, 480),
                (Some(3), Kind::Wait, 4, 480, 90_000_000),
                (Some(3), Kind::Run, 4, 90_000_000, 90_000_100),
                (Some(7), Kind::Wait, 3, 5, 490),
                (Some(7), Kind::Run, 3, 490, 505),
            ]
        );
        // A word that no warp wrote.
        records[1].kind |= 1 << 31;
        assert!(Recorded { profiles: &profiles, records: &records, shape, gpu: true }.fill(&mut profile).is_some());
        assert_eq!(profile.spans.len(), 6);
    }

    #[test]
    fn dropped_records_are_counted() {
        let profiles = [abi::Profile { made: [5, 0, 3], written: 1, ..abi::Profile::default() }];
        let records = vec![Record { kind: KIND_RUN, ..Record::default() }; 2 * ROLES as usize];
        let mut profile = empty(1);
        let shape = Shape { workers: 1, schedulers: 0, room: 2 };
        assert!(Recorded { profiles: &profiles, records: &records, shape, gpu: false }.fill(&mut profile).is_some());
        assert_eq!((profile.dropped, profile.spans.len()), (4, 4));
        let unwritten = [abi::Profile { written: 0, ..profiles[0] }];
        assert!(Recorded { profiles: &unwritten, records: &records, shape, gpu: false }.fill(&mut empty(1)).is_none());
    }

    /// Two schedulers behind a worker, of which the second one's clock shows other numbers and has found no room for its third record.
    #[test]
    fn schedulers_have_tracks_of_their_own() {
        let executor = |ticks: u64, nanoseconds: u64, made: u32, sm: u32| abi::Profile {
            begin: Stamp { ticks, nanoseconds },
            end: Stamp { ticks: ticks + 4000, nanoseconds: nanoseconds + 2000 },
            made: [made, 0, 0],
            sm,
            written: 1,
            ..abi::Profile::default()
        };
        let profiles = [executor(0, 7000, 0, 3), executor(100, 7000, 1, 4), executor(1 << 40, 7050, 3, 5)];
        let shape = Shape { workers: 1, schedulers: 2, room: 2 };
        assert_eq!((shape.profiles(), shape.records()), (3, 2 * u64::from(ROLES) + 4));
        let record = |start: u32, ticks: u32| Record { start, ticks, kind: abi::KIND_SERVE, task: 0 };
        let mut records = vec![Record::default(); shape.records() as usize];
        let at = 2 * ROLES as usize;
        records[at] = record(120, 60);
        records[at + 2..].copy_from_slice(&[record(10, 2), record(400, 1000)]);
        let mut profile = empty(1);
        assert!(Recorded { profiles: &profiles, records: &records, shape, gpu: true }.fill(&mut profile).is_some());
        let busy = |start, end| Busy { start, end };
        let schedulers = [
            Scheduler { multiprocessor: Some(4), busy: vec![busy(10, 40)] },
            Scheduler { multiprocessor: Some(5), busy: vec![busy(55, 56), busy(250, 750)] },
        ];
        assert_eq!((&profile.schedulers[..], profile.dropped), (&schedulers[..], 1));
        assert_eq!((&profile.multiprocessors[..], profile.elapsed, profile.spans.len()), (&[3][..], 2050, 0));
        assert!(Recorded { profiles: &profiles, records: &records, shape, gpu: false }.fill(&mut profile).is_some());
        assert!(profile.schedulers.iter().all(|scheduler| scheduler.multiprocessor.is_none()));
        // A scheduler that has not ended.
        let mut unwritten = profiles;
        unwritten[2].written = 0;
        assert!(Recorded { profiles: &unwritten, records: &records, shape, gpu: true }.fill(&mut empty(1)).is_none());
    }

    #[test]
    fn the_default_has_room_for_every_task_of_a_small_plan() {
        assert_eq!(Shape::of(4, 0, 100).room, 200);
        assert!(Shape::of(132, 0, 100_000).room >= 2 * 2 * 100_000 / 132);
        assert!(Shape::of(1 << 16, 0, 1 << 20).room >= 16);
        for schedulers in [0, 1, 3, 131] {
            assert!(Shape::of(132, schedulers, 1 << 20).bytes() <= 65 << 20);
        }
        // A message for each task and for each that waits for it.
        assert!(Shape::of(132, 2, 100_000).served() >= 2 * 100_000 / 2);
        assert!(Shape::of(2, 2, 100).served() >= 200);
    }
}
