#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![recursion_limit = "256"]

#[cfg(not(test))]
mod anchor;

#[cfg(not(test))]
#[doc(hidden)]
pub use anchor::anchors;

/// Backends, and their selection at run time.
pub use grove_backend as backend;
/// Tracing: functions of trees as graphs, which can be printed, counted and compiled.
pub use grove_compile as compile;
/// Atomic writes and errors with paths.
pub use grove_files as files;
/// Image decoding, preprocessing, augmentation and data sets.
#[cfg(feature = "images")]
pub use grove_images as images;
/// Layers and losses.
pub use grove_layers as layers;
/// Models, text generation and tokenizers.
pub use grove_models as models;
/// Gradient transformations, schedules and optimizers.
pub use grove_optim as optim;
/// Tokenizers from SentencePiece and GGUF vocabularies, and chat templates.
pub use grove_text as text;
/// Training: steps, loops, data, checkpoints and logs.
pub use grove_train as train;
/// Automatic differentiation and shape evaluation.
pub use grove_transform as transform;
/// Trees of arrays, and random keys.
pub use grove_tree as tree;
/// Tensor files (safetensors, PyTorch, GGUF) and the hub.
pub use grove_weights as weights;

/// OpenXLA: plugins, devices, and graphs in StableHLO.
#[cfg(feature = "xla")]
pub use grove_xla as xla;

pub use burn::tensor;
pub use grove_backend::Backend;

/// Distributed training on several processes and machines: ranks, collectives on trees, and distributed optimizers.
pub mod distributed {
    pub use grove_distributed::*;
    pub use grove_optim::{AllReduceGradients, Zero1, all_reduce_gradients, zero1};
}

/// Probes for a device of any backend, then runs the program on the device.
///
/// # Errors
/// The backend is not compiled in, its driver, plugin or hardware is missing, or it has no such device.
pub fn run<P: grove_backend::Program>(
    device: grove_backend::DeviceSpec,
    program: P,
) -> Result<P::Output, grove_backend::DeviceError> {
    #[cfg(feature = "xla")]
    return grove_xla::run(device, program);
    #[cfg(not(feature = "xla"))]
    device.run(program)
}

/// Common imports: `use grove::prelude::*;`.
pub mod prelude {
    pub use burn::tensor::{Bool, Device, ElementConversion, Float, Int, Tensor};
    #[cfg(feature = "candle")]
    pub use grove_backend::Candle;
    #[cfg(feature = "cuda")]
    pub use grove_backend::Cuda;
    #[cfg(feature = "flex")]
    pub use grove_backend::Flex;
    pub use grove_backend::{Autodiff, Backend, BackendName, DeviceSpec, Program};
    pub use grove_compile::{Graph, Shared, Traced, jit, jvp, per_example_grads, trace, vmap};
    pub use grove_layers::{Conv2d, Embedding, LayerNorm, Linear, RmsNorm, dropout};
    pub use grove_models::bert::{BertForSequenceClassification, BertForTokenClassification, SentenceEncoder};
    pub use grove_models::{
        Bert, BertConfig, CausalLm, GenerateOptions, Generated, Gpt2, Gpt2Config, GptNeo, GptNeoConfig, Llama,
        LlamaConfig, Pretrained, PretrainedConfig, ResNet, ResNetConfig, RnnClassifier, RnnClassifierConfig, RnnKind,
        RnnLm, RnnLmConfig, Tokenizer, Vit, VitConfig, generate,
        generation::{Sampling, TraceableLm},
    };
    pub use grove_optim::{Adamw, GradientTransformation, adamw, apply_updates, chain, clip_by_global_norm, matrices};
    pub use grove_train::{
        FitOptions, JitLoss, Outcome, StepOptions, TrainState, Trainable, fit, fit_jitted, train_step,
    };
    pub use grove_transform::{eval_shape, grad, value_and_grad, value_and_grad_aux};
    pub use grove_tree::{self as tree, Array, Init, Key, Keys, Tree};
    #[cfg(feature = "xla")]
    pub use grove_xla::Xla;
}

/// Pages of `docs/` whose code is tested.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/library.md")]
    struct Library;
    #[cfg(feature = "xla")]
    #[doc = include_str!("../docs/xla.md")]
    struct Xla;
}
