//! LoRA: low-rank updates that are trained in place of the weights of linear layers (Hu et al., "LoRA: Low-Rank Adaptation
//! of Large Language Models", 2021, <https://arxiv.org/abs/2106.09685>). Reference: Hugging Face's peft.
//!
//! The functions select [`Linear`] layers of any tree by their paths.
//!
//! ```
//! use grove_layers::{Linear, lora};
//! use grove_tree::{Init, Key, count_params, filter, leaves};
//! # type B = burn_flex::Flex;
//! let init = Init::<B>::new(Key::new(0), &Default::default());
//! let model = vec![Linear::normal(64, 32, 0.02, &init), Linear::normal(32, 32, 0.02, &init)];
//! let model = lora::add(model, &["0"], 4, 8.0, Key::new(1))?;
//! assert_eq!(count_params(&model[0]), 64 * 32 + 32 + 4 * (64 + 32));
//! let trained = filter(model.clone(), &lora::trainable());   // what an optimizer gets
//! # let present: usize = leaves(&trained).iter().filter(|(_, l)| l.is_present()).map(|(_, l)| l.len()).sum();
//! # assert_eq!(present, 4 * (64 + 32));
//! let model = lora::merge(model);                            // after training: plain layers again
//! assert_eq!(count_params(&model[0]), 64 * 32 + 32);
//! # Ok::<(), lora::LoraError>(())
//! ```

use burn::tensor::Tensor;
use grove_backend::{Backend, matmul};
use grove_tree::{Array, Filter, Init, Key, Tree, by_path, layers_mut, path_fits};
use thiserror::Error;

use crate::{Linear, linear::affine};

/// Low-rank update of a linear layer, `x -> scale * (x A) B`.
///
/// ```
/// use grove_layers::Linear;
/// use grove_tree::{Key, eq};
/// # type B = burn_flex::Flex;
/// let linear = Linear::<B>::new(3, 2, Key::new(0)).with_lora(4, 8.0, Key::new(1)); // rank 4, alpha 8
/// let update = linear.low_rank.as_ref().unwrap();
/// assert_eq!((update.a.shape(), update.b.shape(), update.scale), ([3, 4], [4, 2], 2.0));
/// assert_eq!(update.matrix().dims(), [3, 2]);
/// assert!(eq(&linear.clone().merge_lora().weight, &linear.weight)); // initially zero
/// ```
#[derive(Tree, Clone, Debug)]
pub struct Lora<B: Backend> {
    /// Down-projection `A`, `[in, rank]`.
    pub a: Array<B, 2>,
    /// Up-projection `B`, `[rank, out]`.
    pub b: Array<B, 2>,
    /// Scale of the product: `alpha / rank`, or `alpha / sqrt(rank)` for rank-stabilised LoRA (Kalajdzievski, 2023,
    /// <https://arxiv.org/abs/2312.03732>).
    pub scale: f64,
}

impl<B: Backend> Lora<B> {
    /// Creates an update that is initially zero: `A` is uniform in `±1 / sqrt(inputs)` and `B` is zero, as in peft. The
    /// scale is `alpha / rank`.
    ///
    /// # Panics
    /// If the rank is 0.
    pub fn new(inputs: usize, outputs: usize, rank: usize, alpha: f64, init: &Init<B>) -> Self {
        assert!(rank > 0, "an update of rank 0 has no parameters");
        let bound = 1.0 / (inputs as f32).sqrt();
        Self {
            a: init.named("a").uniform([inputs, rank], -bound, bound),
            b: init.named("b").zeros([rank, outputs]),
            scale: alpha / rank as f64,
        }
    }

    /// Applies the update.
    ///
    /// # Shapes
    /// - input `[..., in]`
    /// - output `[..., out]`
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        affine(affine(x, &self.a, None).mul_scalar(self.scale), &self.b, None)
    }

    /// Returns the update as a matrix, `[in, out]`.
    #[track_caller]
    pub fn matrix(&self) -> Tensor<B, 2> {
        matmul(self.a.val(), self.b.val()).mul_scalar(self.scale)
    }
}

