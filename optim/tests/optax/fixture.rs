//! Runs a transformation for 20 steps and compares it with optax.

use burn::tensor::{DType, TensorData};
use grove_optim::{GradientTransformation, apply_updates, boxed};
use grove_tree::{AnyArray, Array, Backend, Tree, all_close, eq, leaves, map_with_path, skeleton};
use safetensors::{Dtype, SafeTensors};
use std::{collections::BTreeSet, path::Path, sync::OnceLock};

use crate::common::distance;

/// Leaves of one to four axes.
#[derive(Tree, Clone, Debug)]
pub struct Leaves<B: Backend> {
    pub a: Array<B, 1>,
    pub b: Array<B, 2>,
    pub c: Array<B, 3>,
    pub d: Array<B, 4>,
}

const STEPS: usize = 20;
const KEPT: [usize; 3] = [1, 5, 20];
/// Maximum distance, relative to the largest value of the leaf.
const TOLERANCE: f64 = 1e-5;

fn file() -> &'static SafeTensors<'static> {
    static FILE: OnceLock<SafeTensors<'static>> = OnceLock::new();
    FILE.get_or_init(|| {
        let bytes = std::fs::read(Path::new("tests/fixtures/optim.safetensors")).unwrap();
        SafeTensors::deserialize(Vec::leak(bytes)).unwrap()
    })
}

pub fn data(name: &str) -> TensorData {
    let view = file().tensor(name).unwrap_or_else(|_| panic!("no {name} in the fixture"));
    let dtype = match view.dtype() {
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::I64 => DType::I64,
        other => panic!("{name}: {other:?}"),
    };
    TensorData::from_bytes_vec(view.data().to_vec(), view.shape().to_vec(), dtype)
}

fn absent<B: Backend>() -> Leaves<B> {
    Leaves {
        a: Array::absent([7]),
        b: Array::absent([5, 6]),
        c: Array::absent([3, 4, 2]),
        d: Array::absent([2, 3, 2, 3]),
    }
}

pub fn tree<B: Backend>(name: &str, device: &B::Device) -> Leaves<B> {
    map_with_path(absent(), |path, _| AnyArray::from_data(data(&format!("{name}.{path}")), device))
}

/// Returns the gradients of a step, counted from 1.
pub fn grads<B: Backend>(name: &str, step: usize, device: &B::Device) -> Leaves<B> {
    map_with_path(absent(), |path, leaf| {
        let rows = data(&format!("{name}.{path}"));
        let rows: Vec<f32> = rows.iter().collect();
        let row = rows[(step - 1) * leaf.len()..step * leaf.len()].to_vec();
        AnyArray::from_data(TensorData::new(row, leaf.shape().to_vec()), device)
    })
}

/// Compares all present leaves of a tree with the fixture. Returns the largest relative distance.
pub fn compare<B: Backend, T: Tree<B>>(tree: &T, prefix: &str) -> f64 {
    let (largest, others) = compare_leaves(tree, prefix);
    // Frozen parameters have no state in grove, and zeros in optax.
    assert!(others.is_empty(), "only optax has {others:?}");
    largest
}

/// Like [`compare`], but also returns the names of the fixture's other leaves.
pub fn compare_leaves<B: Backend, T: Tree<B>>(tree: &T, prefix: &str) -> (f64, BTreeSet<String>) {
    let mut expected: BTreeSet<String> = file().names().iter().map(|name| name.to_string()).collect();
    expected
        .retain(|name| name.starts_with(prefix) && name.as_bytes().get(prefix.len()) == Some(&b'.') || name == prefix);
    let mut largest: f64 = 0.0;
    for (path, leaf) in leaves(tree).into_iter().filter(|(_, leaf)| leaf.is_present()) {
        let name = if path.is_empty() { prefix.to_owned() } else { format!("{prefix}.{path}") };
        assert!(expected.remove(&name), "optax has no `{name}`");
        let reference = data(&name);
        assert_eq!(leaf.shape(), reference.shape.to_vec(), "{name}");
        let found: Vec<f64> = leaf.into_data().unwrap().iter().collect();
        let reference: Vec<f64> = reference.iter().collect();
        let (error, size) = distance(&found, &reference);
        assert!(
            error <= TOLERANCE * size,
            "{name}: {error:e} where the largest number is {size:e}\n{found:?}\n{reference:?}"
        );
        largest = largest.max(if size > 0.0 { error / size } else { 0.0 });
    }
    (largest, expected)
}

/// Runs a case with the usual gradients.
pub fn check<B, T>(name: &str, optimizer: T, device: &B::Device)
where
    B: Backend,
    T: GradientTransformation<B, Leaves<B>> + Send + Sync + 'static,
{
    check_with::<B, _>(name, optimizer, "grads", |_, state| state, device);
}

