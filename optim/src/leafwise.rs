//! Leaf-by-leaf traversal of updates and states. Ranks are erased: element-wise formulas use the flattened leaf, `[n]`,
//! against which a scalar of the state, `[1]`, broadcasts.

use burn::tensor::{DType, FloatDType, Tensor};
use grove_backend::{AnyTensor, Backend, ops};
use grove_tree::{AnyArray, Path, Tree, map, map_together};
use std::collections::VecDeque;

/// Applies an element-wise function to the leaves of several trees of one structure: the updates, then states or
/// parameters. The function gets the corresponding leaves, flattened to `[n]`, and returns the new ones.
///
/// Corresponding leaves are cast to f32, or to f64 if one of them is f64. If an update is absent or not floating-point,
/// it stays unchanged, as do its states.
///
/// # Panics
/// If the structures of the trees differ, or if an update has no state or a state of another shape.
#[track_caller]
pub fn elementwise<B: Backend, P: Tree<B>, const N: usize>(
    trees: [P; N],
    mut f: impl FnMut([Tensor<B, 1>; N]) -> [Tensor<B, 1>; N],
) -> [P; N] {
    leafwise(trees, |path, rows| {
        let shape = rows[0].shape().to_vec();
        rows[1..].iter().for_each(|state| check_shape(path, &shape, state.shape()));
        f(rows.map(flat)).map(|leaf| unflat(leaf, &shape))
    })
}

/// Like [`elementwise`], but the function gets the path and the leaves in their own shapes.
pub(crate) fn leafwise<B: Backend, P: Tree<B>, const N: usize>(
    trees: [P; N],
    mut f: impl FnMut(&Path, [AnyArray<B>; N]) -> [AnyArray<B>; N],
) -> [P; N] {
    together(trees, |path, row| {
        if !takes_part(&row[0]) {
            return row;
        }
        if let Some(absent) = row.iter().position(|leaf| !leaf.is_present()) {
            panic!(
                "`{path}` has a gradient, but tree {absent} of the optimizer's state has nothing for it: create the \
                 state with `init` from the parameters that are trained"
            );
        }
        let dtype = widest(row.iter().map(AnyArray::dtype));
        f(path, row.map(|leaf| leaf.cast_float(dtype)))
    })
}

/// Corresponding leaves of several trees: input of the update in [`all_at_once`], or unchanged.
pub(crate) enum Row<T, L> {
    Changes(T),
    Stays(L),
}

/// Updates the leaves of several trees in one call, so that a backend can process many leaves in one launch. `take`
/// returns the input of the update for corresponding leaves, or the leaves if they stay unchanged. `change` returns the
/// new leaves for each input, in order.
pub(crate) fn all_at_once<B: Backend, P: Tree<B>, T, const N: usize>(
    trees: [P; N],
    mut take: impl FnMut(&Path, [AnyArray<B>; N]) -> Row<T, [AnyArray<B>; N]>,
    change: impl FnOnce(Vec<T>) -> Vec<[AnyArray<B>; N]>,
) -> [P; N] {
    let (mut rows, mut changes) = (Vec::new(), VecDeque::new());
    let frames = together(trees, |path, row| {
        let frame = row.each_ref().map(|leaf| AnyArray::absent(leaf.shape(), leaf.dtype()));
        let row = take(path, row);
        changes.push_back(matches!(row, Row::Changes(_)));
        match row {
            Row::Changes(wanted) => {
                rows.push(wanted);
                frame
            }
            Row::Stays(row) => row,
        }
    });
    let mut changed = change(rows).into_iter();
    together(frames, |_, row| match changes.pop_front() {
        Some(true) => changed.next().expect("a row for each that changes"),
        _ => row,
    })
}

/// Multiplies all floating-point leaves by a factor, in f32, or in f64 for f64 leaves.
pub(crate) fn scaled<B: Backend, P: Tree<B>>(tree: P, factor: &Tensor<B, 1>) -> P {
    let take = |_: &Path, row: [AnyArray<B>; 1]| if takes_part(&row[0]) { Row::Changes(row) } else { Row::Stays(row) };
    let change = |rows: Vec<[AnyArray<B>; 1]>| {
        let rows = rows.into_iter().map(|[leaf]| (widest([leaf.dtype()]), leaf)).collect();
        let scale = |dtype: FloatDType, leaves: Vec<AnyArray<B>>| {
            let leaves = leaves.into_iter().map(|leaf| float(leaf.cast_float(dtype))).collect();
            let scaled = ops::scale(leaves, factor.clone().cast(dtype)).into_iter();
            scaled.map(|x| [AnyArray::present(x)]).collect()
        };
        by_kind(rows, scale)
    };
    let [scaled] = all_at_once([tree], take, change);
    scaled
}

