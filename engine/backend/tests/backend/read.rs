//! Reads that are started before they are awaited.
#![cfg(all(feature = "flex", feature = "candle"))]

use crate::against::{self, numbers};
use burn::tensor::{DType, Tensor};
use grove_backend::{AnyTensor, Backend, ops};

fn later_operations_leave_a_started_read_alone<B: Backend>(device: B::Device) {
    let x = numbers::<B, 2>([7, 33], 1, &device);
    let expected: Vec<f64> = x.clone().into_data().iter().collect();
    // The operation before the read has not run yet, and the last owner of its result is consumed after the read starts.
    let y = x * 2.0;
    let read = ops::start_read(y.clone());
    let zeros = ops::scale(vec![AnyTensor::from(y)], Tensor::<B, 1>::from_floats([0.0], &device));
    let found: Vec<f64> = read.wait().iter().collect();
    assert_eq!(found, expected.iter().map(|x| x * 2.0).collect::<Vec<_>>());
    let zeros = against::float::<B, 2>(zeros.into_iter().next().expect("a tensor for a tensor"));
    assert!(zeros.into_data().iter::<f64>().all(|x| x == 0.0));
}

fn reads_any_type_and_layout<B: Backend>(device: B::Device) {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        if !B::computes_in(&device, dtype) {
            continue;
        }
        let x = numbers::<B, 3>([3, 1, 5], 2, &device).cast(dtype).swap_dims(0, 2);
        let expected: Vec<f64> = x.clone().into_data().iter().collect();
        let data = ops::start_read(x).wait();
        assert_eq!((data.dtype, data.shape.to_vec()), (dtype, vec![15]));
        assert_eq!(data.iter::<f64>().collect::<Vec<_>>(), expected);
    }
}

fn reads_are_waited_for_in_any_order<B: Backend>(device: B::Device) {
    let one = |i: usize| Tensor::<B, 1>::from_floats([i as f32], &device) + 0.5;
    let mut reads: Vec<_> = (0..20).map(|i| (i, ops::start_read(one(i)))).collect();
    reads.reverse();
    // Some reads are never awaited.
    for (i, read) in reads.into_iter().filter(|(i, _)| i % 3 != 1) {
        assert_eq!(read.wait().iter::<f64>().collect::<Vec<_>>(), [i as f64 + 0.5]);
    }
}

on_each_backend!(
    later_operations_leave_a_started_read_alone,
    reads_any_type_and_layout,
    reads_are_waited_for_in_any_order
);
