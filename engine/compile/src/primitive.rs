//! Primitives: the operations of a graph.

use burn::tensor::{DType, Slice};
use burn_ir::ScalarIr;
use grove_backend::ops::{Call, Operation, Ranks};
use serde::{Deserialize, Serialize};
use std::fmt;

use crate::{fused::Fused, scalar};

pub use crate::sub_graph::{HigherOrder, LazyGraph, SubGraph};

/// An element-wise operation on one array.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Unary {
    Abs,
    Exp,
    Log,
    Log1p,
    Sqrt,
    Recip,
    Erf,
    Sin,
    Cos,
    Tan,
    Sinh,
    Cosh,
    Tanh,
    Asin,
    Acos,
    Atan,
    Asinh,
    Acosh,
    Atanh,
    Sigmoid,
    Round,
    Floor,
    Ceil,
    Trunc,
    IsNan,
    IsInf,
    Not,
}

/// An element-wise operation on two arrays, which are broadcast against each other, or on an array and a scalar.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    /// Power whose exponent has the dtype of the base.
    Pow,
    /// Power with an integer exponent.
    IntegerPow,
    Atan2,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    Eq,
    Gt,
    Ge,
    Lt,
    Le,
}

/// A reduction.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reduction {
    Sum,
    Mean,
    Prod,
    Max,
    Min,
    MaxAbs,
}

/// Burn's module operations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Module {
    /// Lookup of rows of a matrix by integers `[b, t]`.
    Embedding,
    /// Gradient of an embedding with respect to its matrix.
    EmbeddingGrad,
    /// `x W + b`.
    Linear,
    /// Gradient of a linear layer with respect to its input.
    LinearInputGrad,
    /// Gradient of a linear layer with respect to its weight.
    LinearWeightGrad,
    /// Gradient of a linear layer with respect to its bias.
    LinearBiasGrad,
    /// Convolution in one or two dimensions.
    Conv(Conv),
    /// Gradient of a convolution with respect to its input.
    ConvInputGrad(Conv),
    /// Gradient of a convolution with respect to its weight.
    ConvWeightGrad(Conv),
    /// Gradient of a convolution with respect to its bias. The field is the number of spatial dimensions.
    ConvBiasGrad(usize),
    /// Average pooling in two dimensions.
    AvgPool2d(AvgPool2d),
    /// Gradient of average pooling with respect to its input.
    AvgPool2dGrad(AvgPool2d),
    /// Average pooling to a fixed output size.
    AdaptiveAvgPool2d([usize; 2]),
    /// Gradient of adaptive average pooling with respect to its input.
    AdaptiveAvgPool2dGrad,
    /// Max pooling in two dimensions. The optional second output is the indices of the maxima.
    MaxPool2d(MaxPool2d),
    /// Gradient of max pooling with respect to its input.
    MaxPool2dGrad(MaxPool2d),
}

/// Parameters of a convolution, with one value per spatial dimension.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conv {
    pub stride: Vec<usize>,
    pub padding: Vec<usize>,
    pub dilation: Vec<usize>,
    pub groups: usize,
}

/// Parameters of average pooling.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AvgPool2d {
    pub kernel_size: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub count_include_pad: bool,
    pub ceil_mode: bool,
}

/// Parameters of max pooling.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MaxPool2d {
    pub kernel_size: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
    pub ceil_mode: bool,
}

