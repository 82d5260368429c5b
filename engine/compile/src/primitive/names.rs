//! Names of primitives, and their static parameters as text.

use burn::tensor::Slice;
use burn_ir::ScalarIr;
use grove_backend::ops::Call;
use std::fmt;

use super::{Primitive, Reduction};

impl Reduction {
    fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Prod => "prod",
            Self::Max => "max",
            Self::Min => "min",
            Self::MaxAbs => "max_abs",
        }
    }
}

impl Primitive {
    /// Returns the name of the operation; the name in `jax.lax` if it has one.
    pub fn name(&self) -> String {
        match self {
            Self::Unary(op) => op.facts().name.into(),
            Self::Binary(op) | Self::BinaryScalar(op, _) => op.facts().name.into(),
            Self::Reduce(op, _) => format!("reduce_{}", op.name()),
            Self::Argmax(_) => "argmax".into(),
            Self::Argmin(_) => "argmin".into(),
            Self::TopK(..) => "top_k".into(),
            Self::ArgTopK(..) => "arg_top_k".into(),
            Self::MaxWithIndices(_) => "max_with_indices".into(),
            Self::MinWithIndices(_) => "min_with_indices".into(),
            Self::Cumulative(op, _) => format!("cum{}", op.name()),
            Self::Clamp(..) => "clamp".into(),
            Self::Where => "where".into(),
            Self::MaskFill(_) => "mask_fill".into(),
            Self::Reshape(_) => "reshape".into(),
            Self::SwapAxes(..) => "swap_axes".into(),
            Self::Transpose(_) => "transpose".into(),
            Self::Flip(_) => "rev".into(),
            Self::BroadcastTo(_) => "broadcast_to".into(),
            Self::Unfold(..) => "unfold".into(),
            Self::Slice(_) => "slice".into(),
            Self::UpdateSlice(_) => "update_slice".into(),
            Self::Take(_) => "take".into(),
            Self::TakeAdd(_) => "take_add".into(),
            Self::Gather(_) => "gather".into(),
            Self::ScatterAdd(_) => "scatter_add".into(),
            Self::Repeat(..) => "repeat".into(),
            Self::Concatenate(_) => "concatenate".into(),
            Self::Convert(_) => "convert_element_type".into(),
            Self::Full(..) => "full".into(),
            Self::MatMul => "dot_general".into(),
            Self::StopGradient => "stop_gradient".into(),
            Self::DebugPrint(_) => "debug_print".into(),
            Self::Fused(_) => "fused".into(),
            Self::HigherOrder(op) => op.name().into(),
            Self::Module(module) => snake(&first_word(&format!("{module:?}"))),
            Self::Grove(Call::Run(operation, _)) | Self::WithKey(Call::Run(operation, _)) => {
                snake(&first_word(&format!("{operation:?}")))
            }
            Self::Grove(Call::Vjp(operation, ..)) | Self::WithKey(Call::Vjp(operation, ..)) => {
                format!("{}_vjp", snake(&first_word(&format!("{operation:?}"))))
            }
        }
    }

    /// Formats the static parameters; empty if there are none.
    pub(crate) fn parameters(&self) -> String {
        match self {
            Self::Reduce(_, Some(axis))
            | Self::Argmax(axis)
            | Self::Argmin(axis)
            | Self::MaxWithIndices(axis)
            | Self::MinWithIndices(axis)
            | Self::Cumulative(_, axis)
            | Self::Take(axis)
            | Self::TakeAdd(axis)
            | Self::Gather(axis)
            | Self::ScatterAdd(axis)
            | Self::Concatenate(axis) => format!("axis={axis}"),
            Self::TopK(axis, k) | Self::ArgTopK(axis, k) => format!("axis={axis} k={k}"),
            Self::Clamp(min, max) => format!("min={} max={}", Number(*min), Number(*max)),
            Self::MaskFill(value) => format!("value={}", Number(*value)),
            Self::Reshape(shape) | Self::BroadcastTo(shape) => format!("shape={}", List(shape)),
            Self::SwapAxes(a, b) => format!("axes=({a},{b})"),
            Self::Transpose(axes) | Self::Flip(axes) => format!("axes={}", List(axes)),
            Self::Unfold(axis, size, step) => format!("axis={axis} size={size} step={step}"),
            Self::Slice(ranges) | Self::UpdateSlice(ranges) => {
                let range = |slice: &Slice| {
                    let end = slice.end.map_or_else(String::new, |end| end.to_string());
                    let step = if slice.step == 1 { String::new() } else { format!(":{}", slice.step) };
                    format!("{}:{end}{step}", slice.start)
                };
                ranges.iter().map(range).collect::<Vec<_>>().join(",")
            }
            Self::Repeat(axis, times) => format!("axis={axis} times={times}"),
            Self::Convert(dtype) => format!("dtype={}", crate::words::dtype_name(*dtype)),
            Self::Full(shape, _, value) => format!("shape={} value={}", List(shape), Number(*value)),
            Self::DebugPrint(name) => format!("name={name}"),
            Self::Fused(fused) => fused.names.join(","),
            Self::HigherOrder(op) => op.parameters(),
            Self::Module(module) => after_first_word(&format!("{module:?}")),
            Self::Grove(Call::Run(operation, _) | Call::Vjp(operation, ..)) => {
                // Prints `Gelu(Gelu { approximate: Tanh })` as `approximate: Tanh`.
                let text = after_first_word(&format!("{operation:?}"));
                after_first_word(&text)
            }
            // The words of the key are an input and not printed.
            Self::WithKey(call) => {
                Self::Grove(call.clone()).parameters().trim_start_matches("key: [0, 0]").trim_start_matches(", ").into()
            }
            Self::Unary(_)
            | Self::Binary(_)
            | Self::BinaryScalar(..)
            | Self::Reduce(_, None)
            | Self::Where
            | Self::MatMul
            | Self::StopGradient => String::new(),
        }
    }
}

/// A scalar, for printing.
pub(crate) struct Number(pub ScalarIr);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ScalarIr::Float(x) => write!(f, "{x:?}"),
            ScalarIr::Int(x) => write!(f, "{x}"),
            ScalarIr::UInt(x) => write!(f, "{x}"),
            ScalarIr::Bool(x) => write!(f, "{x}"),
        }
    }
}

struct List<'a>(&'a [usize]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items: Vec<_> = self.0.iter().map(usize::to_string).collect();
        write!(f, "({})", items.join(","))
    }
}

fn first_word(debug: &str) -> String {
    debug.chars().take_while(|c| c.is_alphanumeric()).collect()
}

/// Returns the content of the brackets after the first word of a debug text.
fn after_first_word(debug: &str) -> String {
    let rest = debug.trim_start_matches(|c: char| c.is_alphanumeric()).trim();
    let inner = rest.strip_prefix(['(', '{']).and_then(|rest| rest.strip_suffix([')', '}']));
    inner.unwrap_or_default().trim().to_owned()
}

fn snake(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(c.to_lowercase());
    }
    text
}
