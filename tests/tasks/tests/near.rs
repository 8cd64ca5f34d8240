//! What comparisons with references refuse: a test that takes any number for an infinite one cannot fail.
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};

use maco::{bf16, f16};
use support::{Number, Setup, near, upload};

/// Whether `near` takes `found` for `expected`, within 2⁻²⁰.
fn takes<E: Number>(found: f64, expected: f64) -> bool {
    let tensor = upload(&Setup::plain(1), &[E::from64(found)], &[1]);
    catch_unwind(AssertUnwindSafe(|| near(&tensor, |_| expected, 2f64.powi(-20), |_| 0.0, "refused"))).is_ok()
}

fn infinities<E: Number>() {
    for infinity in [f64::INFINITY, f64::NEG_INFINITY] {
        assert!(takes::<E>(infinity, infinity));
        assert!(!takes::<E>(E::LARGEST.copysign(infinity), infinity));
        for other in [5.0, 0.0, -infinity, f64::NAN] {
            assert!(!takes::<E>(other, infinity), "{other} for {infinity}");
            assert!(!takes::<E>(infinity, other), "{infinity} for {other}");
        }
    }
    assert!(takes::<E>(f64::NAN, f64::NAN));
    assert!(!takes::<E>(5.0, f64::NAN));
}

#[test]
fn an_infinity_is_nothing_else() {
    infinities::<bf16>();
    infinities::<f16>();
    infinities::<f32>();
}

/// 65520 is half a step above the largest `f16`, and rounds to infinity.
#[test]
fn near_the_largest_number_a_rounding_goes_either_way() {
    for (found, expected) in
        [(f64::INFINITY, 65520.0), (65504.0, 65520.0), (f64::INFINITY, 65519.99), (65504.0, 65519.99), (f64::INFINITY, 1e6)]
    {
        assert!(takes::<f16>(found, expected), "{found} for {expected}");
    }
    for (found, expected) in [(f64::NEG_INFINITY, 65520.0), (5.0, 65520.0), (f64::INFINITY, 65504.0), (65504.0, 70000.0), (5.0, 1e6)] {
        assert!(!takes::<f16>(found, expected), "{found} for {expected}");
    }
}

/// Of `f16` half a step of the smallest numbers is 2⁻²⁵.
#[test]
fn small_numbers_are_as_close_as_their_element_has_them() {
    assert!(takes::<f16>(0.0, 2f64.powi(-26)));
    assert!(!takes::<f16>(0.0, 2f64.powi(-23)));
    assert!(!takes::<f32>(0.0, 1e-20) && !takes::<bf16>(0.0, 1e-20));
}
