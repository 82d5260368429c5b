//! Primitives: the operations of a graph.

mod names;

use burn::tensor::{DType, Slice};
use burn_ir::ScalarIr;
use grove_backend::ops::{Call, Operation, Ranks};
use serde::{Deserialize, Serialize};

use crate::{fused::Fused, scalar};

pub(crate) use names::Number;

pub use crate::{
    elementwise::{Binary, Unary},
    sub_graph::{HigherOrder, LazyGraph, ScanLoop, SubGraph, WhileLoop},
};

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
}
