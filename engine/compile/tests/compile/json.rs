//! Graphs as JSON: a round trip preserves them, and invalid text is an error with a reason.

use crate::programs::{Code, inputs, program};
use burn::tensor::{Bool, DType, Int, Tensor, TensorData};
use grove_backend::{Autodiff, Dropout, Flex, GruReset, Steps, ops};
use grove_compile::{Graph, GraphError, Traced, cond, jit, scan, trace, trace_skeleton, while_loop};
use grove_models::{CausalLm, Gpt2, Gpt2Config, Pretrained};
use grove_optim::{Adamw, GradientTransformation, adamw};
use grove_tree::{Array, Key};
use proptest::prelude::*;
use serde_json::{Value, json};

type B = Flex;

fn array<const N: usize>(values: [f32; N]) -> Array<B, 1> {
    Array::new(Tensor::from_floats(values, &Default::default()))
}

/// Writes and reads a graph and compares the two.
fn round_trip(graph: &Graph) -> Graph {
    let text = graph.to_json().unwrap();
    let read = Graph::from_json(&text).unwrap_or_else(|error| panic!("{error}\n{graph}"));
    assert_eq!(format!("{read:?}"), format!("{graph:?}"));
    assert_eq!(read.to_json().unwrap(), text);
    read
}

/// Returns the fields of a graph as JSON.
fn fields(graph: &Graph) -> Value {
    serde_json::from_str(&graph.to_json().unwrap()).unwrap()
}

/// Returns the error for a graph with a changed field.
fn error_with(mut value: Value, pointer: &str, new: Value) -> String {
    *value.pointer_mut(pointer).unwrap() = new;
    Graph::from_json(&value.to_string()).unwrap_err().to_string()
}

/// Generates numbers, including invalid ones.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0_u64), 0..20_u64, Just(1 << 31), Just(1 << 32), Just(u64::MAX), any::<u64>()]
}

/// Collects all numbers of a file.
fn numbers<'a>(value: &'a mut Value, found: &mut Vec<&'a mut Value>) {
    match value {
        Value::Number(_) => found.push(value),
        Value::Array(items) => items.iter_mut().for_each(|item| numbers(item, found)),
        Value::Object(fields) => fields.values_mut().for_each(|item| numbers(item, found)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..Default::default() })]

    #[test]
    fn random_programs_come_back(codes in prop::collection::vec(any::<Code>(), 1..25), seed in 0..1000_u64) {
        let args = inputs::<B>(seed);
        let graph = trace(program(&codes), &args);
        for graph in [graph.clone().decomposed(), graph.clone().without_common_subexpressions(), graph] {
            let read = round_trip(&graph);
            prop_assert_eq!(read.to_string(), graph.to_string());
            let bytes = |graph: &Graph| -> Vec<_> {
                graph.eval::<B, _>(&args).into_iter().map(|x| x.into_data().as_bytes().to_vec()).collect()
            };
            prop_assert_eq!(bytes(&read), bytes(&graph));
        }
    }

    /// Changing any character gives a graph or an error.
    #[test]
    fn changed_text_never_panics(
        codes in prop::collection::vec(any::<Code>(), 1..8),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..7_u8, any::<u8>()), 1..4),
    ) {
        let text = trace(program(&codes), &inputs::<B>(1)).to_json().unwrap();
        let mut bytes = text.into_bytes();
        for (at, kind, byte) in changes {
            if bytes.is_empty() {
                break;
            }
            let i = at.index(bytes.len());
            match kind {
                0 => bytes[i] = b'0' + byte % 10,
                1 => bytes[i] = byte % 128,
                2 => bytes.insert(i, b'0' + byte % 10),
                3 => drop(bytes.remove(i)),
                4 => bytes.truncate(i.max(1)),
                5 => bytes.splice(i..i, b"99999999999".iter().copied()).for_each(drop),
                // Replaces the next digit.
                _ => if let Some(digit) = bytes[i..].iter_mut().find(|byte| byte.is_ascii_digit()) { *digit = b'0' + byte % 10 },
            }
        }
        let _ = Graph::from_json(&String::from_utf8_lossy(&bytes));
    }

    /// Changing any number gives a graph or an error.
    #[test]
    fn changed_numbers_never_panic(
        codes in prop::collection::vec(any::<Code>(), 1..10),
        at in any::<prop::sample::Index>(),
        new in number(),
    ) {
        let mut value = fields(&trace(program(&codes), &inputs::<B>(1)));
        let mut found = Vec::new();
        numbers(&mut value, &mut found);
        let i = at.index(found.len());
        *found[i] = json!(new);
        let _ = Graph::from_json(&value.to_string());
    }

    /// Also for grove's operations.
    #[test]
    fn changed_parameters_never_panic(
        kind in 0..4_u8,
        changes in prop::collection::vec((any::<prop::sample::Index>(), number()), 1..3),
    ) {
        let mut value = fields(&match kind {
            0 => of_images(),
            1 => of_sequences(),
            2 => of_control_flow(),
            _ => of_train_step(&Gpt2Config { n_layer: 1, n_embd: 8, n_head: 2, vocab_size: 11, eos_token_id: None::<u32>.into(), bos_token_id: None, ..Gpt2Config::default() }),
        });
        let mut found = Vec::new();
        numbers(&mut value["graph"], &mut found);
        for (at, new) in changes {
            let i = at.index(found.len());
            *found[i] = json!(new);
        }
        let _ = Graph::from_json(&value.to_string());
    }
}

