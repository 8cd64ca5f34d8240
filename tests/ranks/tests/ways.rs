//! Tables of ways: what a plan of several ranks takes from its own, and that all ranks have the same.

use std::time::Duration;

use maco::{Communicator, Device, Error, PlanOptions, Tuning, Via, WayLine};
use ranks::pushed::of_f32;

/// How the sums of a rank's plan go.
type Found = Result<[String; 2], Error>;

fn line(from_bytes: u64, via: Via) -> WayLine {
    WayLine { collective: "all_reduce".into(), ranks: 3, from_bytes, below_bytes: None, via }
}

/// What each of three ranks finds whose tuning has these lines, and whose plans have these options.
fn of(ways: impl Fn(u32) -> Vec<WayLine> + Sync, asked: impl Fn(u32, PlanOptions) -> PlanOptions + Sync) -> Vec<Found> {
    let plan = |communicator: Communicator| {
        communicator.set_deadline(Duration::from_secs(30)).unwrap();
        let (rank, device) = (communicator.rank(), Device::cpu_with(2));
        let tuning = Tuning { ways: ways(rank), ..Tuning::new(&device) };
        let options = asked(rank, PlanOptions::new().communicator(communicator).tuning(tuning));
        let plan = of_f32::plan_with(&device, of_f32::Dims { M: 128, N: 256, K: 32 }, &options)?;
        Ok([1, 3].map(|call| plan.graph().exchange(call).unwrap()))
    };
    Communicator::threads(3, plan).unwrap()
}

fn same(_: u32, options: PlanOptions) -> PlanOptions {
    options
}

/// 128 KiB.
const BYTES: u64 = 128 * 256 * 4;

#[test]
fn a_table_chooses_what_nobody_says() {
    let ways = [
        (Via::Packets, "packets (table)"),
        (Via::OneShot, "one-shot, sent by tasks (table)"),
        (Via::TwoShot, "two-shot, sent by tasks (table)"),
    ];
    for (via, way) in ways {
        for from in [0, BYTES] {
            of(|_| vec![line(from, via)], same).into_iter().for_each(|found| assert_eq!(found.unwrap(), [way; 2]));
        }
        // Nothing is said of fewer bytes.
        for found in of(|_| vec![line(BYTES + 1, via)], same) {
            assert!(found.unwrap().iter().all(|way| way.ends_with("(model)")));
        }
    }
    // CPU ranks have no NCCL.
    for found in of(|_| vec![line(0, Via::Nccl)], same) {
        assert!(found.unwrap().iter().all(|way| way.ends_with("(model)")));
    }
}

/// The text of all, which is the same.
fn refused(found: Vec<Found>) -> String {
    let texts: Vec<String> = found.into_iter().map(|found| found.unwrap_err().to_string()).collect();
    assert!(texts.iter().all(|text| *text == texts[0]) && texts[0].starts_with("MACO0097: "), "{texts:#?}");
    texts[0].clone()
}

#[test]
fn ranks_with_other_tables_are_refused_on_all() {
    let text = refused(of(|rank| vec![line(7, if rank == 1 { Via::TwoShot } else { Via::OneShot })], same));
    assert!(text.contains("`plan of megakernel of_f32` is not the same on all ranks\n"), "{text}");
    let name = "line 0 of the tuning file, `maco_tuning.ways[0]`: all_reduce of 3 ranks, from 7 bytes";
    assert!(text.contains(&format!("\n  rank 1: {name}: TwoShot\n")), "{text}");
    assert!(text.contains(&format!("\n  ranks 0 and 2: {name}: OneShot\n")), "{text}");
    // Also one that changes nothing for these sums.
    let text = refused(of(|rank| if rank == 2 { vec![line(1 << 40, Via::OneShot)] } else { Vec::new() }, same));
    assert!(text.contains("\n  rank 2: line 0 of the tuning file") && text.contains("\n  ranks 0 and 1: "), "{text}");
}

#[test]
fn ranks_with_other_options_are_refused_on_all() {
    let nothing = |_| Vec::new();
    let text = refused(of(nothing, |rank, options| options.choose_nccl(rank > 0)));
    assert!(text.contains("\n  rank 0: ways of collectives: Automatic by the options, NCCL may not be chosen\n"), "{text}");
    let text = refused(of(nothing, |rank, options| if rank == 1 { options.via(Via::TwoShot) } else { options }));
    assert!(text.contains("\n  rank 1: ways of collectives: TwoShot by the options, NCCL may be chosen\n"), "{text}");
}