/// Errors of [`add`].
#[derive(Error, PartialEq, Eq)]
pub enum LoraError {
    /// The rank is 0.
    #[error("the rank of adapters is 0; it must be at least 1")]
    Rank,
    /// A target matches no linear layer.
    #[error("the target `{target}` matches no linear layer; the linear layers are: {}", paths.join(", "))]
    Target {
        /// The target.
        target: String,
        /// Some paths of linear layers.
        paths: Vec<String>,
    },
    /// A matching layer already has an adapter.
    #[error("the linear layer `{path}` has an adapter; merge it first")]
    Adapted {
        /// The path of the layer.
        path: String,
    },
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for LoraError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Adds adapters, initially zero, to each linear layer whose path matches one of the targets, which are [`by_path`]
/// patterns. The layers' weights must be present.
///
/// # Errors
/// [`LoraError`] if the rank is 0, a target matches no linear layer, or a matching layer already has an adapter.
pub fn add<B: Backend, T: Tree<B>, S: AsRef<str>>(
    mut model: T,
    targets: &[S],
    rank: usize,
    alpha: f64,
    key: Key,
) -> Result<T, LoraError> {
    if rank == 0 {
        return Err(LoraError::Rank);
    }
    let (mut paths, mut adapted) = (vec![], None);
    let mut unmatched: Vec<&str> = targets.iter().map(AsRef::as_ref).collect();
    layers_mut::<B, _, Linear<B>>(&mut model, |path, linear| {
        let fits = |target: &str| path_fits(target, path.as_str());
        if targets.iter().any(|target| fits(target.as_ref())) {
            if linear.low_rank.is_some() {
                adapted.get_or_insert_with(|| path.to_string());
            }
            *linear = linear.clone().with_lora(rank, alpha, key.fold_in(paths.len() as u32));
        }
        unmatched.retain(|target| !fits(target));
        paths.push(path.to_string());
    });
    if let Some(path) = adapted {
        return Err(LoraError::Adapted { path });
    }
    match unmatched.first() {
        Some(target) => {
            paths.truncate(12);
            Err(LoraError::Target { target: (*target).to_owned(), paths })
        }
        None => Ok(model),
    }
}

/// Merges each adapter into the weight of its layer and removes it.
pub fn merge<B: Backend, T: Tree<B>>(mut model: T) -> T {
    layers_mut::<B, _, Linear<B>>(&mut model, |_, linear| {
        if linear.low_rank.is_some() {
            *linear = linear.clone().merge_lora();
        }
    });
    model
}

/// Selects the leaves of adapters.
pub fn trainable<B: Backend>() -> Filter<B> {
    by_path("**.low_rank.**")
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;
    use grove_tree::{eq, leaves, paths};
    use std::collections::BTreeMap;

    /// Linear layers in containers of several kinds.
    type Model = (Vec<Linear<Flex>>, BTreeMap<String, Option<Linear<Flex>>>);

    fn model() -> Model {
        let linear = |i| Linear::normal(3, 4, 0.5, Init::<Flex>::new(Key::new(7), &Default::default()).fold_in(i));
        (vec![linear(0), linear(1)], [("head".to_owned(), Some(linear(2))), ("none".to_owned(), None)].into())
    }

    fn output(model: &Model) -> Tensor<Flex, 2> {
        let x = Tensor::from_data([[0.5, -1.0, 2.0]], &Default::default());
        let head = model.1["head"].as_ref().unwrap();
        model.0[0].forward(x.clone()) + model.0[1].forward(x.clone()).mul_scalar(2.0) + head.forward(x).mul_scalar(3.0)
    }

    #[test]
    fn adapters_start_at_zero_and_merge_into_weights() {
        let before = model();
        let adapted = add(before.clone(), &["0.*", "1.head"], 2, 3.0, Key::new(1)).unwrap();
        assert_eq!(leaves(&adapted).len(), leaves(&before).len() + 6);
        assert_eq!(output(&adapted).into_data(), output(&before).into_data());
        let trained = grove_tree::map_with_path(adapted.clone(), |path, leaf| {
            if path.as_str().contains("low_rank") { leaf.add_scalar(0.25) } else { leaf }
        });
        let merged = merge(trained.clone());
        assert_eq!(paths(&merged), paths(&before));
        let difference = (output(&trained) - output(&merged)).abs().max().into_scalar();
        assert!(difference < 1e-5, "apart by {difference}");
        assert!((output(&trained) - output(&before)).abs().max().into_scalar() > 0.1);
        // Adapters of different layers differ. The same key gives the same adapters.
        let a = |model: &Model, i: usize| model.0[i].low_rank.as_ref().unwrap().a.val().into_data();
        assert_ne!(a(&adapted, 0), a(&adapted, 1));
        assert!(eq(&adapted, &add(before, &["0.*", "1.head"], 2, 3.0, Key::new(1)).unwrap()));
    }

    #[test]
    fn trainable_selects_adapters_only() {
        let adapted = add(model(), &["0.1"], 2, 3.0, Key::new(1)).unwrap();
        let kept = grove_tree::filter(adapted, &trainable());
        let present: Vec<String> =
            leaves(&kept).into_iter().filter(|(_, leaf)| leaf.is_present()).map(|(path, _)| path).collect();
        assert_eq!(present, ["0.1.low_rank.a", "0.1.low_rank.b"]);
    }

    #[test]
    fn impossible_options_are_named() {
        let message = |error: LoraError| error.to_string();
        assert!(message(add(model(), &["0.*"], 0, 1.0, Key::new(0)).unwrap_err()).contains("rank of adapters is 0"));
        let unmatched = message(add(model(), &["0.*", "nothing.*"], 1, 1.0, Key::new(0)).unwrap_err());
        assert!(unmatched.contains("`nothing.*`") && unmatched.contains("1.head"), "{unmatched}");
        let adapted = add(model(), &["0.1"], 1, 1.0, Key::new(0)).unwrap();
        let twice = message(add(adapted, &["0.*"], 1, 1.0, Key::new(0)).unwrap_err());
        assert!(twice.contains("`0.1` has an adapter"), "{twice}");
    }
}