type WithKey<B> = (Array<B, 2>, Key);

/// A conditional, a scan and a loop. Both branches of the conditional sample with a key derived from an argument.
fn controlled((x, key): WithKey<Traced>) -> (Array<Traced, 2>, Array<Traced, 1>, Key) {
    let (next, key) = key.split();
    let drop = |x: Tensor<Traced, 2>, key: Key| ops::dropout(x, Dropout::new(key.words(), 0.5).unwrap());
    let branch = |factor: f64| move |x: Array<Traced, 2>| Array::<_, 2>::new(drop(x.val() * factor, key.fold_in(3)));
    let chosen = cond(x.val().sum().greater_elem(0.0), branch(2.0), branch(-1.0), x.clone());
    let body = |sum: Array<Traced, 1>, row: Array<Traced, 1>| (Array::<_, 1>::new((sum.val() + row.val()).tanh()), ());
    let (last, ()) = scan(body, Array::<_, 1>::new(x.val().sum_dim(0).squeeze_dim(0)), x);
    let large = |x: Array<Traced, 1>| x.val().square().sum().greater_elem(0.1);
    (chosen, while_loop(large, |x| Array::new(x.val() * 0.5), last), next)
}

fn of_control_flow() -> Graph {
    let x = Array::<B, 2>::new(Key::new(5).normal([3, 4], &Default::default()));
    trace(controlled, &(x, Key::new(0)))
}

#[test]
fn control_flow_and_keys_come_back() {
    let graph = of_control_flow();
    let read = round_trip(&graph);
    assert_eq!(read.to_string(), graph.to_string());
    assert_eq!(read.key_inputs().collect::<Vec<_>>(), ["1"]);
    for seed in 0..3 {
        let args = (Array::<B, 2>::new(Key::new(seed).normal([3, 4], &Default::default())), Key::new(seed + 9));
        let values =
            |graph: &Graph| -> Vec<_> { graph.eval::<B, _>(&args).into_iter().map(|x| x.into_data()).collect() };
        assert_eq!(values(&read), values(&graph));
    }
    // A body that does not return the next carry.
    let value = fields(&graph);
    let at = value["graph"]["equations"]
        .as_array()
        .unwrap()
        .iter()
        .position(|equation| equation["primitive"]["HigherOrder"]["Scan"].is_object());
    let place = format!("/graph/equations/{}/primitive/HigherOrder/Scan/", at.unwrap());
    let error = error_with(value.clone(), &format!("{place}length"), json!(7));
    assert!(error.contains("(`scan`) of the graph: each array must have 7 steps"), "{error}");
    let error = error_with(value.clone(), &format!("{place}length"), json!(0));
    assert!(error.contains("(`scan`) of the graph: it must have at least one step"), "{error}");
    let error = error_with(value.clone(), &format!("{place}carries"), json!(2));
    assert!(error.contains("(`scan`) of the graph: the body must accept constants, carry and one step"), "{error}");
    let error = error_with(value, &format!("{place}body/outputs"), json!([]));
    assert!(error.contains("the body must return the next carry first") || error.contains("outputs"), "{error}");
}

