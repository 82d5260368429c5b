//! All-reduces between GPUs. Each rank is a thread with its own GPU, so at least two GPUs are required. On emulated GPUs:
//! `tools/cuda_emulator/emulate --devices 3 cargo test --workspace --features grove-backend/cuda_tests --test nccl`. With
//! `GROVE_REQUIRE_GPUS=1` missing GPUs are a failure.
#![cfg(feature = "cuda_tests")]

use burn::tensor::{DType, Tensor};
use grove_backend::{AnyTensor, Autodiff, Backend, BackendName, Cuda, DeviceSpec, ops};
use grove_communicator::Communicator;
use std::{env, thread};

type Device = <Cuda as burn::tensor::backend::BackendTypes>::Device;

/// Returns the results of all ranks; nothing, with a message, if there are not enough GPUs.
fn on_ranks<T: Send>(size: usize, body: impl Fn(&Communicator, Device) -> T + Sync) -> Vec<T> {
    for index in 0..size {
        if let Err(error) = DeviceSpec::new(BackendName::Cuda, index).probe() {
            assert!(env::var_os("GROVE_REQUIRE_GPUS").is_none(), "{error}");
            eprintln!("skipped: {error}");
            return vec![];
        }
    }
    thread::scope(|scope| {
        let body = &body;
        let start = |comm: Communicator| scope.spawn(move || body(&comm, Device::new(comm.rank())));
        let threads: Vec<_> = Communicator::threads(size).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn numbers(x: AnyTensor<Cuda>) -> Vec<f32> {
    x.into_data().iter::<f32>().collect()
}

/// Arrays of several dtypes, one of them transposed, and one shared with another owner, whose values must not change.
#[test]
fn ranks_sum_by_nccl_on_cuda() {
    for size in [2, 3] {
        let all = on_ranks(size, |comm, device| {
            assert!(Cuda::reduces(&device, comm), "a library and a GPU for each rank");
            let own = comm.rank() as f32 + 1.0;
            let of = |values: &[f32], dtype: DType| {
                Tensor::<Cuda, 1>::from_floats(values, &device).mul_scalar(own).cast(dtype)
            };
            let kept = of(&[5.0, 7.0], DType::F32);
            let mut sums = Vec::new();
            for _ in 0..20 {
                let arrays = vec![
                    of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], DType::F32).reshape([2, 3]).transpose().into(),
                    of(&[1.0, 100.0, 0.5], DType::BF16).into(),
                    of(&[8.0], DType::F16).into(),
                    kept.clone().into(),
                ];
                sums = ops::all_reduce(arrays, "arrays", comm);
            }
            let shapes: Vec<_> = sums.iter().map(|sum| (sum.shape().to_vec(), sum.dtype())).collect();
            assert_eq!((&shapes[0].0[..], shapes[1].1, shapes[2].1), (&[3, 2][..], DType::BF16, DType::F16));
            // In a program that continues.
            let later = kept.clone() + sums[3].clone().into_float().expect("a row");
            (sums.into_iter().map(numbers).collect::<Vec<_>>(), numbers(later.into()), own)
        });
        let total = (1..=size).sum::<usize>() as f32;
        for (sums, later, own) in all {
            let times = |values: &[f32]| values.iter().map(|x| x * total).collect::<Vec<_>>();
            assert_eq!(sums[0], times(&[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
            assert_eq!(sums[1..], [times(&[1.0, 100.0, 0.5]), times(&[8.0]), times(&[5.0, 7.0])]);
            assert_eq!(later, [5.0 * (total + own), 7.0 * (total + own)]);
        }
    }
}

#[test]
fn gradients_flow_through_sums_on_cuda() {
    let grads = on_ranks(2, |comm, device| {
        type B = Autodiff<Cuda>;
        let x = Tensor::<B, 1>::from_floats([1.0 + comm.rank() as f32, 2.0], &device).require_grad();
        let loss = ops::all_reduce_wide(x.clone(), "x", comm).powi_scalar(2).sum();
        let grads = loss.backward();
        x.grad(&grads).expect("a gradient").into_data().iter::<f32>().collect::<Vec<_>>()
    });
    assert!(grads.iter().all(|grad| *grad == [12.0, 16.0]), "{grads:?}");
}
