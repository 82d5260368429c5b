//! Text generation, shared by every decoder.

mod published;
mod run;
mod sampler;
mod text;

use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_tree::Tree;

pub use run::{Finish, GenerateOptions, Generated, check_prompt, generate, score};
pub use sampler::Sampling;
pub use text::TextStream;

/// A model that tells the next token's logits and carries a state from position to position: a cache of keys and
/// values, or the state of a recurrent network.
pub trait Decoder<B: Backend> {
    /// What is carried.
    type State: Tree<B>;

    /// The state before the first position.
    fn start(&self) -> Self::State;

    /// Takes the next positions and gives the logits after the last of them, and the state's successor.
    ///
    /// `padding[row]` positions at the beginning of a row are padding, counted from the very first position; an empty
    /// slice means none anywhere.
    ///
    /// # Shapes
    /// - ids `[b, t]`, t at least 1
    /// - output `[b, vocab_size]`
    fn decode(&self, ids: Tensor<B, 2, Int>, padding: &[usize], state: Self::State) -> (Tensor<B, 2>, Self::State);

    /// Number of tokens.
    fn vocab_size(&self) -> usize;

    /// The most positions that the model can see, if there is a limit.
    fn context(&self) -> Option<usize>;

    /// Where the model lies.
    fn device(&self) -> B::Device;

    /// Tokens that end a text.
    fn end_tokens(&self) -> Vec<u32>;
}