/// Runs a case; `between` may change the state after each step. Returns the final parameters and state.
///
/// Also tests properties of every transformation: `init` of a skeleton returns the skeleton of the state, a tree
/// without leaves has empty updates, absent updates stay absent, the boxed transformation gives the same results, and
/// `step` is as close to optax as `update` and `apply_updates`.
pub fn check_with<B, T>(
    name: &str,
    optimizer: T,
    grads_name: &str,
    between: impl Fn(usize, T::State) -> T::State,
    device: &B::Device,
) -> (Leaves<B>, T::State)
where
    B: Backend,
    T: GradientTransformation<B, Leaves<B>> + Send + Sync + 'static,
{
    let first = tree::<B>("params", device);
    let mut params = first.clone();
    let mut state = optimizer.init(&params);
    let abstract_state = optimizer.init(&skeleton(params.clone()));
    // A skeleton does not know the device's dtypes of integers and booleans.
    let shapes = |state: &T::State| -> Vec<(String, Vec<usize>)> {
        leaves(state).into_iter().map(|(path, leaf)| (path, leaf.shape().to_vec())).collect()
    };
    assert_eq!(shapes(&abstract_state), shapes(&state), "{name}: the state of a skeleton");
    assert!(leaves(&abstract_state).iter().all(|(_, leaf)| !leaf.is_present()), "{name}: the state of a skeleton");

    without_leaves(name, &optimizer, &first);

    let mut largest: f64 = 0.0;
    let mut at_once = (first.clone(), optimizer.init(&first));
    for step in 1..=STEPS {
        let updates = grads::<B>(grads_name, step, device);
        let (stepped, next) = optimizer.step(updates.clone(), at_once.1, at_once.0);
        at_once = (stepped, between(step, next));
        let (updates, next) = optimizer.update(updates, state, &params);
        params = apply_updates(params, updates);
        state = between(step, next);
        if KEPT.contains(&step) {
            for (params, state) in [(&params, &state), (&at_once.0, &at_once.1)] {
                largest = largest.max(compare(params, &format!("{name}.{step}.params")));
                largest = largest.max(compare(state, &format!("{name}.{step}.state")));
            }
        }
    }
    println!("{} {name}: {largest:.1e}", B::name(device));

    let (updates, same) = optimizer.update(skeleton(params.clone()), state.clone(), &params);
    assert!(leaves(&updates).iter().all(|(_, leaf)| !leaf.is_present()), "{name}: absent updates");
    assert_eq!(leaves(&same).len(), leaves(&state).len(), "{name}: the state after absent updates");

    let usual = |optimizer: &dyn Fn(Leaves<B>, &mut Leaves<B>)| {
        let mut params = first.clone();
        (1..=3).for_each(|step| optimizer(grads::<B>(grads_name, step, device), &mut params));
        params
    };
    let plain = {
        let state = std::cell::RefCell::new(Some(optimizer.init(&first)));
        usual(&|updates, params| {
            let (updates, next) = optimizer.update(updates, state.take().unwrap(), params);
            *params = apply_updates(params.clone(), updates);
            state.replace(Some(next));
        })
    };
    let paths = grove_tree::paths(&state);
    let optimizer = boxed(optimizer);
    let boxed_state = optimizer.init(&first);
    assert_eq!(BTreeSet::from_iter(paths), BTreeSet::from_iter(grove_tree::paths(&boxed_state)), "{name}: boxed");
    let state_cell = std::cell::RefCell::new(Some(boxed_state));
    let erased = usual(&|updates, params| {
        let (updates, next) = optimizer.update(updates, state_cell.take().unwrap(), params);
        *params = apply_updates(params.clone(), updates);
        state_cell.replace(Some(next));
    });
    assert!(eq(&plain, &erased) || all_close(&plain, &erased, 0.0, 0.0), "{name}: boxed");
    without_leaves(&format!("{name}, boxed"), &optimizer, &first);
    let chain = vec![optimizer.clone()];
    let mut erased = (first.clone(), chain.init(&first));
    for step in 1..=3 {
        erased = chain.step(grads::<B>(grads_name, step, device), erased.1, erased.0);
    }
    assert!(eq(&plain, &erased.0) || all_close(&plain, &erased.0, 1e-4, 1e-6), "{name}: boxed, a whole step");
    (params, state)
}

/// Steps of a part of an optimizer without leaves, as when all are masked or frozen: no leaf is present before or
/// after.
fn without_leaves<B: Backend, T: GradientTransformation<B, Leaves<B>>>(name: &str, optimizer: &T, params: &Leaves<B>) {
    fn check_absent<B: Backend>(name: &str, what: &str, tree: &impl Tree<B>) {
        let present: Vec<_> = leaves(tree).into_iter().filter(|(_, leaf)| leaf.is_present()).collect();
        assert!(present.is_empty(), "{name}: {what} without leaves: {present:?}");
    }
    let none = skeleton(params.clone());
    let state = optimizer.init(&none);
    let paths = grove_tree::paths(&state);
    let (updates, state) = optimizer.update(none.clone(), state, &none);
    check_absent(name, "updates", &updates);
    let (params, state) = optimizer.step(none.clone(), state, none.clone());
    check_absent(name, "parameters", &params);
    check_absent(name, "the state", &state);
    assert_eq!(grove_tree::paths(&state), paths, "{name}: the state without leaves");
}
