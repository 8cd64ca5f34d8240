//! Measured tiles: which calls they are for, what counts more, and files of them that are wrong.
mod support;

use std::path::PathBuf;

use kernels::dense::{gemm, tiles};
use maco::{Device, DeviceModel, PlanOptions, Tensor, Tuned, Tuning, Via, WayLine, bf16};
use support::{Matrix, poisoned};

const M: u64 = 200;
const N: u64 = 300;
const K: u64 = 500;

fn tuned(device: &Device) -> Tuned {
    Tuned {
        task: "linear".into(),
        element: "bf16".into(),
        shapes: vec![vec![M, K], vec![N, K], vec![M, N]],
        workers: device.workers(),
        tile: vec![64, 256],
        parts: 3,
        whole: 0,
        nanoseconds: 1234,
    }
}

fn tuning(device: &Device, entries: Vec<Tuned>) -> Tuning {
    Tuning { entries, ..Tuning::new(device) }
}

/// Tile and parts of `gemm` with these measurements.
fn chosen(device: &Device, options: PlanOptions) -> (Vec<u32>, u32) {
    chosen_for(device, M, options)
}

/// The same with so many rows.
fn chosen_for(device: &Device, rows: u64, options: PlanOptions) -> (Vec<u32>, u32) {
    let plan = gemm::plan_with(device, gemm::Dims { M: rows, K, N }, &options).unwrap();
    let call = &plan.graph().calls[0];
    let (x, w) = (Matrix::integers(rows as usize, K as usize, 1, 2), Matrix::sparse(N as usize, K as usize, 2));
    let mut y = poisoned::<bf16>(device, rows as usize, N as usize);
    let (a, b): (Tensor<bf16>, Tensor<bf16>) = (x.upload(device), w.upload(device));
    plan.run(&a, &b, &mut y).unwrap();
    x.times(&w.t()).bf16().within(&y, 0.0, &format!("tile {:?} in {} parts", call.tile, call.parts));
    (call.tile.clone(), call.parts)
}

#[test]
fn what_was_measured_is_used_for_the_same_calls_on_the_same_kind_of_device() {
    let device = Device::cpu_with(3);
    let plan = |tuning: Tuning| chosen(&device, PlanOptions::new().tuning(tuning));
    let free = chosen(&device, PlanOptions::new());
    assert_ne!(free, (vec![64, 256], 3));
    assert_eq!(plan(tuning(&device, vec![tuned(&device)])), (vec![64, 256], 3));
    for other in [
        Tuned { task: "matmul".into(), ..tuned(&device) },
        Tuned { element: "f16".into(), ..tuned(&device) },
        Tuned { workers: 4, ..tuned(&device) },
        Tuned { shapes: vec![vec![M, K], vec![N, K], vec![M, N + 1]], ..tuned(&device) },
        Tuned { shapes: vec![vec![M, K], vec![N, K]], ..tuned(&device) },
        // Measured before the task was changed.
        Tuned { tile: vec![64, 96], ..tuned(&device) },
        Tuned { tile: vec![64], ..tuned(&device) },
        Tuned { parts: 1 << 20, ..tuned(&device) },
    ] {
        assert_eq!(plan(tuning(&device, vec![other.clone()])), free, "{other:?}");
    }
    assert_eq!(plan(Tuning { device: "another".into(), ..tuning(&device, vec![tuned(&device)]) }), free);
}

#[test]
fn what_the_source_and_the_caller_say_counts_more() {
    let device = Device::cpu_with(2);
    let options = || PlanOptions::new().tuning(tuning(&device, vec![tuned(&device)]));
    let plan = tiles::plan_with(&device, tiles::Dims { M, K, N }, &options()).unwrap();
    let found: Vec<_> = plan.graph().calls.iter().map(|call| (call.tile.clone(), call.parts)).collect();
    assert_eq!(found, [[64, 128], [64, 256], [128, 128], [128, 256]].map(|tile| (tile.to_vec(), 3)));
    let shape = maco::CallShape { call: 0, tile: Some(vec![128, 128]), split: Some(2), whole: 0 };
    assert_eq!(chosen(&device, options().shapes(vec![shape])), (vec![128, 128], 2));
}

