//! Properties that hold for all values.

use burn::tensor::{DType, FloatDType, Int, Tensor};
use grove_optim::*;
use grove_tree::{
    Array, Backend, Tree, all_close, by_path, cast, eq, everything, filter, leaves, map_together, map_with_path,
};

use crate::fixture::{Leaves, grads, tree};

/// Runs some steps; returns parameters and state.
fn run<B: Backend, T: GradientTransformation<B, Leaves<B>>>(
    optimizer: &T,
    device: &B::Device,
) -> (Leaves<B>, T::State) {
    let mut params = tree::<B>("params", device);
    let mut state = optimizer.init(&params);
    for step in 1..=6 {
        let (updates, next) = optimizer.update(grads("grads", step, device), state, &params);
        (params, state) = (apply_updates(params, updates), next);
    }
    (params, state)
}

fn compositions<B: Backend>(device: B::Device) {
    let inner = || adamw::<B>(0.05, Adamw::default());
    let (params, state) = run(&inner(), &device);
    let same = |what: &str, other: Leaves<B>| assert!(eq(&params, &other), "{what}");
    let (other, (inner_state,)) = run(&chain((inner(),)), &device);
    same("a chain of one", other);
    assert!(eq(&state, &inner_state));
    let (other, inner_state) = run(&masked(inner(), everything()), &device);
    same("masked by everything", other);
    assert!(eq(&state, &inner_state));
    same("among identities", run(&chain((identity(), inner(), identity())), &device).0);
    same("an option", run(&chain((None::<Trace<B>>, Some(inner()))), &device).0);
    same("a reference", run(&&inner(), &device).0);
    same("a vector", run(&vec![boxed(inner()), boxed(identity())], &device).0);
    same("a named chain", run(&named_chain([("only", inner())]), &device).0);
    same("one partition", run(&partition([("all", inner())], |_, _| "all"), &device).0);
    same("frozen by nothing", run(&selective_transform(inner(), !everything()), &device).0);
    same("one step at a time", run(&multi_steps(inner(), 1), &device).0);
    same("finite gradients", run(&apply_if_finite(inner(), 0), &device).0);
    same("slow as fast", run(&lookahead(inner(), 1, 1.0), &device).0);
    let injected =
        inject_hyperparams([("learning_rate", 0.05.into())], |h| adamw(h.get("learning_rate"), Adamw::default()));
    assert!(all_close(&params, &run(&injected, &device).0, 1e-6, 1e-7), "injected");
}

fn accumulated_steps<B: Backend>(device: B::Device) {
    let inner = adam::<B>(0.05, Adam::default());
    let optimizer = multi_steps(inner.clone(), 3);
    let params = tree::<B>("params", &device);
    let sum = map_together([1, 2, 3].map(|step| grads::<B>("grads", step, &device)), |_, [x, y, z]| {
        let absent = x.clone().into_absent();
        [x.try_add(y).unwrap().try_add(z).unwrap().mul_scalar(1.0 / 3.0), absent.clone(), absent]
    });
    let [mean, ..] = sum.unwrap();
    let (expected, expected_state) = inner.update(mean, inner.init(&params), &params);

    let mut state = optimizer.init(&params);
    for step in 1..=2 {
        let (updates, next) = optimizer.update(grads("grads", step, &device), state, &params);
        assert!(eq(&apply_updates(params.clone(), updates), &params), "nothing between steps");
        assert!(!next.has_updated().into_data().iter::<bool>().next().unwrap());
        state = next;
    }
    let (updates, state) = optimizer.update(grads("grads", 3, &device), state, &params);
    assert!(state.has_updated().into_data().iter::<bool>().next().unwrap());
    assert!(all_close(&updates, &expected, 1e-5, 1e-6));
    assert!(all_close(&state.inner_opt_state, &expected_state, 1e-5, 1e-6));
}

