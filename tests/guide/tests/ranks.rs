//! What docs/guide/ranks.md shows runs.

use guide::ranks;
use maco::Communicator;
use maco::profile::RankProfiles;

#[test]
fn ranks_and_one_rank_do_the_same() {
    let alone = ranks::step(&Communicator::single()).unwrap();
    let together = ranks::as_threads().unwrap();
    assert_eq!(together.len(), 4 * alone.len());
    assert!(together.chunks(alone.len()).all(|rank| rank == alone));
    ranks::shared().unwrap();
}

#[test]
fn what_was_exchanged_comes_back() {
    for count in [1, 2, 3] {
        for (own, back) in Communicator::threads(count, |communicator| ranks::exchanged_on(&communicator).unwrap()).unwrap() {
            assert!(own == back, "{count} ranks");
        }
        for (own, back) in Communicator::threads(count, |communicator| ranks::stored_on(&communicator).unwrap()).unwrap() {
            assert!(own == back, "{count} ranks, into symmetric tensors");
        }
    }
}

#[test]
fn a_gemm_over_ranks_is_that_of_one() {
    for count in [1, 2, 4] {
        for found in Communicator::threads(count, |communicator| ranks::row_parallel_on(&communicator).unwrap()).unwrap() {
            assert!(found.iter().all(|value| value.to_f32() == 16.0), "{count} ranks: {found:?}");
        }
    }
}

#[test]
fn numbers_go_round() {
    for count in [1, 2, 3] {
        let all = Communicator::threads(count, |communicator| ranks::collectives(&communicator).unwrap()).unwrap();
        assert!(all.iter().all(|found| *found == [1.0, 2.0, 3.0].map(|value| value * count as f32)), "{all:?}");
        let found = Communicator::threads(count, |communicator| ranks::channels(&communicator).unwrap()).unwrap();
        assert_eq!(found, (0..count).map(|rank| ((rank + count - 1) % count) as u8).collect::<Vec<_>>());
    }
}

#[test]
fn all_ranks_are_on_one_timeline() {
    for count in [1, 3] {
        let folder = std::env::temp_dir().join(format!("maco-guide-timeline-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let found = Communicator::threads(count, |communicator| ranks::timeline(&communicator, &folder).unwrap()).unwrap();
        assert!(found.iter().all(|all| *all == found[0]));
        let files: Vec<_> = (0..count).map(|rank| folder.join(format!("trace.rank{rank}.json"))).collect();
        let merged = RankProfiles::merge_chrome(&files).unwrap();
        let spans = |all: &RankProfiles| all.ranks().iter().map(|rank| rank.spans.clone()).collect::<Vec<_>>();
        assert_eq!(spans(&merged), spans(&found[0]));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn without_a_launcher_the_variable_is_named() {
    let error = ranks::of_a_job().unwrap_err();
    assert!(error.to_string().starts_with("MACO0093: RANK is not set\nhelp: start the program with `maco launch"), "{error}");
}
