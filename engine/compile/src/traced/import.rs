//! Conversion of Burn's operations to primitives.

use burn_ir::{
    BaseOperationIr, BoolOperationIr, Conv1dOptionsIr, Conv2dOptionsIr, FloatOperationIr, IntOperationIr,
    ModuleOperationIr, NumericOperationIr, OperationIr, ReduceDimOpIr, ScalarIr, ScalarOpIr,
};

use super::Caller;
use crate::{
    Primitive,
    primitive::{AvgPool2d, Binary, Conv, MaxPool2d, Module, Reduction, Unary},
};

/// Returns the primitive for an operation. Inputs and outputs keep their order.
///
/// # Panics
/// If there is no such primitive. The message names the operation.
pub(super) fn import(operation: OperationIr) -> Primitive {
    match operation {
        OperationIr::BaseFloat(op) | OperationIr::BaseInt(op) | OperationIr::BaseBool(op) => base(op),
        OperationIr::NumericFloat(_, op) | OperationIr::NumericInt(_, op) => numeric(op),
        OperationIr::Bool(op) => boolean(op),
        OperationIr::Int(op) => int(op),
        OperationIr::Float(_, op) => float(op),
        OperationIr::Module(op) => Primitive::Module(module(op)),
        other => unknown(&other),
    }
}

fn unknown(operation: &impl std::fmt::Debug) -> ! {
    let text = format!("{operation:?}");
    let name: String = text.chars().take_while(|c| c.is_alphanumeric()).collect();
    panic!(
        "Burn's operation `{name}` cannot be traced yet: write it with other operations of tensors{}",
        Caller::here()
    )
}

fn base(op: BaseOperationIr) -> Primitive {
    use BaseOperationIr as Op;
    match op {
        Op::Reshape(op) => Primitive::Reshape(op.out.shape.to_vec()),
        Op::SwapDims(op) => Primitive::SwapAxes(op.dim1, op.dim2),
        Op::Permute(op) => Primitive::Transpose(op.axes),
        Op::Flip(op) => Primitive::Flip(op.axes),
        Op::Expand(op) => Primitive::BroadcastTo(op.out.shape.to_vec()),
        Op::Unfold(op) => Primitive::Unfold(op.dim, op.size, op.step),
        Op::Slice(op) => Primitive::Slice(op.ranges),
        Op::SliceAssign(op) => Primitive::UpdateSlice(op.ranges),
        Op::Select(op) => Primitive::Take(op.dim),
        Op::SelectAssign(op) => Primitive::TakeAdd(op.dim),
        Op::MaskWhere(_) => Primitive::Where,
        Op::MaskFill(op) => Primitive::MaskFill(op.value),
        Op::Gather(op) => Primitive::Gather(op.dim),
        Op::Scatter(op) => Primitive::ScatterAdd(op.dim),
        Op::Equal(_) => Primitive::Binary(Binary::Eq),
        Op::EqualElem(op) => Primitive::BinaryScalar(Binary::Eq, op.rhs),
        Op::RepeatDim(op) => Primitive::Repeat(op.dim, op.times),
        Op::Cat(op) => Primitive::Concatenate(op.dim),
        Op::Cast(op) => Primitive::Convert(op.out.dtype),
        Op::Empty(op) | Op::Zeros(op) => {
            Primitive::Full(op.out.shape.to_vec(), op.out.dtype, ScalarIr::new(0, &op.out.dtype))
        }
        Op::Ones(op) => Primitive::Full(op.out.shape.to_vec(), op.out.dtype, ScalarIr::new(1, &op.out.dtype)),
        other @ (Op::ScatterNd(_) | Op::GatherNd(_)) => unknown(&other),
    }
}

fn binary(op: Binary) -> Primitive {
    Primitive::Binary(op)
}

fn scalar(op: Binary, ir: &ScalarOpIr) -> Primitive {
    Primitive::BinaryScalar(op, ir.rhs)
}

fn along(op: Reduction, ir: &ReduceDimOpIr) -> Primitive {
    Primitive::Reduce(op, Some(ir.axis))
}

