//! Numbers in the text of a program.

use burn_ir::ScalarIr;

use crate::ElementType;

/// A number for an array of any type.
#[derive(Clone, Copy, Debug)]
pub(super) enum Literal {
    Float(f64),
    Int(i128),
    /// Less than or equal to every value of the type.
    Lowest,
    /// Greater than or equal to every value of the type.
    Highest,
}

impl From<f64> for Literal {
    fn from(x: f64) -> Self {
        Self::Float(x)
    }
}

impl From<i64> for Literal {
    fn from(x: i64) -> Self {
        Self::Int(x.into())
    }
}

impl From<usize> for Literal {
    fn from(x: usize) -> Self {
        Self::Int(x as i128)
    }
}

impl From<bool> for Literal {
    fn from(x: bool) -> Self {
        Self::Int(x.into())
    }
}

impl From<ScalarIr> for Literal {
    fn from(x: ScalarIr) -> Self {
        match x {
            ScalarIr::Float(x) => Self::Float(x),
            ScalarIr::Int(x) => Self::Int(x.into()),
            ScalarIr::UInt(x) => Self::Int(x.into()),
            ScalarIr::Bool(x) => Self::Int(x.into()),
        }
    }
}

impl Literal {
    /// Formats the number as an element of a type, rounded or truncated like Rust's `as`.
    pub fn text(self, element: ElementType) -> String {
        match (self, element) {
            (Self::Lowest, element) if element.is_float() => float(f64::NEG_INFINITY, element),
            (Self::Highest, element) if element.is_float() => float(f64::INFINITY, element),
            (Self::Float(x), element) if element.is_float() => float(x, element),
            (Self::Int(x), element) if element.is_float() => float(x as f64, element),
            (Self::Lowest, element) => bounds(element)[0].to_string(),
            (Self::Highest, element) => bounds(element)[1].to_string(),
            (Self::Float(x), ElementType::Bool) => (x != 0.0).to_string(),
            (Self::Int(x), ElementType::Bool) => (x != 0).to_string(),
            (Self::Float(x), element) => (x as i128).clamp(bounds(element)[0], bounds(element)[1]).to_string(),
            (Self::Int(x), element) => x.clamp(bounds(element)[0], bounds(element)[1]).to_string(),
        }
    }
}

/// Returns the minimum and maximum integer of a type.
fn bounds(element: ElementType) -> [i128; 2] {
    let bits = 8 * element.size();
    match element {
        ElementType::Bool => [0, 1],
        element if element.is_signed() => [-(1 << (bits - 1)), (1 << (bits - 1)) - 1],
        _ => [0, (1 << bits) - 1],
    }
}

/// Formats a floating-point number: its shortest digits, or its bits if it is not finite.
fn float(x: f64, element: ElementType) -> String {
    let (value, bits, digits) = match element {
        ElementType::F16 => {
            let x = half::f16::from_f64(x);
            (x.to_f64(), u64::from(x.to_bits()), 4)
        }
        ElementType::BF16 => {
            let x = half::bf16::from_f64(x);
            (x.to_f64(), u64::from(x.to_bits()), 4)
        }
        ElementType::F32 => (f64::from(x as f32), u64::from((x as f32).to_bits()), 8),
        _ => (x, x.to_bits(), 16),
    };
    if !value.is_finite() {
        return format!("0x{bits:0digits$X}");
    }
    // An f32 has fewer digits when formatted as f32.
    let text = if element == ElementType::F64 { format!("{value:?}") } else { format!("{:?}", value as f32) };
    // MLIR's floats require a decimal point.
    match text.split_once('e') {
        Some((mantissa, exponent)) if !mantissa.contains('.') => format!("{mantissa}.0e{exponent}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ElementType::*;

    #[test]
    fn numbers_have_the_form_of_mlir() {
        let float = |x: f64, element| Literal::from(x).text(element);
        assert_eq!([float(1.0, F32), float(-0.0, F32), float(1e-5, F32)], ["1.0", "-0.0", "1.0e-5"]);
        assert_eq!([float(0.1, F32), float(0.1, F64), float(2.5e30, F64)], ["0.1", "0.1", "2.5e30"]);
        assert_eq!(float(f64::NAN, F32), "0x7FC00000");
        assert_eq!(Literal::Lowest.text(F16), "0xFC00");
        assert_eq!(Literal::Highest.text(BF16), "0x7F80");
        assert_eq!(float(1e300, F32), "0x7F800000");
        assert_eq!(Literal::Lowest.text(F64), "0xFFF0000000000000");
        assert_eq!(Literal::from(3_i64).text(F32), "3.0");
    }

    #[test]
    fn integers_keep_their_dtype() {
        assert_eq!(Literal::Lowest.text(I32), i32::MIN.to_string());
        assert_eq!(Literal::Highest.text(U64), u64::MAX.to_string());
        assert_eq!(Literal::from(300_i64).text(U8), "255");
        assert_eq!(Literal::from(-1.5).text(I64), "-1");
        assert_eq!(Literal::from(true).text(Bool), "true");
        assert_eq!(Literal::Highest.text(I64), i64::MAX.to_string());
    }
}