/// Groups items by kind and applies a function to each group. Returns the results in the order of the items.
pub(crate) fn by_kind<K: PartialEq + Copy, T, R>(items: Vec<(K, T)>, mut f: impl FnMut(K, Vec<T>) -> Vec<R>) -> Vec<R> {
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    let mut rest: Vec<(usize, (K, T))> = items.into_iter().enumerate().collect();
    while let Some(&(_, (kind, _))) = rest.first() {
        let (group, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(_, (other, _))| *other == kind);
        rest = others;
        let (places, items): (Vec<usize>, Vec<T>) = group.into_iter().map(|(place, (_, item))| (place, item)).unzip();
        for (place, result) in places.into_iter().zip(f(kind, items)) {
            results[place] = Some(result);
        }
    }
    results.into_iter().map(|result| result.expect("a result for each item")).collect()
}

/// Returns true for the matrices of recurrent cells, which have PyTorch's names and layout, `[outputs, inputs]`. Linear
/// layers have `[inputs, outputs]`.
pub(crate) fn is_outputs_first(path: &Path) -> bool {
    ["weight_ih", "weight_hh", "weight_hr"].contains(&path.last())
}

/// Panics if gradient and state differ in shape: the state was made for another model.
#[track_caller]
pub(crate) fn check_shape(path: &Path, gradient: &[usize], state: &[usize]) {
    assert!(
        gradient == state,
        "the gradient of `{path}` is {gradient:?}, but the optimizer's state for it is {state:?}: the state belongs \
         to another model; create it with `init` from the parameters of this one"
    );
}

/// [`map_together`] that panics if the structures of the trees differ.
#[track_caller]
pub(crate) fn together<B: Backend, P: Tree<B>, const N: usize>(
    trees: [P; N],
    f: impl FnMut(&Path, [AnyArray<B>; N]) -> [AnyArray<B>; N],
) -> [P; N] {
    map_together(trees, f).unwrap_or_else(|error| {
        panic!("updates, state and parameters must come from one model (was the state made by `init` for another?): {error}")
    })
}

/// Returns the dtype in which leaves of these dtypes are computed together: f32, or f64 if one of them is f64.
pub(crate) fn widest(dtypes: impl IntoIterator<Item = DType>) -> FloatDType {
    if dtypes.into_iter().any(|dtype| dtype == DType::F64) { FloatDType::F64 } else { FloatDType::F32 }
}

/// Returns the dtype of values that all leaves share, such as a learning rate: f32, or f64 if a leaf is f64. Absent
/// leaves count, so that the state of a skeleton has the dtypes of the parameters' state.
pub(crate) fn precision<B: Backend, P: Tree<B>>(tree: &P) -> FloatDType {
    let mut dtype = FloatDType::F32;
    tree.visit(&mut Path::root(), &mut |_: &Path, leaf: &AnyArray<B>| {
        if leaf.dtype() == DType::F64 {
            dtype = FloatDType::F64;
        }
    });
    dtype
}

/// Returns the floating-point leaves in f32 for sums and averages; f64 leaves stay f64. The other leaves are absent in
/// the result.
pub(crate) fn widened<B: Backend, P: Tree<B>>(params: &P) -> P {
    map(params.clone(), |leaf| if leaf.dtype().is_float() { leaf.widen() } else { leaf.into_absent() })
}

/// Returns true if optimizers update this leaf: it is present and floating-point.
pub(crate) fn takes_part<B: Backend>(leaf: &AnyArray<B>) -> bool {
    leaf.is_present() && leaf.dtype().is_float()
}

/// Returns zeros for each floating-point leaf, in f32, or f64 for an f64 leaf: the initial state of a moment. Absent
/// leaves and leaves that are not floating-point are absent in the result.
pub fn zeros_like<B: Backend, P: Tree<B>>(params: &P) -> P {
    filled_like(params, 0.0)
}

