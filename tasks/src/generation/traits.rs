//! Generation and scoring as methods of models.

use grove_backend::Backend;
use grove_models::{AutoModel, CausalLm, ModelError, Pretrained, Result, TraceableLm, families::WithDecoderModel};

use super::{GenerateOptions, Generated, JittedLm, Score, generate, score_text};

/// Generation and scoring as methods of every [`CausalLm`].
///
/// ```
/// use grove_models::{Gpt2, Gpt2Config, Pretrained};
/// use grove_tasks::{Generate, GenerateOptions};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let config = Gpt2Config { n_embd: 8, n_layer: 1, n_head: 2, vocab_size: 16, n_positions: 32, ..Default::default() };
/// let model = Gpt2::<B>::init(&config, Key::new(0), &Default::default())?;
/// let options = GenerateOptions { max_new_tokens: 4, ..Default::default() };
/// let rows = model.generate(&[vec![1, 2, 3], vec![4]], &options)?;
/// assert_eq!(rows[0].ids.len(), 4);
/// assert!(model.score(&[1, 2, 3], None)?.loss > 0.0); // nats per token
/// # Ok::<(), grove_models::ModelError>(())
/// ```
pub trait Generate<B: Backend>: CausalLm<B> {
    /// Continues prompts; see [`generate()`].
    ///
    /// # Errors
    /// As [`generate()`].
    fn generate(&self, prompts: &[Vec<u32>], options: &GenerateOptions) -> Result<Vec<Generated>> {
        self.generate_with(prompts, options, |_row, _token| true)
    }

    /// Continues prompts and calls a function with the row and the id of each new token; see [`generate()`].
    ///
    /// # Errors
    /// As [`generate()`].
    fn generate_with(
        &self,
        prompts: &[Vec<u32>],
        options: &GenerateOptions,
        on_token: impl FnMut(usize, u32) -> bool,
    ) -> Result<Vec<Generated>> {
        generate(self, prompts, options, on_token)
    }

    /// Computes the likelihood of a token sequence; see [`score_text`].
    ///
    /// # Errors
    /// As [`score_text`].
    fn score(&self, ids: &[u32], stride: Option<usize>) -> Result<Score> {
        score_text(self, ids, stride)
    }
}

impl<B: Backend, M: CausalLm<B>> Generate<B> for M {}

/// Jitted generation as a method of every [`TraceableLm`].
///
/// ```
/// use grove_models::{Gpt2, Gpt2Config, Pretrained};
/// use grove_tasks::{GenerateOptions, JitGenerate};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let config = Gpt2Config { n_embd: 8, n_layer: 1, n_head: 2, vocab_size: 16, n_positions: 32, ..Default::default() };
/// let model = Gpt2::<B>::init(&config, Key::new(0), &Default::default())?;
/// let jitted = model.jitted();
/// let rows = jitted.generate(&[vec![1, 2]], &GenerateOptions { max_new_tokens: 4, ..Default::default() })?;
/// assert_eq!(rows[0].ids.len(), 4);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
pub trait JitGenerate<B: Backend>: TraceableLm<B> {
    /// Returns the model with a decoding step that is traced once and then runs as a program.
    fn jitted(&self) -> JittedLm<'_, B, Self> {
        JittedLm::new(self)
    }
}

impl<B: Backend, M: TraceableLm<B>> JitGenerate<B> for M {}

/// Generation as a method of [`AutoModel`].
///
/// ```no_run
/// use grove_models::AutoModel;
/// use grove_text::Tokenizer;
/// use grove_tasks::{AutoGenerate, GenerateOptions};
/// # type B = burn_flex::Flex;
/// let (id, device) = ("HuggingFaceTB/SmolLM2-135M", Default::default());
/// let (model, tokenizer) = (AutoModel::<B>::from_pretrained(id, &device)?, Tokenizer::from_pretrained(id)?);
/// let prompt = tokenizer.encode("Once upon a time")?;
/// let generated = model.generate(&[prompt], &GenerateOptions::default())?;
/// println!("{}", tokenizer.decode(&generated[0].ids)?);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
pub trait AutoGenerate {
    /// Continues prompts; see [`generate()`].
    ///
    /// # Errors
    /// The model is not a causal language model; otherwise as [`generate()`].
    fn generate(&self, prompts: &[Vec<u32>], options: &GenerateOptions) -> Result<Vec<Generated>> {
        self.generate_with(prompts, options, |_row, _token| true)
    }

    /// Continues prompts and calls a function with the row and the id of each new token; see [`generate()`].
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    fn generate_with(
        &self,
        prompts: &[Vec<u32>],
        options: &GenerateOptions,
        on_token: impl FnMut(usize, u32) -> bool,
    ) -> Result<Vec<Generated>>;
}

impl<B: Backend> AutoGenerate for AutoModel<B> {
    fn generate_with(
        &self,
        prompts: &[Vec<u32>],
        options: &GenerateOptions,
        on_token: impl FnMut(usize, u32) -> bool,
    ) -> Result<Vec<Generated>> {
        self.with_decoder(Continue { prompts, options, on_token }).unwrap_or_else(|kind| {
            let reason = format!("a model of kind {kind:?} generates no text; use a causal language model");
            Err(ModelError::Config { reason })
        })
    }
}

/// Arguments of a generation, for a decoder of any family.
struct Continue<'a, F> {
    prompts: &'a [Vec<u32>],
    options: &'a GenerateOptions,
    on_token: F,
}

impl<B: Backend, F: FnMut(usize, u32) -> bool> WithDecoderModel<B> for Continue<'_, F> {
    type Output = Result<Vec<Generated>>;

    fn run<M: TraceableLm<B> + Pretrained<B>>(self, model: &M) -> Self::Output {
        generate(model, self.prompts, self.options, self.on_token)
    }
}
