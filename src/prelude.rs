//! Common imports: `use grove::prelude::*;`.

/// Kind of the tensors of booleans, such as masks: `Tensor<B, D, Bool>`.
///
/// ```
/// use grove::prelude::*;
/// let x = Tensor::<Flex, 1>::from_floats([-1.0, 2.0], &Default::default());
/// let positive: Tensor<Flex, 1, Bool> = x.greater_elem(0.0);
/// assert_eq!(positive.int().sum().into_scalar(), 1);
/// ```
pub use burn::tensor::Bool;

/// Device of a backend, `B::Device`. The default is the first device.
///
/// ```
/// use grove::prelude::*;
/// let device: Device<Flex> = Default::default();
/// assert_eq!(Tensor::<Flex, 1>::ones([3], &device).device(), device);
/// ```
pub use burn::tensor::Device;

/// Conversion of the elements of a backend to types of Rust, in functions for all backends.
///
/// ```
/// use grove::prelude::*;
/// fn mean<B: Backend>(x: Tensor<B, 1>) -> f64 {
///     x.mean().into_scalar().elem()
/// }
/// assert_eq!(mean(Tensor::<Flex, 1>::from_floats([1.0, 2.0], &Default::default())), 1.5);
/// ```
pub use burn::tensor::ElementConversion;

/// Kind of the tensors of floating-point values, which is the default: `Tensor<B, D>` is `Tensor<B, D, Float>`.
///
/// ```
/// use grove::prelude::*;
/// let x: Tensor<Flex, 1, Float> = Tensor::ones([2], &Default::default());
/// assert_eq!(x.sum().into_scalar(), 2.0);
/// ```
pub use burn::tensor::Float;

/// Kind of the tensors of integers, such as tokens and labels: `Tensor<B, D, Int>`.
///
/// ```
/// use grove::prelude::*;
/// let ids = Tensor::<Flex, 1, Int>::from_ints([2, 0], &Default::default());
/// assert_eq!(ids.float().mean().into_scalar(), 1.0);
/// ```
pub use burn::tensor::Int;

/// Tensor of rank `D` on a backend. Operations take it by value; a clone copies a handle, not the values.
///
/// ```
/// use grove::prelude::*;
/// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &Default::default());
/// assert_eq!(x.clone().matmul(x).sum().into_scalar(), 54.0);
/// ```
pub use burn::tensor::Tensor;

/// Backend on which a loss gets its model; see [`value_and_grad()`].
///
/// ```
/// use grove::prelude::*;
/// let model = Linear::<Flex>::new(3, 1, Key::new(0));
/// let loss = |model: Linear<Autodiff<Flex>>| {
///     let x = Tensor::<Autodiff<Flex>, 2>::ones([4, 3], &Default::default());
///     model.forward(x).square().mean()
/// };
/// let (_loss, grads) = value_and_grad(&model, loss);
/// assert!(grads.weight.is_present());
/// ```
pub use grove_backend::Autodiff;

/// Backend of tensors and models. A function for all backends has it as a bound.
///
/// ```
/// use grove::prelude::*;
/// fn norm<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, 1> {
///     x.square().sum().sqrt()
/// }
/// assert_eq!(norm(Tensor::<Flex, 1>::from_floats([3.0, 4.0], &Default::default())).into_scalar(), 5.0);
/// ```
pub use grove_backend::Backend;

/// Backend of candle's kernels for CPUs.
///
/// ```
/// use grove::prelude::*;
/// let x = Tensor::<Candle, 1>::ones([3], &Default::default());
/// assert_eq!(x.sum().into_scalar(), 3.0);
/// ```
#[cfg(feature = "candle")]
pub use grove_backend::Candle;

/// Backend of NVIDIA GPUs. Consecutive operations are fused into one kernel, which is compiled when it first runs.
///
/// ```no_run
/// use grove::prelude::*;
/// let x = Tensor::<Cuda, 1>::ones([3], &Default::default()); // on the first GPU
/// println!("{}", x.sum().into_scalar());
/// ```
#[cfg(feature = "cuda")]
pub use grove_backend::Cuda;

/// Pure-Rust backend of CPUs, the default.
///
/// ```
/// use grove::prelude::*;
/// let x = Tensor::<Flex, 1>::ones([3], &Default::default());
/// assert_eq!(x.sum().into_scalar(), 3.0);
/// ```
#[cfg(feature = "flex")]
pub use grove_backend::Flex;

pub use grove_backend::{BackendName, DeviceSpec, Program};