/// An operation with its static parameters: one of Burn's operations, or one of grove's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Primitive {
    /// Element-wise operation on one array.
    Unary(Unary),
    /// Element-wise operation on two arrays.
    Binary(Binary),
    /// Element-wise operation on an array and a scalar.
    BinaryScalar(Binary, #[serde(with = "scalar")] ScalarIr),
    /// Reduction over an axis, which is kept with size 1, or over all elements to shape `[1]`.
    Reduce(Reduction, Option<usize>),
    /// Indices of the maxima along an axis.
    Argmax(usize),
    /// Indices of the minima along an axis.
    Argmin(usize),
    /// Largest elements along an axis: axis and number of elements.
    TopK(usize, usize),
    /// Indices of the largest elements along an axis: axis and number of elements.
    ArgTopK(usize, usize),
    /// Maxima along an axis and their indices.
    MaxWithIndices(usize),
    /// Minima along an axis and their indices.
    MinWithIndices(usize),
    /// Cumulative sum, product, minimum or maximum along an axis.
    Cumulative(Reduction, usize),
    /// Elements clamped between a minimum and a maximum.
    Clamp(#[serde(with = "scalar")] ScalarIr, #[serde(with = "scalar")] ScalarIr),
    /// Selection by a mask. The inputs are array, mask, array: the second array where the mask is true, the first elsewhere.
    Where,
    /// Replacement of elements by a scalar where the mask is true.
    MaskFill(#[serde(with = "scalar")] ScalarIr),
    /// Reshape to a shape.
    Reshape(Vec<usize>),
    /// Swap of two axes.
    SwapAxes(usize, usize),
    /// Permutation of the axes.
    Transpose(Vec<usize>),
    /// Reversal of axes.
    Flip(Vec<usize>),
    /// Broadcast of axes of size 1 to a shape.
    BroadcastTo(Vec<usize>),
    /// Sliding windows along an axis: axis, size and step.
    Unfold(usize, usize, usize),
    /// Slice of an array.
    Slice(Vec<Slice>),
    /// Replacement of a slice by another array.
    UpdateSlice(Vec<Slice>),
    /// Selection of slices along an axis by indices `[n]`.
    Take(usize),
    /// Addition of slices at indices along an axis; for booleans, logical or.
    TakeAdd(usize),
    /// Selection of elements along an axis by an array of indices.
    Gather(usize),
    /// Addition of elements at indices along an axis; for booleans, logical or.
    ScatterAdd(usize),
    /// Repetition along an axis: axis and number of copies.
    Repeat(usize, usize),
    /// Concatenation along an axis.
    Concatenate(usize),
    /// Conversion to a dtype.
    Convert(DType),
    /// Array filled with a scalar.
    Full(Vec<usize>, DType, #[serde(with = "scalar")] ScalarIr),
    /// Matrix product.
    MatMul,
    /// One of Burn's module operations.
    Module(Module),
    /// One of grove's own operations, or its derivative.
    Grove(Call),
    /// One of grove's sampling operations whose random key `[2]` is the first input.
    WithKey(Call),
    /// Identity with a derivative of zero.
    StopGradient,
    /// Identity that prints its values under a name.
    DebugPrint(String),
    /// Fused chain of element-wise operations.
    #[serde(skip)]
    Fused(Fused),
    /// Operation with sub-graphs: control flow, or a function with a custom derivative.
    HigherOrder(HigherOrder),
}

impl Unary {
    fn name(self) -> &'static str {
        match self {
            Self::Abs => "abs",
            Self::Exp => "exp",
            Self::Log => "log",
            Self::Log1p => "log1p",
            Self::Sqrt => "sqrt",
            Self::Recip => "recip",
            Self::Erf => "erf",
            Self::Sin => "sin",
            Self::Cos => "cos",
            Self::Tan => "tan",
            Self::Sinh => "sinh",
            Self::Cosh => "cosh",
            Self::Tanh => "tanh",
            Self::Asin => "asin",
            Self::Acos => "acos",
            Self::Atan => "atan",
            Self::Asinh => "asinh",
            Self::Acosh => "acosh",
            Self::Atanh => "atanh",
            Self::Sigmoid => "logistic",
            Self::Round => "round",
            Self::Floor => "floor",
            Self::Ceil => "ceil",
            Self::Trunc => "trunc",
            Self::IsNan => "is_nan",
            Self::IsInf => "is_inf",
            Self::Not => "not",
        }
    }
}

impl Binary {
    fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Sub => "sub",
            Self::Mul => "mul",
            Self::Div => "div",
            Self::Rem => "rem",
            Self::Pow => "pow",
            Self::IntegerPow => "integer_pow",
            Self::Atan2 => "atan2",
            Self::And => "and",
            Self::Or => "or",
            Self::Xor => "xor",
            Self::ShiftLeft => "shift_left",
            Self::ShiftRight => "shift_right",
            Self::Eq => "eq",
            Self::Gt => "gt",
            Self::Ge => "ge",
            Self::Lt => "lt",
            Self::Le => "le",
        }
    }
}

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
    /// Returns true for all-reduces and for control flow that contains one. All ranks must execute these operations in the same
    /// order, so they must be neither merged nor removed, even if this rank does not use the result.
    pub fn meets_ranks(&self) -> bool {
        self.ranks().is_some()
    }

    /// Returns the ranks of the first all-reduce.
    pub(crate) fn ranks(&self) -> Option<Ranks> {
        match self {
            Self::Grove(Call::Run(Operation::AllReduce(sum), _) | Call::Vjp(Operation::AllReduce(sum), ..)) => {
                Some(sum.ranks)
            }
            Self::HigherOrder(op) => {
                let mut graphs = op.sub_graphs().into_iter();
                graphs.find_map(|(_, graph)| graph.equations().iter().find_map(|equation| equation.primitive.ranks()))
            }
            _ => None,
        }
    }

    /// Returns the name of the operation; the name in `jax.lax` if it has one.
    pub fn name(&self) -> String {
        match self {
            Self::Unary(op) => op.name().into(),
            Self::Binary(op) | Self::BinaryScalar(op, _) => op.name().into(),
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
            _ => String::new(),
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
