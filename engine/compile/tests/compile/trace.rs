//! Graphs of small functions: text, passes, and functions that cannot be traced.

use burn::tensor::{Bool, DType, Int, Tensor, TensorData, activation::softmax};
use grove_backend::{
    AnyTensor, Autodiff, Flex,
    ops::{self, RecurrentInputs, Steps},
};
use grove_compile::{Traced, jit, trace, trace_skeleton};
use grove_transform::grad;
use grove_tree::{Array, Key};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
};

type B = Flex;

fn array<const N: usize>(values: [f32; N]) -> Array<B, 1> {
    Array::new(Tensor::from_floats(values, &Default::default()))
}

fn floats<const D: usize>(x: &Array<B, D>) -> Vec<f32> {
    x.val().into_data().to_vec().unwrap()
}

/// Returns the message of a panic.
fn panic_of<T>(f: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).err().expect("a panic");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast::<&str>().expect("a text")).to_owned(),
    }
}

#[test]
fn text_like_a_jaxpr() {
    let x = array([1.0, 2.0]);
    let graph = trace(
        |(x, y): (Array<Traced, 1>, Array<Traced, 1>)| {
            let sum = x.val() + y.val() * 3.0;
            (Array::<_, 1>::new(sum.clone().sum()), Array::<_, 1>::new(sum.greater_elem(0.5).float()))
        },
        &(x.clone(), x),
    );
    let expected = "{ lambda ; a:f32[2] b:f32[2] . let\n    c:f32[2] = mul b 3.0\n    d:f32[2] = add a c\n    \
                    e:f32[1] = reduce_sum d\n    f:bool[2] = gt d 0.5\n    g:f32[2] = convert_element_type[dtype=f32] f\n  \
                    in (e, g) }";
    assert_eq!(graph.to_string(), expected);
    let named = graph.to_string_with_paths();
    assert!(named.starts_with("{ lambda ; 0:f32[2] 1:f32[2] . let\n    a:f32[2] = mul 1 3.0"), "{named}");
    assert_eq!(graph.counts()["add"], 1);
    let dot = graph.to_dot();
    assert!(dot.starts_with("digraph {\n") && dot.ends_with("}\n"), "{dot}");
    for line in [
        "  input1 [label=\"1\", shape=ellipse]",
        "  equation0 [label=\"mul\"]",
        "  input1 -> equation0 [label=\"f32[2]\"]",
        "  equation0 -> equation1 [label=\"f32[2]\"]",
        "  equation3 -> equation4 [label=\"bool[2]\"]",
        "  equation2 -> output0 [label=\"f32[1]\"]",
    ] {
        assert!(dot.lines().any(|found| found == line), "{line}\n{dot}");
    }
}

#[test]
fn what_no_result_needs_is_left_out_and_equal_equations_are_one() {
    let f = |x: Array<Traced, 1>| {
        let x = x.val();
        let _unused = x.clone().exp() * Tensor::from_floats([1.0, 2.0], &x.device());
        let twice = |x: Tensor<Traced, 1>| x.tanh() * Tensor::from_floats([3.0, 4.0], &Default::default());
        Array::<_, 1>::new(twice(x.clone()) + twice(x))
    };
    let graph = trace(f, &array([1.0, 2.0]));
    assert_eq!((graph.equations().len(), graph.counts().get("exp")), (5, None), "{graph}");
    let graph = graph.without_common_subexpressions();
    assert_eq!(graph.equations().len(), 3, "{graph}");
    assert!(graph.to_string().starts_with("{ lambda a:f32[2] ; b:f32[2] . let"), "{graph}");
}

#[test]
fn a_skeleton_is_enough() {
    let f = |(x, w): (Array<Traced, 2>, Array<Traced, 2>)| Array::<_, 2>::new(softmax(x.val().matmul(w.val()), 1));
    let args = (Array::<B, 2>::absent([1_000_000, 1_000_000]), Array::<B, 2>::absent([1_000_000, 7]));
    let graph = trace_skeleton(f, &args);
    let (_, result) = graph.outputs()[0];
    assert_eq!(&graph.shape(result)[..], [1_000_000, 7]);
}

