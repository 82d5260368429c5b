//! Arrays of XLA's backend: computed when they are read, by programs that are compiled once.
#![recursion_limit = "256"]

mod graphs;

use burn::tensor::{DType, Int, Tensor, TensorData};
use graphs::close;
use grove_backend::{Autodiff, Backend, Flex};
use grove_compile::{TraceDevice, Traced, jit, scan};
use grove_layers::dropout;
use grove_models::{CausalLm, Gpt2, Pretrained, ResNet, RnnLm};
use grove_optim::{AdamwChain, GradientTransformation, adamw};
use grove_transform::value_and_grad;
use grove_tree::{Array, Key, Tree};
use grove_xla::Xla;
use std::{path::Path, sync::OnceLock};

/// Returns XLA's device, shared by the tests of a program.
fn device() -> Option<TraceDevice> {
    static DEVICE: OnceLock<Option<TraceDevice>> = OnceLock::new();
    *DEVICE.get_or_init(|| Some(graphs::shared()?.device(0).unwrap().lazy()))
}

fn numbers<B: Backend, const D: usize>(x: Tensor<B, D>) -> Vec<f32> {
    x.into_data().iter::<f32>().collect()
}

#[test]
fn operations_run_when_a_value_is_read() {
    let Some(device) = device() else { return };
    let x = Tensor::<Xla, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    let y = (x.clone() * 2.0 + 1.0).matmul(x.clone().transpose());
    assert_eq!(numbers(y.clone()), [13.0, 29.0, 25.0, 57.0]);
    // Computed values are kept for later operations and later reads.
    let sum = y.clone().sum_dim(1);
    assert_eq!(numbers(y), [13.0, 29.0, 25.0, 57.0]);
    assert_eq!(numbers(sum), [42.0, 82.0]);
    assert_eq!(numbers(x), [1.0, 2.0, 3.0, 4.0]);
    let n = Tensor::<Xla, 1, Int>::arange(0..5, &device).powi_scalar(2);
    assert_eq!(
        n.clone().greater_elem(3).into_data().iter::<bool>().collect::<Vec<_>>(),
        [false, false, true, true, true]
    );
    assert_eq!(n.sum().into_scalar(), 30);
    assert_eq!(Tensor::<Xla, 1>::zeros([0], &device).into_data().num_elements(), 0);
}

#[test]
fn runs_control_flow_and_jit() {
    let Some(device) = device() else { return };
    fn running<B: Backend>(xs: Array<B, 2>, scale: &Tensor<B, 1>) -> Array<B, 2> {
        let step = |carry: Array<B, 1>, x: Array<B, 1>| {
            let next = Array::new((carry.val() + x.val()) * scale.clone());
            (next.clone(), next)
        };
        let zero = Array::new(xs.val().narrow(0, 0, 1).reshape([3]) * 0.0);
        scan(step, zero, xs).1
    }
    let data = TensorData::from([[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]);
    let expected = {
        let x = Tensor::<Flex, 2>::from_data(data.clone(), &Default::default());
        numbers(running(Array::new(x), &Tensor::from_floats([0.5, 1.0, 2.0], &Default::default())).val())
    };
    let scale = Tensor::<Xla, 1>::from_floats([0.5, 1.0, 2.0], &device);
    for _ in 0..3 {
        let x = Tensor::<Xla, 2>::from_data(data.clone(), &device);
        assert_eq!(numbers(running(Array::new(x), &scale).val()), expected);
    }
    let double = jit(|x: Array<Traced, 2>| {
        Array::<_, 2>::new(
            x.val() * 2.0 + Tensor::<Traced, 1>::from_floats([1.0, 2.0, 3.0], &Default::default()).reshape([1, 3]),
        )
    });
    for i in 0..3 {
        let x = Array::new(Tensor::<Xla, 2>::from_data(data.clone(), &device) + i as f32);
        let found = numbers(double.call::<Xla>(x).val());
        assert_eq!(found[..3], [3.0 + 2.0 * i as f32, 6.0 + 2.0 * i as f32, 9.0 + 2.0 * i as f32]);
    }
}

#[test]
fn a_jitted_function_runs_on_the_device_of_its_arguments() {
    let Some(first) = device() else { return };
    let second = graphs::shared().unwrap().device(0).unwrap().lazy();
    let scaled = jit(|(x, key): (Array<Traced, 1>, Key)| {
        Array::<_, 1>::new(x.val() * dropout(Tensor::ones([3], &Default::default()), 0.5, Some(key)))
    })
    .on::<Xla>(&second);
    for i in 0..3 {
        let on = if i == 1 { &second } else { &first };
        let x = Array::new(Tensor::<Xla, 1>::from_floats([1.0, 2.0, 4.0], on) + i as f32);
        let y = scaled.call((x, Key::new(5))).val();
        assert!(y.device().is_same(&second) && !y.device().is_same(&first));
        let kept = dropout(Tensor::<Flex, 1>::ones([3], &Default::default()), 0.5, Some(Key::new(5)));
        let expected = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 4.0], &Default::default()) + i as f32;
        assert_eq!(numbers(y), numbers(expected * kept));
    }
    assert_eq!(scaled.jit().graphs().len(), 1);
}

