//! Random keys computed by a program: in carries, one per step or example, and folded with traced integers.

use crate::common;
use burn::tensor::{Bool, Int, Tensor};
use grove_backend::{Autodiff, Backend, Candle, Flex};
use grove_compile::{Graph, Traced, cond, jit, jvp, linearize, scan, scan_layers, scan_with, trace, vmap, while_loop};
use grove_layers::{AttentionMask, attend, dropout};
use grove_transform::{Scan, Stacked, grad};
use grove_tree::{AnyTensor, Array, Key, Keys, Tree};

type B = Flex;

fn x<B: Backend>() -> Array<B, 2> {
    let values: Vec<f32> = (0..20).map(|i| i as f32 * 0.37 - 2.0).collect();
    Array::new(Tensor::<B, 1>::from_floats(&values[..], &Default::default()).reshape([4, 5]))
}

/// A step that takes its key from the carry.
fn carried<B: Backend>(xs: Array<B, 2>, key: Key) -> (Array<B, 1>, Array<B, 2>, Key) {
    let step = |(sum, key): (Array<B, 1>, Key), x: Array<B, 1>| {
        let (next, key) = key.split();
        let y = dropout(x.val(), 0.5, Some(key)) + key.fold_in(3).normal([5], &x.val().device());
        ((Array::<B, 1>::new(sum.val() + y.clone()), next), Array::<B, 1>::new(y))
    };
    let zero = Array::new(xs.val().sum_dim(0).reshape([5]).zeros_like());
    let ((sum, key), ys) = scan(step, (zero, key), xs);
    (sum, ys, key)
}

/// A step that takes its key from `xs` and returns a key.
fn stepped<B: Backend>(xs: Array<B, 2>, keys: Keys<B>) -> (Array<B, 1>, Array<B, 2>, Keys<B>) {
    let step = |sum: Array<B, 1>, (x, key): (Array<B, 1>, Key)| {
        let y = dropout(x.val(), 0.5, Some(key));
        (Array::<B, 1>::new(sum.val() + y.clone()), (Array::<B, 1>::new(y), key.split().1))
    };
    let zero = Array::new(xs.val().sum_dim(0).reshape([5]).zeros_like());
    let (sum, (ys, keys)) = scan(step, zero, (xs, keys));
    (sum, ys, keys)
}

/// A loop that folds the step counter into a captured key.
fn counted<B: Backend>(x: Array<B, 2>, key: Key) -> Array<B, 2> {
    let device = x.val().device();
    let few = |(_, step): (Array<B, 2>, Array<B, 1, Int>)| step.val().lower_elem(4);
    let body = |(x, step): (Array<B, 2>, Array<B, 1, Int>)| {
        let y = dropout(x.val(), 0.9, Some(key.fold_in_tensor(step.val())));
        (Array::new(y + 1.0), Array::new(step.val() + 1))
    };
    while_loop(few, body, (x, Array::new(Tensor::zeros([1], &device)))).0
}

/// A conditional that returns one of two keys.
fn chosen<B: Backend>(x: Array<B, 2>, key: Key) -> (Array<B, 2>, Key) {
    let positive = x.val().sum().greater_elem(0.0);
    let yes = |(x, key): (Array<B, 2>, Key)| (Array::<B, 2>::new(dropout(x.val(), 0.5, Some(key))), key.split().0);
    let no = |(x, key): (Array<B, 2>, Key)| (x, key.fold_in(9));
    let (y, next) = cond(positive, yes, no, (x, key));
    (Array::new(dropout(y.val(), 0.9, Some(next))), next)
}