#[test]
fn numbers_survive_bit_for_bit() {
    let nan = f32::from_bits(0x7fc0_1234);
    let values = [0.1, -0.0, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE / 4.0, nan, f32::NEG_INFINITY, f32::MAX];
    let f = |x: Array<Traced, 1>| {
        let device = x.val().device();
        let known = Tensor::<Traced, 1>::from_floats(values, &device);
        let y = x.val().clamp(f64::NEG_INFINITY, 0.1) * 1e-300_f64 - f64::INFINITY + known;
        Array::<_, 1>::new(y.mask_fill(x.val().equal_elem(f64::NAN), -0.0))
    };
    let read = round_trip(&trace(f, &array([1.0; 8])));
    let text = read.to_json().unwrap();
    for part in ["\"1e-300\"", "\"inf\"", "\"NaN:7ff8000000000000\"", "\"-0.0\"", "\"0.1\""] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let kinds = |(n, m): (Array<Traced, 1, Int>, Array<Traced, 1, Bool>)| {
        let device = n.val().device();
        let mask = Tensor::<Traced, 1, Bool>::from_data(TensorData::from([true, false]), &device);
        let large = n.val().add_scalar(i64::MIN).mask_fill(mask.bool_and(m.val()), i64::MAX);
        Array::<_, 1, Int>::new(large)
    };
    let device = Default::default();
    let n = Array::<B, 1, Int>::new(Tensor::from_ints([1, 2], &device));
    let m = Array::<B, 1, Bool>::new(Tensor::from_data(TensorData::from([true, true]), &device));
    round_trip(&trace(kinds, &(n, m)));
}

/// A graph of image operations with all kinds of parameters.
fn of_images() -> Graph {
    let images = |x: Array<Traced, 4>| {
        let x = x.val();
        let device = x.device();
        let weight = Tensor::<Traced, 4>::zeros([4, 3, 3, 3], &device);
        let y = ops::conv2d(x, weight, Default::default());
        let y = ops::max_pool2d(y, ops::Pool2dOptions { kernel: [2, 2], stride: [2, 2], padding: [0, 0] });
        let y = burn::tensor::module::avg_pool2d(y, [2, 2], [1, 1], [0, 0], true, false);
        let y = burn::tensor::module::adaptive_avg_pool2d(y, [1, 1]);
        let y = y.slice([0..1, 1..3]).permute([3, 1, 0, 2]).flip([1]).repeat_dim(2, 3);
        let top = y.clone().topk(1, 1).cast(DType::F64);
        let taken = y.clone().select(1, Tensor::from_ints([1, 0, 1], &device)).argmax(1);
        (Array::<_, 4>::new(top), Array::<_, 4, Int>::new(taken), Array::<_, 5>::new(y.unfold::<5, _>(1, 2, 1)))
    };
    trace_skeleton(images, &Array::<B, 4>::absent([2, 3, 12, 12]))
}

type Recurrent<T> = (Array<T, 2>, Array<T, 2>, Array<T, 2>, Array<T, 1>, Array<T, 2>);

fn of_sequences() -> Graph {
    let recurrent = |(x, w_ih, w_hh, b, h): Recurrent<Traced>| {
        let inputs = ops::RecurrentInputs { x: x.val(), w_ih: w_ih.val(), w_hh: w_hh.val(), bias: b.val() };
        let steps = Steps::new(vec![2, 2, 1], true);
        Array::<_, 2>::new(ops::gru(inputs, h.val(), GruReset::After, &steps))
    };
    let args: Recurrent<B> = (
        Array::absent([5, 3]),
        Array::absent([12, 3]),
        Array::absent([12, 4]),
        Array::absent([16]),
        Array::absent([2, 4]),
    );
    trace_skeleton(recurrent, &args)
}

/// A train step of a whole model: forward pass, backward pass and optimizer.
fn of_train_step(config: &Gpt2Config) -> Graph {
    let skeleton = grove_transform::eval_shape::<B, _>(|init| Gpt2::<B>::new(config, init)).unwrap();
    let step = |(model, ids): (Gpt2<Traced>, Array<Traced, 2, Int>)| {
        let lift = || Tensor::<Autodiff<Traced>, 2, Int>::from_primitive(ids.val().into_primitive());
        let (loss, grads) =
            grove_transform::value_and_grad(&model, |model| model.next_token_loss(lift(), lift(), None));
        let optimizer = adamw(1e-3, Adamw::default());
        let state = optimizer.init(&model);
        (optimizer.step(grads, state, model), Array::<_, 1>::new(loss))
    };
    trace_skeleton(step, &(skeleton, Array::<B, 2, Int>::absent([2, 16])))
}

