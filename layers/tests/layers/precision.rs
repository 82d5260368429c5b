//! Layers in f16 and bf16 with values of realistic magnitude, against f64 arithmetic.

use crate::common;
use burn::tensor::{DType, FloatDType, Tensor, TensorData};
use grove_backend::{Backend, Conv2dOptions};
use grove_layers::{Activation, BatchNorm, BatchStats, ConvBn, global_average_pool};
use grove_tree::{Array, Init, Key, cast};

/// The 16-bit dtypes that a backend computes in, each with its machine epsilon.
fn types<B: Backend>(device: &B::Device) -> Vec<(FloatDType, f64)> {
    let all = [(FloatDType::F16, 2f64.powi(-10)), (FloatDType::BF16, 2f64.powi(-7))];
    all.into_iter().filter(|(dtype, _)| B::computes_in(device, (*dtype).into())).collect()
}

fn values<B: Backend, const D: usize>(x: Tensor<B, D>) -> Vec<f64> {
    x.into_data().iter().collect()
}

fn close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    let (apart, largest) = common::distance(found, expected);
    assert!(apart <= tolerance * largest, "{what}: apart by {apart} of {largest}");
}

/// Two images of 112 x 112 pixels whose channels have different means, in a dtype, and the rounded values.
fn planes<B: Backend>(dtype: FloatDType, device: &B::Device) -> (Tensor<B, 4>, Vec<f64>) {
    let [means, deviations] = [[700.0f32, -50.0, 0.0], [900.0f32, 300.0, 1.0]];
    let size = 112 * 112;
    let noise = Key::new(3).uniform_vec(2 * 3 * size, -1.7, 1.7);
    let pixel = |(i, noise): (usize, f32)| means[i / size % 3] + deviations[i / size % 3] * noise;
    let x: Vec<f32> = noise.into_iter().enumerate().map(pixel).collect();
    let x = Tensor::<B, 4>::from_data(TensorData::new(x, [2, 3, 112, 112]), device).cast(dtype);
    let given = values(x.clone());
    (x, given)
}

/// Mean and unbiased variance of each channel.
fn statistics(x: &[f64]) -> [Vec<f64>; 2] {
    let size = 112 * 112;
    let (mut means, mut variances) = (vec![], vec![]);
    for channel in 0..3 {
        let pixels = || x.iter().enumerate().filter(|(i, _)| i / size % 3 == channel).map(|(_, x)| *x);
        let count = pixels().count() as f64;
        let mean = pixels().sum::<f64>() / count;
        means.push(mean);
        variances.push(pixels().map(|x| (x - mean).powi(2)).sum::<f64>() / (count - 1.0));
    }
    [means, variances]
}

/// Variances of 270,000, which exceed the range of f16 even when divided by four, and updates of a hundredth, which are
/// below the resolution of bf16.
fn running_statistics_are_f32<B: Backend>(device: B::Device) {
    for (dtype, ulp) in types::<B>(&device) {
        let (x, given) = planes::<B>(dtype, &device);
        let [mean, variance] = statistics(&given);
        let init = Init::new(Key::new(0), &device);
        let norm = cast(BatchNorm::<B> { momentum: 0.01, ..BatchNorm::new(3, &init) }, dtype);
        assert_eq!(norm.weight.dtype(), DType::from(dtype));
        let both = |norm: &BatchNorm<B>| [norm.running_mean.dtype(), norm.running_var.dtype()];
        assert_eq!(both(&norm), [DType::F32; 2], "a cast leaves running statistics");

        // Three updates with the same batch: 1 - 0.99^3 of the way to its statistics.
        let mut trained = norm;
        for _ in 0..3 {
            let (y, successor) = trained.train(x.clone(), None, false);
            assert_eq!(y.dtype(), DType::from(dtype));
            trained = successor;
        }
        assert_eq!(both(&trained), [DType::F32; 2]);
        let left = 0.99f64.powi(3);
        let moved: Vec<f64> = mean.iter().map(|mean| mean * (1.0 - left)).collect();
        close("running mean", &values(trained.running_mean.val()), &moved, 1e-4);
        let moved: Vec<f64> = variance.iter().map(|variance| variance * (1.0 - left) + left).collect();
        close("running variance", &values(trained.running_var.val()), &moved, 1e-4);

        // Inference with the statistics of the whole batch.
        let array = |values: &[f64]| {
            let values = values.iter().map(|x| *x as f32).collect();
            Array::new(Tensor::<B, 1>::from_data(TensorData::new(values, [3]), &device))
        };
        let norm = BatchNorm { running_mean: array(&mean), running_var: array(&variance), ..trained };
        let size = 112 * 112;
        let normal = |(i, x): (usize, &f64)| (x - mean[i / size % 3]) / (variance[i / size % 3] + 1e-5).sqrt();
        let expected: Vec<f64> = given.iter().enumerate().map(normal).collect();
        let y = norm.forward(x.clone());
        assert_eq!(y.dtype(), DType::from(dtype));
        close("inference", &values(y), &expected, ulp);
        close("the batch's own", &values(norm.train(x.clone(), None, false).0), &expected, 2.0 * ulp);

        // The same after an identity convolution, in one fused pass on backends that have one.
        let options = Conv2dOptions { groups: 3, ..Default::default() };
        let mut block = cast(ConvBn::<B>::new(3, 3, [1, 1], options, &init), dtype);
        block.conv.weight = Array::new(Tensor::<B, 4>::ones([3, 1, 1, 1], &device).cast(dtype));
        block.norm = norm;
        let rectified: Vec<f64> = expected.iter().map(|x| (2.0 * x).max(0.0)).collect();
        let residual = Tensor::<B, 4>::from_data(TensorData::new(expected, [2, 3, 112, 112]), &device).cast(dtype);
        let y = block.forward_add_act(x, residual, Activation::Relu, &mut BatchStats::Running);
        assert_eq!(y.dtype(), DType::from(dtype));
        close("one pass", &values(y), &rectified, 2.0 * ulp);
    }
}

/// Sums of 12,544 values of up to 2,200.
fn means_of_large_planes<B: Backend>(device: B::Device) {
    for (dtype, ulp) in types::<B>(&device) {
        let (x, given) = planes::<B>(dtype, &device);
        let pooled = global_average_pool(x);
        assert_eq!(pooled.dtype(), DType::from(dtype));
        let expected: Vec<f64> =
            given.chunks(112 * 112).map(|plane| plane.iter().sum::<f64>() / plane.len() as f64).collect();
        close("means", &values(pooled), &expected, ulp);
    }
}

on_each_backend!(running_statistics_are_f32, means_of_large_planes);
