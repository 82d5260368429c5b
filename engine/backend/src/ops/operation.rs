//! The operations that grove owns, as values.

use burn::tensor::Shape;
use std::fmt::Debug;

use super::{
    AdamStep, AllReduce, Argsort, Attention, Backend, BatchNorm, Chunk, Concat, Conv2dFused, Conv2dOptions, Dequantize,
    Dropout, DynamicUpdateSlice, Embedding, Gelu, Gru, Linear, Lstm, MaskedSoftmax, Matmul, Nll, Outcome,
    Pool2dOptions, QuantizedLinear, RandomBits, RandomFoldIn, RandomKeyData, RandomSamples, Rnn, Rope, RowNorm, Scale,
    Selu, Shapes, ShardingConstraint, SumOfSquares, SwiGlu, UpdateCache, Values, Wanted, precision::cast,
};

/// The rules of an operation, written in its file. The composition out of Burn's operations is every backend's default.
pub(crate) trait Rules: Clone + Debug + PartialEq {
    /// Kind of differentiation.
    const DIFFERENTIATION: Differentiation = Differentiation::Rule;
    /// Leading inputs that gradients flow to, where they are floating-point tensors.
    const DIFFERENTIABLE_INPUTS: usize = usize::MAX;
    /// True if the derivative uses computed values besides the first output: saved ones, or other outputs. No gradient
    /// flows through them, so that derivatives of derivatives differentiate the composition.
    const SAVES: bool = false;

    /// Returns the shapes of the outputs.
    ///
    /// # Panics
    /// If the shapes of the inputs do not fit, with a sentence that names the operation, the shapes and the rule.
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape>;

    /// The two words of the random key that the operation draws with, if it draws.
    fn key_mut(&mut self) -> Option<&mut [u32; 2]> {
        None
    }

    /// Runs the operation. The result has the saved values of [`residuals`](Self::residuals) if `needs` is true for any input.
    fn compose<B: Backend>(&self, inputs: Values<B>, needs: &[bool]) -> Outcome<B>;

    /// Names the values that the derivative is computed from, given which inputs need a gradient.
    fn residuals(&self, _needs: &[bool]) -> Residuals {
        Residuals::default()
    }

    /// Gradients of the inputs, by their positions, from [`residuals`](Self::residuals) and the gradients of the outputs.
    /// One may have another floating-point type than its input, to which it is cast then.
    fn compose_vjp<B: Backend>(&self, _residuals: Values<B>, _grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        unreachable!("{self:?} has no rule of differentiation")
    }
}

/// Kind of differentiation of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Differentiation {
    /// By its derivative, with respect to the first output. No gradient flows through other outputs.
    Rule,
    /// As `Rule`; inputs among the residuals may be computed again by what gave them (Burn's checkpointing).
    Checkpointed,
    /// As `Checkpointed`; the output may be computed again too. For cheap operations of one input.
    MemoryBound,
    /// As `Rule`, with respect to all outputs together.
    AllOutputs,
    /// As `Rule`; the derivative adds to the gradient that the first input already has, which follows the gradients of
    /// the outputs if there is one.
    Accumulating,
    /// By differentiating its composition.
    Composed,
    /// Not at all.
    None,
}

/// A value that a derivative is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    /// The input at a position.
    Input(usize),
    /// The output at a position.
    Output(usize),
    /// The value that the backend saved at a position, which may be missing.
    Saved(usize),
    /// Nothing.
    Absent,
}

/// The values that a derivative is computed from, in the order in which it gets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residuals(Vec<Residual>);

impl Residuals {
    /// Adds inputs.
    pub(crate) fn inputs(mut self, positions: impl IntoIterator<Item = usize>) -> Self {
        self.0.extend(positions.into_iter().map(Residual::Input));
        self
    }

    /// Adds an input, or nothing where it is not needed.
    pub(crate) fn input_if(mut self, needed: bool, position: usize) -> Self {
        self.0.push(if needed { Residual::Input(position) } else { Residual::Absent });
        self
    }

    /// Adds outputs.
    pub(crate) fn outputs(mut self, positions: impl IntoIterator<Item = usize>) -> Self {
        self.0.extend(positions.into_iter().map(Residual::Output));
        self
    }

