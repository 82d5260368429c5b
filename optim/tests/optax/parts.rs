//! Parts of an optimizer without leaves: the other parts work as if alone.

use grove_backend::Flex;
use grove_optim::*;
use grove_tree::{Array, Backend, Filter, Key, by_path, eq, everything, filter, is_inexact, leaves, skeleton};

use crate::fixture::{Leaves, compare_leaves, grads, tree};

/// Compares twenty steps with some of the leaves with optax's steps with all leaves.
fn check_part<B, T>(name: &str, part: &str, optimizer: T, device: &B::Device)
where
    B: Backend,
    T: GradientTransformation<B, Leaves<B>>,
{
    let of_part = |tree: Leaves<B>| filter(tree, &by_path(part));
    let mut params = of_part(tree("params", device));
    let mut state = optimizer.init(&params);
    for step in 1..=20 {
        (params, state) = optimizer.step(of_part(grads("grads", step, device)), state, params);
    }
    compare_leaves(&params, &format!("{name}.20.params"));
}

fn other_part_works_as_alone<B: Backend>(device: B::Device) {
    for part in ["a", "b", "c"] {
        check_part::<B, _>("muon", part, muon(0.05, Muon::default()), &device);
        let large = adamw(0.05, Adamw::default().weight_decay(0.1));
        let small = adamw(0.02, Adamw::default());
        let label = |_: &_, leaf: &grove_tree::AnyArray<B>| if leaf.shape().len() >= 3 { "large" } else { "small" };
        check_part::<B, _>("partition", part, partition([("large", large), ("small", small)], label), &device);
        let frozen = selective_transform(adam(0.05, Adam::default()), by_path("b") | by_path("d"));
        check_part::<B, _>("selective_transform", part, frozen, &device);
    }
    let boxed = boxed(muon::<B>(0.05, Muon::default()));
    check_part::<B, _>("muon", "b", boxed, &device);
}

/// A schedule, all kinds of state and all wrappers, without any leaf.
fn nothing_is_trained<B: Backend>(device: B::Device) {
    let (params, gradients) = (tree::<B>("params", &device), grads::<B>("grads", 1, &device));
    let inner = || {
        let rate = linear_schedule(0.1, 0.2, 5);
        let adaptive = inject_hyperparams([("learning_rate", rate.into())], |h: &Hyperparams<B>| {
            lion(h.get("learning_rate"), Lion::default())
        });
        let chain = chain((clip_by_global_norm(1.0), add_noise(0.1, 0.5, Key::new(0)), zero_nans(), adaptive));
        multi_steps(apply_if_finite(lookahead::<B, _>(chain, 2, 0.5), 3), 2)
    };
    let nothing = || by_path::<B>("nothing").optional();
    let none: [Boxed<B, Leaves<B>>; 4] = [
        boxed(masked(inner(), nothing())),
        boxed(partition([("all", inner()), ("none", inner())], |_, _| "none")),
        boxed(selective_transform(inner(), everything())),
        boxed(masked(masked(inner(), by_path("a")), by_path("b"))),
    ];
    for (i, optimizer) in none.into_iter().enumerate() {
        let state = optimizer.init(&params);
        let (updates, state) = optimizer.update(gradients.clone(), state, &params);
        let (updates, _) = optimizer.update(updates, state, &params);
        match i {
            // The other part has all leaves.
            1 => assert!(!eq(&updates, &gradients)),
            2 => assert!(leaves(&updates).iter().all(|(_, leaf)| !leaf.is_present())),
            _ => assert!(eq(&updates, &gradients), "{i}"),
        }
    }
    let frozen = selective_transform(schedule_free_sgd::<B>(0.1, ScheduleFreeSgd::default()), everything());
    let (after, state) = frozen.step(gradients, frozen.init(&params), params.clone());
    assert!(eq(&after, &params));
    assert!(eq(&schedule_free_eval_params(&state, params.clone()), &params));
}

/// Each part has labels only for its own leaves.
fn labels_of_other_parts_are_not_asked_for<B: Backend>(device: B::Device) {
    let params = tree::<B>("params", &device);
    let of_part = |part: &'static str| {
        masked(partition([(part, adam::<B>(0.1, Adam::default()))], |path, _| path.as_str().to_owned()), by_path(part))
    };
    let optimizer: Vec<Boxed<B, Leaves<B>>> = vec![boxed(of_part("a")), boxed(of_part("b"))];
    let state = optimizer.init(&params);
    let (updates, _) = optimizer.update(grads("grads", 1, &device), state, &params);
    assert!(leaves(&updates).iter().all(|(_, leaf)| leaf.is_present()));
    optimizer.init(&filter(params, &!is_inexact()));
}

/// A custom transformation that reads its count unchecked, unlike grove's.
fn transformation_of_ones_own<B: Backend>(device: B::Device) {
    let own = gradient_transformation(zero_count, |updates: Leaves<B>, count: Count<B>, _: &Leaves<B>| {
        let count = Array::new(count.val() + 1);
        (updates, count)
    });
    let params = tree::<B>("params", &device);
    let nothing: Filter<B> = by_rank(7..);
    let optimizer = masked(own, nothing);
    let state = optimizer.init(&params);
    let (updates, state) = optimizer.update(params.clone(), state, &params);
    assert!(eq(&updates, &params) && !state.is_present());
}

#[test]
#[should_panic(expected = "`a` has a gradient, but the optimizer's state is empty or a skeleton")]
fn state_of_a_skeleton() {
    let params = tree::<Flex>("params", &Default::default());
    let optimizer = adam::<Flex>(0.1, Adam::default());
    optimizer.update(params.clone(), optimizer.init(&skeleton(params.clone())), &params);
}

on_each_backend!(
    other_part_works_as_alone,
    nothing_is_trained,
    labels_of_other_parts_are_not_asked_for,
    transformation_of_ones_own,
);
