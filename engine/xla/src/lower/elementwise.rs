//! Element-wise functions.

use grove_compile::primitive::{Binary, Unary};

use super::{builder::Builder, literal::Literal, value::Value};
use crate::ElementType;

impl Builder {
    pub(super) fn elementwise(&mut self, op: Unary, x: &Value) -> Value {
        match op {
            Unary::Abs => self.unary("stablehlo.abs", x),
            Unary::Exp => self.unary("stablehlo.exponential", x),
            Unary::Log => self.unary("stablehlo.log", x),
            Unary::Log1p => self.unary("stablehlo.log_plus_one", x),
            Unary::Sqrt => self.unary("stablehlo.sqrt", x),
            Unary::Recip => {
                let one = self.full_like(x, 1.0);
                self.binary("divide", &one, x)
            }
            Unary::Erf => self.erf(x),
            Unary::Sin => self.unary("stablehlo.sine", x),
            Unary::Cos => self.unary("stablehlo.cosine", x),
            Unary::Tan => self.unary("chlo.tan", x),
            Unary::Sinh => self.unary("chlo.sinh", x),
            Unary::Cosh => self.unary("chlo.cosh", x),
            Unary::Tanh => self.unary("stablehlo.tanh", x),
            Unary::Asin => self.unary("chlo.asin", x),
            Unary::Acos => self.unary("chlo.acos", x),
            Unary::Atan => self.unary("chlo.atan", x),
            Unary::Asinh => self.unary("chlo.asinh", x),
            Unary::Acosh => self.unary("chlo.acosh", x),
            Unary::Atanh => self.unary("chlo.atanh", x),
            Unary::Sigmoid => self.unary("stablehlo.logistic", x),
            Unary::Round => self.unary("stablehlo.round_nearest_even", x),
            Unary::Floor => self.unary("stablehlo.floor", x),
            Unary::Ceil => self.unary("stablehlo.ceil", x),
            Unary::Trunc => {
                let (up, down) = (self.unary("stablehlo.ceil", x), self.unary("stablehlo.floor", x));
                let zero = self.full_like(x, 0.0);
                let negative = self.compare("LT", x, &zero);
                self.select(&negative, &up, &down)
            }
            Unary::IsNan => self.compare("NE", x, x),
            Unary::IsInf => {
                let (size, infinity) = (self.unary("stablehlo.abs", x), self.full_like(x, Literal::Highest));
                self.compare("EQ", &size, &infinity)
            }
            Unary::Not => self.unary("stablehlo.not", x),
        }
    }

    /// The error function. For large arguments it is exactly 1 or -1. XLA's single-precision polynomial does not reach these
    /// values; products such as that of `gelu` enlarge this error.
    fn erf(&mut self, x: &Value) -> Value {
        let near = self.unary("chlo.erf", x);
        if x.element() == ElementType::F64 {
            return near;
        }
        let (size, bound) = (self.unary("stablehlo.abs", x), self.full_like(x, 4.0));
        let (is_far, sign) = (self.compare("GE", &size, &bound), self.unary("stablehlo.sign", x));
        self.select(&is_far, &sign, &near)
    }

    /// An element-wise function of two arrays, which are broadcast against each other.
    pub(super) fn pairwise(&mut self, op: Binary, a: &Value, b: &Value) -> Value {
        let (a, b) = self.broadcast_together(a, b);
        match op {
            Binary::Add => self.binary("add", &a, &b),
            Binary::Sub => self.binary("subtract", &a, &b),
            Binary::Mul => self.binary("multiply", &a, &b),
            Binary::Div => self.binary("divide", &a, &b),
            Binary::Rem => self.remainder(&a, &b),
            Binary::Pow => self.binary("power", &a, &b),
            Binary::IntegerPow => {
                let b = self.convert(&b, a.element());
                self.binary("power", &a, &b)
            }
            Binary::Atan2 => self.binary("atan2", &a, &b),
            Binary::And => self.binary("and", &a, &b),
            Binary::Or => self.binary("or", &a, &b),
            Binary::Xor => self.binary("xor", &a, &b),
            Binary::ShiftLeft => self.binary("shift_left", &a, &b),
            Binary::ShiftRight if a.element().is_signed() => self.binary("shift_right_arithmetic", &a, &b),
            Binary::ShiftRight => self.binary("shift_right_logical", &a, &b),
            Binary::Eq => self.compare("EQ", &a, &b),
            Binary::Gt => self.compare("GT", &a, &b),
            Binary::Ge => self.compare("GE", &a, &b),
            Binary::Lt => self.compare("LT", &a, &b),
            Binary::Le => self.compare("LE", &a, &b),
        }
    }

    /// An element-wise function of an array and a number.
    pub(super) fn with_number(&mut self, op: Binary, x: &Value, number: Literal) -> Value {
        let number = self.full_like(x, number);
        self.pairwise(op, x, &number)
    }

    /// The remainder with the sign of the divisor; for integers divided by 0 it is 0, as in `jax.numpy.remainder`.
    fn remainder(&mut self, a: &Value, b: &Value) -> Value {
        let zero = self.full_like(a, 0_i64);
        let divisor = match a.element().is_float() {
            true => b.clone(),
            false => {
                let (one, is_zero) = (self.full_like(b, 1_i64), self.compare("EQ", b, &zero));
                self.select(&is_zero, &one, b)
            }
        };
        let b = &divisor;
        let cut = self.binary("remainder", a, b);
        if !a.element().is_signed() && !a.element().is_float() {
            return cut;
        }
        let (of_cut, of_b) = (self.compare("LT", &cut, &zero), self.compare("LT", b, &zero));
        let signs = self.compare("NE", &of_cut, &of_b);
        let rest = self.compare("NE", &cut, &zero);
        let both = self.binary("and", &signs, &rest);
        let other = self.binary("add", &cut, b);
        self.select(&both, &other, &cut)
    }

    /// Selects elements of `y` where the mask is true, and of `x` elsewhere; all three are broadcast against each other.
    pub(super) fn choose(&mut self, x: &Value, mask: &Value, y: &Value) -> Value {
        let dims: Vec<usize> = (0..x.rank())
            .map(|axis| [x, mask, y].iter().map(|value| value.dims()[axis]).find(|dim| *dim != 1).unwrap_or(1))
            .collect();
        let [x, mask, y] = [x, mask, y].map(|value| self.broadcast_to(value, &dims));
        self.select(&mask, &y, &x)
    }

    /// Clamps elements between two numbers.
    pub(super) fn clamp(&mut self, x: &Value, min: Literal, max: Literal) -> Value {
        let [min, max] = [min, max].map(|bound| self.full_like(x, bound));
        let above = self.binary("maximum", x, &min);
        self.binary("minimum", &above, &max)
    }

    /// Converts elements to at least 32 bits.
    pub(super) fn at_least_f32(&mut self, x: &Value) -> Value {
        match x.element() {
            ElementType::F16 | ElementType::BF16 => self.convert(x, ElementType::F32),
            _ => x.clone(),
        }
    }
}