#[test]
fn operations_come_back() {
    round_trip(&of_images());
    round_trip(&of_sequences());
    let noisy = |x: Array<Traced, 2>| {
        let noise: Tensor<Traced, 2> = Key::new(3).normal([2, 3], &x.val().device());
        Array::<_, 2>::new(ops::dropout(x.val() + noise, Dropout::new([1, u32::MAX], 0.1).unwrap()))
    };
    let x = Array::<B, 2>::new(Tensor::ones([2, 3], &Default::default()));
    let graph = trace(noisy, &x);
    let eval = |graph: &Graph| graph.eval::<B, _>(&x)[0].clone().into_data();
    assert_eq!(eval(&round_trip(&graph)), eval(&graph));
}

#[test]
fn a_train_step_comes_back() {
    let graph = of_train_step(&Gpt2Config { n_layer: 2, ..Gpt2Config::default() });
    assert!(graph.equations().len() > 100);
    round_trip(&graph);
    round_trip(&graph.decomposed());
}

#[test]
fn fused_chains_are_refused() {
    let f = jit(|x: Array<Traced, 1>| Array::<_, 1>::new((x.val() * 2.0).exp() + 1.0));
    f.call::<B>(array([1.0; 64]));
    let error = f.graph().unwrap().to_json().unwrap_err();
    assert_eq!(error, GraphError::Fused { equation: 0 });
    assert!(error.to_string().contains("the graph that `trace` returns"), "{error}");
}

fn small() -> Value {
    let f = |(x, y): (Array<Traced, 2>, Array<Traced, 2>)| {
        let device = x.val().device();
        let z = x.val().matmul(y.val()) + Tensor::from_floats([[1.0, 2.0]], &device);
        Array::<_, 2>::new(z.exp().sum_dim(1))
    };
    fields(&trace_skeleton(f, &(Array::<B, 2>::absent([3, 4]), Array::<B, 2>::absent([4, 2]))))
}

#[test]
fn rejects_text_that_is_not_a_graph() {
    let text = small().to_string();
    let error = |text: &str| Graph::from_json(text).unwrap_err().to_string();
    assert!(error("").contains("the text is not a graph: EOF"), "{}", error(""));
    assert!(error(&text[..text.len() / 2]).contains("EOF while parsing"));
    assert!(error("[1, 2]").contains("no field `format`"));
    assert!(error(&"[".repeat(1_000_000)).contains("recursion limit"));
    let later = error_with(small(), "/version", json!(2));
    assert!(later.contains("has version 2") && later.contains("update grove"), "{later}");
    let missing = error(&json!({"format": "grove graph", "version": 1}).to_string());
    assert!(missing.contains("no field `graph`"), "{missing}");
    let unknown = error_with(small(), "/graph/equations/0/primitive", json!("Sort"));
    assert!(unknown.contains("`graph.equations[0].primitive`") && unknown.contains("`Sort`"), "{unknown}");
}

#[test]
fn rejects_variables_out_of_order() {
    let value = small();
    let equations: Vec<_> = value["graph"]["equations"].as_array().unwrap().clone();
    assert_eq!(equations.len(), 4);
    let found = error_with(value.clone(), "/graph/equations/0/inputs/0", json!(77));
    assert!(
        found.starts_with("equation 0 (`dot_general`) of the graph: it uses variable 77, but there are only 7"),
        "{found}"
    );
    let found = error_with(value.clone(), "/graph/equations/0/inputs/0", equations[3]["outputs"][0].clone());
    assert!(found.contains("before equation 3 (`reduce_sum`) assigns it"), "{found}");
    let found = error_with(value.clone(), "/graph/equations/2/outputs/0", equations[1]["outputs"][0].clone());
    assert!(
        found.starts_with("equation 2 (`exp`)") && found.contains("which equation 1 (`add`) assigns already"),
        "{found}"
    );
    let found = error_with(value.clone(), "/graph/equations/1/outputs/0", json!(1000));
    assert!(found.contains("it assigns variable 1000, but there are only 7"), "{found}");
    let mut without = value.clone();
    without["graph"]["equations"].as_array_mut().unwrap().remove(2);
    let found = Graph::from_json(&without.to_string()).unwrap_err().to_string();
    assert!(found.starts_with("equation 2 (`reduce_sum`)") && found.contains("which nothing assigns"), "{found}");
    let found = error_with(value, "/graph/outputs/0/1", json!(9));
    assert!(found.starts_with("result of the graph: it uses variable 9"), "{found}");
}

