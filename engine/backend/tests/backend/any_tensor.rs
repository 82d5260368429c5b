//! Tensors of any kind and rank.
#![cfg(all(feature = "flex", feature = "candle"))]

use burn::tensor::{
    FloatDType, Int, Tensor, TensorData,
    ops::{FloatTensorOps, IntTensorOps},
};
use grove_backend::{AnyTensor, Autodiff, Backend};

/// One tensor of each kind, `[3, 2]`.
fn tensors<B: Backend>(device: &B::Device) -> [AnyTensor<B>; 3] {
    let floats = Tensor::<B, 2>::from_floats([[1.0, f32::NAN], [3.0, 4.0], [5.0, 6.0]], device);
    let ints = Tensor::<B, 2, Int>::from_ints([[1, 2], [3, 4], [5, 6]], device);
    let bools = TensorData::from([[true, false], [false, false], [true, true]]);
    [floats.into(), ints.into(), AnyTensor::from_data(bools, device)]
}

/// Returns the shape, and the values as text, so that NaN equals itself.
fn described<B: Backend>(x: AnyTensor<B>) -> (Vec<usize>, String) {
    let data = x.into_data();
    (data.shape.to_vec(), format!("{:?}", data.iter::<f64>().collect::<Vec<_>>()))
}

fn rows_come_back<B: Backend>(device: B::Device) {
    for x in tensors::<B>(&device) {
        let rows = x.clone().unstack();
        assert_eq!(rows.len(), 3);
        for (i, row) in rows.iter().enumerate() {
            assert_eq!(row.shape().to_vec(), [2]);
            assert_eq!(described(row.clone()), described(x.clone().row(i)));
        }
        assert_eq!(described(AnyTensor::stack(rows)), described(x.clone()));
        assert_eq!(x.clone().rows(1..1).unstack().len(), 0);
        let parts = vec![x.clone().rows(0..1), x.clone().rows(1..3)];
        assert_eq!(described(AnyTensor::cat(parts, 0)), described(x));
    }
}

fn a_condition_selects_one_tensor_unchanged<B: Backend>(device: B::Device) {
    for (x, y) in tensors::<B>(&device).into_iter().zip(tensors::<B>(&device)) {
        let y = y.zeros_like();
        for chosen in [true, false] {
            let condition = Tensor::<B, 1>::from_floats([f32::from(chosen)], &device).greater_elem(0.5);
            let expected = if chosen { x.clone() } else { y.clone() };
            assert_eq!(described(x.clone().select(&condition, y.clone())), described(expected));
        }
    }
}

/// Views whose last axis has one element, and shapes with more axes: a column of a matrix, a transposed row, channels last
/// of one pixel, one row repeated.
fn views<B: Backend>(device: &B::Device) -> [(AnyTensor<B>, Vec<usize>); 5] {
    let counted = |count: i64| Tensor::<B, 1, Int>::arange(0..count, device);
    let pixel = counted(30).reshape([5, 1, 1, 6]).permute([0, 3, 1, 2]);
    [
        (counted(6).reshape([1, 6]).swap_dims(0, 1).into(), vec![2, 3, 1]),
        (counted(12 * 129).reshape([12, 129]).slice([0..12, 0..1]).into(), vec![3, 1, 4, 1]),
        (counted(70 * 256).reshape([70, 2, 128]).swap_dims(1, 2).narrow(2, 0, 1).into(), vec![7, 10, 4, 32]),
        (pixel.into(), vec![5, 2, 3, 1, 1]),
        (counted(1).reshape([1, 1]).expand([8, 1]).into(), vec![8, 1, 1]),
    ]
}

fn views_get_more_axes<B: Backend>(device: B::Device) {
    for (x, shape) in views::<B>(&device) {
        let expected = x.clone().into_data();
        let expected =
            AnyTensor::<B>::from_data(TensorData::new(expected.iter::<i64>().collect(), shape.clone()), &device);
        assert_eq!(described(x.reshape(shape)), described(expected));
    }
}

/// The same on the differentiating backend: tensors, and the gradient of a sum of rows, which is such a view.
fn differentiable_views_get_more_axes<B: Backend>(device: B::Device) {
    for (x, shape) in views::<Autodiff<B>>(&device) {
        let expected = x.clone().into_data().iter::<f32>().collect::<Vec<_>>();
        let AnyTensor::Int(x) = x else { panic!("integers") };
        let float = Autodiff::<B>::int_into_float(x.clone(), FloatDType::F32);
        let floats = Autodiff::<B>::float_reshape(float, shape.clone().into());
        let ints = Autodiff::<B>::int_reshape(x, shape.clone().into());
        assert_eq!(AnyTensor::<Autodiff<B>>::Float(floats).into_data().iter::<f32>().collect::<Vec<_>>(), expected);
        assert_eq!(AnyTensor::<Autodiff<B>>::Int(ints).into_data().iter::<f32>().collect::<Vec<_>>(), expected);
    }
    let x = Tensor::<Autodiff<B>, 3>::from_data(TensorData::new(vec![1.0f32; 6], [2, 3, 1]), &device).require_grad();
    let factors = Tensor::<Autodiff<B>, 1, Int>::arange(0..6, &device).float().reshape([1, 6]);
    let y = x.clone().reshape([6, 1]).swap_dims(0, 1) * factors;
    let grad = x.grad(&y.sum().backward()).expect("a gradient");
    assert_eq!(grad.into_data().iter::<f32>().collect::<Vec<_>>(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
}

fn kind_and_rank_are_checked<B: Backend>(device: B::Device) {
    let [floats, ints, bools] = tensors::<B>(&device);
    assert!(floats.clone().into_float::<2>().is_some() && floats.clone().into_float::<1>().is_none());
    assert!(ints.clone().into_int::<2>().is_some() && ints.clone().into_float::<2>().is_none());
    assert!(bools.clone().into_bool::<2>().is_some() && bools.into_int::<2>().is_none());
    assert!(floats.try_add(ints).is_none());
}

on_each_backend!(
    rows_come_back,
    a_condition_selects_one_tensor_unchanged,
    kind_and_rank_are_checked,
    views_get_more_axes,
    differentiable_views_get_more_axes
);
