//! NaN and infinities in a model's results, and the tensors that cause them.

use burn::tensor::DType;
use grove_backend::Backend;
use grove_tree::{AnyArray, Path, Tree};

use crate::error::{ModelError, Result};

/// Returns the path of a model's first floating-point tensor that contains NaN or infinity. Reads every weight: use it
/// to explain logits that are not finite, not in each step.
pub fn first_not_finite<B: Backend>(model: &impl Tree<B>) -> Option<String> {
    let mut found = None;
    model.visit(&mut Path::root(), &mut |path: &Path, leaf: &AnyArray<B>| {
        if found.is_none() && leaf.dtype().is_float() && !is_finite(leaf) {
            found = Some(path.as_str().to_owned());
        }
    });
    found
}

fn is_finite<B: Backend>(leaf: &AnyArray<B>) -> bool {
    leaf.clone().into_data().is_none_or(|data| data.iter::<f64>().all(f64::is_finite))
}

/// Returns the [`ModelError::NotFinite`] for a model's logits. It names the first tensor of the model that contains NaN or
/// infinity, if any.
pub fn not_finite<B: Backend>(model: &impl Tree<B>) -> ModelError {
    let mut dtype = None;
    model.visit(&mut Path::root(), &mut |_: &Path, leaf: &AnyArray<B>| {
        dtype = dtype.or(leaf.dtype().is_float().then(|| leaf.dtype()));
    });
    ModelError::NotFinite { tensor: first_not_finite(model), dtype: dtype.unwrap_or(DType::F32) }
}

/// Returns an error if results of a model are not finite.
///
/// # Errors
/// [`ModelError::NotFinite`], which names the first tensor of the model that contains NaN or infinity, if any.
pub fn check_finite<B: Backend>(model: &impl Tree<B>, results: impl IntoIterator<Item = f64>) -> Result<()> {
    if results.into_iter().all(f64::is_finite) { Ok(()) } else { Err(not_finite(model)) }
}
