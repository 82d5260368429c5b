//! Random keys in traces are arguments of the program, and the program draws the same numbers as the function.

use crate::common;
use burn::tensor::{Bool, Int, IntDType, Tensor};
use grove_backend::{Autodiff, Backend, Candle, Flex};
use grove_compile::{Traced, cond, jit, jvp, scan, trace, vmap};
use grove_layers::{AttentionMask, attend, drop_path, dropout};
use grove_models::{
    CausalLm, Pretrained,
    gpt2::{Gpt2, Gpt2Config},
};
use grove_optim::{GradientTransformation, adamw};
use grove_transform::value_and_grad;
use grove_tree::{Array, Init, Key, Tree};

type B = Flex;

#[derive(Tree, Clone)]
struct Drawn<B: Backend> {
    uniform: Array<B, 2>,
    normal: Array<B, 1>,
    truncated: Array<B, 1>,
    gumbel: Array<B, 3>,
    bernoulli: Array<B, 1, Bool>,
    integers: Array<B, 2, Int>,
    bits: Array<B, 1, Int>,
    dropped: Array<B, 2>,
    path: Array<B, 2>,
    sampled: Array<B, 1, Int>,
    next: Key,
}

/// Draws from every distribution with a key, and returns the next key.
fn draw<B: Backend>(x: Array<B, 2>, key: Key) -> Drawn<B> {
    let x = x.val();
    let device = &x.device();
    let (next, key) = key.split();
    let keys = key.split_n(4);
    Drawn {
        uniform: Array::new(key.uniform([2, 3], -2.0, 5.0, device)),
        normal: Array::new(keys[0].normal([7], device)),
        truncated: Array::new(keys[1].truncated_normal([5], -1.0, 2.0, device)),
        gumbel: Array::new(keys[2].gumbel([1, 2, 3], device)),
        bernoulli: Array::new(keys[3].bernoulli([9], 0.4, device)),
        integers: Array::new(key.fold_in(9).randint([2, 2], -5, 50, device)),
        bits: Array::new(key.fold_in(10).random_bits([6], device)),
        dropped: Array::new(dropout(x.clone(), 0.5, Some(key.fold_in(11)))),
        path: Array::new(drop_path(x.clone(), 0.5, Some(key.fold_in(12)))),
        // Backends return indices with different dtypes.
        sampled: Array::new(key.fold_in(13).categorical(x).cast(IntDType::I64)),
        next,
    }
}

fn x<B: Backend>() -> Array<B, 2> {
    let values: Vec<f32> = (0..20).map(|i| i as f32 * 0.37 - 2.0).collect();
    Array::new(Tensor::<B, 1>::from_floats(&values[..], &Default::default()).reshape([4, 5]))
}

fn one_program_draws_what_each_key_draws<B: Backend>() {
    let jitted = jit(|(x, key): (Array<Traced, 2>, Key)| draw(x, key));
    let mut key = Key::new(1);
    for step in 0..4 {
        let (expected, found) = (draw(x::<B>(), key), jitted.call::<B>((x(), key)));
        common::same::<B, _>(&format!("step {step}"), &found, &expected, 0.0, 1.0);
        assert_eq!(found.next, expected.next);
        key = found.next;
    }
    assert_eq!(jitted.graphs().len(), 1, "a new key needs no new program");
}

#[test]
fn one_program_draws_what_each_key_draws_flex() {
    one_program_draws_what_each_key_draws::<Flex>();
}

#[test]
fn one_program_draws_what_each_key_draws_candle() {
    one_program_draws_what_each_key_draws::<Candle>();
}

#[test]
fn a_graph_prints_its_keys() {
    let f = |(x, key, fixed): (Array<Traced, 2>, Key, Option<Key>)| {
        let (_, used) = key.split();
        (Array::<_, 2>::new(dropout(x.val(), 0.5, Some(used.fold_in(3)))), used, fixed)
    };
    let graph = trace(f, &(x::<B>(), Key::new(0), None::<Key>));
    let text = graph.to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "{ lambda ; a:f32[4,5] a':key[] . let", "{text}");
    assert_eq!(lines[1], "    b':key[] = random_fold_in[data=1] a'", "{text}");
    assert_eq!(lines[2], "    c':key[] = random_fold_in[data=3] b'", "{text}");
    assert!(lines[3].starts_with("    b:f32[4,5] = dropout[key: c', threshold: 4194304"), "{text}");
    assert_eq!(lines[4], "  in (b, b') }", "{text}");
    // The graph does not depend on the key used for tracing.
    assert_eq!(trace(f, &(x::<B>(), Key::new(5), None::<Key>)).to_string(), text);
    assert!(graph.to_string_with_paths().contains("random_fold_in[data=1] 1\n"), "{}", graph.to_string_with_paths());
    assert_eq!(graph.key_inputs().collect::<Vec<_>>(), ["1"]);
    // `eval` takes the key from the tree of arguments.
    for seed in [3, 4] {
        let found = graph.eval(&(x::<B>(), Key::new(seed), None::<Key>));
        let expected = dropout(x::<B>().val(), 0.5, Some(Key::new(seed).split().1.fold_in(3)));
        assert_eq!(found[0].clone().into_data(), expected.into_data());
    }
}