/// Few rows have tiles of two forms, and measurements may name either.
#[test]
fn a_measurement_may_name_either_form() {
    const ROWS: u64 = 7;
    let device = Device::cpu_with(3);
    let few = |tile: [u32; 2], parts| Tuned {
        shapes: vec![vec![ROWS, K], vec![N, K], vec![ROWS, N]],
        tile: tile.to_vec(),
        parts,
        ..tuned(&device)
    };
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("forms.json");
    let with = |entry: Tuned| {
        // By way of a file.
        tuning(&device, vec![entry]).write(&path).unwrap();
        PlanOptions::new().tuning(Tuning::read(&path).unwrap())
    };
    let free = chosen_for(&device, ROWS, PlanOptions::new());
    assert_eq!(free.0[0], 8, "not streamed");
    for (tile, parts) in [([8, 8], 1), ([16, 8], 1), ([64, 256], 1), ([128, 128], 3)] {
        assert_eq!(chosen_for(&device, ROWS, with(few(tile, parts))), (tile.to_vec(), parts));
    }
    // What is streamed has no parts, and no tile is half of one form and half of the other.
    for (tile, parts) in [([8, 8], 2), ([16, 128], 1), ([64, 8], 1)] {
        assert_eq!(chosen_for(&device, ROWS, with(few(tile, parts))), free);
    }
    // The source says that all are staged, so nothing that was measured of the other form counts.
    let plan = tiles::plan_with(&device, tiles::Dims { M: ROWS, K, N }, &with(few([8, 8], 1))).unwrap();
    let found: Vec<_> = plan.graph().calls.iter().map(|call| (call.tile.clone(), call.parts)).collect();
    assert_eq!(found, [[64, 128], [64, 256], [128, 128], [128, 256]].map(|tile| (tile.to_vec(), 1)));
    std::fs::remove_file(&path).unwrap();
}

/// A device of which loads cost nothing and tiles much takes the largest tile, and the plan says by which model.
#[test]
fn a_model_decides_what_nothing_else_does() {
    let device = Device::cpu_with(1);
    let model = DeviceModel { name: "made up".into(), gemm_tile: 1e9, part: 1e9, ..DeviceModel::DEFAULT };
    let with = |tuning: Tuning| {
        let options = PlanOptions::new().tuning(tuning);
        gemm::plan_with(&device, gemm::Dims { M, K, N }, &options).unwrap().graph().clone()
    };
    let usual = with(Tuning::new(&device));
    let plan = with(Tuning { model: Some(model.clone()), ..Tuning::new(&device) });
    assert_ne!(usual.calls[0].tile, [128, 256]);
    assert_eq!(plan.calls[0].tile, [128, 256]);
    assert_eq!((&usual.model, &plan.model), (&DeviceModel::DEFAULT, &model));
    assert!(plan.to_string().contains("device model: made up (assumed): copy 18.0"), "{plan}");
    assert!(plan.json().contains("\"name\": \"made up\""));
    let other = Tuning { model: Some(model), device: "another".into(), ..Tuning::new(&device) };
    assert_eq!(with(other).model, DeviceModel::DEFAULT);
}

/// Run by the test below in a process of its own, with another environment.
#[test]
fn the_model_in_use() {
    let device = Device::cpu_with(1);
    for (options, what) in [(PlanOptions::new(), "by itself"), (PlanOptions::new().tuning(Tuning::new(&device)), "with a tuning")] {
        match gemm::plan_with(&device, gemm::Dims { M, K, N }, &options) {
            Ok(plan) => println!("{what}: {}", plan.graph().model.name),
            Err(error) => println!("{what}: {error}"),
        }
    }
}

#[test]
fn the_environment_names_a_file_for_programs_that_set_none() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("named.json");
    let shown = |value: &std::path::Path| {
        let mut program = std::process::Command::new(std::env::current_exe().unwrap());
        let output = program.args(["--exact", "the_model_in_use", "--nocapture"]).env("MACO_TUNING", value).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let model = DeviceModel { name: "made up".into(), ..DeviceModel::DEFAULT };
    Tuning { model: Some(model), ..Tuning::new(&Device::cpu()) }.write(&path).unwrap();
    let named = shown(&path);
    assert!(named.contains("by itself: made up") && named.contains("with a tuning: default"), "{named}");
    std::fs::remove_file(&path).unwrap();
    let missing = shown(&path);
    assert!(missing.contains("by itself: MACO0067: ") && missing.contains("named.json cannot be read"), "{missing}");
    assert!(missing.contains("with a tuning: default"), "{missing}");
    let nothing = shown("".as_ref());
    assert!(nothing.contains("by itself: default"), "{nothing}");
}

fn way(collective: &'static str, ranks: u32, bytes: [u64; 2], via: Via) -> WayLine {
    WayLine { collective: collective.into(), ranks, from_bytes: bytes[0], below_bytes: (bytes[1] > 0).then_some(bytes[1]), via }
}