/// Fills each floating-point leaf with one value, in f32, or f64 for an f64 leaf. Absent leaves and leaves that are not
/// floating-point are absent in the result.
pub(crate) fn filled_like<B: Backend, P: Tree<B>>(params: &P, value: f64) -> P {
    map(
        params.clone(),
        |leaf| if leaf.dtype().is_float() { filled(&leaf, leaf.shape(), value) } else { leaf.into_absent() },
    )
}

/// Returns a leaf of a state: one value in each place of `shape`, in f32, or f64 for an f64 leaf, on the device of the
/// leaf; absent for an absent leaf.
pub(crate) fn filled<B: Backend>(leaf: &AnyArray<B>, shape: &[usize], value: f64) -> AnyArray<B> {
    let dtype = DType::from(widest([leaf.dtype()]));
    match leaf.device() {
        Some(device) => unflat(Tensor::<B, 1>::full([shape.iter().product::<usize>()], value, (&device, dtype)), shape),
        None => AnyArray::absent(shape, dtype),
    }
}

/// Flattens a present floating-point leaf to `[n]`, in f32, or f64 for an f64 leaf.
pub(crate) fn flat<B: Backend>(leaf: AnyArray<B>) -> Tensor<B, 1> {
    let len = leaf.len();
    shaped(leaf, [len])
}

/// Reshapes a present floating-point leaf, in f32, or f64 for an f64 leaf.
pub(crate) fn shaped<B: Backend, const D: usize>(leaf: AnyArray<B>, shape: [usize; D]) -> Tensor<B, D> {
    let dtype = widest([leaf.dtype()]);
    float(leaf.cast_float(dtype)).reshape(shape).into_float().expect("`float` gives one")
}

/// Converts a tensor to a leaf of a shape with the same number of elements.
pub(crate) fn unflat<B: Backend, const D: usize>(tensor: Tensor<B, D>, shape: &[usize]) -> AnyArray<B> {
    AnyArray::present(tensor.into()).reshape(shape)
}

/// Permutes the axes of a leaf.
pub(crate) fn permuted<B: Backend>(leaf: AnyArray<B>, order: &[usize]) -> AnyArray<B> {
    AnyArray::present(float(leaf).permute(order))
}

/// Sums along axes, which keep size 1.
pub(crate) fn sum_axes<B: Backend>(leaf: AnyArray<B>, axes: &[usize]) -> AnyArray<B> {
    AnyArray::present(axes.iter().fold(float(leaf), |x, &axis| x.sum_axis(axis)))
}

/// Averages along an axis, which keeps size 1.
pub(crate) fn mean_axis<B: Backend>(leaf: AnyArray<B>, axis: usize) -> AnyArray<B> {
    AnyArray::present(float(leaf).mean_axis(axis))
}

/// Returns the tensor of a present floating-point leaf.
pub(crate) fn float<B: Backend>(leaf: AnyArray<B>) -> AnyTensor<B> {
    match leaf.into_value() {
        Some(x @ AnyTensor::Float(_)) => x,
        _ => panic!("only present floating-point leaves take part in an optimizer's step"),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Adam, Adamw, GradientTransformation, Sgd, adam, adamw, chain, clip_by_global_norm, sgd};
    use burn::tensor::Tensor;
    use burn_flex::Flex;
    use grove_tree::Array;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn params(len: usize) -> Array<Flex, 1> {
        Array::new(Tensor::ones([len], &Default::default()))
    }

    fn refuses<T: GradientTransformation<Flex, Array<Flex, 1>>>(name: &str, optimizer: T) {
        for step in [false, true] {
            let state = optimizer.init(&params(3));
            let work = || match step {
                true => drop(optimizer.step(params(2), state, params(2))),
                false => drop(optimizer.update(params(2), state, &params(2))),
            };
            let panic = catch_unwind(AssertUnwindSafe(work)).expect_err("it is refused");
            let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            assert!(
                message.contains("is [2]") && message.contains("belongs to another model"),
                "{name}, {step}: {message}"
            );
        }
    }

    #[test]
    fn a_state_of_another_model_is_refused_with_a_sentence() {
        refuses("adamw", adamw(1e-3, Adamw::default()));
        refuses("adam", chain((clip_by_global_norm(1.0), adam(1e-3, Adam::default()))));
        refuses("momentum", sgd(1e-3, Sgd::default().momentum(0.9)));
    }
}
