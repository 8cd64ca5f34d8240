//! What a device costs: the rates and times by which the planner compares tiles, split-K, forms and orders.
//!
//! How they are measured does not belong here (`cargo xtask tune`), nor the numbers of any one card (`maco-host`). How many multiprocessors there are is not
//! a part of the model either: a plan is made for so many workers ([`super::Options::workers`]).

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// What a device costs. Rates are those of one multiprocessor while all of them are busy.
///
/// Only ratios matter to the choice of tiles; a hop and the costs that a caller passes ([`super::Costs`]) must be in the same nanoseconds.
/// In files each field has its unit in its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceModel {
    /// Whose numbers these are: the GPU's name as its driver has it.
    pub name: Cow<'static, str>,
    /// Where they come from.
    pub origin: Origin,
    /// Bytes per nanosecond of device memory, reads and writes together, such as those of a large copy.
    #[serde(rename = "copy_bytes_per_nanosecond", deserialize_with = "positive")]
    pub copy: f64,
    /// Bytes per nanosecond that come from the L2 cache.
    #[serde(rename = "l2_bytes_per_nanosecond", deserialize_with = "positive")]
    pub l2: f64,
    /// Floating-point operations per nanosecond of the tensor cores, two per multiply-add: 16-bit, dense, at the clock that the power limit leaves while all
    /// multiprocessors multiply. Half as many of tf32.
    #[serde(rename = "tensor_flop_per_nanosecond", deserialize_with = "positive")]
    pub tensor: f64,
    /// Floating-point operations per nanosecond of a GEMV, two per multiply-add, of a tile of 16 × 16 that is bound by them and not by loads.
    #[serde(rename = "gemv_flop_per_nanosecond", deserialize_with = "positive")]
    pub gemv: f64,
    /// Nanoseconds of a K step of a GEMM that is bound by its loads, beside its bytes. With [`DeviceModel::step_rate`] a line through the steps of several
    /// tiles.
    #[serde(rename = "step_nanoseconds", deserialize_with = "not_negative")]
    pub step: f64,
    /// Bytes per nanosecond of such a step.
    #[serde(rename = "step_bytes_per_nanosecond", deserialize_with = "positive")]
    pub step_rate: f64,
    /// Nanoseconds of a GEMM tile beside its steps: waits, descriptor, fill and drain of the pipeline. With [`DeviceModel::gemm_element`] a line through
    /// several tiles.
    #[serde(rename = "gemm_tile_nanoseconds", deserialize_with = "not_negative")]
    pub gemm_tile: f64,
    /// Nanoseconds of each element of its result: converted, staged, stored.
    #[serde(rename = "gemm_element_nanoseconds", deserialize_with = "not_negative")]
    pub gemm_element: f64,
    /// Nanoseconds of any other tile whose loads begin only with it, beside its bytes.
    #[serde(rename = "tile_nanoseconds", deserialize_with = "not_negative")]
    pub tile: f64,
    /// Nanoseconds of a tile that came through the ring while the one before was computed, beside its bytes.
    #[serde(rename = "ring_tile_nanoseconds", deserialize_with = "not_negative")]
    pub ring_tile: f64,
    /// Least nanoseconds of a memory-bound tile of several of a worker, whatever its bytes: the same warps compute one after the other.
    #[serde(rename = "least_tile_nanoseconds", deserialize_with = "not_negative")]
    pub least_tile: f64,
    /// Nanoseconds of a split-K part beside its bytes: the signal, the wait for the other parts, the claim of chunks in the fix-up. With
    /// [`DeviceModel::part_rate`] a line through several tiles.
    #[serde(rename = "part_nanoseconds", deserialize_with = "not_negative")]
    pub part: f64,
    /// Bytes of partial sums per nanosecond, written or read: all are written before any is read.
    #[serde(rename = "part_bytes_per_nanosecond", deserialize_with = "positive")]
    pub part_rate: f64,
    /// Nanoseconds that a task must take so that the ticket of a later one, an atomic addition and the load of a descriptor, is hidden behind it: half of what
    /// tickets add to tasks without work, since two tickets are on their way.
    #[serde(rename = "ticket_nanoseconds", deserialize_with = "not_negative")]
    pub ticket: f64,
    /// Nanoseconds from the end of a task to the begin of another one that waits for it on another worker.
    #[serde(rename = "hop_nanoseconds", deserialize_with = "not_negative")]
    pub hop: f64,
    /// Nanoseconds of a launch beside its tasks, behind another launch: the first descriptors, the barriers of shared memory, the end. The same for all plans
    /// of a graph, so that no choice depends on it.
    #[serde(rename = "launch_nanoseconds", deserialize_with = "not_negative")]
    pub launch: f64,
    /// Nanoseconds of a tile that ranks exchange as packets, beside its bytes. With [`DeviceModel::packet_rate`] a line through several tiles.
    #[serde(rename = "packet_tile_nanoseconds", deserialize_with = "not_negative")]
    pub packet_tile: f64,
    /// Bytes of such a tile per nanosecond, its data alone.
    #[serde(rename = "packet_bytes_per_nanosecond", deserialize_with = "positive")]
    pub packet_rate: f64,
    /// Nanoseconds of a tile that ranks exchange with a signal, by the tasks that send and receive it, beside its bytes.
    #[serde(rename = "signalled_tile_nanoseconds", deserialize_with = "not_negative")]
    pub signalled_tile: f64,
    /// Bytes of such a tile per nanosecond, sent and received.
    #[serde(rename = "signalled_bytes_per_nanosecond", deserialize_with = "positive")]
    pub signalled_rate: f64,
    /// Most bytes of the partial sums of one call: what stays in the L2 cache, beside the operands, until it is read again.
    #[serde(rename = "partial_sums_bytes")]
    pub partial_sums: u64,
}