#[test]
fn rejects_shapes_that_do_not_fit() {
    let value = small();
    let found = error_with(value.clone(), "/graph/equations/0/inputs", json!([1]));
    assert!(found.contains("it must have 2 inputs"), "{found}");
    let found = error_with(value.clone(), "/graph/equations/2/outputs", json!([null]));
    assert!(found.contains("output 0 is missing") || found.contains("which nothing assigns"), "{found}");
    let var = value["graph"]["equations"][2]["outputs"][0].as_u64().unwrap();
    let found = error_with(value.clone(), &format!("/graph/variables/{var}/shape"), json!([3, 3]));
    assert!(found.contains("(`exp`)") && found.contains("output 0 is f32[3, 3] instead of f32[3, 2]"), "{found}");
    let found = error_with(value.clone(), &format!("/graph/variables/{var}/dtype"), json!("F64"));
    assert!(found.contains("output 0 is f64[3, 2]"), "{found}");
    let found = error_with(value.clone(), "/graph/equations/3/primitive/Reduce/1", json!(2));
    assert!(found.contains("axis 2 is out of range for 2 axes"), "{found}");
    let found = error_with(value.clone(), "/graph/variables/0/shape", json!([1_u64 << 31, 1_u64 << 31, 1_u64 << 31]));
    assert!(found.contains("variable 0") && found.contains("more elements than any memory can hold"), "{found}");
    let found = error_with(value.clone(), "/graph/variables/0/shape/0", json!(u64::MAX));
    assert!(found.contains("`graph.variables[0].shape[0]` is 18446744073709551615"), "{found}");
    let found = error_with(value.clone(), "/graph/constants/0/shape", json!([1, 1 << 30]));
    assert!(found.contains("constant 0: 8 bytes for an array f32[1, 1073741824]"), "{found}");
    let found = error_with(value, "/graph/constants/0/base64", json!("AAA"));
    assert!(found.contains("constant 0: its bytes"), "{found}");
}

/// Also for grove's operations, by their shape rules. No panic is reported.
#[test]
fn rejects_operations_of_wrong_shapes() {
    let f = |(x, w): (Array<Traced, 2>, Array<Traced, 2>)| {
        let parts = ops::chunk(ops::linear(x.val(), w.val(), None), 2, 1);
        Array::<_, 2>::new(ops::gelu(parts[0].clone() + parts[1].clone(), grove_backend::GeluApproximation::None))
    };
    let graph = trace_skeleton(f, &(Array::<B, 2>::absent([3, 4]), Array::<B, 2>::absent([4, 6])));
    round_trip(&graph);
    let value = fields(&graph);
    let found = error_with(value.clone(), "/graph/equations/0/inputs", json!([1, 0, null]));
    assert!(found.contains("equation 0 (`linear`)") && found.contains("x [.., in] by weight [in, out]"), "{found}");
    let found = error_with(value.clone(), "/graph/equations/1/primitive/Grove/Run/0/Chunk/count", json!(1_u64 << 32));
    assert!(found.contains("it has 4294967296 parts, but 2 outputs"), "{found}");
    let found = error_with(value, "/graph/equations/1/primitive/Grove/Run/0/Chunk/axis", json!(7));
    assert!(found.contains("equal parts of axis 7"), "{found}");
    // A number of parts for which memory would be allocated.
    let value = fields(&of_train_step(&Gpt2Config { n_layer: 1, ..Gpt2Config::default() }));
    let equations = value["graph"]["equations"].as_array().unwrap();
    let chunk = |equation: &Value| equation.pointer("/primitive/Grove/Vjp/0/Chunk").is_some();
    let i = equations.iter().position(chunk).unwrap();
    let pointer = format!("/graph/equations/{i}/primitive/Grove/Vjp/0/Chunk/count");
    let found = error_with(value, &pointer, json!(1_u64 << 31));
    assert!(found.contains("(`chunk_vjp`)") && found.contains("2147483648 parts, but 3 gradients"), "{found}");
}