type Optimizer<B> = AdamwChain<B>;

/// Returns the losses of some training steps.
fn losses<B, M>(
    path: &str,
    device: &B::Device,
    steps: usize,
    loss: impl Fn(M::On<Autodiff<B>>, usize) -> Tensor<Autodiff<B>, 1>,
) -> Vec<f32>
where
    B: Backend,
    M: Pretrained<B> + Tree<B>,
{
    let path = Path::new("../../models/tests/fixtures").join(path);
    let mut model: M = M::from_path(path, device, None).unwrap().0;
    let optimizer: Optimizer<B> = adamw(0.01, Default::default());
    let mut state = GradientTransformation::<B, _>::init(&optimizer, &model);
    let mut losses = vec![];
    for i in 0..steps {
        let (value, grads) = value_and_grad(&model, |model| loss(model, i));
        (model, state) = optimizer.step(grads, state, model);
        losses.push(value.into_data().iter::<f32>().next().unwrap());
    }
    losses
}

fn ids<B: Backend>(step: usize, device: &B::Device) -> Tensor<B, 2, Int> {
    let ids = (0..10).map(|i| (i as i64 * 7919 + 13 + step as i64) % 20).collect();
    Tensor::from_data(TensorData::new(ids, [2, 5]), device)
}

fn images<B: Backend>(step: usize, device: &B::Device) -> Tensor<B, 4> {
    let values = (0..2 * 3 * 32 * 32).map(|i: usize| ((i * 7919 + step) % 1000) as f32 / 500.0 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, [2, 3, 32, 32]), device)
}

#[test]
fn training_follows_flex() {
    let Some(device) = device() else { return };
    let steps = 8;
    fn follows(what: &str, found: Vec<f32>, expected: Vec<f32>) {
        let data = |list: Vec<f32>| TensorData::new(list, [8]);
        assert!(expected[7] < expected[0], "{what}: {expected:?}");
        close(what, &data(found), &data(expected), 2e-4, 1e-3);
    }
    fn of_tokens<B: Backend, M>(path: &str, device: &B::Device, steps: usize) -> Vec<f32>
    where
        M: Pretrained<B> + Tree<B>,
        M::On<Autodiff<B>>: CausalLm<Autodiff<B>>,
    {
        losses::<B, M>(path, device, steps, |model, step| {
            let ids = ids::<Autodiff<B>>(step % 2, device);
            model.next_token_loss(ids.clone(), ids, Some(Key::new(step as u64)))
        })
    }
    follows(
        "gpt2",
        of_tokens::<Xla, Gpt2<Xla>>("gpt2/tiny_a", &device, steps),
        of_tokens::<Flex, Gpt2<Flex>>("gpt2/tiny_a", &Default::default(), steps),
    );
    let lstm = "rnn/lm_lstm_tied/model.pt";
    follows(
        "lstm",
        of_tokens::<Xla, RnnLm<Xla>>(lstm, &device, steps),
        of_tokens::<Flex, RnnLm<Flex>>(lstm, &Default::default(), steps),
    );
    fn of_images<B: Backend>(device: &B::Device, steps: usize) -> Vec<f32> {
        losses::<B, ResNet<B>>("resnet/torchvision_basic", device, steps, |model, step| {
            let labels = Tensor::from_ints([1, 0], device);
            model.loss(images::<Autodiff<B>>(step % 2, device), labels)
        })
    }
    follows("resnet", of_images::<Xla>(&device, steps), of_images::<Flex>(&Default::default(), steps));
}