fn errors_in_a_row<B: Backend>(device: B::Device) {
    let optimizer = apply_if_finite(sgd::<B>(1.0, Sgd::default()), 2);
    let params = (Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0], &device)),);
    let bad = || (Array::<B, 1>::new(Tensor::from_floats([0.5, f32::NAN], &device)),);
    let mut state = optimizer.init(&params);
    for count in 1..=3 {
        let (updates, next) = optimizer.update(bad(), state, &params);
        let updates: Vec<f32> = updates.0.val().into_data().iter().collect();
        // The third one is applied.
        assert_eq!(updates[0], if count > 2 { -0.5 } else { 0.0 });
        assert_eq!(updates[1].is_nan(), count > 2);
        assert_eq!(next.notfinite_count.val().into_data().iter::<i64>().next(), Some(count));
        state = next;
    }
    let (_, state) = optimizer.update(params.clone(), state, &params);
    assert_eq!(state.notfinite_count.val().into_data().iter::<i64>().next(), Some(0));
    assert_eq!(state.total_notfinite.val().into_data().iter::<i64>().next(), Some(3));
}

/// A model with every kind of leaf that is not a trained parameter.
#[derive(Tree, Clone, Debug)]
struct Mixed<B: Backend> {
    weight: Array<B, 2>,
    frozen: Array<B, 2>,
    ids: Array<B, 1, Int>,
    #[tree(buffer)]
    mean: Array<B, 1>,
}

fn what_is_not_trained_stays<B: Backend>(device: B::Device) {
    let model = Mixed::<B> {
        weight: Array::new(Tensor::from_floats([[1.0, 2.0]], &device)),
        frozen: Array::new(Tensor::from_floats([[3.0, 4.0]], &device)),
        ids: Array::new(Tensor::from_ints([5, 6], &device)),
        mean: Array::new(Tensor::from_floats([7.0], &device)),
    };
    // As from `value_and_grad`: leaves that are not differentiated are absent.
    let grads = filter(model.clone(), &by_path("weight"));
    let inner = chain((clip_by_global_norm(1.0), zero_nans(), adafactor(0.1, Adafactor::default().momentum(0.9))));
    let optimizer = multi_steps(apply_if_finite(lookahead::<B, _>(inner, 2, 0.5), 3), 2);
    let mut params = model.clone();
    let mut state = optimizer.init(&params);
    for _ in 0..4 {
        let (updates, next) = optimizer.update(grads.clone(), state, &params);
        (params, state) = (apply_updates(params, updates), next);
    }
    assert!(!eq(&params.weight, &model.weight));
    let rest = |model: &Mixed<B>| filter(model.clone(), &!by_path("weight"));
    assert!(eq(&rest(&params), &rest(&model)));

    let state = selective_transform(adam::<B>(0.1, Adam::default()), by_path("frozen")).init(&model);
    let present: Vec<String> =
        leaves(&state).into_iter().filter(|(_, leaf)| leaf.is_present()).map(|(path, _)| path).collect();
    assert_eq!(present, ["0.count", "0.mu.weight", "0.mu.mean", "0.nu.weight", "0.nu.mean"]);
}

fn states_are_f32<B: Backend>(device: B::Device) {
    let params = cast(tree::<B>("params", &device), FloatDType::BF16);
    let optimizer = chain((trace::<B>(0.5, false), adam(0.05, Adam::default())));
    let state = optimizer.init(&params);
    let updates = cast(grads::<B>("grads", 1, &device), FloatDType::BF16);
    let (updates, state) = optimizer.update(updates, state, &params);
    let dtypes = |leaves: Vec<(String, grove_tree::AnyArray<B>)>| {
        leaves.into_iter().map(|(_, leaf)| leaf.dtype()).filter(DType::is_float).collect::<Vec<_>>()
    };
    assert!(dtypes(leaves(&state)).iter().chain(&dtypes(leaves(&updates))).all(|dtype| *dtype == DType::F32));
    let params = apply_updates(params, updates);
    assert!(dtypes(leaves(&params)).iter().all(|dtype| *dtype == DType::BF16));
}

