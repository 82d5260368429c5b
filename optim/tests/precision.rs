//! Precision of optimizers: f64 stays f64, sums of 16-bit gradients are f32.

use burn::tensor::{DType, Tensor};
use burn_flex::Flex;
use grove_optim::*;
use grove_tree::{AnyArray, Array, Backend, Tree, by_path, leaves};

type B = Flex;

fn leaf(values: &[f64], dtype: DType) -> Array<B, 1> {
    Array::new(Tensor::from_data(values, (&burn_flex::FlexDevice, dtype)))
}

fn numbers<const D: usize>(leaf: &Array<B, D>) -> Vec<f64> {
    leaf.val().into_data().iter::<f64>().collect()
}

const START: [f64; 3] = [0.3, -1.7, 2.9];

/// Gradients of a step, none of them exactly representable in f32.
fn grads(step: usize) -> [f64; 3] {
    START.map(|x| (x * 1.1 + step as f64 * 0.7).sin() / 3.0)
}

/// The parameters after five steps, by `update` and by `step`.
fn run<T: GradientTransformation<B, Array<B, 1>>>(optimizer: T) -> [Vec<f64>; 2] {
    let whole = |fused: bool| {
        let mut params = leaf(&START, DType::F64);
        let mut state = optimizer.init(&params);
        for i in 0..5 {
            let grads = leaf(&grads(i), DType::F64);
            if fused {
                (params, state) = optimizer.step(grads, state, params);
            } else {
                let (updates, next) = optimizer.update(grads, state, &params);
                assert_eq!(updates.dtype(), DType::F64);
                (params, state) = (apply_updates(params, updates), next);
            }
        }
        for (path, leaf) in leaves::<B, _>(&state) {
            assert!(!leaf.dtype().is_float() || leaf.dtype() == DType::F64, "{path} is {leaf}");
        }
        assert_eq!(params.dtype(), DType::F64);
        numbers(&params)
    };
    [whole(false), whole(true)]
}

fn close(name: &str, found: [Vec<f64>; 2], expected: [f64; 3]) {
    for found in found {
        for (found, expected) in found.iter().zip(expected) {
            // f32 would have errors of 1e-8 and more.
            assert!((found - expected).abs() < 1e-13 * expected.abs().max(1.0), "{name}: {found} and {expected}");
        }
    }
}

/// Computes Adam by its definition, with decoupled weight decay and a learning rate for each step.
fn adam_by_hand(rate: impl Fn(usize) -> f64, decay: f64) -> [f64; 3] {
    let (mut p, mut mu, mut nu) = (START, [0.0; 3], [0.0; 3]);
    for i in 0..5 {
        let g = grads(i);
        let t = i as i32 + 1;
        for k in 0..3 {
            mu[k] = 0.9 * mu[k] + 0.1 * g[k];
            nu[k] = 0.999 * nu[k] + 0.001 * g[k] * g[k];
            let (first, second) = (mu[k] / (1.0 - 0.9f64.powi(t)), nu[k] / (1.0 - 0.999f64.powi(t)));
            p[k] -= rate(i) * (first / (second.sqrt() + 1e-8) + decay * p[k]);
        }
    }
    p
}

#[test]
fn adam_in_f64() {
    let constant = |_| 0.01;
    close("adam", run(adam(0.01, Adam::default())), adam_by_hand(constant, 0.0));
    let options = || Adamw::default().weight_decay(0.1);
    close("adamw", run(adamw(0.01, options())), adam_by_hand(constant, 0.1));
    let schedule = || cosine_decay_schedule(0.01, 7, 0.1);
    let rate = |i: usize| 0.01 * (0.9 * 0.5 * (1.0 + (std::f64::consts::PI * i as f64 / 7.0).cos()) + 0.1);
    close("scheduled", run(adamw(schedule(), options())), adam_by_hand(rate, 0.1));
    let table = Schedule::table(5, |i| rate(i as usize));
    close("a table", run(adamw(table, options())), adam_by_hand(rate, 0.1));
    let injected = inject_hyperparams([("learning_rate", 0.01.into()), ("b1", 0.9.into())], |h| {
        adam(h.get("learning_rate"), Adam::default().b1(h.get("b1")))
    });
    close("injected", run(injected), adam_by_hand(constant, 0.0));
    let injected =
        inject_hyperparams([("learning_rate", schedule().into())], |h| adamw(h.get("learning_rate"), options()));
    close("injected schedule", run(injected), adam_by_hand(rate, 0.1));
}

