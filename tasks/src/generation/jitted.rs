//! Generation with a jitted decoding step.

use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_compile::{Graph, Jit, Traced, jit};
use grove_models::{CausalLm, DecodeCache, Result, TraceableLm};
use grove_tree::{Array, Tree};
use std::fmt;

use super::{
    GenerateOptions, Generated,
    decoder::{Decoded, Decoder, capacity},
    run::generate_by,
};

/// Arguments of a step.
#[derive(Tree, Clone, Debug)]
struct StepArgs<B: Backend, M, C> {
    /// The model.
    model: M,
    /// Sampled tokens, `[b, 1]`.
    ids: Array<B, 2, Int>,
    /// Cache of the positions processed so far.
    cache: C,
    /// Number of padding positions at the beginning of each row.
    #[tree(static)]
    padding: Vec<usize>,
}

type Args<M, C> = StepArgs<Traced, M, C>;
type Results<C> = (Array<Traced, 2>, C);
type Step<M, C> = Jit<Args<M, C>, Results<C>, fn(Args<M, C>) -> Results<C>>;

fn step<M: CausalLm<Traced>>(args: Args<M, M::Cache>) -> Results<M::Cache> {
    let StepArgs { model, ids, cache, padding } = args;
    let (logits, cache) = model.decode(ids.val(), &padding, cache);
    (Array::new(logits), cache)
}

/// A language model with a jitted decoding step, from [`JitGenerate::jitted`](super::JitGenerate::jitted).
///
/// Keys and values are stored in a cache of fixed size whose position is an array. One program serves all positions
/// until the cache is full and doubles. Prompts are processed eagerly, since each length would need its own program. With
/// a [`batch_size`](GenerateOptions::batch_size), each prompt that enters the batch needs a new program: rows have other
/// padding then.
/// Programs are kept between calls.
///
/// ```
/// use grove_models::{Gpt2, Gpt2Config, Pretrained};
/// use grove_tasks::{GenerateOptions, JitGenerate, generate};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let device = Default::default();
/// let config = Gpt2Config { n_embd: 8, n_layer: 1, n_head: 2, vocab_size: 16, n_positions: 8, ..Gpt2Config::default() };
/// let model = Gpt2::<B>::init(&config, Key::new(0), &device)?;
/// let options = GenerateOptions { max_new_tokens: 4, ..GenerateOptions::default() };
/// let jitted = model.jitted();
/// let rows = jitted.generate(&[vec![1, 2]], &options)?;
/// assert_eq!(rows, generate(&model, &[vec![1, 2]], &options, |_, _| true)?);
/// assert_eq!(jitted.graphs().len(), 1);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
pub struct JittedLm<'a, B: Backend, M: TraceableLm<B>> {
    model: &'a M,
    step: Step<M::OnTraced, M::TracedCache>,
}

impl<'a, B: Backend, M: TraceableLm<B>> JittedLm<'a, B, M> {
    /// Wraps a model. The step is traced when it first runs.
    pub(super) fn new(model: &'a M) -> Self {
        Self { model, step: jit(step) }
    }

    /// Continues prompts as [`generate`](super::generate) does, and samples the same tokens unless rounding decides
    /// between two of them.
    ///
    /// # Errors
    /// As [`generate`](super::generate).
    pub fn generate(&self, prompts: &[Vec<u32>], options: &GenerateOptions) -> Result<Vec<Generated>> {
        self.generate_with(prompts, options, |_row, _token| true)
    }

    /// Continues prompts as [`generate`](Self::generate) does, and calls a function with the row and the id of each new
    /// token. The generation ends if it returns false.
    ///
    /// # Errors
    /// As [`generate`](super::generate).
    pub fn generate_with(
        &self,
        prompts: &[Vec<u32>],
        options: &GenerateOptions,
        mut on_token: impl FnMut(usize, u32) -> bool,
    ) -> Result<Vec<Generated>> {
        generate_by(self, prompts, options, &mut on_token, &mut |_, _| ())
    }

    /// Returns the step's graphs, one per capacity, number of rows and padding, most recently used first.
    pub fn graphs(&self) -> Vec<Graph> {
        self.step.graphs()
    }
}

impl<B: Backend, M: TraceableLm<B>> Decoder<B, M> for JittedLm<'_, B, M> {
    fn model(&self) -> &M {
        self.model
    }

    fn compiles(&self) -> bool {
        true
    }

    fn new_cache(&self, prompt: usize, _steps: usize) -> M::Cache {
        // One more position, so that the first step has room.
        self.model.new_fixed_cache(capacity(prompt + 1))
    }

    fn decode(&self, ids: Tensor<B, 2, Int>, padding: &[usize], cache: M::Cache, seen: usize) -> Decoded<B, M> {
        if seen == 0 {
            return self.model.decode(ids, padding, cache);
        }
        let cache = cache.with_capacity(capacity(seen + 1));
        let padding = if padding.iter().all(|&pad| pad == 0) { vec![] } else { padding.to_vec() };
        let model = self.model.clone();
        let (logits, cache) = self.step.call::<B>(StepArgs { model, ids: Array::new(ids), cache, padding });
        (logits.val(), cache)
    }
}

impl<B: Backend, M: TraceableLm<B>> fmt::Debug for JittedLm<'_, B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JittedLm").field("step", &self.step).finish_non_exhaustive()
    }
}