/// Selects against a state of NaN, with integers and booleans.
fn selection<B: Backend>(device: B::Device) {
    type Parts<B> = (Array<B, 2>, Array<B, 1, Int>, Array<B, 1, burn::tensor::Bool>);
    let parts = |number: f32, integer: i32| -> Parts<B> {
        let integers = Tensor::<B, 1, Int>::from_ints([integer, 1], &device);
        let truth = integers.clone().equal_elem(1);
        (Array::new(Tensor::from_floats([[number, 2.0]], &device)), Array::new(integers), Array::new(truth))
    };
    let (then, otherwise) = (parts(f32::NAN, 1), parts(3.0, 7));
    let condition = |holds: i32| Tensor::<B, 1, Int>::from_ints([holds], &device).equal_elem(1);
    assert!(eq::<B, _>(&select(&condition(0), then.clone(), otherwise.clone()), &otherwise));
    assert!(eq::<B, _>(&select(&condition(1), then.clone(), otherwise), &then));
}

fn hyperparams_of_any_state<B: Backend>(device: B::Device) {
    let injected = |rate: f64| {
        inject_hyperparams([("learning_rate", rate.into())], |h: &Hyperparams<B>| {
            sgd(h.get("learning_rate"), Sgd::default())
        })
    };
    let params = tree::<B>("params", &device);
    let one: Boxed<B, Leaves<B>> = boxed(chain((clip(1.0), injected(0.5))));
    let state = set_hyperparam(one.init(&params), "learning_rate", 0.25).unwrap();
    assert_eq!(hyperparam(&state, "learning_rate").unwrap(), 0.25);
    let (updates, _) = one.update(params.clone(), state, &params);
    let found: Vec<f32> = updates.a.val().into_data().iter().collect();
    let expected: Vec<f32> = params.a.val().into_data().iter::<f32>().map(|x| -0.25 * x.clamp(-1.0, 1.0)).collect();
    assert_eq!(found, expected);

    let two =
        partition([("x", injected(0.5)), ("y", injected(0.1))], |path, _| if path.as_str() == "a" { "x" } else { "y" });
    let state: std::collections::BTreeMap<String, _> = <_ as GradientTransformation<B, Leaves<B>>>::init(&two, &params);
    assert!(matches!(hyperparam(&state, "learning_rate"), Err(OptimError::AmbiguousHyperparameter { .. })));
    assert_eq!(hyperparam(&state, "x.hyperparams.learning_rate").unwrap(), 0.5);
    assert!(set_hyperparam(state, "x.hyperparams.learning_rate", f64::NAN).is_err());
    let nothing = adam::<B>(0.1, Adam::default()).init(&params);
    assert!(matches!(hyperparam(&nothing, "b1"), Err(OptimError::UnknownHyperparameter { .. })));
}

#[test]
#[should_panic(
    expected = "the parameter `d` has the label `large`, but no transformation has this name; the names are: small"
)]
fn a_label_without_transformation() {
    type B = grove_backend::Flex;
    let optimizer = partition([("small", identity())], |_, leaf| if leaf.len() > 30 { "large" } else { "small" });
    let _: std::collections::BTreeMap<String, ()> = optimizer.init(&tree::<B>("params", &Default::default()));
}

#[test]
#[should_panic(expected = "has no leaf `1.count`")]
fn the_state_of_another_chain() {
    type B = grove_backend::Flex;
    let params = tree::<B>("params", &Default::default());
    let long: Boxed<B, Leaves<B>> = boxed(chain((identity(), ema(0.9, true))));
    let short: Boxed<B, Leaves<B>> = boxed(chain((identity(),)));
    short.update(params.clone(), long.init(&params), &params);
}

#[test]
fn ranks() {
    type B = grove_backend::Flex;
    let params = tree::<B>("params", &Default::default());
    let passing = |filter: grove_tree::Filter<B>| {
        let mut passing = String::new();
        map_with_path(params.clone(), |path, leaf| {
            if filter.passes(path, &leaf) {
                passing.push_str(path.as_str());
            }
            leaf
        });
        passing
    };
    assert_eq!(
        (passing(matrices()), passing(by_rank(..=1)), passing(by_rank(2..4))),
        ("bcd".into(), "a".into(), "bc".into())
    );
}

on_each_backend!(
    compositions,
    accumulated_steps,
    errors_in_a_row,
    what_is_not_trained_stays,
    states_are_f32,
    selection,
    hyperparams_of_any_state,
);