fn numeric(op: NumericOperationIr) -> Primitive {
    use NumericOperationIr as Op;
    match op {
        Op::Add(_) => binary(Binary::Add),
        Op::AddScalar(op) => scalar(Binary::Add, &op),
        Op::Sub(_) => binary(Binary::Sub),
        Op::SubScalar(op) => scalar(Binary::Sub, &op),
        Op::Div(_) => binary(Binary::Div),
        Op::DivScalar(op) => scalar(Binary::Div, &op),
        Op::Rem(_) => binary(Binary::Rem),
        Op::RemScalar(op) => scalar(Binary::Rem, &op),
        Op::Mul(_) => binary(Binary::Mul),
        Op::MulScalar(op) => scalar(Binary::Mul, &op),
        Op::Powi(_) => binary(Binary::IntegerPow),
        Op::PowiScalar(op) => scalar(Binary::IntegerPow, &op),
        Op::Abs(_) => Primitive::Unary(Unary::Abs),
        Op::Full(op) => Primitive::Full(op.out.shape.to_vec(), op.out.dtype, op.value),
        Op::Mean(_) => Primitive::Reduce(Reduction::Mean, None),
        Op::Sum(_) => Primitive::Reduce(Reduction::Sum, None),
        Op::Prod(_) => Primitive::Reduce(Reduction::Prod, None),
        Op::Max(_) => Primitive::Reduce(Reduction::Max, None),
        Op::Min(_) => Primitive::Reduce(Reduction::Min, None),
        Op::MaxAbs(_) => Primitive::Reduce(Reduction::MaxAbs, None),
        Op::MeanDim(op) => along(Reduction::Mean, &op),
        Op::SumDim(op) => along(Reduction::Sum, &op),
        Op::ProdDim(op) => along(Reduction::Prod, &op),
        Op::MaxDim(op) => along(Reduction::Max, &op),
        Op::MinDim(op) => along(Reduction::Min, &op),
        Op::MaxAbsDim(op) => along(Reduction::MaxAbs, &op),
        Op::Greater(_) => binary(Binary::Gt),
        Op::GreaterElem(op) => scalar(Binary::Gt, &op),
        Op::GreaterEqual(_) => binary(Binary::Ge),
        Op::GreaterEqualElem(op) => scalar(Binary::Ge, &op),
        Op::Lower(_) => binary(Binary::Lt),
        Op::LowerElem(op) => scalar(Binary::Lt, &op),
        Op::LowerEqual(_) => binary(Binary::Le),
        Op::LowerEqualElem(op) => scalar(Binary::Le, &op),
        Op::ArgMax(op) => Primitive::Argmax(op.axis),
        Op::ArgMin(op) => Primitive::Argmin(op.axis),
        Op::TopK(op) => Primitive::TopK(op.axis, op.accumulator_len),
        Op::ArgTopK(op) => Primitive::ArgTopK(op.axis, op.accumulator_len),
        Op::MaxDimWithIndices(op) => Primitive::MaxWithIndices(op.dim),
        Op::MinDimWithIndices(op) => Primitive::MinWithIndices(op.dim),
        Op::Clamp(op) => Primitive::Clamp(op.min, op.max),
        Op::CumSum(op) => Primitive::Cumulative(Reduction::Sum, op.axis),
        Op::CumProd(op) => Primitive::Cumulative(Reduction::Prod, op.axis),
        Op::CumMin(op) => Primitive::Cumulative(Reduction::Min, op.axis),
        Op::CumMax(op) => Primitive::Cumulative(Reduction::Max, op.axis),
        Op::IntRandom(_) => random(),
    }
}

fn random() -> ! {
    panic!(
        "Burn's random numbers cannot be traced, because they differ from run to run: draw from a `Key` with the \
         functions of `grove::key`{}",
        Caller::here()
    )
}

fn boolean(op: BoolOperationIr) -> Primitive {
    use BoolOperationIr as Op;
    match op {
        Op::IntoFloat(op) | Op::IntoInt(op) => Primitive::Convert(op.out.dtype),
        Op::Not(_) => Primitive::Unary(Unary::Not),
        Op::And(_) => binary(Binary::And),
        Op::Or(_) => binary(Binary::Or),
    }
}

fn int(op: IntOperationIr) -> Primitive {
    use IntOperationIr as Op;
    match op {
        Op::IntoFloat(op) => Primitive::Convert(op.out.dtype),
        Op::BitwiseAnd(_) => binary(Binary::And),
        Op::BitwiseAndScalar(op) => scalar(Binary::And, &op),
        Op::BitwiseOr(_) => binary(Binary::Or),
        Op::BitwiseOrScalar(op) => scalar(Binary::Or, &op),
        Op::BitwiseXor(_) => binary(Binary::Xor),
        Op::BitwiseXorScalar(op) => scalar(Binary::Xor, &op),
        Op::BitwiseNot(_) => Primitive::Unary(Unary::Not),
        Op::BitwiseLeftShift(_) => binary(Binary::ShiftLeft),
        Op::BitwiseLeftShiftScalar(op) => scalar(Binary::ShiftLeft, &op),
        Op::BitwiseRightShift(_) => binary(Binary::ShiftRight),
        Op::BitwiseRightShiftScalar(op) => scalar(Binary::ShiftRight, &op),
        Op::Matmul(_) => Primitive::MatMul,
    }
}

