//! Primitives: the operations that a graph is made of.

use burn::tensor::{DType, Slice};
use burn_ir::ScalarIr;
use grove_backend::ops::{Call, Operation, Ranks};
use serde::{Deserialize, Serialize};
use std::fmt;

use crate::{fused::Fused, scalar};

pub use crate::sub_graph::{HigherOrder, LazyGraph, SubGraph};

/// A function of one array, element by element.
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

/// A function of two arrays, element by element, broadcast against each other; or of an array and a number.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    /// With an exponent of the base's type.
    Pow,
    /// With an integer exponent.
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

/// Products and images of Burn's modules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Module {
    /// Rows of a matrix by integers `[b, t]`.
    Embedding,
    /// Gradient of the matrix of an embedding.
    EmbeddingGrad,
    /// `x W + b`.
    Linear,
    /// Gradient of the input of a linear map.
    LinearInputGrad,
    /// Gradient of the weight of a linear map.
    LinearWeightGrad,
    /// Gradient of the bias of a linear map.
    LinearBiasGrad,
    /// Convolution, in one or two dimensions.
    Conv(Conv),
    /// Gradient of the input of a convolution.
    ConvInputGrad(Conv),
    /// Gradient of the weight of a convolution.
    ConvWeightGrad(Conv),
    /// Gradient of the bias of a convolution of so many dimensions.
    ConvBiasGrad(usize),
    /// Average pooling in two dimensions.
    AvgPool2d(AvgPool2d),
    /// Gradient of the input of average pooling.
    AvgPool2dGrad(AvgPool2d),
    /// Average pooling to a size.
    AdaptiveAvgPool2d([usize; 2]),
    /// Gradient of the input of average pooling to a size.
    AdaptiveAvgPool2dGrad,
    /// Maximum pooling in two dimensions, with the positions of the maxima if there is a second output.
    MaxPool2d(MaxPool2d),
    /// Gradient of the input of maximum pooling.
    MaxPool2dGrad(MaxPool2d),
}

/// Parameters of a convolution, one value per dimension.
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

/// Parameters of maximum pooling.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MaxPool2d {
    pub kernel_size: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
    pub ceil_mode: bool,
}

/// An operation with its static parameters: one of Burn's, or one of those that grove owns, whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Primitive {
    /// A function of each element.
    Unary(Unary),
    /// A function of pairs of elements.
    Binary(Binary),
    /// A function of each element and a number.
    BinaryScalar(Binary, #[serde(with = "scalar")] ScalarIr),
    /// A reduction over an axis, which stays with size 1, or over all elements, to `[1]`.
    Reduce(Reduction, Option<usize>),
    /// Positions of the maxima along an axis.
    Argmax(usize),
    /// Positions of the minima along an axis.
    Argmin(usize),
    /// The largest elements along an axis, and how many.
    TopK(usize, usize),
    /// Positions of the largest elements along an axis, and how many.
    ArgTopK(usize, usize),
    /// Maxima along an axis and their positions.
    MaxWithIndices(usize),
    /// Minima along an axis and their positions.
    MinWithIndices(usize),
    /// Sums, products, minima or maxima up to each element along an axis.
    Cumulative(Reduction, usize),
    /// Elements kept between two numbers.
    Clamp(#[serde(with = "scalar")] ScalarIr, #[serde(with = "scalar")] ScalarIr),
    /// Elements of the second array where the mask is true, and of the first elsewhere: inputs are array, mask, array.
    Where,
    /// A number where the mask is true.
    MaskFill(#[serde(with = "scalar")] ScalarIr),
    /// The same elements in another shape.
    Reshape(Vec<usize>),
    /// Two axes exchanged.
    SwapAxes(usize, usize),
    /// Axes in another order.
    Transpose(Vec<usize>),
    /// Axes reversed.
    Flip(Vec<usize>),
    /// Axes of size 1 repeated to a shape.
    BroadcastTo(Vec<usize>),
    /// Windows along an axis: axis, size and step.
    Unfold(usize, usize, usize),
    /// A part.
    Slice(Vec<Slice>),
    /// An array with a part replaced.
    UpdateSlice(Vec<Slice>),
    /// Slices at positions `[n]` of an axis.
    Take(usize),
    /// An array with slices added at positions of an axis; for booleans, "or".
    TakeAdd(usize),
    /// Elements at positions along an axis.
    Gather(usize),
    /// An array with elements added at positions along an axis; for booleans, "or".
    ScatterAdd(usize),
    /// Copies along an axis.
    Repeat(usize, usize),
    /// Arrays one after another along an axis.
    Concatenate(usize),
    /// Elements of another type.
    Convert(DType),
    /// A number everywhere.
    Full(Vec<usize>, DType, #[serde(with = "scalar")] ScalarIr),
    /// The product of matrices.
    MatMul,
    /// One of Burn's module operations.
    Module(Module),
    /// One of the operations that grove owns, or its derivative.
    Grove(Call),
    /// One of grove's operations that draws with a random key, `[2]`, which is the first input.
    WithKey(Call),
    /// The same values, with a derivative of zero.
    StopGradient,
    /// The same values, which are printed under a name.
    DebugPrint(String),
    /// A chain of functions of elements in one pass.
    #[serde(skip)]
    Fused(Fused),
    /// An operation with sub-graphs: control flow, and functions with derivatives of their own.
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
    /// True for sums over the ranks of a job, and for control flow with such ones. All ranks meet in them, one after the other, so
    /// that none may be left out, even if this rank does not use it, nor stand for another.
    pub fn meets_ranks(&self) -> bool {
        self.ranks().is_some()
    }

    /// The ranks of the first sum.
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

    /// Returns the name of the operation, in the words of `jax.lax` where it has one.
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

    /// Static parameters as they are printed; empty where there are none.
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
                // `Gelu(Gelu { approximate: Tanh })` as `approximate: Tanh`.
                let text = after_first_word(&format!("{operation:?}"));
                after_first_word(&text)
            }
            // The words of the key are an input.
            Self::WithKey(call) => {
                Self::Grove(call.clone()).parameters().trim_start_matches("key: [0, 0]").trim_start_matches(", ").into()
            }
            _ => String::new(),
        }
    }
}

/// A number of the host.
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

/// Content of the brackets that follow the first word of a debug print.
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