#[test]
fn other_chains_in_f64() {
    let momentum = Sgd::default().momentum(0.9);
    let (mut p, mut trace) = (START, [0.0; 3]);
    for i in 0..5 {
        for k in 0..3 {
            trace[k] = 0.9 * trace[k] + grads(i)[k];
            p[k] -= 0.01 * trace[k];
        }
    }
    close("sgd", run(sgd(0.01, momentum.clone())), p);
    // Slow and fast parameters synchronise after the fifth step, at the mean of both.
    close("lookahead", run(lookahead(sgd(0.01, momentum), 5, 0.5)), std::array::from_fn(|k| (START[k] + p[k]) / 2.0));

    // The norm of each step's gradients is at most 1/5.
    let mut clipped = START;
    for i in 0..5 {
        let g = grads(i);
        let norm = g.iter().map(|x| x * x).sum::<f64>().sqrt();
        let factor = (0.2 / norm).min(1.0);
        (0..3).for_each(|k| clipped[k] -= 0.01 * factor * g[k]);
    }
    close("clipped", run((clip_by_global_norm(0.2), sgd(0.01, Sgd::default()))), clipped);

    let mean = |k: usize| (0..5).map(|i| grads(i)[k]).sum::<f64>() / 5.0;
    let accumulated = multi_steps(sgd(0.01, Sgd::default()), 5);
    close("accumulated", run(accumulated), std::array::from_fn(|k| START[k] - 0.01 * mean(k)));
}

/// All other chains keep updates, states and parameters in f64.
#[test]
fn all_chains_keep_f64() {
    let _ = run(scale_by_rms(ScaleByRms { bias_correction: true, ..ScaleByRms::default() }));
    let _ = run(scale_by_stddev(ScaleByRms { bias_correction: true, ..ScaleByRms::default() }));
    let _ = run(radam(0.01, Radam::default()));
    let _ = run(adabelief(0.01, Adabelief::default().nesterov(true)));
    let _ = run(amsgrad(0.01, Amsgrad::default()));
    let _ = run(lion(0.01, Lion::default()));
    let _ = run(lamb(0.01, Lamb::default()));
    let _ = run(lars(0.01, Lars::default()));
    let _ = run(adagrad(0.01, Adagrad::default()));
    let _ = run(adafactor(0.01, Adafactor::default()));
    let _ = run(chain((ema(0.9, true), add_noise(0.1, 0.5, grove_tree::Key::new(0)))));
    let _ = run(schedule_free_adamw(0.01, ScheduleFreeAdamw { warmup_steps: Some(3), ..ScheduleFreeAdamw::default() }));
    let _ = run(apply_if_finite(adam(0.01, Adam::default().nesterov(true)), 3));
}

/// Leaves of several dtypes in one tree.
#[test]
fn each_leaf_in_its_own_type() {
    let params = (leaf(&START, DType::F64), leaf(&START, DType::F32), leaf(&START, DType::BF16));
    let optimizer = chain((clip_by_global_norm(100.0), adamw(cosine_decay_schedule(0.01, 7, 0.1), Adamw::default())));
    let (mut fused, mut plain) = (params.clone(), params);
    let (mut fused_state, mut state) = (optimizer.init(&fused), optimizer.init(&plain));
    for i in 0..5 {
        let g = || (leaf(&grads(i), DType::F64), leaf(&grads(i), DType::F32), leaf(&grads(i), DType::BF16));
        (fused, fused_state) = optimizer.step(g(), fused_state, fused);
        let (updates, next) = optimizer.update(g(), state, &plain);
        (plain, state) = (apply_updates(plain, updates), next);
    }
    for found in [&fused, &plain] {
        assert_eq!([found.0.dtype(), found.1.dtype(), found.2.dtype()], [DType::F64, DType::F32, DType::BF16]);
        for (k, x) in numbers(&found.0).into_iter().enumerate() {
            assert!((x - numbers(&found.1)[k]).abs() < 1e-6 && (x - numbers(&found.2)[k]).abs() < 2e-2);
        }
    }
    for (x, y) in numbers(&fused.0).into_iter().zip(numbers(&plain.0)) {
        assert!((x - y).abs() < 1e-14);
    }
}

