//! Packages side by side: most of a package's build is one thread of rustc that makes its PTX, while other cores have nothing to do.
//!
//! `MACO_LANES` says how many, 1 by default. Each lane has a target directory of its own, since cargo builds one thing at a time in each, and each
//! package always the same lane, so that what one command has built the next one finds.

use std::cmp::Reverse;
use std::env;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread;

use crate::packages::{Package, target};

/// How many there are.
pub fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let text = env::var("MACO_LANES").unwrap_or_default();
        text.parse().ok().filter(|&lanes| lanes > 0).unwrap_or(1)
    })
}

/// The target directory of a lane; the first has the workspace's.
pub fn target_of(lane: usize) -> PathBuf {
    if lane == 0 { target() } else { target().join(format!("lane{lane}")) }
}

/// A lane for each item, so that all have about as much to do: the largest first, each to the lane that has the least so far.
pub fn spread(work: &[usize], lanes: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..work.len()).collect();
    order.sort_by_key(|&item| (Reverse(work[item]), item));
    let (mut loads, mut of) = (vec![0; lanes], vec![0; work.len()]);
    for item in order {
        let lane = (0..lanes).min_by_key(|&lane| loads[lane]).unwrap_or(0);
        loads[lane] += work[item];
        of[item] = lane;
    }
    of
}

/// `work` of every package, in the order of the packages; those of a lane one after the other, lanes side by side.
pub fn each<R: Send>(packages: &[Package], work: impl Fn(&Package) -> R + Sync) -> Vec<R> {
    let lane = |lane: usize| {
        let own = packages.iter().enumerate().filter(move |(_, package)| package.lane == lane);
        own.map(|(index, package)| (index, work(package))).collect::<Vec<_>>()
    };
    let lanes = packages.iter().map(|package| package.lane + 1).max().unwrap_or(0);
    let mut results: Vec<(usize, R)> = thread::scope(|scope| {
        let running: Vec<_> = (0..lanes).map(|number| scope.spawn(move || lane(number))).collect();
        running.into_iter().flat_map(|lane| lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn lanes_have_about_as_much_to_do() {
        assert_eq!(spread(&[1, 5, 3, 4, 1], 2), [0, 0, 1, 1, 0]);
        assert_eq!(spread(&[2, 2, 2], 1), [0, 0, 0]);
        assert_eq!(spread(&[], 3), [0; 0]);
    }

    #[test]
    fn every_package_is_worked_on_once_in_its_lane() {
        let package = |name: &str, lane| Package { name: name.to_owned(), manifest: PathBuf::from(name), lane };
        let packages = [package("a", 0), package("b", 1), package("c", 0), package("d", 2)];
        let by = Mutex::new(Vec::new());
        let names = each(&packages, |package| {
            by.lock().unwrap().push((package.lane, thread::current().id()));
            package.name.clone()
        });
        assert_eq!(names, ["a", "b", "c", "d"]);
        let by = by.into_inner().unwrap();
        for (lane, thread) in &by {
            assert!(by.iter().all(|(other, id)| (lane == other) == (thread == id)), "{by:?}");
        }
        assert!(each(&[], |_| ()).is_empty());
    }
}
