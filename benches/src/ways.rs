//! What `tune_ways` makes of measured times: lines of a table of ways. How they are measured does not belong here.

use maco::{Via, WayLine};

/// How much less time NCCL must take than the fastest way of the kernel: it changes bits, and takes multiprocessors from the workers.
const NCCL: f64 = 0.98;

/// What each way of a collective took, of a tensor of so many bytes.
#[derive(Clone, Debug)]
pub struct Timed {
    /// Its name in tables.
    pub collective: &'static str,
    /// Ranks that it is between.
    pub ranks: u32,
    /// Bytes of the largest tensor of the call, on a rank.
    pub bytes: u64,
    /// Microseconds of each way that it goes.
    pub times: Vec<(Via, f64)>,
}

impl Timed {
    /// The way that is the fastest, if any was measured.
    pub fn fastest(&self) -> Option<Via> {
        let of = |is_nccl: bool| {
            let times = self.times.iter().filter(move |(via, _)| (*via == Via::Nccl) == is_nccl);
            times.copied().min_by(|(_, a), (_, b)| a.total_cmp(b))
        };
        match (of(false), of(true)) {
            (Some((_, kernel)), Some((nccl, time))) if time < kernel * NCCL => Some(nccl),
            (Some((via, _)), _) | (None, Some((via, _))) => Some(via),
            (None, None) => None,
        }
    }
}

/// The lines that follow: sizes that are neighbours and have one way are one line. Where it changes, the limit is the geometric mean of both sizes; the first line of a
/// collective begins at 0, the last one has no end.
pub fn lines(timed: &[Timed]) -> Vec<WayLine> {
    let mut sorted: Vec<(&Timed, Via)> = timed.iter().filter_map(|timed| Some((timed, timed.fastest()?))).collect();
    sorted.sort_by_key(|(timed, _)| (timed.collective, timed.ranks, timed.bytes));
    let mut lines: Vec<WayLine> = Vec::new();
    let mut before: Option<&Timed> = None;
    for (timed, via) in sorted {
        let follows = before.filter(|before| (before.collective, before.ranks) == (timed.collective, timed.ranks));
        match (lines.last_mut(), follows) {
            (Some(line), Some(_)) if line.via == via => {}
            (Some(line), Some(smaller)) => {
                let limit = between(smaller.bytes, timed.bytes);
                line.below_bytes = Some(limit);
                lines.push(WayLine { from_bytes: limit, ..of(timed, via) });
            }
            _ => lines.push(of(timed, via)),
        }
        before = Some(timed);
    }
    lines
}

fn of(timed: &Timed, via: Via) -> WayLine {
    WayLine { collective: timed.collective.into(), ranks: timed.ranks, from_bytes: 0, below_bytes: None, via }
}

/// Above the smaller one, and at most the larger one.
fn between(smaller: u64, larger: u64) -> u64 {
    ((smaller as f64 * larger as f64).sqrt() as u64).clamp(smaller.saturating_add(1).min(larger), larger)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Via::{Nccl, OneShot, Packets, TwoShot};

    fn timed(collective: &'static str, bytes: u64, times: &[(Via, f64)]) -> Timed {
        Timed { collective, ranks: 2, bytes, times: times.to_vec() }
    }

    fn line(collective: &'static str, from_bytes: u64, below_bytes: Option<u64>, via: Via) -> WayLine {
        WayLine { collective: collective.into(), ranks: 2, from_bytes, below_bytes, via }
    }

    #[test]
    fn the_fastest_way_of_each_range_is_a_line() {
        let rows = [
            timed("all_reduce", 64 << 20, &[(Packets, 900.0), (OneShot, 300.0), (TwoShot, 280.0), (Nccl, 240.0)]),
            timed("all_reduce", 1 << 10, &[(Packets, 10.0), (OneShot, 15.0), (TwoShot, 18.0), (Nccl, 60.0)]),
            timed("all_reduce", 1 << 14, &[(Packets, 12.0), (OneShot, 15.0), (TwoShot, 18.0), (Nccl, 60.0)]),
            timed("all_reduce", 1 << 18, &[(Packets, 25.0), (OneShot, 20.0), (TwoShot, 22.0), (Nccl, 70.0)]),
            timed("all_gather", 1 << 18, &[(Packets, 20.0), (OneShot, 25.0)]),
        ];
        let limits = [1 << 16, 1 << 22];
        assert_eq!(
            lines(&rows),
            [
                line("all_gather", 0, None, Packets),
                line("all_reduce", 0, Some(limits[0]), Packets),
                line("all_reduce", limits[0], Some(limits[1]), OneShot),
                line("all_reduce", limits[1], None, Nccl),
            ]
        );
    }

    /// Also where another way lies between two ranges of one.
    #[test]
    fn neighbours_alone_are_merged() {
        let rows = [(1, Packets), (4, OneShot), (16, Packets), (64, Packets)].map(|(bytes, via)| timed("ring", bytes, &[(via, 1.0)]));
        let expected = [line("ring", 0, Some(2), Packets), line("ring", 2, Some(8), OneShot), line("ring", 8, None, Packets)];
        assert_eq!(lines(&rows), expected);
        // Other ranks are other lines.
        let mut rows = rows.to_vec();
        rows[3].ranks = 4;
        assert_eq!(lines(&rows).len(), 4);
        assert_eq!(lines(&[]), []);
        assert_eq!(lines(&[timed("ring", 1, &[])]), []);
    }

    #[test]
    fn nccl_has_to_be_clearly_faster() {
        let fastest = |nccl| timed("all_reduce", 1, &[(OneShot, 100.0), (TwoShot, 110.0), (Nccl, nccl)]).fastest();
        assert_eq!([99.0, 98.0, 97.9].map(fastest), [Some(OneShot), Some(OneShot), Some(Nccl)]);
        // What the kernel cannot do.
        assert_eq!(timed("all_reduce", 1, &[(Nccl, 5.0)]).fastest(), Some(Nccl));
    }

    /// Sizes beside each other, and what a file takes.
    #[test]
    fn lines_are_a_table() {
        let rows = [(7, Packets), (8, OneShot), (9, Packets)].map(|(bytes, via)| timed("all_reduce", bytes, &[(via, 1.0)]));
        let lines = lines(&rows);
        assert_eq!(lines.iter().map(|line| line.from_bytes).collect::<Vec<_>>(), [0, 8, 9]);
        for (n, line) in lines.iter().enumerate() {
            assert!(line.fault().is_none() && lines[..n].iter().all(|other| !other.meets(line)), "{line}");
        }
    }
}
