//! The operations that grove defines, as values.

use burn::tensor::Shape;
use std::fmt::Debug;

use super::{
    AdamStep, AllReduce, Argsort, Attention, Backend, BatchNorm, Chunk, Concat, Conv2dFused, Conv2dOptions, Dequantize,
    Dropout, DynamicUpdateSlice, Embedding, Gelu, Gru, Linear, Lstm, MaskedSoftmax, Matmul, Nll, Outcome,
    Pool2dOptions, QuantizedLinear, RandomBits, RandomFoldIn, RandomKeyData, RandomSamples, Rnn, Rope, RowNorm, Scale,
    Selu, Shapes, ShardingConstraint, SumOfSquares, SwiGlu, UpdateCache, Values, Wanted, precision::cast,
};

/// Rules of an operation, implemented in its file. The composition of Burn's operations is the default of every backend.
pub(crate) trait Rules: Clone + Debug + PartialEq {
    /// Method of differentiation.
    const DIFFERENTIATION: Differentiation = Differentiation::Rule;
    /// Number of leading inputs that are differentiable if they are floating-point.
    const DIFFERENTIABLE_INPUTS: usize = usize::MAX;
    /// True if the derivative uses computed values other than the first output: saved values or other outputs. They get no
    /// gradient, so higher derivatives differentiate the composition.
    const SAVES: bool = false;
    /// True if 16-bit values are computed in f32, and the first output is rounded.
    const IN_F32: bool = false;
    /// The axis that `vmap` extends by its examples, if the operation has one. Without it, `vmap` batches the composition.
    const BATCH_AXIS: Option<BatchAxis> = None;

    /// Returns the shapes of the outputs.
    ///
    /// # Panics
    /// If the shapes of the inputs do not match, with a message that names the operation, the shapes and the rule.
    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape>;

    /// Returns the two words of the operation's random key, if it has one.
    fn key_mut(&mut self) -> Option<&mut [u32; 2]> {
        None
    }

    /// Runs the operation. The outcome includes the saved [`residuals`](Self::residuals) if `needs` is true for any input.
    fn compose<B: Backend>(&self, inputs: Values<B>, needs: &[bool]) -> Outcome<B>;

    /// Returns the residuals of the derivative, given the inputs that need a gradient.
    fn residuals(&self, _needs: &[bool]) -> Residuals {
        Residuals::default()
    }

    /// Computes the gradients of the inputs, by position, from the [`residuals`](Self::residuals) and the gradients of the
    /// outputs. A gradient whose dtype differs from its input's is cast afterwards.
    fn compose_vjp<B: Backend>(&self, _residuals: Values<B>, _grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        unreachable!("{self:?} has no rule of differentiation")
    }
}

/// A batch axis: the first axis of some inputs, of all outputs and of all saved values. Each entry along it is computed from
/// the same entry of these inputs and from the other inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchAxis {
    /// Positions of the inputs that have the axis. The first one is always present.
    pub inputs: &'static [usize],
    /// Positions of the inputs in which the axis may have size 1 instead.
    pub broadcast: &'static [usize],
    /// Minimum number of axes of the first of these inputs. With fewer, the operation has no batch axis.
    pub min_rank: usize,
}

impl BatchAxis {
    /// The batch axis of the inputs at these positions.
    pub(crate) const fn of(inputs: &'static [usize]) -> Option<Self> {
        Some(Self { inputs, broadcast: &[], min_rank: 1 })
    }
}

/// Method of differentiation of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Differentiation {
    /// By the operation's rule, for the first output. Other outputs get no gradient.
    Rule,
    /// Like `Rule`. Inputs among the residuals may be recomputed (Burn's checkpointing).
    Checkpointed,
    /// Like `Checkpointed`. The output may be recomputed too. For cheap operations of one input.
    MemoryBound,
    /// Like `Rule`, for all outputs together. Without residuals.
    AllOutputs,
    /// Like `Rule`. The derivative adds to the existing gradient of the first input, which is passed after the gradients of
    /// the outputs, if there is one.
    Accumulating,
    /// By differentiating its composition.
    Composed,
    /// Not differentiable.
    None,
}