fn each_step_draws_anew<B: Backend>()
where
    Array<B, 2>: Tree<B, On<Traced> = Array<Traced, 2>>,
{
    let of_carry = jit(|(xs, key): (Array<Traced, 2>, Key)| carried(xs, key));
    let of_steps = jit(|(xs, keys): (Array<Traced, 2>, Keys<Traced>)| stepped(xs, keys));
    let split_inside = jit(|(xs, key): (Array<Traced, 2>, Key)| {
        let keys = Keys::split(key, 4, &xs.val().device());
        stepped(xs, keys)
    });
    let of_count = jit(|(xs, key): (Array<Traced, 2>, Key)| counted(xs, key));
    let of_branch = jit(|(xs, key): (Array<Traced, 2>, Key)| chosen(xs, key));
    for seed in 0..3 {
        let (x, key) = (x::<B>(), Key::new(seed));
        let expected = carried(x.clone(), key);
        let found = of_carry.call::<B>((x.clone(), key));
        common::same::<B, _>("carry", &found, &expected, 1e-6, 1.0);
        assert_eq!(found.2, expected.2, "the key after the loop");
        assert_eq!(found.2, (0..4).fold(key, |key, _| key.split().0));
        let keys = Keys::<B>::split(key, 4, &Default::default());
        let expected = stepped(x.clone(), keys.clone());
        let found = of_steps.call::<B>((x.clone(), keys));
        assert_eq!(found.2.to_vec(), expected.2.to_vec());
        common::same::<B, _>("steps", &found, &expected, 1e-6, 1.0);
        let found = split_inside.call::<B>((x.clone(), key));
        common::same::<B, _>("split", &found, &expected, 1e-6, 1.0);
        let expected = counted(x.clone(), key);
        common::same::<B, _>("count", &of_count.call::<B>((x.clone(), key)), &expected, 1e-6, 1.0);
        for sign in [1.0, -1.0] {
            let x = Array::<B, 2>::new(x.val() * sign);
            let (expected, found) = (chosen(x.clone(), key), of_branch.call::<B>((x, key)));
            common::same::<B, _>("branch", &found, &expected, 1e-6, 1.0);
            assert_eq!(found.1, expected.1);
        }
    }
    for graphs in [of_carry.graphs(), of_steps.graphs(), split_inside.graphs(), of_count.graphs(), of_branch.graphs()] {
        assert_eq!(graphs.len(), 1, "a new key needs no new program");
        let counts = graphs[0].counts();
        assert!(["scan", "while", "cond"].iter().any(|name| counts.contains_key(*name)), "{counts:?}");
    }
}

#[test]
fn each_step_draws_anew_flex() {
    each_step_draws_anew::<Flex>();
}

#[test]
fn each_step_draws_anew_candle() {
    each_step_draws_anew::<Candle>();
}

/// Expected values: `lax.scan(lambda key, _: (split(key)[0], normal(split(key)[1], (2,))), key(7), length=3)` and similar, with
/// `jax.random` 0.10.
#[test]
fn numbers_of_jax() {
    let loops = jit(|key: Key| {
        let device = Default::default();
        let step = |key: Key, ()| {
            let (next, key) = key.split();
            (next, Array::<Traced, 1>::new(key.normal([2], &device)))
        };
        let (last, of_carry) = scan_with(Scan::new().length(3), &(), |(), key, ()| step(key, ()), key, ());
        let step = |(), key: Key| ((), Array::<Traced, 1>::new(key.uniform([2], 0.0, 1.0, &device)));
        let ((), of_steps) = scan(step, (), Keys::<Traced>::split(key, 3, &device));
        (last, of_carry, of_steps)
    });
    let (last, of_carry, of_steps) = loops.call::<B>(Key::new(7));
    assert_eq!(last.words(), JAX_KEY);
    assert_eq!(of_carry.val().to_data().to_vec::<f32>().unwrap(), JAX_NORMAL);
    assert_eq!(of_steps.val().to_data().to_vec::<f32>().unwrap(), JAX_UNIFORM);
}

const JAX_KEY: [u32; 2] = [2104974619, 1294875220];
const JAX_NORMAL: [f32; 6] = [0.4541335, 0.9391628, 2.2433922, -2.059233, 1.006435, -0.36682677];
const JAX_UNIFORM: [f32; 6] = [0.8673705, 0.55631435, 0.6751336, 0.8261764, 0.20599794, 0.25844133];

/// The sum of squares after a loop with dropout.
fn loss<B: Backend>(x: Array<B, 2>, key: Key) -> Tensor<B, 1> {
    let step = |key: Key, x: Array<B, 1>| {
        let (next, key) = key.split();
        let x = x.val().reshape([1, 1, 1, 5]).repeat_dim(2, 3);
        let y = attend(x.clone(), x.clone(), x, &AttentionMask::Causal, 0.5, Some((0.3, key)));
        (next, Array::<B, 1>::new(dropout(y.reshape([15]).powf_scalar(2.0), 0.4, Some(key.fold_in(1)))))
    };
    let (key, ys) = scan(step, key, x);
    dropout(ys.val(), 0.5, Some(key)).powf_scalar(2.0).sum()
}

