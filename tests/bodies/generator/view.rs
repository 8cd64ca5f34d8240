//! Views of tensors, and where their elements are in a reference.
//!
//! A reference has planes one below the other, and a vector as one row.

use super::signature::Kind;

/// A view of a given shape.
#[derive(Clone, Debug)]
pub struct View {
    /// What follows the tensor's name: `.slice(0, 0..M)`.
    pub suffix: String,
    /// The shape of all of the tensor.
    pub whole: Vec<String>,
    /// Where element (r, c) of the view is.
    place: [String; 2],
    /// Every element of the tensor is in it.
    pub is_all: bool,
    /// Rows stay rows that TMA can address.
    is_plain: bool,
}

impl View {
    fn new(suffix: impl Into<String>, whole: &[&str], row: impl Into<String>, col: impl Into<String>) -> View {
        let whole = whole.iter().map(|size| (*size).to_owned()).collect();
        View { suffix: suffix.into(), whole, place: [row.into(), col.into()], is_all: true, is_plain: false }
    }

    fn plain(mut self) -> View {
        self.is_plain = true;
        self
    }

    fn half(mut self) -> View {
        self.is_all = false;
        self
    }

    /// All of a tensor of this shape.
    pub fn identity(shape: &[String]) -> View {
        let sizes: Vec<&str> = shape.iter().map(String::as_str).collect();
        View::new("", &sizes, "r", "c").plain()
    }

    /// The function from a place in the view to one in the tensor.
    pub fn place(&self) -> String {
        let [row, col] = &self.place;
        format!("|r, c| ({row}, {col})")
    }

    pub fn may_be(&self, kind: Kind) -> bool {
        self.is_plain || !matches!(kind, Kind::Operand | Kind::GemmResult)
    }
}

/// `{ 2 * M }` as an expression of a reference.
pub fn number(size: &str) -> String {
    size.to_lowercase().replace("{ ", "(").replace(" }", ")")
}

/// Rows and columns of a shape in a reference.
pub fn extents(shape: &[String]) -> String {
    let sizes: Vec<String> = shape.iter().map(|size| number(size)).collect();
    match &sizes[..] {
        [one] => format!("1, {one}"),
        [rows, cols] => format!("{rows}, {cols}"),
        [planes, rows, cols] => format!("{planes} * {rows}, {cols}"),
        other => unreachable!("{} dimensions", other.len()),
    }
}

/// The views that have this shape.
pub fn views(shape: &[String]) -> Vec<View> {
    let mut views = vec![View::identity(shape)];
    // Halves of quarters show nothing new.
    if shape.iter().any(|size| size.contains('{')) {
        return views;
    }
    let sizes: Vec<&str> = shape.iter().map(String::as_str).collect();
    let of = |size: &str| format!("({} as isize)", number(size));
    let double = |size: &str| format!("{{ 2 * {size} }}");
    // Both halves along an axis: the range, and where it begins.
    let halves = |size: &str| {
        let (low, high) = (format!("0..{size}"), format!("{size}..2 * {size}"));
        [(low, "0".to_owned()), (high, of(size))]
    };
    match sizes[..] {
        [n] => {
            for (range, from) in halves(n) {
                views.push(View::new(format!(".slice(0, {range})"), &[&double(n)], "r", format!("c + {from}")).half());
            }
        }
        [m, n] => {
            for (range, from) in halves(m) {
                views.push(View::new(format!(".slice(0, {range})"), &[&double(m), n], format!("r + {from}"), "c").half().plain());
            }
            for (range, from) in halves(n) {
                views.push(View::new(format!(".slice(1, {range})"), &[m, &double(n)], "r", format!("c + {from}")).half());
                views.push(View::new(format!(".slice(0, {range}).t()"), &[&double(n), m], format!("c + {from}"), "r").half());
            }
            views.push(View::new(".t()", &[n, m], "c", "r"));
        }
        [b, m, n] => {
            for (range, from) in halves(b) {
                let row = if from == "0" { "r".to_owned() } else { format!("r + {from} * {}", of(m)) };
                views.push(View::new(format!(".slice(0, {range})"), &[&double(b), m, n], row, "c").half().plain());
            }
            for (range, from) in halves(m) {
                let row = format!("r / {0} * 2 * {0} + {from} + r % {0}", of(m));
                views.push(View::new(format!(".slice(1, {range})"), &[b, &double(m), n], row, "c").half());
            }
            views.push(View::new(".swap(0, 1)", &[m, b, n], format!("r % {0} * {1} + r / {0}", of(m), of(b)), "c"));
            views.push(View::new(".swap(1, 2)", &[b, n, m], format!("r / {} * {} + c", of(m), of(n)), format!("r % {}", of(m))));
            if b == "2" {
                let (row, col) = (format!("r % {}", of(m)), format!("r / {} * {} + c", of(m), of(n)));
                views.push(View::new(".split(1, 2).swap(0, 1)", &[m, &double(n)], row, col));
                views.push(View::new(".split(0, 2)", &[&double(m), n], "r", "c"));
            }
        }
        _ => {}
    }
    views
}
