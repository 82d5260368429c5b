#![doc = include_str!("../README.md")]
//!
//! # Map of the crate
//!
//! | to | see |
//! |---|---|
//! | import the common names | [`prelude`] |
//! | load, run and save models | [`models`], [`models::Pretrained`], [`models::AutoModel`] |
//! | encode and decode text | [`text::Tokenizer`], [`text::chat_template()`] |
//! | generate text, hold a conversation | [`tasks::generate()`], [`tasks::generation`], [`tasks::chat`] |
//! | fill masks, classify, tag, answer, embed | [`tasks::text`] |
//! | build a model | [`layers`], [`layers::activation`], [`layers::rnn`], [`tree::Tree`](trait@tree::Tree), [`tree::Array`], [`tree::Init`] |
//! | select, split, print and change models | [`tree`] |
//! | draw random numbers | [`tree::Key`] |
//! | compute a loss | [`layers::loss`] |
//! | differentiate | [`transform::value_and_grad()`], [`compile::jvp()`], [`compile::hessian()`] |
//! | compile, map over a batch, loop | [`compile::jit()`], [`compile::vmap()`], [`compile::scan()`], [`compile::cond()`] |
//! | optimize | [`optim`] |
//! | train | [`train::train_step()`], [`train::fit()`], [`train::data`], [`train::classify`], [`train::log`] |
//! | adapt with LoRA | [`layers::lora`], [`models::peft`] |
//! | read and write files of tensors | [`weights::TensorFiles`], [`weights::load()`], [`weights::save_tree()`], [`weights::NameMap`] |
//! | choose a device | [`run()`], [`backend::DeviceSpec`], [`backend::Program`] |
//! | train on several processes | [`distributed`] |
//!
//! The modules `images` (decoding, preprocessing, augmentation) and `xla` (OpenXLA) need the features of these names, which are on
//! by default. The book in the folder `docs` explains all of them, with programs to copy.
#![warn(missing_docs)]
#![recursion_limit = "256"]

#[cfg(not(test))]
mod anchor;
pub mod prelude;

#[cfg(not(test))]
#[doc(hidden)]
pub use anchor::anchors;

/// Backends, and their selection at run time.
pub use grove_backend as backend;
/// Tracing: functions of trees as graphs, which can be printed, counted and compiled.
pub use grove_compile as compile;
/// Atomic writes, JSON files and errors with paths.
pub use grove_files as files;
/// Image decoding, preprocessing, augmentation and data sets.
#[cfg(feature = "images")]
pub use grove_images as images;
/// Layers and losses.
pub use grove_layers as layers;
/// Models and their files.
pub use grove_models as models;
/// Gradient transformations, schedules and optimizers.
pub use grove_optim as optim;
/// Text generation and conversations.
pub use grove_tasks as tasks;
/// Tokenizers and chat templates.
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

/// Pages of the book, `docs/`, whose code is tested.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/candle_burn.md")]
    struct CandleBurn;
    #[cfg(feature = "images")]
    #[doc = include_str!("../docs/data.md")]
    struct Data;
    #[doc = include_str!("../docs/distributed.md")]
    struct Distributed;
    #[doc = include_str!("../docs/errors.md")]
    struct Errors;
    #[doc = include_str!("../docs/families/bert.md")]
    struct Bert;
    #[doc = include_str!("../docs/families/gpt2.md")]
    struct Gpt2;
    #[doc = include_str!("../docs/families/gpt_neo.md")]
    struct GptNeo;
    #[doc = include_str!("../docs/families/llama.md")]
    struct Llama;
    #[doc = include_str!("../docs/families/recurrent.md")]
    struct Recurrent;
    #[doc = include_str!("../docs/families/resnet.md")]
    struct Resnet;
    #[cfg(feature = "images")]
    #[doc = include_str!("../docs/families/vit.md")]
    struct Vit;
    #[doc = include_str!("../docs/first_hour.md")]
    struct FirstHour;
    #[doc = include_str!("../docs/fit.md")]
    struct Fit;
    #[doc = include_str!("../docs/freezing.md")]
    struct Freezing;
    #[doc = include_str!("../docs/gpus.md")]
    struct Gpus;
    #[doc = include_str!("../docs/jax.md")]
    struct Jax;
    #[doc = include_str!("../docs/library.md")]
    struct Library;
    #[doc = include_str!("../docs/lora.md")]
    struct Lora;
    #[doc = include_str!("../docs/losses.md")]
    struct Losses;
    #[doc = include_str!("../docs/mixed_precision.md")]
    struct MixedPrecision;
    #[doc = include_str!("../docs/models.md")]
    struct Models;
    #[doc = include_str!("../docs/optimizers.md")]
    struct Optimizers;
    #[cfg(feature = "images")]
    #[doc = include_str!("../docs/pytorch.md")]
    struct Pytorch;
    #[doc = include_str!("../docs/recipes.md")]
    struct Recipes;
    #[doc = include_str!("../docs/transformations.md")]
    struct Transformations;
    #[doc = include_str!("../docs/trees.md")]
    struct Trees;
    #[cfg(feature = "xla")]
    #[doc = include_str!("../docs/xla.md")]
    struct Xla;
}
