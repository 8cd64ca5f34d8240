//! What stands between the parentheses of a call.

use super::{Dim, ScalarType, View};

/// A scalar argument.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// A scalar parameter of the megakernel: its row and type.
    Parameter(u32, ScalarType),
    /// A number with a fraction.
    F32(f32),
    /// An integer; becomes `u32` or `i32` by the parameter's type.
    Integer(i64),
    /// A dimension of the megakernel as a `u32`.
    Dimension(Dim),
}

/// One argument.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    /// A tensor or a view of one.
    Tensor(View),
    /// An array of tensors.
    Array(&'a [View]),
    /// A scalar.
    Scalar(Value),
}

impl<'a> Argument<'a> {
    /// The tensor, where `enter` has seen that it is one.
    pub const fn view(&self) -> View {
        match self {
            Argument::Tensor(view) => *view,
            _ => View::NONE,
        }
    }

    /// The array, where `enter` has seen that it has `N` tensors.
    pub const fn views<const N: usize>(&self) -> [View; N] {
        let mut out = [View::NONE; N];
        if let Argument::Array(views) = self {
            let mut n = 0;
            while n < N && n < views.len() {
                out[n] = views[n];
                n += 1;
            }
        }
        out
    }

    /// The scalar, where `enter` has seen that it is one.
    pub const fn value(&self) -> Value {
        match self {
            Argument::Scalar(value) => *value,
            _ => Value::Integer(0),
        }
    }
}

/// Turns any variable of a body into an [`Argument`] by its type: the macro does not know types.
pub struct Operand<T>(pub T);

impl Operand<&View> {
    /// A tensor.
    pub const fn argument(&self) -> Argument<'static> {
        Argument::Tensor(*self.0)
    }
}

impl<'a, const N: usize> Operand<&'a [View; N]> {
    /// An array of tensors.
    pub const fn argument(&self) -> Argument<'a> {
        Argument::Array(self.0)
    }
}

impl Operand<&Value> {
    /// A scalar parameter.
    pub const fn argument(&self) -> Argument<'static> {
        Argument::Scalar(*self.0)
    }
}

impl Operand<&Dim> {
    /// A dimension as a number.
    pub const fn argument(&self) -> Argument<'static> {
        Argument::Scalar(Value::Dimension(*self.0))
    }
}

impl Operand<&f32> {
    /// A constant.
    pub const fn argument(&self) -> Argument<'static> {
        Argument::Scalar(Value::F32(*self.0))
    }
}

macro_rules! integers {
    ($($ty:ty)*) => {$(
        impl Operand<&$ty> {
            /// A constant.
            pub const fn argument(&self) -> Argument<'static> {
                Argument::Scalar(Value::Integer(*self.0 as i64))
            }
        }
    )*};
}
integers! { u32 i32 usize u64 }