#[test]
fn gradients_are_dropped_as_values_are() {
    let eager = |x: &Array<B, 2>, key| grad(x, |x| loss(x, key));
    let traced = jit(|(x, key): (Array<Traced, 2>, Key)| grad(&x, |x| loss(x, key)));
    let of_graph = jit(|(x, key): (Array<Traced, 2>, Key)| {
        let inner = jit(|(x, key): (Array<Traced, 2>, Key)| Array::<_, 1>::new(loss(x, key)));
        grad(&x, |x| inner.call::<Autodiff<Traced>>((x, key)).val())
    });
    for seed in 0..2 {
        let (x, key) = (x::<B>(), Key::new(seed));
        let expected = eager(&x, key);
        common::same::<B, _>("traced", &traced.call::<B>((x.clone(), key)), &expected, 1e-5, 1.0);
        common::same::<B, _>("of a program", &of_graph.call::<B>((x.clone(), key)), &expected, 1e-5, 1.0);
        // Forward mode.
        let (value, slope) = jvp(|x| Array::<_, 1>::new(loss(x, key)), &x, &x);
        let along = (expected.val() * x.val()).sum().into_scalar();
        assert!((slope.val().into_scalar() - along).abs() < 1e-4 * along.abs());
        let (again, derivative) = linearize(|x| Array::<_, 1>::new(loss(x, key)), &x);
        common::same::<B, _>("linearize", &(again, derivative.call(&x)), &(value, slope), 1e-5, 1.0);
    }
}

#[test]
fn each_example_has_a_key_of_its_own() {
    type Example = (Array<Traced, 1>, Key);
    let f = |(x, key): Example| {
        let (next, key) = key.split();
        let noise = key.fold_in(2).normal::<Traced, 1>([5], &x.val().device());
        (Array::<_, 1>::new(dropout(x.val(), 0.5, Some(key)) + noise), next)
    };
    let sequential = |(x, key): Example| {
        let y = carried(Array::<_, 2>::new(x.val().reshape([1, 5]).repeat_dim(0, 3)), key);
        (y.0, y.2)
    };
    let slope = |(x, key): Example| grad(&x, |x| dropout(x.val().powf_scalar(3.0), 0.5, Some(key)).sum());
    let (x, keys) = (x::<B>(), Keys::<B>::split(Key::new(5), 4, &Default::default()));
    let (found, next) = vmap(f).call((x.clone(), keys.clone()));
    let (loops, after) = vmap(sequential).call((x.clone(), keys.clone()));
    let slopes = vmap(slope).call((x.clone(), keys.clone()));
    let jitted = jit(move |(x, key): (Array<Traced, 2>, Key)| {
        let keys = Keys::split(key, 4, &x.val().device());
        (vmap(f).call::<Traced, _>((x.clone(), keys.clone())), vmap(slope).call::<Traced, _>((x, keys)))
    });
    let ((in_trace, next_in_trace), slopes_in_trace) = jitted.call::<B>((x.clone(), Key::new(5)));
    for (i, key) in keys.to_vec().into_iter().enumerate() {
        let row = |array: &Array<B, 2>| Array::<B, 1>::new(array.val().narrow(0, i, 1).reshape([5]));
        let (own, split) = (row(&x), key.split());
        let noise = split.1.fold_in(2).normal::<B, 1>([5], &Default::default());
        let expected = Array::<B, 1>::new(dropout(own.val(), 0.5, Some(split.1)) + noise);
        common::same::<B, _>("example", &row(&found), &expected, 1e-6, 1.0);
        common::same::<B, _>("jitted", &row(&in_trace), &expected, 1e-6, 1.0);
        assert_eq!((next.get(i), next_in_trace.get(i)), (split.0, split.0));
        let expected = carried(Array::<B, 2>::new(own.val().reshape([1, 5]).repeat_dim(0, 3)), key);
        common::same::<B, _>("loop", &row(&loops), &expected.0, 1e-6, 1.0);
        assert_eq!(after.get(i), expected.2);
        let expected = grad(&own, |x| dropout(x.val().powf_scalar(3.0), 0.5, Some(key)).sum());
        common::same::<B, _>("slope", &row(&slopes), &expected, 1e-5, 1.0);
        common::same::<B, _>("slope in a trace", &row(&slopes_in_trace), &expected, 1e-5, 1.0);
    }
}

