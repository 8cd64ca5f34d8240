//! Measurements that were made from a model give it back.

use super::*;

/// A launch, and rounds of tasks of so many nanoseconds.
fn rounds(model: &DeviceModel, rounds: f64, each: f64) -> Sample {
    Sample { work: rounds, nanoseconds: model.launch + rounds * each }
}

fn pair(model: &DeviceModel, each: f64) -> [Sample; 2] {
    [rounds(model, 1.0, each), rounds(model, 16.0, each)]
}

/// What a device of this model would take.
fn measured(model: &DeviceModel) -> Measurements {
    let workers = 132;
    let bytes = |work: f64| Sample { work, nanoseconds: 2000.0 + work / model.copy / f64::from(workers) };
    let gemms = |tile: [u64; 2], last: bool| {
        let elements = (tile[0] * tile[1]) as f64;
        let loads = model.step + (tile[0] + tile[1]) as f64 * 128.0 / model.step_rate;
        let step = if last { 2.0 * elements * 64.0 / model.tensor } else { loads };
        let tile_of = |steps: u64| steps as f64 * step + model.gemm_tile + model.gemm_element * elements;
        let part = model.part + elements * 12.0 / model.part_rate;
        Gemms { tile, whole: STEPS.map(|steps| pair(model, tile_of(steps))), parts: pair(model, tile_of(STEPS[0]) + part) }
    };
    let copied = |rows: f64| {
        let (task, all) = (rows * 4096.0, f64::from(256 << 20));
        let rounds = all / task / f64::from(workers);
        let nanoseconds = model.launch + (rounds + 1.0) * task / model.copy + model.tile + rounds * model.ring_tile;
        (Sample { work: rounds, nanoseconds }, task)
    };
    let (first, other) = (SMALL_TILE_BYTES / model.copy, SMALL_TILE_BYTES / model.l2);
    Measurements {
        workers,
        copies: [bytes(5e8), bytes(1e9)],
        cached: (pair(model, 131072.0 / model.l2), 131072.0),
        multiplied: (pair(model, 2e6 / model.gemv), 2e6),
        gemms: [[64, 128], [128, 128], [64, 256]].map(|tile| gemms(tile, false)).into_iter().chain([gemms([128, 256], true)]).collect(),
        ring: [copied(16.0), copied(64.0)],
        short: [20.0, 40.0].map(|work| rounds(model, work, model.least_tile + model.ring_tile)),
        launch: model.launch + first + model.tile,
        chain: model.launch + CHAIN * (other + model.tile),
        empty: [173.0, 173.0 + 2.0 * model.ticket],
        hop: model.hop,
    }
}

#[test]
fn measurements_of_a_model_give_it_back() {
    let slower = DeviceModel { copy: 10.0, step: 20.0, tile: 300.0, ring_tile: 12.0, hop: 700.0, ..DeviceModel::DEFAULT };
    for model in [DeviceModel::DEFAULT, slower] {
        let found = measured(&model).fit("a GPU", &DeviceModel::DEFAULT).unwrap();
        assert_eq!((&*found.name, &found.origin), ("a GPU", &Origin::Measured));
        for ((name, found, _), (_, expected, _)) in found.numbers().into_iter().zip(model.numbers()) {
            assert!((found / expected - 1.0).abs() < 1e-6, "{name}: {found} for {expected}");
        }
    }
}

/// Every time is a hundredth off, in turn too long and too short: no number is off by more than a fifth but those that are small differences of large times.
#[test]
fn noise_moves_what_is_fitted_a_little() {
    let mut measurements = measured(&DeviceModel::DEFAULT);
    let mut sign = 1.0;
    let mut off = |sample: &mut Sample| {
        sample.nanoseconds *= 1.0 + 0.01 * sign;
        sign = -sign;
    };
    measurements.copies.iter_mut().chain(&mut measurements.cached.0).chain(&mut measurements.multiplied.0).for_each(&mut off);
    let found = measurements.fit("a GPU", &DeviceModel::DEFAULT).unwrap();
    for ((name, found, _), (_, expected, _)) in found.numbers().into_iter().zip(DeviceModel::DEFAULT.numbers()).take(4) {
        assert!((found / expected - 1.0).abs() < 0.2, "{name}: {found} for {expected}");
    }
}

/// What docs/internals/gemm.md has of an H200: its steps, and what parts took, give about what MACO comes with for it.
#[test]
fn an_h200s_steps_and_parts_give_its_model() {
    let gemms = |tile: [u64; 2], step: f64, beside: f64, part: f64| {
        let of = |steps: u64| steps as f64 * step + beside;
        let pair = |each: f64| [Sample { work: 1.0, nanoseconds: each }, Sample { work: 2.0, nanoseconds: 2.0 * each }];
        Gemms { tile, whole: STEPS.map(|steps| pair(of(steps))), parts: pair(of(STEPS[0]) + part) }
    };
    let gemms = vec![
        gemms([64, 128], 304.0, 1200.0, 4000.0),
        gemms([128, 128], 444.0, 1200.0, 5000.0),
        gemms([64, 256], 502.0, 1100.0, 5000.0),
        gemms([128, 256], 774.0, 1700.0, 8000.0),
    ];
    let found = Measurements { gemms, ..measured(&DeviceModel::DEFAULT) }.fit("NVIDIA H200", &DeviceModel::DEFAULT).unwrap();
    let step = |bytes: f64| found.step + bytes / found.step_rate;
    assert!((step(32768.0) - 417.0).abs() < 10.0 && (step(40960.0) - 502.0).abs() < 25.0, "{found:?}");
    assert!((found.tensor / 5419.0 - 1.0).abs() < 0.01, "{}", found.tensor);
    let part = |elements: f64| found.part + elements * 12.0 / found.part_rate;
    assert!((part(8192.0) - 4000.0).abs() < 500.0 && (part(32768.0) - 8000.0).abs() < 500.0, "{found:?}");
    assert!((found.gemm_tile + found.gemm_element * 32768.0 - 1700.0).abs() < 150.0, "{found:?}");
}

#[test]
fn nonsense_is_refused_by_name() {
    let mut measurements = measured(&DeviceModel::DEFAULT);
    measurements.copies.swap(0, 1);
    measurements.copies[0].work = 0.0;
    let error = measurements.fit("a GPU", &DeviceModel::DEFAULT).unwrap_err().to_string();
    assert!(error.contains("`copy` came out as") && error.contains("measure again"), "{error}");
    measurements = Measurements { gemms: Vec::new(), ..measured(&DeviceModel::DEFAULT) };
    assert!(measurements.fit("a GPU", &DeviceModel::DEFAULT).is_err());
}
