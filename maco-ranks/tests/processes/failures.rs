//! A rank that is killed, stopped, absent, somewhere else or of another shape is the same error on every survivor, in time.

use std::process::{Child, Command};
use std::time::Duration;
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Ended, Rendezvous, ends, until};

/// The error of each, without the time in front.
fn errors<'a>(ended: impl Iterator<Item = &'a Ended>) -> Vec<(u128, String)> {
    ended
        .map(|ended| {
            let (ms, text) = ended.said.last().unwrap_or_else(|| panic!("{ended:?}")).split_once(" ms: ").unwrap();
            (ms.parse().unwrap(), text.to_owned())
        })
        .collect()
}

/// The one error of all.
fn one(errors: &[(u128, String)]) -> &str {
    assert!(errors.windows(2).all(|pair| pair[0].1 == pair[1].1), "{errors:#?}");
    &errors[0].1
}

fn start(rendezvous: &Rendezvous, ranks: u32, case: &str, special: u32, change: impl Fn(u32, &mut Command)) -> Vec<Child> {
    (0..ranks)
        .map(|rank| {
            let mut command = rendezvous.rank(rank, ranks, case);
            command.env("SPECIAL", special.to_string());
            change(rank, &mut command);
            command.spawn().unwrap()
        })
        .collect()
}

/// Ranks of which one waits for this signal; what the others say, and how long they waited.
fn signalled(rendezvous: &Rendezvous, ranks: u32, special: u32, signal: Signal, deadline: u32) -> Vec<Ended> {
    let ready = tempfile::tempdir().unwrap();
    let file = ready.path().join("pid");
    let mut children = start(rendezvous, ranks, "wait", special, |_, command| {
        command.env("READY", &file).env("DEADLINE", deadline.to_string());
    });
    until("the rank waits", || fs::read_to_string(&file).is_ok_and(|pid| !pid.is_empty()));
    // The others are at the barrier.
    thread::sleep(Duration::from_millis(100));
    let pid = Pid::from_raw(fs::read_to_string(&file).unwrap().parse().unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
    let mut special = children.remove(special as usize);
    let ended = ends(children);
    special.kill().unwrap();
    special.wait().unwrap();
    ended
}

fn waited(ended: &Ended) -> u128 {
    ended.said[0].strip_prefix("waited ").and_then(|text| text.strip_suffix(" ms")).unwrap().parse().unwrap()
}

#[test]
fn a_killed_rank_is_noticed_at_once() {
    for rendezvous in [Rendezvous::folder, Rendezvous::tcp] {
        for (ranks, special) in [(2, 1), (3, 0), (4, 3), (8, 5)] {
            let ended = signalled(&rendezvous(), ranks, special, Signal::KILL, 20_000);
            let errors = errors(ended.iter());
            assert_eq!(errors.len() as u32, ranks - 1);
            assert!(one(&errors).starts_with(&format!("MACO0095: rank {special} is gone")), "{errors:?}");
            // Far from the deadline.
            assert!(ended.iter().all(|ended| waited(ended) < 10_000), "{ended:?}");
        }
    }
}

#[test]
fn a_stopped_rank_is_noticed_at_the_deadline() {
    for special in [0, 2] {
        let ended = signalled(&Rendezvous::folder(), 3, special, Signal::STOP, 2000);
        for (_, text) in errors(ended.iter()) {
            assert!(text.starts_with(&format!("MACO0095: rank {special} did not come to `barrier` within 2.0 s")), "{text}");
        }
        assert!(ended.iter().all(|ended| (1500..8000).contains(&waited(ended))), "{ended:?}");
    }
}

#[test]
fn a_rank_that_never_comes_is_named_by_the_shortest_deadline() {
    for (rendezvous, ranks, special) in [(Rendezvous::folder(), 2, 1), (Rendezvous::tcp(), 3, 2), (Rendezvous::folder(), 6, 3)] {
        let mut children = start(&rendezvous, ranks, "absent", special, |rank, command| {
            command.env("DEADLINE", if rank == 0 { "4000" } else { "20000" });
        });
        let mut absent = children.remove(special as usize);
        let errors = errors(ends(children).iter());
        absent.kill().unwrap();
        absent.wait().unwrap();
        let expected = format!("MACO0095: rank {special} did not come to `join` within 4.0 s, the deadline of rank 0");
        assert!(one(&errors).starts_with(&expected), "{errors:?}");
        assert!(errors.iter().all(|(ms, _)| *ms < 10_000), "{errors:?}");
    }
    // Without rank 0 there is nobody to ask.
    let rendezvous = Rendezvous::folder();
    let mut children = start(&rendezvous, 3, "absent", 0, |_, command| {
        command.env("DEADLINE", "700");
    });
    let mut absent = children.remove(0);
    for (rank, (ms, text)) in (1..).zip(errors(ends(children).iter())) {
        assert!(text.starts_with(&format!("MACO0094: rank {rank} could not join rank 0")) && ms < 8000, "{ms} {text}");
    }
    absent.kill().unwrap();
    absent.wait().unwrap();
}

#[test]
fn ranks_that_end_early_are_named() {
    for (case, words) in [("end", "has ended"), ("exit", "is gone")] {
        for special in [0, 1, 3] {
            let rendezvous = Rendezvous::folder();
            let mut ended = ends(start(&rendezvous, 4, case, special, |_, _| {}));
            ended.remove(special as usize);
            let errors = errors(ended.iter());
            assert!(
                errors.iter().all(|(ms, text)| *ms < 10_000 && text.starts_with(&format!("MACO0095: rank {special} {words}"))),
                "{errors:?}"
            );
        }
    }
}

#[test]
fn another_shape_a_failed_set_up_and_another_order_are_everybodys_error() {
    for ranks in [2, 4] {
        let special = ranks - 1;
        for (case, code, words) in [
            ("shape", 97, format!("rank {special}: tensor x: [4, 6]")),
            ("setup", 96, format!("rank {special} failed at `set-up`")),
            ("order", 95, format!("rank {special} at `all-gather of bytes`")),
        ] {
            let rendezvous = Rendezvous::folder();
            let ended = ends(start(&rendezvous, ranks, case, special, |_, _| {}));
            assert!(ended.iter().all(|ended| ended.status == Some(code)), "{ended:?}");
            let errors = errors(ended.iter());
            let text = one(&errors);
            let turned = format!("rank {special} is at `all-gather of bytes`");
            assert!(text.contains(&words) || text.contains(&turned), "{text}");
        }
    }
}