/// 256 is the first integer to which bf16 cannot add 1.
#[test]
fn sums_of_16_bits_are_f32() {
    let optimizer = MultiSteps { use_grad_mean: false, ..multi_steps(sgd(1.0, Sgd::default()), 300) };
    for dtype in [DType::BF16, DType::F16] {
        let params = leaf(&[0.0], DType::F32);
        let (mut params, mut state) = (params.clone(), optimizer.init(&params));
        for _ in 0..300 {
            let (updates, next) = optimizer.update(leaf(&[1.0], dtype), state, &params);
            (params, state) = (apply_updates(params, updates), next);
        }
        assert_eq!(numbers(&params), [-300.0]);
    }
}

fn finite<D: Backend>(values: &[f64], dtype: DType) -> bool {
    let leaf = Array::<D, 1>::new(Tensor::from_data(values, (&D::Device::default(), dtype)));
    let whole = (leaf.clone(), Array::<D, 1>::new(Tensor::ones([3], &Default::default())));
    let [alone, whole] = [all_finite::<D, _>(&leaf), all_finite::<D, _>(&whole)]
        .map(|finite| finite.unwrap().into_data().iter::<bool>().next().unwrap());
    assert_eq!(alone, whole);
    alone
}

fn finds_what_is_not_finite<D: Backend>() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        let most = match dtype {
            DType::F64 => f64::MAX,
            DType::F32 => f64::from(f32::MAX),
            DType::F16 => 65_504.0,
            _ => 3.0e38,
        };
        // These elements are finite, but their sums and squares are not.
        assert!(finite::<D>(&[most, most, -most, -most, 0.0, 1e-45], dtype), "{dtype:?}");
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(!finite::<D>(&[bad], dtype) && !finite::<D>(&[1.0, bad, -most], dtype), "{dtype:?} {bad}");
        }
    }
    assert!(!finite::<D>(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY], DType::F32));
    assert!(all_finite::<D, _>(&AnyArray::<D>::absent([3], DType::F32)).is_none());
}

#[test]
fn finite_is_what_is_neither_nan_nor_infinite() {
    finds_what_is_not_finite::<Flex>();
    finds_what_is_not_finite::<grove_backend::Candle>();
    finds_what_is_not_finite::<grove_backend::Autodiff<Flex>>();
}

/// A path pattern that matches nothing is a misspelling; a predicate may match nothing.
#[derive(Tree, Clone, Debug)]
struct Layer<B: Backend> {
    weight: Array<B, 2>,
    bias: Array<B, 1>,
}

fn layer() -> Layer<B> {
    Layer { weight: Array::absent([2, 2]), bias: Array::absent([2]) }
}

fn refused(name: &str, init: impl FnOnce()) {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(init)).expect_err(name);
    let text = panic.downcast_ref::<String>().map_or("", String::as_str);
    let expected = "the pattern `wieght` matches no path of this tree; similar paths: weight, bias";
    assert!(text.contains(expected), "{name}: {text}");
}

#[test]
fn misspelt_masks_are_named() {
    let mask = || by_path::<B>("bias") | by_path("wieght");
    refused("freeze", || GradientTransformation::<B, _>::init(&freeze(mask()), &layer()));
    refused("masked", || masked(scale::<B>(1.0), !mask()).init(&layer()));
    refused("selective", || drop(selective_transform(sgd::<B>(0.1, Sgd::default()), mask()).init(&layer())));
    refused("adamw", || drop(adamw(0.1, Adamw::default().mask(mask())).init(&layer())));
    refused("lion", || drop(lion(0.1, Lion::default().mask(mask())).init(&layer())));
    refused("lamb", || drop(lamb(0.1, Lamb::default().mask(mask())).init(&layer())));
    let options = Lars::default().trust_ratio_mask(mask());
    refused("lars", move || drop(lars(0.1, options).init(&layer())));
    let options = Muon::default().weight_decay_mask(mask());
    refused("muon", move || drop(muon(0.1, options).init(&layer())));
    let config = r#"{"name": "adamw", "learning_rate": 0.1, "frozen": ["wieght"]}"#;
    let config = OptimizerConfig::from_json(config).unwrap();
    refused("a configuration", move || drop(config.build::<B, Layer<B>>().unwrap().init(&layer())));

    let nothing = || by_rank::<B>(7..) & by_path("wieght").optional();
    GradientTransformation::<B, _>::init(&freeze(nothing()), &layer());
    adamw(0.1, Adamw::default().mask(nothing())).init(&layer());
    // A masked model keeps the paths of the whole, so this inner mask matches a path.
    masked(adamw(0.1, Adamw::default().mask(by_path::<B>("bias"))), by_path("weight")).init(&layer());
}
