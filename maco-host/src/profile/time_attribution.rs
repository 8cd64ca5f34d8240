//! Attributes a worker's time to its spans: several warps run warp tasks at the same time, and the worker's time counts once.

use super::{Kind, Profile, Role, Span};

/// Nanoseconds that tasks of each kind have had of a worker from its begin on, if they lasted all the while.
#[derive(Clone, Copy, Default)]
struct Had {
    running: f64,
    waiting: f64,
}

impl Profile {
    /// Nanoseconds of its worker's time that each span has: a moment belongs in equal parts to the tasks that run in it; where none does, to those that
    /// are waited for. Nothing of what loads and stores is, which goes on beside.
    pub(super) fn attributed_time(&self) -> Vec<f64> {
        let mut attributed = vec![0.0; self.spans.len()];
        let mut by_worker: Vec<Vec<usize>> = vec![Vec::new(); self.workers as usize];
        for (index, span) in self.spans.iter().enumerate().filter(|(_, span)| span.kind.role() == Role::Consume) {
            by_worker[span.worker as usize].push(index);
        }
        for own in by_worker {
            attribute(&self.spans, &own, &mut attributed);
        }
        attributed
    }
}

/// Those of the spans of one worker, `own`.
fn attribute(spans: &[Span], own: &[usize], attributed: &mut [f64]) {
    let mut changes: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * own.len());
    for &index in own {
        changes.extend([(spans[index].start, true, index), (spans[index].end, false, index)]);
    }
    changes.sort_unstable_by_key(|&(time, ..)| time);
    let (mut had, mut before, mut running, mut waiting) = (Had::default(), 0, 0u32, 0u32);
    for (time, begins, index) in changes {
        let passed = (time - before) as f64;
        before = time;
        if running > 0 {
            had.running += passed / f64::from(running);
        } else if waiting > 0 {
            had.waiting += passed / f64::from(waiting);
        }
        let (count, had) = match spans[index].kind {
            Kind::Wait => (&mut waiting, had.waiting),
            _ => (&mut running, had.running),
        };
        // What a span has is the difference of what there was at its end and at its begin, in whichever order these come at one moment.
        let sign = if begins { -1.0 } else { 1.0 };
        *count = count.wrapping_add_signed(if begins { 1 } else { -1 });
        attributed[index] += sign * had;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributed(of: &[(Kind, u64, u64)]) -> Vec<f64> {
        let spans: Vec<Span> = of.iter().map(|&(kind, start, end)| Span { worker: 0, warp: Some(0), kind, task: 0, start, end }).collect();
        let mut attributed = vec![0.0; spans.len()];
        attribute(&spans, &(0..spans.len()).collect::<Vec<_>>(), &mut attributed);
        attributed
    }

    #[test]
    fn consecutive_spans_have_all_of_their_time() {
        assert_eq!(
            attributed(&[(Kind::Wait, 5, 10), (Kind::Run, 10, 40), (Kind::Run, 40, 41), (Kind::Run, 41, 41)]),
            [5.0, 30.0, 1.0, 0.0]
        );
    }

    #[test]
    fn concurrent_runs_divide_the_time_and_waits_have_the_rest() {
        use Kind::{Run, Wait};
        // 0 to 20: two wait; 20 to 30: one runs; 30 to 60: three run; 60 to 70: one waits; 70 to 80: none.
        let of = [(Wait, 0, 20), (Wait, 0, 30), (Run, 20, 60), (Run, 30, 60), (Run, 30, 60), (Wait, 50, 70), (Run, 80, 80)];
        assert_eq!(attributed(&of), [10.0, 10.0, 20.0, 10.0, 10.0, 10.0, 0.0]);
    }
}