/// Program that [`trace()`] records: a list of operations, which prints like a jaxpr.
///
/// ```
/// use grove::prelude::*;
/// let x = Array::<Flex, 1>::new(Tensor::ones([3], &Default::default()));
/// let graph: Graph = trace(|x: Array<Traced, 1>| Array::<_, 1>::new(x.val().tanh()), &x);
/// assert_eq!(graph.equations().len(), 1);
/// println!("{graph}");
/// ```
pub use grove_compile::Graph;

/// Backend inside traced functions: its tensors have shapes and dtypes, but no values.
///
/// ```
/// use grove::prelude::*;
/// let square = jit(|x: Array<Traced, 1>| Array::<_, 1>::new(x.val().square()));
/// let x = Array::<Flex, 1>::new(Tensor::<Flex, 1>::from_floats([3.0], &Default::default()));
/// assert_eq!(square.call(x).val().into_scalar(), 9.0);
/// ```
pub use grove_compile::Traced;

pub use grove_compile::{Shared, jit, jvp, per_example_grads, trace, vmap};

/// Rectified linear unit, `max(x, 0)`. Any shape.
///
/// ```
/// use grove::prelude::*;
/// let x = Tensor::<Flex, 1>::from_floats([-1.0, 2.0], &Default::default());
/// assert_eq!(relu(x).to_data().to_vec::<f32>().unwrap(), [0.0, 2.0]);
/// ```
pub use grove_layers::activation::relu;

/// Logistic function, `1 / (1 + exp(-x))`. Any shape.
///
/// ```
/// use grove::prelude::*;
/// assert_eq!(sigmoid(Tensor::<Flex, 1>::from_floats([0.0], &Default::default())).into_scalar(), 0.5);
/// ```
pub use grove_layers::activation::sigmoid;

/// Sigmoid linear unit or swish, `x sigmoid(x)`. Any shape.
///
/// ```
/// use grove::prelude::*;
/// assert_eq!(silu(Tensor::<Flex, 1>::from_floats([0.0], &Default::default())).into_scalar(), 0.0);
/// ```
pub use grove_layers::activation::silu;

/// Hyperbolic tangent. Any shape.
///
/// ```
/// use grove::prelude::*;
/// assert_eq!(tanh(Tensor::<Flex, 1>::from_floats([0.0], &Default::default())).into_scalar(), 0.0);
/// ```
pub use grove_layers::activation::tanh;

pub use grove_layers::{
    Activation, BatchNorm, Conv2d, Dropout, Embedding, LayerNorm, Linear, Lora, RmsNorm, accuracy,
    activation::{gelu, softmax},
    dropout,
    loss::{cross_entropy, squared_error},
};
pub use grove_models::bert::{BertForSequenceClassification, BertForTokenClassification, SentenceEncoder};
pub use grove_models::sequence_classification::{
    Gpt2ForSequenceClassification, GptNeoForSequenceClassification, LlamaForSequenceClassification,
};
pub use grove_models::{
    AutoModel, Bert, BertConfig, CausalLm, Gpt2, Gpt2Config, GptNeo, GptNeoConfig, Llama, LlamaConfig, Pretrained,
    PretrainedConfig, ResNet, ResNetConfig, RnnClassifier, RnnClassifierConfig, RnnKind, RnnLm, RnnLmConfig,
    TraceableLm, Vit, VitConfig,
};
pub use grove_optim::{
    Adam, Adamw, GradientTransformation, Schedule, Sgd, adam, adamw, apply_updates, chain, clip_by_global_norm,
    matrices, sgd,
};
pub use grove_tasks::{
    AutoGenerate, Generate, GenerateOptions, Generated, JitGenerate, generate, generation::Sampling,
};
pub use grove_text::Tokenizer;
pub use grove_train::{
    ClassifierScore, FitOptions, JitLoss, KeepModel, Outcome, StepOptions, TrainState, Trainable,
    data::{Data, Examples},
    fit, fit_jitted, train_step,
};
pub use grove_transform::{
    GradOptions, eval_shape, from_inner, grad, value_and_grad, value_and_grad_aux, value_and_grad_with,
};
pub use grove_tree::{self as tree, Array, Init, Key, Keys, Tree};
pub use grove_weights::{load_tree, save_tree};

/// Backend of OpenXLA. Operations are recorded, and compiled and run as one program when a value is read.
///
/// ```no_run
/// use grove::prelude::*;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = grove::xla::device(DeviceSpec::new(BackendName::Xla, 0))?.lazy();
/// println!("{}", Tensor::<Xla, 1>::ones([3], &device));
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "xla")]
pub use grove_xla::Xla;