#[test]
fn programs_are_kept_by_shapes_and_static_values() {
    let calls = Mutex::new(0);
    let f = jit(|(x, power): (Array<Traced, 1>, i64)| {
        *calls.lock().unwrap() += 1;
        Array::<_, 1>::new(x.val().powi_scalar(power as i32))
    });
    assert_eq!(floats(&f.call::<B>((array([2.0, 3.0]), 2))), [4.0, 9.0]);
    assert_eq!(floats(&f.call::<B>((array([3.0, 4.0]), 2))), [9.0, 16.0]);
    assert_eq!(*calls.lock().unwrap(), 1);
    assert_eq!(floats(&f.call::<B>((array([2.0, 3.0]), 3))), [8.0, 27.0]);
    assert_eq!(floats(&f.call::<B>((array([2.0]), 3))), [8.0]);
    assert_eq!((*calls.lock().unwrap(), f.graphs().len()), (3, 3));
    let small = f.capacity(1);
    small.call::<B>((array([2.0; 3]), 3));
    assert_eq!(small.graphs().len(), 1);
    small.clear();
    assert!(small.graph().is_none());
}

#[test]
fn absent_leaves_stay_absent() {
    let f = jit(|(x, y): (Array<Traced, 1>, Array<Traced, 1>)| (Array::<_, 1>::new(x.val() + 1.0), y));
    let (sum, absent) = f.call::<B>((array([1.0]), Array::absent([5])));
    assert_eq!((floats(&sum), absent.is_present(), absent.shape()), (vec![2.0], false, [5]));
}

#[test]
fn an_argument_may_be_a_result_twice() {
    let f = jit(|x: Array<Traced, 1>| (x.clone(), Array::<_, 1>::new(x.val() * 2.0), x));
    let x = array([1.0]);
    let (a, b, c) = f.call::<B>(x.clone());
    assert_eq!((floats(&a), floats(&b), floats(&c), floats(&x)), (vec![1.0], vec![2.0], vec![1.0], vec![1.0]));
}

/// The memory of an argument is not written to while the caller holds it.
#[test]
fn arguments_that_the_caller_keeps_are_unchanged() {
    let f = jit(|x: Array<Traced, 1>| Array::<_, 1>::new((x.val() * 2.0).exp().add_scalar(1.0)));
    let x = array([0.0, 1.0]);
    f.call::<B>(x.clone());
    assert_eq!(floats(&x), [0.0, 1.0]);
}

#[test]
fn a_jitted_function_inside_another_is_inlined() {
    let inner = jit(|x: Array<Traced, 1>| Array::<_, 1>::new(x.val().exp() * 2.0));
    let outer = |x: Array<Traced, 1>| Array::<_, 1>::new(inner.call::<Traced>(x).val() + 1.0);
    let graph = trace(outer, &array([1.0]));
    assert_eq!(graph.counts().keys().collect::<Vec<_>>(), ["add", "exp", "mul"]);
    assert!((floats(&jit(outer).call::<B>(array([1.0])))[0] - (1.0_f32.exp() * 2.0 + 1.0)).abs() < 1e-6);
}