/// Lines for a collective and a number of ranks replace those that were there; of a file the line that is wrong is named.
#[test]
fn ways_come_back_from_a_file_and_broken_ones_say_where() {
    let mut good = Tuning::new(&Device::cpu());
    good.replace_ways(vec![way("all_reduce", 2, [0, 0], Via::TwoShot), way("ring", 2, [0, 0], Via::Nccl)]);
    let lines = [way("all_reduce", 2, [0, 65536], Via::Packets), way("all_reduce", 2, [65536, 0], Via::OneShot)];
    good.replace_ways(lines.to_vec());
    let [small, large] = lines;
    assert_eq!(good.ways, [way("ring", 2, [0, 0], Via::Nccl), small, large]);
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("ways.json");
    good.write(&path).unwrap();
    assert_eq!(Tuning::read(&path).unwrap(), good);
    let text = std::fs::read_to_string(&path).unwrap();
    for (from, to, what) in [
        (
            "\"Packets\"",
            "\"Carrier\"",
            "line 15: field `maco_tuning.ways[1].via`: unknown variant `Carrier`, expected one of `Packets`, `OneShot`, `TwoShot`, `Nccl`",
        ),
        ("\"ring\"", "\"rings\"", "line 7: field `maco_tuning.ways[0].collective`: unknown variant `rings`, expected one of `all_reduce`"),
        ("\"ranks\": 2", "\"ranks\": 1", "line 8: field `maco_tuning.ways[0].ranks`: invalid value: integer `1`, expected 2 ranks or more"),
        (
            "\"from_bytes\": 65536",
            "\"from_bytes\": -1",
            "line 23: field `maco_tuning.ways[2].from_bytes`: invalid value: integer `-1`, expected u64",
        ),
        ("\"from_bytes\": 65536", "\"from_byte\": 65536", "line 23: field `maco_tuning.ways[2].from_byte`: unknown field `from_byte`"),
        ("\"below_bytes\": 65536", "\"below_bytes\": 0", "line 12: field `maco_tuning.ways[1]`: there is no number from 0 and below 0"),
        (
            "\"below_bytes\": 65536",
            "\"below_bytes\": 65537",
            "line 19: field `maco_tuning.ways[2]`: it is for some of the bytes that `maco_tuning.ways[1]` is for",
        ),
        ("\"Nccl\"", "\"OneShot\"", "line 6: field `maco_tuning.ways[0]`: no `ring` goes by `OneShot`"),
        ("\"via\": \"OneShot\",", "", "field `maco_tuning.ways[2]`: missing field `via`"),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let error = Tuning::read(&path).unwrap_err();
        let shown = error.to_string();
        assert!(error.code() == 67 && shown.contains(what) && shown.contains("ways.json"), "{shown}\nnot: {what}");
        assert!(shown.contains("cargo xtask tune ways"), "{shown}");
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn measurements_come_back_from_a_file_and_broken_ones_say_where() {
    let device = Device::cpu();
    let mut good = Tuning::new(&device);
    good.add(tuned(&device));
    good.add(Tuned { workers: 100, ..tuned(&device) });
    // In place of the first.
    good.add(Tuned { tile: vec![128, 128], parts: 2, ..tuned(&device) });
    assert_eq!(good.entries.iter().map(|entry| (entry.workers, entry.parts)).collect::<Vec<_>>(), [(device.workers(), 2), (100, 3)]);
    good.model = Some(DeviceModel::DEFAULT);
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("tuning.json");
    good.write(&path).unwrap();
    assert_eq!(Tuning::read(&path).unwrap(), good);
    let text = std::fs::read_to_string(&path).unwrap();
    for (from, to, what) in [
        (
            "\"parts\": 3",
            "\"parts\": 0",
            "line 79: field `maco_tuning.entries[1].parts`: invalid value: integer `0`, expected a whole number above 0",
        ),
        ("\"whole\": 0", "\"whole\": -1", "field `maco_tuning.entries[0].whole`: invalid value: integer `-1`, expected u32"),
        ("\"parts\": 3", "\"part\": 3", "field `maco_tuning.entries[1].part`: unknown field `part`, expected one of `task`"),
        ("\"whole\": 0,", "", "field `maco_tuning.entries[0]`: missing field `whole`"),
        ("\"task\": \"linear\"", "\"task\": 7", "field `maco_tuning.entries[0].task`: invalid type: integer `7`, expected a string"),
        ("\"workers\": 100", "\"workers\": -1", "field `maco_tuning.entries[1].workers`"),
        ("128,", "0,", "field `maco_tuning.entries[0].tile`: invalid value: integer `0`, expected whole numbers above 0"),
        ("\"shapes\": [", "\"shapes\": [ 5,", "field `maco_tuning.entries[0].shapes[0]`: invalid type: integer `5`, expected a sequence"),
        ("\"device\"", "\"machine\"", "field `maco_tuning.machine`: unknown field `machine`"),
        (
            "\"hop_nanoseconds\": 1580.0",
            "\"hop_nanoseconds\": -1",
            "line 22: field `maco_tuning.model.hop_nanoseconds`: invalid value: floating point `-1.0`, expected a number, 0 or more",
        ),
        ("\"copy_bytes_per_nanosecond\": 18.0,", "", "field `maco_tuning.model`: missing field `copy_bytes_per_nanosecond`"),
        ("\"version\": 2", "\"version\": 3", "has version 3 of its format, but this program reads version 2"),
        ("maco_tuning", "tuning", "was not written by MACO: it has no `maco_tuning`"),
        ("}", "", "is not JSON"),
        (
            "\"workers\": 100",
            &format!("\"workers\": {}", device.workers()),
            "field `maco_tuning.entries`: entry 1 is for the same calls as entry 0, counted from 0",
        ),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let error = Tuning::read(&path).unwrap_err();
        let shown = error.to_string();
        assert!(error.code() == 67 && shown.contains(what) && shown.contains("tuning.json"), "{shown}");
        assert!(shown.contains("\nhelp: "), "{shown}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(Tuning::read(&path).unwrap_err().to_string().contains("MACO0067") && good.write(path.join("no")).is_err());
}