/// A residual: a value that a derivative uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    /// Input at a position.
    Input(usize),
    /// Output at a position.
    Output(usize),
    /// Value saved by the backend, at a position; may be missing.
    Saved(usize),
    /// No value.
    Absent,
}

/// Residuals of a derivative, in the order in which it receives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residuals(Vec<Residual>);

impl Residuals {
    /// Adds inputs.
    pub(crate) fn inputs(mut self, positions: impl IntoIterator<Item = usize>) -> Self {
        self.0.extend(positions.into_iter().map(Residual::Input));
        self
    }

    /// Adds an input, or an absent value if the input is not needed.
    pub(crate) fn input_if(mut self, needed: bool, position: usize) -> Self {
        self.0.push(if needed { Residual::Input(position) } else { Residual::Absent });
        self
    }

    /// Adds outputs.
    pub(crate) fn outputs(mut self, positions: impl IntoIterator<Item = usize>) -> Self {
        self.0.extend(positions.into_iter().map(Residual::Output));
        self
    }

    /// Adds values that the backend saves.
    pub(crate) fn saved(mut self, count: usize) -> Self {
        self.0.extend((0..count).map(Residual::Saved));
        self
    }

    /// Iterates over the residuals in order.
    pub fn iter(&self) -> impl Iterator<Item = Residual> + '_ {
        self.0.iter().copied()
    }
}

/// Returns true if the input at a position needs a gradient.
pub(crate) fn needed(needs: &[bool], position: usize) -> bool {
    needs.get(position).copied().unwrap_or_default()
}

macro_rules! operations {
    ($($name:ident($rules:ty)),* $(,)?) => {
        /// An operation with its static parameters.
        ///
        /// It holds no tensors, so it can be part of a graph.
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        pub enum Operation {
            $(#[doc = concat!("See [`", stringify!($rules), "`].")] $name($rules),)*
        }

        $(impl From<$rules> for Operation {
            fn from(rules: $rules) -> Self {
                Self::$name(rules)
            }
        })*

        impl Operation {
            /// Names of all operations.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Returns the name.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => stringify!($name),)* }
            }

            /// Returns the shapes of the outputs from those of the inputs.
            ///
            /// # Panics
            /// If the shapes of the inputs do not match the operation.
            #[track_caller]
            pub fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
                match self { $(Self::$name(rules) => rules.shapes(inputs),)* }
            }

            /// Returns the two words of the operation's random key, if it has one. A trace replaces them.
            pub fn key_mut(&mut self) -> Option<&mut [u32; 2]> {
                match self { $(Self::$name(rules) => rules.key_mut(),)* }
            }

            /// Returns the kind of differentiation.
            pub fn differentiation(&self) -> Differentiation {
                match self { $(Self::$name(_) => <$rules>::DIFFERENTIATION,)* }
            }

            /// Returns the axis that `vmap` extends by its examples, if the operation has one.
            pub fn batch_axis(&self) -> Option<BatchAxis> {
                match self { $(Self::$name(_) => <$rules>::BATCH_AXIS,)* }
            }

            /// Returns the number of leading inputs that are differentiable.
            pub(crate) fn differentiable_inputs(&self) -> usize {
                match self { $(Self::$name(_) => <$rules>::DIFFERENTIABLE_INPUTS,)* }
            }

            /// Returns the residuals of the derivative, given the inputs that need a gradient.
            pub fn residuals(&self, needs: &[bool]) -> Residuals {
                match self { $(Self::$name(rules) => rules.residuals(needs),)* }
            }

            /// Runs the operation as a composition of Burn's operations.
            pub fn compose<B: Backend>(&self, inputs: Values<B>, needs: &[bool]) -> Outcome<B> {
                if self.computes_in_f32() && inputs.is_half() {
                    return run_in_f32(self, inputs, needs);
                }
                match self { $(Self::$name(rules) => rules.compose(inputs, needs),)* }
            }

            /// Returns true if 16-bit values are computed in f32.
            fn computes_in_f32(&self) -> bool {
                match self { $(Self::$name(_) => <$rules>::IN_F32,)* }
            }

            /// Returns true if the derivative uses computed values other than the first output.
            pub(crate) fn saves(&self) -> bool {
                match self { $(Self::$name(_) => <$rules>::SAVES,)* }
            }

            /// Calls [`compose`](Self::compose) for operations that are differentiated through their composition. The
            /// restriction to these saves compile time: each composition is instantiated for each differentiating backend.
            pub(crate) fn compose_differentiable<B: Backend>(&self, inputs: Values<B>, needs: &[bool]) -> Outcome<B> {
                if self.computes_in_f32() && inputs.is_half() {
                    return run_in_f32(self, inputs, needs);
                }
                match self {
                    $(Self::$name(rules) => {
                        if const { matches!(<$rules>::DIFFERENTIATION, Differentiation::Composed) || <$rules>::SAVES } {
                            rules.compose(inputs, needs)
                        } else {
                            unreachable!("{self:?} is differentiated by its rule")
                        }
                    })*
                }
            }

            /// Computes the gradients of the inputs with Burn's operations.
            pub fn compose_vjp<B: Backend>(&self, residuals: Values<B>, grads: Values<B>, wanted: &Wanted) -> Values<B> {
                if self.computes_in_f32() && (residuals.is_half() || grads.is_half()) {
                    return run_vjp_in_f32(self, residuals, grads, wanted);
                }
                match self { $(Self::$name(rules) => rules.compose_vjp(residuals, grads, wanted),)* }
            }
        }
    };
}