/// Attention with dropout, and its derivative.
#[test]
fn attention_dropout_and_its_derivative() {
    fn f<B: Backend>(q: &Array<B, 4>, key: Key) -> (Tensor<B, 1>, Array<B, 4>) {
        let (loss, grad) = value_and_grad(q, |q| {
            let q = q.val();
            attend(q.clone(), q.clone(), q, &AttentionMask::Causal, 0.5, Some((0.3, key))).powf_scalar(2.0).sum()
        });
        (loss, grad)
    }
    let q = Array::<B, 4>::new(Key::new(8).normal([1, 2, 6, 4], &Default::default()));
    let jitted = jit(|(q, key): (Array<Traced, 4>, Key)| {
        let (loss, grad) = f(&q, key);
        (Array::<_, 1>::new(loss), grad)
    });
    let mut losses = vec![];
    for seed in 0..3 {
        let (loss, grad) = f(&q, Key::new(seed));
        let found = jitted.call::<B>((q.clone(), Key::new(seed)));
        losses.push(loss.clone().into_scalar());
        common::same::<B, _>("attention", &found, &(Array::new(loss), grad), 1e-6, 1.0);
    }
    assert!(losses[0] != losses[1] && losses[1] != losses[2], "{losses:?}");
    assert_eq!(jitted.graphs().len(), 1);
}

#[test]
fn training_with_dropout_is_one_program() {
    let config = Gpt2Config {
        n_layer: 2,
        n_head: 2,
        n_embd: 16,
        vocab_size: 30,
        n_positions: 12,
        resid_pdrop: 0.2,
        embd_pdrop: 0.2,
        attn_pdrop: 0.2,
        ..Gpt2Config::default()
    };
    let model = Gpt2::<B>::new(&config, &Init::new(Key::new(0), &Default::default())).unwrap();
    fn step<B: Backend>(
        model: Gpt2<B>,
        state: State<B>,
        ids: Array<B, 2, Int>,
        key: Key,
    ) -> (Gpt2<B>, State<B>, Array<B, 1>, Key) {
        let (next, key) = key.split();
        let lift = |ids: &Array<B, 2, Int>| Tensor::<Autodiff<B>, 2, Int>::from_primitive(ids.val().into_primitive());
        let (loss, grads) = value_and_grad(&model, |model| model.next_token_loss(lift(&ids), lift(&ids), Some(key)));
        let (model, state) = optimizer().step(grads, state, model);
        (model, state, Array::new(loss), next)
    }
    type State<B> = <grove_optim::AdamwChain<B> as GradientTransformation<B, Gpt2<B>>>::State;
    fn optimizer<B: Backend>() -> grove_optim::AdamwChain<B> {
        adamw(0.01, grove_optim::Adamw { eps: 1e-3.into(), ..Default::default() })
    }
    let ids = Array::<B, 2, Int>::new(Key::new(2).randint([3, 12], 0, 30, &Default::default()));
    let state = GradientTransformation::<B, _>::init(&optimizer(), &model);
    let jitted = jit(|(model, state, ids, key): (Gpt2<Traced>, State<Traced>, Array<Traced, 2, Int>, Key)| {
        step(model, state, ids, key)
    });
    let (mut eager, mut traced) = ((model.clone(), state.clone(), Key::new(7)), (model, state, Key::new(7)));
    let mut losses = vec![];
    for i in 0..3 {
        let expected = step(eager.0, eager.1, ids.clone(), eager.2);
        let found = jitted.call::<B>((traced.0, traced.1, ids.clone(), traced.2));
        common::same::<B, _>(&format!("step {i}"), &found, &expected, 1e-4, 1e-3);
        losses.push(found.2.val().into_scalar());
        assert_eq!(found.3, expected.3);
        (eager, traced) = ((expected.0, expected.1, expected.3), (found.0, found.1, found.3));
    }
    assert!(losses[2] < losses[0], "{losses:?}");
    assert_eq!(jitted.graphs().len(), 1);
}

#[test]
fn models_are_initialised_in_a_trace() {
    let make = jit(|key: Key| {
        let init = Init::<Traced>::new(key, &Default::default());
        Gpt2::new(&config(), &init).unwrap()
    });
    fn config() -> Gpt2Config {
        Gpt2Config { n_layer: 1, n_head: 2, n_embd: 8, vocab_size: 11, n_positions: 4, ..Gpt2Config::default() }
    }
    for seed in [0, 1] {
        let expected = Gpt2::<B>::new(&config(), &Init::new(Key::new(seed), &Default::default())).unwrap();
        common::same::<B, _>("gpt2", &make.call::<B>(Key::new(seed)), &expected, 0.0, 1.0);
    }
    assert_eq!(make.graphs().len(), 1);
}