/// Where the numbers of a [`DeviceModel`] come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Nobody measured them: [`DeviceModel::DEFAULT`].
    Assumed,
    /// Measured on this kind of device.
    Measured,
    /// Those of another device, so named, with the rate of memory that this one reports.
    Derived(Cow<'static, str>),
}

impl DeviceModel {
    /// What plans are made by where no GPU is planned for: on the CPU, and in tests. It is no card's. It is made up: a GPU with a clock of 1 GHz, which
    /// does in a cycle about what GPUs of 2022 to 2024 do. So a nanosecond is a cycle, and the choices are those for such a GPU with any clock.
    pub const DEFAULT: DeviceModel = DeviceModel {
        name: Cow::Borrowed("default"),
        origin: Origin::Assumed,
        copy: 18.0,
        l2: 40.0,
        tensor: 3088.0,
        gemv: 214.0,
        step: 60.0,
        step_rate: 48.0,
        gemm_tile: 1500.0,
        gemm_element: 0.045,
        tile: 800.0,
        ring_tile: 90.0,
        least_tile: 3000.0,
        part: 3400.0,
        part_rate: 36.0,
        ticket: 910.2,
        hop: 1580.0,
        launch: 12500.0,
        packet_tile: 2300.0,
        packet_rate: 0.8,
        signalled_tile: 5300.0,
        signalled_rate: 1.6,
        partial_sums: 32 << 20,
    };

    /// Every number with its name and unit, in the order of the fields: for tables.
    pub fn numbers(&self) -> [(&'static str, f64, &'static str); 21] {
        const RATE: &str = "B/ns";
        const OPERATIONS: &str = "FLOP/ns";
        const TIME: &str = "ns";
        [
            ("copy", self.copy, RATE),
            ("L2", self.l2, RATE),
            ("tensor cores", self.tensor, OPERATIONS),
            ("GEMV", self.gemv, OPERATIONS),
            ("step", self.step, TIME),
            ("bytes of a step", self.step_rate, RATE),
            ("GEMM tile", self.gemm_tile, TIME),
            ("element of a GEMM tile", self.gemm_element, TIME),
            ("tile", self.tile, TIME),
            ("tile through the ring", self.ring_tile, TIME),
            ("least of a tile", self.least_tile, TIME),
            ("part", self.part, TIME),
            ("bytes of a part", self.part_rate, RATE),
            ("ticket", self.ticket, TIME),
            ("hop", self.hop, TIME),
            ("launch", self.launch, TIME),
            ("tile of packets", self.packet_tile, TIME),
            ("bytes of packets", self.packet_rate, RATE),
            ("tile with a signal", self.signalled_tile, TIME),
            ("bytes with a signal", self.signalled_rate, RATE),
            ("partial sums", self.partial_sums as f64, "bytes"),
        ]
    }