    /// Adds values that the backend saves besides.
    pub(crate) fn saved(mut self, count: usize) -> Self {
        self.0.extend((0..count).map(Residual::Saved));
        self
    }

    /// The residuals in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Residual> + '_ {
        self.0.iter().copied()
    }
}

/// True if the gradient of the input at a position is wanted.
pub(crate) fn needed(needs: &[bool], position: usize) -> bool {
    needs.get(position).copied().unwrap_or_default()
}

macro_rules! operations {
    ($($name:ident($rules:ty)),* $(,)?) => {
        /// An operation with its static parameters.
        ///
        /// It holds no tensors, so that it can stand in a graph.
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[non_exhaustive]
        pub enum Operation {
            $(#[doc = concat!("See [`", stringify!($rules), "`].")] $name($rules),)*
        }

        $(impl From<$rules> for Operation {
            fn from(rules: $rules) -> Self {
                Self::$name(rules)
            }
        })*

        impl Operation {
            /// The names of all operations.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Returns the name.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => stringify!($name),)* }
            }

            /// Returns the shapes of the outputs, given those of the inputs.
            ///
            /// # Panics
            /// If the shapes of the inputs do not fit the operation.
            #[track_caller]
            pub fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
                match self { $(Self::$name(rules) => rules.shapes(inputs),)* }
            }

            /// Returns the two words of the random key that the operation draws with, if it draws. A trace puts the words of
            /// another key in their place.
            pub fn key_mut(&mut self) -> Option<&mut [u32; 2]> {
                match self { $(Self::$name(rules) => rules.key_mut(),)* }
            }

            /// Returns the kind of differentiation.
            pub fn differentiation(&self) -> Differentiation {
                match self { $(Self::$name(_) => <$rules>::DIFFERENTIATION,)* }
            }

            /// Returns the number of leading inputs that gradients flow to.
            pub(crate) fn differentiable_inputs(&self) -> usize {
                match self { $(Self::$name(_) => <$rules>::DIFFERENTIABLE_INPUTS,)* }
            }

            /// Names the values that the derivative is computed from, given which inputs need a gradient.
            pub fn residuals(&self, needs: &[bool]) -> Residuals {
                match self { $(Self::$name(rules) => rules.residuals(needs),)* }
            }

            /// Runs the operation as a composition of Burn's operations.
            pub fn compose<B: Backend>(&self, inputs: Values<B>, needs: &[bool]) -> Outcome<B> {
                match self { $(Self::$name(rules) => rules.compose(inputs, needs),)* }
            }

            /// Returns true if the derivative uses computed values besides the first output.
            pub(crate) fn saves(&self) -> bool {
                match self { $(Self::$name(_) => <$rules>::SAVES,)* }
            }

            /// [`compose`](Self::compose) of the operations whose compositions are differentiated. For others no code is
            /// generated: each would be compiled for each differentiating backend.
            pub(crate) fn compose_differentiable<B: Backend>(&self, inputs: Values<B>, needs: &[bool]) -> Outcome<B> {
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

            /// Computes the gradients of the inputs by Burn's operations.
            pub fn compose_vjp<B: Backend>(&self, residuals: Values<B>, grads: Values<B>, wanted: &Wanted) -> Values<B> {
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

/// Runs an operation whose inputs have 16 bits in f32. The first output gets the type of the first input; other outputs
/// and what is saved stay in f32.
pub(crate) fn run_in_f32<B: Backend>(operation: impl Into<Operation>, inputs: Values<B>, needs: &[bool]) -> Outcome<B> {
    let dtype = inputs.dtype(0);
    let Outcome { mut outputs, saved } = B::run(&operation.into(), inputs.widened(), needs);
    let first = cast::<B>(outputs.take_float(0), dtype);
    outputs.put_float(0, first);
    Outcome { outputs, saved }
}

/// Derivative of an operation whose outputs have 16 bits, in f32, in which the gradients stay.
pub(crate) fn run_vjp_in_f32<B: Backend>(
    operation: impl Into<Operation>,
    residuals: Values<B>,
    grads: Values<B>,
    wanted: &Wanted,
) -> Values<B> {
    B::run_vjp(&operation.into(), residuals.widened(), grads.widened(), wanted)
}
