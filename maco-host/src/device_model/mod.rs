//! Which device model a plan is made by, where no tuning file has one: that of the GPU's name, or the nearest. What the numbers are for does not belong
//! here ([`DeviceModel`]), nor how they are measured (`cargo xtask tune`).

mod h100;
mod h200;

use maco_graph::plan::{DeviceModel, Origin};

/// What CUDA says about a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reported {
    /// Multiprocessors, also those that are left to others.
    pub(crate) multiprocessors: u32,
    /// Bytes per nanosecond of device memory at its highest clock, both edges of which carry a bit; 0 where the driver does not say.
    pub(crate) memory: f64,
}

impl Reported {
    fn memory_each(self) -> f64 {
        self.memory / f64::from(self.multiprocessors.max(1))
    }
}

/// A model that MACO comes with, and what CUDA says about the GPU that was measured.
struct Shipped {
    model: DeviceModel,
    reported: Reported,
}

const SHIPPED: [Shipped; 2] = [h100::SHIPPED, h200::SHIPPED];

/// The model of the GPU that the driver calls `name`. If MACO has none, that of the GPU whose multiprocessors have the most similar share of memory, with its
/// rate of copies changed as that share: nothing else is known before `cargo xtask tune`.
pub(crate) fn of(name: &str, reported: Reported) -> DeviceModel {
    if let Some(shipped) = SHIPPED.iter().find(|shipped| shipped.model.name == name) {
        return shipped.model.clone();
    }
    let ratio = |shipped: &Shipped| match reported.memory_each() / shipped.reported.memory_each() {
        ratio if ratio.is_finite() && ratio > 0.0 => ratio,
        _ => 1.0,
    };
    let [first, others @ ..] = &SHIPPED;
    let distance = |shipped: &Shipped| ratio(shipped).ln().abs();
    let nearest = others.iter().fold(first, |nearest, other| if distance(other) < distance(nearest) { other } else { nearest });
    let model = nearest.model.clone();
    DeviceModel { name: name.to_owned().into(), origin: Origin::Derived(model.name), copy: model.copy * ratio(nearest), ..model }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(multiprocessors: u32, memory: f64) -> Reported {
        Reported { multiprocessors, memory }
    }

    #[test]
    fn a_known_gpu_has_its_own_model() {
        for shipped in SHIPPED {
            let name = shipped.model.name.clone();
            assert_eq!(of(&name, reported(1, 1.0)), shipped.model);
            assert!(shipped.model.numbers().iter().all(|(_, value, _)| value.is_finite() && *value > 0.0), "{name}");
        }
        // Of an H100 one number was measured.
        let h200 = SHIPPED[1].model.clone();
        assert_eq!((SHIPPED[0].model.origin.clone(), h200.origin), (Origin::Derived(h200.name), Origin::Measured));
    }

    #[test]
    fn another_gpu_has_that_of_the_nearest_with_its_own_rate_of_memory() {
        let h100 = &SHIPPED[0];
        let pcie = of("NVIDIA H100 PCIe", reported(114, 2039.0));
        assert_eq!(pcie.origin, Origin::Derived(h100.model.name.clone()));
        assert_eq!(pcie.name, "NVIDIA H100 PCIe");
        let expected = h100.model.copy * (2039.0 / 114.0) / (3352.0 / 132.0);
        assert!((pcie.copy - expected).abs() < 0.01, "{} for {expected}", pcie.copy);
        assert_eq!(
            DeviceModel { name: h100.model.name.clone(), origin: h100.model.origin.clone(), copy: h100.model.copy, ..pcie },
            h100.model
        );
        let nvl = of("NVIDIA H200 NVL", reported(132, 4917.0));
        assert_eq!(nvl.origin, Origin::Derived("NVIDIA H200".into()));
        assert!((nvl.copy / SHIPPED[1].model.copy - 1.0).abs() < 1e-3);
    }

    #[test]
    fn a_driver_that_says_nothing_about_memory_leaves_the_rate_as_it_is() {
        for nothing in [reported(132, 0.0), reported(0, 0.0)] {
            assert_eq!(of("some GPU", nothing).copy, SHIPPED[0].model.copy);
        }
    }
}
