use burn::tensor::{Bool, BoolStore, DType, Tensor};
use grove_backend::Backend;
use grove_tree::{AnyArray, Array, NamedLeaves, Tree, leaves};

use crate::{
    GradientTransformation,
    leafwise::{flat, leafwise, unflat},
};

/// See [`zero_nans`].
#[derive(Clone, Copy, Debug)]
pub struct ZeroNans;

/// Replaces NaN by 0 and records the leaves that had any.
pub fn zero_nans() -> ZeroNans {
    ZeroNans
}

/// State of [`zero_nans`].
#[derive(Tree, Clone, Debug)]
pub struct ZeroNansState<B: Backend> {
    /// `[1]` for each parameter path: true if the last update had a NaN.
    pub found_nan: NamedLeaves<B>,
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ZeroNans {
    type State = ZeroNansState<B>;

    fn init(&self, params: &P) -> Self::State {
        let no = |leaf: &AnyArray<B>| match leaf.device() {
            Some(device) => truth(Tensor::<B, 1>::zeros([1], &device).greater_elem(0.0)),
            None => AnyArray::absent([1], DType::Bool(BoolStore::Native)),
        };
        let float = leaves(params).into_iter().filter(|(_, leaf)| leaf.dtype().is_float());
        ZeroNansState { found_nan: float.map(|(path, leaf)| (path, no(&leaf))).collect() }
    }

    fn update(&self, updates: P, state: Self::State, _params: &P) -> (P, Self::State) {
        let mut found_nan = state.found_nan;
        let [updates] = leafwise([updates], |path, [g]| {
            let shape = g.shape().to_vec();
            let g = flat(g);
            let nan = g.clone().is_nan();
            found_nan.insert(path.to_string(), truth(nan.clone().any()));
            [unflat(g.mask_fill(nan, 0.0), &shape)]
        });
        (updates, ZeroNansState { found_nan })
    }
}

fn truth<B: Backend>(tensor: Tensor<B, 1, Bool>) -> AnyArray<B> {
    Array::<B, 1, Bool>::new(tensor).into_any()
}