#[test]
fn kinds_and_constants() {
    let f = jit(|(x, n, m): (Array<Traced, 2>, Array<Traced, 1, Int>, Array<Traced, 2, Bool>)| {
        let device = x.val().device();
        let picked = x.val().select(1, n.val()).mask_fill(m.val(), -1.0);
        let known = Tensor::<Traced, 1, Int>::from_ints([5, 6, 7], &device);
        let mask = Tensor::<Traced, 1, Bool>::from_data(TensorData::from([true, false, true]), &device);
        let (values, positions) = x.val().max_dim_with_indices(1);
        (
            Array::<_, 2>::new(picked),
            Array::<_, 1, Int>::new((known + n.val()).mask_fill(mask, 0)),
            Array::<_, 2>::new(values),
            Array::<_, 2, Int>::new(positions),
        )
    });
    let device = Default::default();
    let x = Array::<B, 2>::new(Tensor::from_floats([[1.0, 5.0, 3.0], [9.0, 2.0, 4.0]], &device));
    let n = Array::<B, 1, Int>::new(Tensor::from_ints([2, 0, 0], &device));
    let mask = Array::<B, 2, Bool>::new(Tensor::from_data(
        TensorData::new(vec![true, false, false, false, false, true], [2, 3]),
        &device,
    ));
    let (picked, sums, values, positions) = f.call::<B>((x, n, mask));
    assert_eq!(floats(&picked), [-1.0, 1.0, 1.0, 4.0, 9.0, -1.0]);
    assert_eq!(sums.val().into_data().iter::<i64>().collect::<Vec<_>>(), [0, 6, 0]);
    assert_eq!(floats(&values), [5.0, 9.0]);
    assert_eq!(positions.val().into_data().iter::<i64>().collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn keys_outside_are_constants_inside() {
    let x = array([1.0, 2.0, 3.0]);
    let noisy = |x: Array<Traced, 1>| {
        let noise: Tensor<Traced, 1> = Key::new(3).normal([3], &x.val().device());
        Array::<_, 1>::new(x.val() + noise)
    };
    let noise: Tensor<B, 1> = Key::new(3).normal([3], &Default::default());
    assert_eq!(floats(&jit(noisy).call::<B>(x.clone())), floats(&Array::<B, 1>::new(x.val() + noise)));
}

#[test]
fn reading_a_value_names_the_operation_and_the_alternative() {
    let sum = |x: Array<Traced, 1>| {
        let total = x.val().exp().sum();
        if total.into_scalar() > 0.0 { x } else { Array::new(x.val() * 2.0) }
    };
    let text = panic_of(|| trace(sum, &array([1.0])));
    assert!(text.contains("f32[1], the result of `reduce_sum`"), "{text}");
    assert!(text.contains("a mask instead of an `if`"), "{text}");
    let text = panic_of(|| {
        trace(
            |(x, y): (Array<Traced, 1>, Array<Traced, 1>)| {
                let _ = y.val().into_data();
                x
            },
            &(array([1.0]), array([2.0])),
        )
    });
    assert!(text.contains("the argument `1`"), "{text}");
}

#[test]
fn arrays_of_other_traces_are_refused() {
    let kept = Mutex::new(None);
    trace(
        |x: Array<Traced, 1>| {
            *kept.lock().unwrap() = Some(x.clone());
            x
        },
        &array([1.0]),
    );
    let kept = kept.into_inner().unwrap().unwrap();
    let text = panic_of(|| kept.val() + 1.0);
    assert!(text.contains("outside of its trace"), "{text}");
    let text = panic_of(|| trace(|x: Array<Traced, 1>| Array::<_, 1>::new(x.val() + kept.val()), &array([1.0])));
    assert!(text.contains("of another trace"), "{text}");
    let text = panic_of(|| trace(|_: Array<Traced, 1>| kept.clone(), &array([1.0])));
    assert!(text.contains("the result") && text.contains("of another trace"), "{text}");
    // A failed trace leaves no state behind.
    assert_eq!(trace(|x: Array<Traced, 1>| Array::<_, 1>::new(x.val() + 1.0), &array([1.0])).equations().len(), 1);
}

/// Fails unless a message ends with a line of this file.
fn assert_names_line(text: &str, line: u32) {
    assert!(text.ends_with(&format!("tests/compile/trace.rs:{line})")), "line {line}: {text}");
}

#[test]
fn messages_name_the_line_of_the_call() {
    let x = array([1.0]);
    // Reading a value.
    let line = line!() + 1;
    let text = panic_of(|| trace(|x: Array<Traced, 1>| Array::<_, 1>::new(x.val() * x.val().into_scalar()), &x));
    assert_names_line(&text, line);
    // A tensor that outlives its trace.
    let kept = Mutex::new(None);
    let keep = |x: Array<Traced, 1>| {
        *kept.lock().unwrap() = Some(x.clone());
        x
    };
    trace(keep, &x);
    let kept = kept.into_inner().unwrap().unwrap();
    let line = line!() + 1;
    let text = panic_of(|| kept.val().exp());
    assert_names_line(&text, line);
    // A tensor of another trace, as an operand and as a result.
    let line = line!() + 1;
    let text = panic_of(|| trace(|x: Array<Traced, 1>| Array::<_, 1>::new(x.val() + kept.val()), &x));
    assert_names_line(&text, line);
    let line = line!() + 1;
    let text = panic_of(|| trace(|_: Array<Traced, 1>| kept.clone(), &x));
    assert_names_line(&text, line);
    // Operations that cannot be traced.
    let line = line!() + 1;
    let sorted = |x: Array<Traced, 1>| Array::<_, 1>::new(x.val().cross(x.val(), 0));
    let text = panic_of(|| trace(sorted, &array([1.0, 2.0, 3.0])));
    assert!(text.contains("Burn's operation `Cross` cannot be traced yet"), "{text}");
    assert_names_line(&text, line);
    let line = line!() + 1;
    let noisy = |x: Array<Traced, 1>| Array::<_, 1>::new(x.val().random_like(burn::tensor::Distribution::Default));
    assert_names_line(&panic_of(|| trace(noisy, &x)), line);
    // Incompatible shapes, rejected by Burn or by grove.
    let line = line!() + 1;
    let wrong = |x: Array<Traced, 1>| Array::<_, 1>::new(x.val() + Tensor::ones([3], &x.val().device()));
    let text = panic_of(|| trace(wrong, &array([1.0, 2.0])));
    assert!(text.contains("[2]") && text.contains("[3]"), "{text}");
    assert_names_line(&text, line);
    let line = line!() + 2;
    let wrong =
        |x: Array<Traced, 1>| Array::<_, 1>::new(ops::linear(x.val(), Tensor::ones([3, 4], &x.val().device()), None));
    // Inside another traced function; the message names only one line.
    let outer = |x: Array<Traced, 1>| jit(wrong).call::<Traced>(x);
    let text = panic_of(|| trace(outer, &array([1.0, 2.0])));
    assert!(text.contains("linear"), "{text}");
    assert_names_line(&text, line);
    assert_eq!(text.matches(" (at ").count(), 1, "{text}");
}

/// The message names the line in the code of the model, not the call of the model.
#[test]
fn messages_name_the_innermost_line() {
    fn clip(x: Tensor<Traced, 1>) -> Tensor<Traced, 1> {
        let norm = x.clone().square().sum().sqrt();
        if norm.clone().into_scalar() > 1.0 { x / norm } else { x }
    }
    let line = line!() - 2;
    let text = panic_of(|| jit(|x: Array<Traced, 1>| Array::<_, 1>::new(clip(x.val()))).call::<B>(array([3.0])));
    assert_names_line(&text, line);
}

#[test]
fn random_numbers_of_burn_are_refused() {
    let noisy = |x: Array<Traced, 1>| Array::<_, 1>::new(x.val().random_like(burn::tensor::Distribution::Default));
    let text = panic_of(|| trace(noisy, &array([1.0])));
    assert!(text.contains("draw from a `Key`"), "{text}");
}

#[test]
fn costs_follow_from_shapes() {
    let f = |(x, w): (Array<Traced, 2>, Array<Traced, 2>)| {
        let y = x.val().matmul(w.val());
        Array::<_, 2>::new(y.clone().exp().transpose() + y.transpose())
    };
    let cost = trace_skeleton(f, &(Array::<B, 2>::absent([10, 20]), Array::<B, 2>::absent([20, 30]))).cost();
    // The matrix product, and two element-wise operations on it.
    assert_eq!(cost.total.flops, 2 * 10 * 20 * 30 + 2 * 10 * 30);
    assert_eq!(cost.by_operation[0].0, "dot_general");
    assert_eq!(cost.by_operation[0].1.bytes, 4 * (10 * 20 + 20 * 30 + 10 * 30));
    // The arguments and the product; later at most three arrays of the product's size are alive.
    assert_eq!(cost.peak_bytes, 4 * (10 * 20 + 20 * 30 + 10 * 30));
    let table = cost.to_string();
    assert!(
        table.starts_with("operation") && table.contains("12.0 k") && table.contains("peak memory: 4.4 k"),
        "{table}"
    );
}

/// Operations whose results are smaller than their inputs, or that have several leaves, count all elements.
#[test]
fn costs_count_the_elements_of_losses_norms_and_steps() {
    type Matrix = Array<Traced, 2>;
    let any = |x: &Matrix| AnyTensor::<Traced>::from(x.val());
    let (a, b) = (Array::<B, 2>::absent([10, 20]), Array::<B, 2>::absent([30, 7]));
    let loss = |x: Matrix| Array::<_, 1>::new(ops::nll(x.val(), Tensor::zeros([10], &Default::default())).0);
    let loss = trace_skeleton(loss, &a).cost();
    let squares = |(a, b): (Matrix, Matrix)| {
        Array::<_, 1>::new(ops::sum_of_squares(vec![any(&a), any(&b)]).expect("two tensors"))
    };
    let squares = trace_skeleton(squares, &(a.clone(), b.clone())).cost();
    let step = |(a, b, scale): (Matrix, Matrix, Array<Traced, 1>)| {
        let leaves = [&a, &b].map(|x| [0; 4].map(|_| any(x)));
        let [updated, ..] = ops::adam_step(leaves.into(), scale.val()).remove(1);
        Array::<_, 2>::new(updated.into_float().expect("a float"))
    };
    let step = trace_skeleton(step, &(a, b, Array::<B, 1>::absent([10]))).cost();
    for (cost, name, flops) in [(loss, "nll", 200), (squares, "sum_of_squares", 410), (step, "adam_step", 410)] {
        let row = cost.by_operation.iter().find(|(found, _)| found == name);
        assert_eq!(row.map(|(_, cost)| cost.flops), Some(flops), "{cost}");
    }
}

/// The usual estimate of two FLOPs per weight and token for a decoder, plus attention.
#[test]
fn a_train_step_of_gpt2_small_is_traced_without_weights() {
    use grove_models::{CausalLm, Gpt2, Gpt2Config, Pretrained};
    use grove_optim::{Adamw, GradientTransformation, adamw};
    let config = Gpt2Config::default();
    let skeleton = grove_transform::eval_shape::<B, _>(|init| Gpt2::<B>::new(&config, init)).unwrap();
    let ids = Array::<B, 2, Int>::absent([4, 128]);
    let forward =
        |(model, ids): (Gpt2<Traced>, Array<Traced, 2, Int>)| Array::<_, 3>::new(model.forward(ids.val(), None));
    let graph = trace_skeleton(forward, &(skeleton.clone(), ids.clone()));
    let weights = 124e6_f64;
    let flops = graph.cost().total.flops as f64;
    assert!((flops / (2.0 * weights * 512.0) - 1.0).abs() < 0.1, "{flops}");
    let step = |(model, ids): (Gpt2<Traced>, Array<Traced, 2, Int>)| {
        let lift = || Tensor::from_primitive(ids.val().into_primitive());
        let (loss, grads) =
            grove_transform::value_and_grad(&model, |model| model.next_token_loss(lift(), lift(), None));
        let optimizer = adamw(1e-3, Adamw::default());
        let state = optimizer.init(&model);
        (optimizer.step(grads, state, model), Array::<_, 1>::new(loss))
    };
    let cost = trace_skeleton(step, &(skeleton, ids)).cost();
    let flops = cost.total.flops as f64;
    assert!((flops / (6.0 * weights * 512.0) - 1.0).abs() < 0.1, "{flops}");
    // Weights, gradients and the two moments of each weight.
    assert!(cost.peak_bytes as f64 > 16.0 * weights, "{cost}");
}

#[test]
fn a_graph_rejects_arrays_of_other_dtypes() {
    let floats = |dtype: DType| Array::<Flex, 1>::new(Tensor::from_data([1.0, 2.0], (&Default::default(), dtype)));
    let ints = |dtype: DType| Array::<Flex, 1, Int>::new(Tensor::from_data([1, 2], (&Default::default(), dtype)));
    let half = trace(|x: Array<Traced, 1>| Array::<_, 1>::new(x.val() * 0.5), &floats(DType::F32));
    half.eval(&floats(DType::F32));
    for (dtype, name) in [(DType::F64, "f64"), (DType::F16, "f16")] {
        let message = panic_of(|| half.eval(&floats(dtype)));
        assert_eq!(message, format!("the graph expects dtype f32 for its input, but got {name}"));
    }
    let message = panic_of(|| half.eval(&ints(DType::I32)));
    assert_eq!(message, "the graph expects dtype f32 for its input, but got i32");
    let f = |(_, i): (Array<Traced, 1>, Array<Traced, 1, Int>)| Array::<_, 1, Int>::new(i.val() * 2);
    let twice = trace(f, &(floats(DType::F32), ints(DType::I32)));
    let message = panic_of(|| twice.eval(&(floats(DType::F32), ints(DType::I64))));
    assert_eq!(message, "the graph expects dtype i32 for its input `1`, but got i64");
}

#[test]
fn methods_that_compute_on_the_host_are_named() {
    let x = Array::<Flex, 1>::new(Tensor::from_floats([1.0, 2.0], &Default::default()));
    let sort = || trace(|x: Array<Traced, 1>| Array::<_, 1>::new(x.val().sort(0)), &x);
    let message = panic_of(sort);
    assert!(message.starts_with("`sort` reads the values of its tensor"), "{message}");
    let read = || {
        trace(|x: Array<Traced, 1>| Array::<_, 1>::new(x.val() * x.val().into_data().iter::<f32>().sum::<f32>()), &x)
    };
    let message = panic_of(read);
    assert!(message.starts_with("the function reads the values of a traced tensor"), "{message}");
}

/// Returns the number of variables in the trace of an LSTM layer and its gradient over `count` steps.
fn variables_of_lstm(count: usize) -> u64 {
    let steps = Steps::new([vec![3], vec![2; count - 1]].concat(), false);
    let made = Mutex::new(0);
    let f = |x: Array<Traced, 2>| {
        let grads = grad(&x, |x: Array<Autodiff<Traced>, 2>| {
            let ones = |shape: [usize; 2]| Tensor::<Autodiff<Traced>, 2>::ones(shape, &x.val().device());
            let (w_ih, w_hh, bias) = (ones([20, 4]), ones([20, 5]), ones([20, 1]).reshape([20]));
            let inputs = RecurrentInputs { x: x.val(), w_ih, w_hh, bias };
            let output = ops::lstm(inputs, [ones([3, 5]), ones([3, 5])], &steps);
            assert_eq!(output.dims(), [steps.rows() + 6, 5]);
            output.sum()
        });
        // Variables are numbered in order.
        *made.lock().unwrap() = grads.val().into_primitive().tensor().into_ir().id.value() & 0xFFFF_FFFF;
        grads
    };
    trace_skeleton(f, &Array::<B, 2>::absent([steps.rows(), 4]));
    made.into_inner().unwrap()
}

/// The trace does not loop over the steps.
#[test]
fn a_recurrent_layer_is_recorded_at_once() {
    assert_eq!(variables_of_lstm(300), variables_of_lstm(2));
}
