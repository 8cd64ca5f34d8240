//! What docs/guide/overlap.md shows runs, and each way has the same results.

use guide::overlap::{self, Way};
use maco::Communicator;

#[test]
fn every_way_has_the_same_results() {
    // What the printed plan says of each.
    let ways: [(Way, &str); 7] = [
        (overlap::automatic, "  #1   all_reduce"),
        (overlap::by_overlap, "  #1 beside #2\n"),
        (overlap::by_region, "  #1 beside #2\n"),
        (overlap::by_pipeline, "  #5 beside #6\n"),
        (overlap::by_phase, "  #2 behind #1\n  #4 behind #2\n"),
        (overlap::by_overlapped, "  #1 beside #2\n"),
        (overlap::by_nccl, "  #1   all_reduce"),
    ];
    for ranks in [2, 3] {
        let of = |way: Way| Communicator::threads(ranks, |communicator| overlap::on(&communicator, way).unwrap()).unwrap();
        let plain = of(overlap::automatic);
        assert!(plain.iter().all(|found| found.0 == plain[0].0 && found.1 == plain[0].1));
        assert!(plain[0].0.iter().any(|&sum| sum != 0.0) && !plain[0].2.contains(" beside "));
        for (way, said) in ways {
            for (sum, gates, text) in of(way) {
                assert!(text.contains(said), "{said} is not in {text}");
                assert!(sum == plain[0].0 && gates == plain[0].1, "{ranks} ranks: {text}");
            }
        }
    }
}
