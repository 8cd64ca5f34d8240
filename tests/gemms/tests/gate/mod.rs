//! What a gated GEMM may give, by its two sums.

/// silu(gate) · up, and what it may be off: of either sum there is what it may be off, too. Where one of them is infinite and the other may have
/// either sign, or be 0, there is no one answer, so that whatever is `found` is right if it is not finite.
pub fn gated((gate, open): (f64, f64), (up, raised): (f64, f64), found: f64) -> (f64, f64) {
    let unsigned = |sum: f64, off: f64| sum.is_finite() && sum.abs() <= off;
    if !found.is_finite() && (up.is_infinite() && unsigned(gate, open) || gate == f64::INFINITY && unsigned(up, raised)) {
        return (found, 0.0);
    }
    // Silu's slope is below 1.1; and silu's own error.
    let error = 1.1 * open * (up.abs() + raised) + gate.abs() * raised + 2f64.powi(-20) * (gate * up).abs();
    (gate / (1.0 + (-gate).exp()) * up, error)
}
