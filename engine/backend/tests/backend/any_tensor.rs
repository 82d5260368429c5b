//! Tensors of any kind and rank.
#![cfg(all(feature = "flex", feature = "candle"))]

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::{AnyTensor, Backend};

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

fn kind_and_rank_are_checked<B: Backend>(device: B::Device) {
    let [floats, ints, bools] = tensors::<B>(&device);
    assert!(floats.clone().into_float::<2>().is_some() && floats.clone().into_float::<1>().is_none());
    assert!(ints.clone().into_int::<2>().is_some() && ints.clone().into_float::<2>().is_none());
    assert!(bools.clone().into_bool::<2>().is_some() && bools.into_int::<2>().is_none());
    assert!(floats.try_add(ints).is_none());
}

on_each_backend!(rows_come_back, a_condition_selects_one_tensor_unchanged, kind_and_rank_are_checked);