#[test]
fn two_hundred_steps_follow_flex() {
    let Some(device) = device() else { return };
    fn run<B: Backend>(device: &B::Device) -> Vec<f32> {
        losses::<B, Gpt2<B>>("gpt2/tiny_a", device, 200, |model, step| {
            let ids = ids::<Autodiff<B>>(step % 7, device);
            model.next_token_loss(ids.clone(), ids, Some(Key::new(step as u64)))
        })
    }
    let (found, expected) = (run::<Xla>(&device), run::<Flex>(&Default::default()));
    assert!(expected[199] < 0.5 * expected[0], "{} and {}", expected[0], expected[199]);
    for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
        // Rounding errors grow from step to step.
        assert!((found - expected).abs() <= 1e-3 * expected.max(1.0), "step {i}: {found} for {expected}");
    }
}

/// Files get arrays flattened to one axis; the tensors stay usable after such a read.
#[test]
fn reading_in_one_row_changes_nothing() {
    let Some(device) = device() else { return };
    let x = Tensor::<Xla, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    let row = |x: Tensor<Xla, 2>| numbers(x.reshape([4]));
    assert_eq!(row(x.clone()), [1.0, 2.0, 3.0, 4.0]);
    let y = x.clone() * 2.0;
    assert_eq!((row(x.clone()), row(y.clone())), (vec![1.0, 2.0, 3.0, 4.0], vec![2.0, 4.0, 6.0, 8.0]));
    let flat = y.clone().reshape([4]);
    assert_eq!(numbers(flat.clone()), [2.0, 4.0, 6.0, 8.0]);
    assert_eq!(numbers(flat + 1.0), [3.0, 5.0, 7.0, 9.0]);
    let sum = y + x.clone();
    assert_eq!((row(x), numbers(sum)), (vec![1.0, 2.0, 3.0, 4.0], vec![3.0, 6.0, 9.0, 12.0]));
}

/// Another key or another scalar needs no other program.
#[test]
fn keys_and_numbers_are_arguments() {
    let Some(device) = device() else { return };
    let draw = |key: Key, rate: f32| {
        let x = Tensor::<Xla, 2>::ones([4, 8], &device) * rate;
        numbers(dropout(x, 0.5, Some(key)))
    };
    let on_flex = |key: Key, rate: f32| {
        let x = Tensor::<Flex, 2>::ones([4, 8], &Default::default()) * rate;
        numbers(dropout(x, 0.5, Some(key)))
    };
    for seed in 0..5 {
        let rate = 0.1 * seed as f32;
        assert_eq!(draw(Key::new(seed), rate), on_flex(Key::new(seed), rate));
    }
}

/// An array that exceeds memory is an error with a message, and the device stays usable.
#[test]
fn out_of_memory_is_an_error() {
    let Some(device) = device() else { return };
    let one = Tensor::<Xla, 1>::from_floats([1.0], &device);
    let large = one.clone().reshape([1, 1]).expand([1 << 22, 1 << 22]) * 2.0;
    let error = large.try_into_data().expect_err("64 TiB");
    let message = format!("{error:?}");
    assert!(message.contains("memory") && message.contains("70368744177664"), "{message}");
    assert_eq!(numbers(one + 1.0), [2.0]);
}

/// Arrays keep their dtypes when they are read, or moved to another backend or device.
#[test]
fn reads_keep_types() {
    let Some(device) = device() else { return };
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        let data = TensorData::from([0.1_f64, -3.0]).convert_dtype(dtype);
        let x = || Array::<Xla, 1>::new(Tensor::from_data(data.clone(), (&device, dtype)));
        assert_eq!(x().into_any().into_data(), Some(data.clone()));
        let moved: Array<Flex, 1> = grove_tree::to_backend::<Xla, Flex, _>(x(), &Default::default());
        assert_eq!(moved.val().into_data(), data);
    }
}