/// Nested transformations use the keys of the enclosing trace.
#[test]
fn transformations_within_a_trace_use_its_keys() {
    fn f<B: Backend>(x: Array<B, 2>, key: Key) -> (Array<B, 2>, Array<B, 2>, Array<B, 2>)
    where
        Array<B, 2>: Tree<B, On<Traced> = Array<Traced, 2>>,
    {
        let [first, second, third] = [0, 1, 2].map(|i| key.fold_in(i));
        // Captured, and derived inside the mapped function.
        let mapped = vmap(move |x: Array<Traced, 1>| Array::<_, 1>::new(dropout(x.val(), 0.5, Some(first.fold_in(4)))));
        // Passed as an argument.
        let inner =
            jit(|(x, key): (Array<Traced, 2>, Key)| Array::<_, 2>::new(dropout(x.val(), 0.5, Some(key.split().1))));
        let (_, tangent) =
            jvp(move |x: Array<Traced, 2>| Array::<_, 2>::new(dropout(x.val(), 0.5, Some(third))), &x, &x);
        (mapped.call::<B, _>(x.clone()), inner.call::<B>((x, second)), tangent)
    }
    let outer = jit(|(x, key): (Array<Traced, 2>, Key)| f(x, key));
    for seed in 0..3 {
        let key = Key::new(seed);
        let expected = f(x::<B>(), key);
        common::same::<B, _>("nested", &outer.call::<B>((x::<B>(), key)), &expected, 0.0, 1.0);
        let alone = dropout(x::<B>().val(), 0.5, Some(key.fold_in(1).split().1));
        assert_eq!(expected.1.val().into_data(), alone.into_data());
    }
    assert_eq!(outer.graphs().len(), 1);
    // All examples have the same dropout mask.
    let (mapped, ..) = f(x::<B>(), Key::new(0));
    let zero = mapped.val().equal_elem(0.0).int().sum_dim(0).into_data().iter::<i64>().collect::<Vec<_>>();
    assert!(zero.iter().all(|count| *count == 0 || *count == 4), "{zero:?}");
}

#[test]
#[should_panic(expected = "a traced key cannot give random numbers on the host")]
fn numbers_of_a_traced_key_cannot_be_read() {
    trace::<B, _, _>(
        |key: Key| Array::<Traced, 1>::new(Tensor::from_floats(&key.normal_vec(3)[..], &Default::default())),
        &Key::new(0),
    );
}

/// Sub-graphs use the keys of the enclosing trace.
#[test]
fn branches_and_bodies_draw_with_the_keys_around_them() {
    fn f<B: Backend>(x: Array<B, 2>, key: Key) -> (Array<B, 2>, Array<B, 2>) {
        let positive = x.val().sum().greater_elem(0.0);
        let [first, second, third] = [0, 1, 2].map(|i| key.fold_in(i));
        let branch = |key: Key| move |x: Array<B, 2>| Array::<B, 2>::new(dropout(x.val(), 0.5, Some(key.fold_in(7))));
        let chosen = cond(positive, branch(first), branch(second), x.clone());
        let body = |carry: Array<B, 1>, row: Array<B, 1>| {
            let carry = Array::<B, 1>::new(dropout(carry.val() + row.val(), 0.5, Some(third)));
            (carry.clone(), carry)
        };
        let start = Array::<B, 1>::new(Tensor::ones([5], &x.val().device()));
        let (_, rows) = scan(body, start, x);
        (chosen, rows)
    }
    let jitted = jit(|(x, key): (Array<Traced, 2>, Key)| f(x, key));
    // A jitted function within a trace: the trace records the sampling of its sub-graphs.
    let nested = jit(|(x, key): (Array<Traced, 2>, Key)| {
        let inner = jit(|(x, key): (Array<Traced, 2>, Key)| f(x, key));
        inner.call::<Traced>((x, key.fold_in(5)))
    });
    for seed in 0..3 {
        for sign in [1.0, -1.0] {
            let (x, key) = (Array::<B, 2>::new(x::<B>().val() * sign), Key::new(seed));
            common::same::<B, _>("jitted", &jitted.call::<B>((x.clone(), key)), &f(x.clone(), key), 1e-6, 1.0);
            let expected = f(x.clone(), key.fold_in(5));
            common::same::<B, _>("nested", &nested.call::<B>((x, key)), &expected, 1e-6, 1.0);
        }
    }
    assert_eq!((jitted.graphs().len(), nested.graphs().len()), (1, 1));
    let counts = jitted.graph().unwrap().counts();
    assert!(counts.contains_key("cond") && counts.contains_key("scan"), "{counts:?}");
}