fn float(op: FloatOperationIr) -> Primitive {
    use FloatOperationIr as Op;
    Primitive::Unary(match op {
        Op::Exp(_) => Unary::Exp,
        Op::Log(_) => Unary::Log,
        Op::Log1p(_) => Unary::Log1p,
        Op::Erf(_) => Unary::Erf,
        Op::Sqrt(_) => Unary::Sqrt,
        Op::Cos(_) => Unary::Cos,
        Op::Cosh(_) => Unary::Cosh,
        Op::Sin(_) => Unary::Sin,
        Op::Sinh(_) => Unary::Sinh,
        Op::Tan(_) => Unary::Tan,
        Op::Tanh(_) => Unary::Tanh,
        Op::ArcCos(_) => Unary::Acos,
        Op::ArcCosh(_) => Unary::Acosh,
        Op::ArcSin(_) => Unary::Asin,
        Op::ArcSinh(_) => Unary::Asinh,
        Op::ArcTan(_) => Unary::Atan,
        Op::ArcTanh(_) => Unary::Atanh,
        Op::Round(_) => Unary::Round,
        Op::Floor(_) => Unary::Floor,
        Op::Ceil(_) => Unary::Ceil,
        Op::Trunc(_) => Unary::Trunc,
        Op::Recip(_) => Unary::Recip,
        Op::IsNan(_) => Unary::IsNan,
        Op::IsInf(_) => Unary::IsInf,
        Op::PowfScalar(op) => return scalar(Binary::Pow, &op),
        Op::Powf(_) => return binary(Binary::Pow),
        Op::ArcTan2(_) => return binary(Binary::Atan2),
        Op::IntoInt(op) => return Primitive::Convert(op.out.dtype),
        Op::Matmul(_) => return Primitive::MatMul,
        Op::Random(_) => random(),
        other @ (Op::Cross(_) | Op::Quantize(_) | Op::Dequantize(_) | Op::GridSample2d(_)) => unknown(&other),
    })
}

impl From<Conv1dOptionsIr> for Conv {
    fn from(options: Conv1dOptionsIr) -> Self {
        let Conv1dOptionsIr { stride, padding, dilation, groups } = options;
        Self { stride: stride.into(), padding: padding.into(), dilation: dilation.into(), groups }
    }
}

impl From<Conv2dOptionsIr> for Conv {
    fn from(options: Conv2dOptionsIr) -> Self {
        let Conv2dOptionsIr { stride, padding, dilation, groups } = options;
        Self { stride: stride.into(), padding: padding.into(), dilation: dilation.into(), groups }
    }
}

macro_rules! avg_pool {
    ($op:ident) => {
        AvgPool2d {
            kernel_size: $op.kernel_size,
            stride: $op.stride,
            padding: $op.padding,
            count_include_pad: $op.count_include_pad,
            ceil_mode: $op.ceil_mode,
        }
    };
}

macro_rules! max_pool {
    ($op:ident) => {
        MaxPool2d {
            kernel_size: $op.kernel_size,
            stride: $op.stride,
            padding: $op.padding,
            dilation: $op.dilation,
            ceil_mode: $op.ceil_mode,
        }
    };
}

fn module(op: ModuleOperationIr) -> Module {
    use ModuleOperationIr as Op;
    match op {
        Op::Embedding(_) => Module::Embedding,
        Op::EmbeddingBackward(_) => Module::EmbeddingGrad,
        Op::Linear(_) => Module::Linear,
        Op::LinearXBackward(_) => Module::LinearInputGrad,
        Op::LinearWeightBackward(_) => Module::LinearWeightGrad,
        Op::LinearBiasBackward(_) => Module::LinearBiasGrad,
        Op::Conv1d(op) => Module::Conv(op.options.into()),
        Op::Conv1dXBackward(op) => Module::ConvInputGrad(op.options.into()),
        Op::Conv1dWeightBackward(op) => Module::ConvWeightGrad(op.options.into()),
        Op::Conv1dBiasBackward(_) => Module::ConvBiasGrad(1),
        Op::Conv2d(op) => Module::Conv(op.options.into()),
        Op::Conv2dXBackward(op) => Module::ConvInputGrad(op.options.into()),
        Op::Conv2dWeightBackward(op) => Module::ConvWeightGrad(op.options.into()),
        Op::Conv2dBiasBackward(_) => Module::ConvBiasGrad(2),
        Op::AvgPool2d(op) => Module::AvgPool2d(avg_pool!(op)),
        Op::AvgPool2dBackward(op) => Module::AvgPool2dGrad(avg_pool!(op)),
        Op::AdaptiveAvgPool2d(op) => Module::AdaptiveAvgPool2d(op.output_size),
        Op::AdaptiveAvgPool2dBackward(_) => Module::AdaptiveAvgPool2dGrad,
        Op::MaxPool2d(op) => Module::MaxPool2d(max_pool!(op)),
        Op::MaxPool2dWithIndices(op) => Module::MaxPool2d(max_pool!(op)),
        Op::MaxPool2dWithIndicesBackward(op) => Module::MaxPool2dGrad(max_pool!(op)),
        other => unknown(&other),
    }
}
