//! Elements of tensors, and their values in closures: formulas are written in `f32`.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    F32,
    Bf16,
    F16,
    I32,
    U32,
}

impl Element {
    /// Those whose value is an `f32`.
    pub const FLOATS: [Element; 3] = [Element::F32, Element::Bf16, Element::F16];
    /// Those that hold numbers, and not positions.
    pub const NUMBERS: [Element; 4] = [Element::F32, Element::Bf16, Element::F16, Element::I32];

    pub fn name(self) -> &'static str {
        match self {
            Element::F32 => "f32",
            Element::Bf16 => "bf16",
            Element::F16 => "f16",
            Element::I32 => "i32",
            Element::U32 => "u32",
        }
    }

    pub fn is_float(self) -> bool {
        Self::FLOATS.contains(&self)
    }

    /// `text`, a value of this element, as an `f32`.
    pub fn value(self, text: &str) -> String {
        if self.is_float() { text.to_owned() } else { format!("({text} as f32)") }
    }

    /// `text`, an `f32`, as a value of this element.
    pub fn made(self, text: &str) -> String {
        if self.is_float() { text.to_owned() } else { format!("({text}) as {}", self.name()) }
    }
}
