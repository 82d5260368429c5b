use burn::tensor::Tensor;
use grove_backend::{Autodiff, Backend};
use grove_transform::{Stacked, from_inner, grad};
use grove_tree::Tree;

use super::{Mapped, Shared, vmap};
use crate::{Traceable, Traced};

/// Computes the gradient of a loss for each example of a batch: `jax.vmap(jax.grad(loss), in_axes=(None, 0))`.
///
/// The loss function takes the model and one example without a batch axis. Leaves that
/// [`value_and_grad`](grove_transform::value_and_grad) does not differentiate are absent.
///
/// # Shapes
/// - array of the batch `[examples, ...]`; of one example `[...]`
/// - leaf of the model `[...]`; of the result `[examples, ...]`
///
/// # Panics
/// Same as [`Vmap::call`](crate::Vmap::call).
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_compile::per_example_grads;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let weight = Array::<B, 1>::new(Tensor::from_floats([1.0, -1.0], &Default::default()));
/// let xs = Array::<B, 2>::new(Tensor::from_floats([[1.0, 2.0], [3.0, 4.0]], &Default::default()));
/// let grads = per_example_grads(&weight, xs, |weight, x| (weight.val() * x.val()).sum());
/// assert_eq!(grads.get(1).val().to_data().to_vec::<f32>().unwrap(), [3.0, 4.0]);
/// ```
#[track_caller]
pub fn per_example_grads<B, M, X, F>(model: &M, batch: X, loss: F) -> Stacked<B, M>
where
    B: Backend,
    M: Traceable<B>,
    X: Mapped<B>,
    F: Fn(
        <M::OnTraced as Tree<Traced>>::On<Autodiff<Traced>>,
        <<X::Example as Tree<B>>::On<Traced> as Tree<Traced>>::On<Autodiff<Traced>>,
    ) -> Tensor<Autodiff<Traced>, 1>,
{
    let f = |(model, example): (M::OnTraced, <X::Example as Tree<B>>::On<Traced>)| {
        grad(&model, |model| loss(model, from_inner(example)))
    };
    vmap(f).call_stacked((Shared(model.clone()), batch))
}
