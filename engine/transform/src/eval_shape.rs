use grove_backend::Backend;
use grove_tree::Init;

/// Runs a constructor without allocating memory: every leaf of the result is absent and has only its shape and dtype
/// (`jax.eval_shape`).
///
/// The result can be printed, counted ([`count_params`](grove_tree::count_params)), and filled by loading weights.
///
/// ```
/// use grove_tree::count_params;
/// use grove_transform::eval_shape;
/// # type B = burn_flex::Flex;
/// // 4 TB, were it real.
/// let weight = eval_shape::<B, _>(|init| init.normal([1_000_000, 1_000_000], 0.02));
/// assert_eq!(count_params(&weight), 1_000_000_000_000);
/// ```
pub fn eval_shape<B: Backend, T>(build: impl FnOnce(&Init<B>) -> T) -> T {
    build(&Init::skeleton())
}
