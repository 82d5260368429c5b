use grove_backend::Backend;
use std::any::Any;

use crate::{Path, Tree};

/// Calls a function with a mutable reference to every layer of type `L` in a tree. The function may replace the whole
/// layer, whereas [`map`](crate::map) changes only leaves. The type `L` must be marked `#[tree(layer)]`.
///
/// ```
/// use grove_backend::Backend;
/// use grove_tree::{Array, Path, Tree, layers_mut};
///
/// #[derive(Tree, Clone)]
/// #[tree(layer)]
/// struct Linear<B: Backend> {
///     weight: Array<B, 2>,
///     bias: Option<Array<B, 1>>,
/// }
/// # type B = burn_flex::Flex;
///
/// let linear = |bias| Linear::<B> { weight: Array::absent([3, 4]), bias };
/// let mut model = vec![linear(Some(Array::absent([4]))), linear(None)];
/// let mut paths = vec![];
/// layers_mut::<B, _, Linear<B>>(&mut model, |path: &Path, layer| {
///     paths.push(path.to_string());
///     layer.bias = None;
/// });
/// assert_eq!(paths, ["0", "1"]);
/// assert_eq!(grove_tree::paths(&model), ["0.weight", "1.weight"]);
/// ```
pub fn layers_mut<B: Backend, T: Tree<B>, L: 'static>(tree: &mut T, mut f: impl FnMut(&Path, &mut L)) {
    tree.visit_layers(&mut Path::root(), &mut |path, layer: &mut dyn Any| {
        if let Some(layer) = layer.downcast_mut::<L>() {
            f(path, layer);
        }
    });
}