operations! {
    Matmul(Matmul),
    Linear(Linear),
    QuantizedLinear(QuantizedLinear),
    Dequantize(Dequantize),
    Rope(Rope),
    SwiGlu(SwiGlu),
    Gelu(Gelu),
    Selu(Selu),
    Attention(Attention),
    MaskedSoftmax(MaskedSoftmax),
    UpdateCache(UpdateCache),
    DynamicUpdateSlice(DynamicUpdateSlice),
    Conv2d(Conv2dOptions),
    Conv2dFused(Conv2dFused),
    BatchNorm(BatchNorm),
    MaxPool2d(Pool2dOptions),
    RowNorm(RowNorm),
    Nll(Nll),
    Embedding(Embedding),
    Chunk(Chunk),
    Concat(Concat),
    RandomBits(RandomBits),
    RandomSamples(RandomSamples),
    RandomKeyData(RandomKeyData),
    RandomFoldIn(RandomFoldIn),
    Dropout(Dropout),
    Lstm(Lstm),
    Gru(Gru),
    Rnn(Rnn),
    AdamStep(AdamStep),
    SumOfSquares(SumOfSquares),
    Scale(Scale),
    ShardingConstraint(ShardingConstraint),
    AllReduce(AllReduce),
    Argsort(Argsort),
}

/// Runs an operation with 16-bit inputs in f32. The first output is cast to the dtype of the first input; other outputs and
/// saved values stay in f32.
pub(crate) fn run_in_f32<B: Backend>(operation: &Operation, inputs: Values<B>, needs: &[bool]) -> Outcome<B> {
    let dtype = inputs.dtype(0);
    let Outcome { mut outputs, saved } = B::run(operation, inputs.widened(), needs);
    let first = cast::<B>(outputs.take_float(0), dtype);
    outputs.put_float(0, first);
    Outcome { outputs, saved }
}

/// Computes the derivative of an operation with 16-bit outputs in f32. The gradients stay in f32.
pub(crate) fn run_vjp_in_f32<B: Backend>(
    operation: &Operation,
    residuals: Values<B>,
    grads: Values<B>,
    wanted: &Wanted,
) -> Values<B> {
    B::run_vjp(operation, residuals.widened(), grads.widened(), wanted)
}