/// Keys of an outer loop reach sub-graphs and programs inside its steps.
#[test]
fn inner_functions_draw_with_keys_of_outer_loops() {
    fn f<B: Backend>(xs: Array<B, 2>, key: Key) -> (Array<B, 2>, Key)
    where
        Array<B, 1>: Tree<B, On<Traced> = Array<Traced, 1>>,
    {
        let inner = jit(|(x, key): (Array<Traced, 1>, Key)| {
            let (next, key) = key.split();
            let flag = x.val().sum().greater_elem(0.0);
            let branch = |i| move |x: Array<Traced, 1>| Array::<_, 1>::new(dropout(x.val(), 0.5, Some(key.fold_in(i))));
            (cond(flag, branch(1), branch(2), x), next)
        });
        let step = |key: Key, x: Array<B, 1>| {
            let (y, next) = inner.call::<B>((x, key));
            let inside = |(), z: Array<B, 1>| ((), Array::<B, 1>::new(dropout(z.val(), 0.5, Some(key.fold_in(7)))));
            let rows = Array::<B, 2>::new(y.val().reshape([1, 5]).repeat_dim(0, 2));
            let ((), rows) = scan(inside, (), rows);
            (next, Array::<B, 1>::new(rows.val().sum_dim(0).reshape([5])))
        };
        let (key, ys) = scan(step, key, xs);
        (ys, key)
    }
    let jitted = jit(|(xs, key): (Array<Traced, 2>, Key)| f(xs, key));
    for seed in 0..2 {
        let (expected, found) = (f(x::<B>(), Key::new(seed)), jitted.call::<B>((x::<B>(), Key::new(seed))));
        common::same::<B, _>("nested", &found, &expected, 1e-6, 1.0);
        assert_eq!(found.1, expected.1);
    }
}

#[test]
fn programs_with_array_keys_print_and_are_stored() {
    let graph = trace(|(xs, key): (Array<Traced, 2>, Key)| carried(xs, key), &(x::<B>(), Key::new(0)));
    let text = graph.to_string();
    assert!(text.contains("random_key_data") && text.contains("random_fold_in") && text.contains("dropout["), "{text}");
    assert!(!text.contains("key: [0, 0]"), "{text}");
    let again = Graph::from_json(&graph.to_json().unwrap()).unwrap();
    assert_eq!(again, graph);
    let args = (x::<B>(), Key::new(3));
    let values = |graph: &Graph| graph.eval(&args).into_iter().map(AnyTensor::into_data).collect::<Vec<_>>();
    assert_eq!(values(&again), values(&graph));
    let broken = graph.to_json().unwrap().replace("\"WithKey\"", "\"Grove\"");
    assert!(Graph::from_json(&broken).is_err(), "an input too many");
}

/// As in JAX, a captured key is a constant: each step draws the same numbers.
#[test]
fn a_captured_key_is_a_constant() {
    let f = jit(|(xs, key): (Array<Traced, 2>, Key)| {
        let step = |(), x: Array<Traced, 1>| ((), Array::<_, 1, Bool>::new(key.bernoulli([5], 0.5, &x.val().device())));
        scan(step, (), xs).1
    });
    let masks: Vec<bool> = f.call::<B>((x(), Key::new(1))).val().into_data().iter::<bool>().collect();
    assert!(masks.chunks(5).all(|mask| mask == &masks[..5]), "{masks:?}");
}

/// Layers in sequence, each with its own dropout mask.
#[test]
fn layers_draw_with_a_key_of_the_carry() {
    fn f<B: Backend>(x: Array<B, 1>, layers: Stacked<B, Array<B, 1>>, key: Key) -> Array<B, 1> {
        let layer = |scale: Array<B, 1>, (x, key): (Array<B, 1>, Key)| {
            let (next, key) = key.split();
            (Array::<B, 1>::new(dropout(x.val() * scale.val(), 0.5, Some(key)) + 1.0), next)
        };
        scan_layers(layers, (x, key), layer).0
    }
    let row = |i: f32| Array::<B, 1>::new(Tensor::ones([8], &Default::default()) * i);
    let layers = || Stacked::new(vec![row(1.0), row(2.0), row(3.0)]);
    let jitted = jit(|(x, layers, key): (Array<Traced, 1>, Stacked<Traced, Array<Traced, 1>>, Key)| f(x, layers, key));
    let expected = f(row(0.5), layers(), Key::new(2));
    common::same::<B, _>("layers", &jitted.call::<B>((row(0.5), layers(), Key::new(2))), &expected, 1e-6, 1.0);
    assert_eq!(jitted.graph().unwrap().counts().get("scan"), Some(&1));
}

#[test]
#[should_panic(expected = "a random key in the result of a mapped function differs between examples")]
fn stacked_results_have_one_key() {
    vmap(|key: Key| (key.split().0, Array::<Traced, 1>::new(key.normal([2], &Default::default()))))
        .call_stacked::<B, _>(Keys::<B>::split(Key::new(0), 3, &Default::default()));
}