    /// [`DeviceModel::hop`] in whole nanoseconds.
    pub(super) fn hop_nanoseconds(&self) -> u64 {
        self.hop.round() as u64
    }

    /// Least bytes of a task behind which the ticket of the next is hidden.
    pub(super) fn bytes_behind_a_ticket(&self) -> u64 {
        (self.ticket * self.copy).round() as u64
    }
}

impl Default for DeviceModel {
    fn default() -> DeviceModel {
        DeviceModel::DEFAULT
    }
}

/// `NVIDIA H200 (measured): copy 31.6, L2 70.2 B/ns, ..`, on one line: the numbers by which most is decided.
impl fmt::Display for DeviceModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceModel { name, origin, copy, l2, tensor, step, step_rate, gemm_tile, part, hop, launch, .. } = self;
        write!(f, "{name} ({origin}): copy {copy:.1}, L2 {l2:.1} B/ns, tensor cores {tensor:.0} FLOP/ns per multiprocessor; ")?;
        write!(
            f,
            "step {step:.0} ns and {step_rate:.1} B/ns, GEMM tile {gemm_tile:.0}, part {part:.0}, hop {hop:.0}, launch {launch:.0} ns"
        )
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Assumed => f.write_str("assumed"),
            Origin::Measured => f.write_str("measured"),
            Origin::Derived(from) => write!(f, "derived from {from}"),
        }
    }
}

fn positive<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    number(from, |value| value > 0.0, "a number above 0")
}

fn not_negative<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    number(from, |value| value >= 0.0, "a number, 0 or more")
}

fn number<'de, D: Deserializer<'de>>(from: D, fits: impl Fn(f64) -> bool, expected: &str) -> Result<f64, D::Error> {
    use serde::de::{Error, Unexpected};
    let value = f64::deserialize(from)?;
    if value.is_finite() && fits(value) { Ok(value) } else { Err(D::Error::invalid_value(Unexpected::Float(value), &expected)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_comes_back_from_a_file() {
        let model = DeviceModel { origin: Origin::Derived("another".into()), step: 60.0 / 1.755, ..DeviceModel::DEFAULT };
        let text = serde_json::to_string_pretty(&model).unwrap();
        assert_eq!(serde_json::from_str::<DeviceModel>(&text).unwrap(), model, "{text}");
    }

    #[test]
    fn a_wrong_number_is_refused_with_its_line() {
        let text = serde_json::to_string_pretty(&DeviceModel::DEFAULT).unwrap();
        let read = |from: &str, to: &str| {
            assert!(text.contains(from), "{from} in {text}");
            serde_json::from_str::<DeviceModel>(&text.replace(from, to)).unwrap_err().to_string()
        };
        for (from, to, what) in [
            (
                "\"copy_bytes_per_nanosecond\": 18.0",
                "\"copy_bytes_per_nanosecond\": 0",
                "floating point `0.0`, expected a number above 0 at line 4",
            ),
            ("\"step_nanoseconds\": 60.0", "\"step_nanoseconds\": -1", "expected a number, 0 or more at line 8"),
            ("\"hop_nanoseconds\": 1580.0", "\"hop\": 1580.0", "unknown field `hop`"),
            ("\"partial_sums_bytes\": 33554432", "\"partial_sums_bytes\": 1.5", "floating point `1.5`, expected u64"),
            ("\"origin\": \"assumed\"", "\"origin\": \"guessed\"", "unknown variant `guessed`"),
        ] {
            let error = read(from, to);
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn it_says_what_decides_most() {
        let shown = DeviceModel { origin: Origin::Derived("NVIDIA H200".into()), ..DeviceModel::DEFAULT }.to_string();
        assert!(shown.starts_with("default (derived from NVIDIA H200): copy 18.0, L2 40.0 B/ns, tensor cores 3088 FLOP/ns"), "{shown}");
        assert!(shown.ends_with("hop 1580, launch 12500 ns") && !shown.contains('\n'), "{shown}");
    }
}
