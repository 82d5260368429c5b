//! Programs that all-reduce over the ranks of a job, by calling a Rust function, on the CPU plugin. Ranks are threads here, each
//! with its own client.
#![recursion_limit = "256"]

mod common;

use burn::tensor::{DType, Int, Tensor, TensorData};
use grove_backend::{AnyTensor, Autodiff, Backend, Flex, ops};
use grove_communicator::Communicator;
use grove_compile::{Graph, TraceDevice, Traced, cond, jit, scan, trace, while_loop};
use grove_models::{CausalLm, Gpt2, Gpt2Config, Pretrained, ResNet, ResNetConfig, resnet::LayerType};
use grove_optim::{Adamw, adamw};
use grove_train::{FitOptions, Fitted, Outcome, RunDuration, data::Examples, fit};
use grove_transform::{grad, value_and_grad};
use grove_tree::{Array, Key, Tree, leaves};
use grove_xla::{Argument, Buffer, CompileOptions, LowerOptions, Program, Replicas, ToStableHlo, Xla, lower};
use std::{sync::Arc, thread};

/// Returns the results of all ranks; prints a note and returns `None` if there is no plugin.
fn on_ranks<T: Send>(size: usize, body: impl Fn(&Communicator, TraceDevice) -> T + Sync) -> Option<Vec<T>> {
    let devices = (0..size).map(|_| Some(common::client(1)?.device(0).unwrap().lazy())).collect::<Option<Vec<_>>>()?;
    let body = &body;
    Some(thread::scope(|scope| {
        let ranks = Communicator::threads(size).into_iter().zip(devices);
        let threads: Vec<_> = ranks.map(|(comm, device)| scope.spawn(move || body(&comm, device))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    }))
}

fn numbers(x: AnyTensor<Xla>) -> Vec<f32> {
    x.into_data().iter::<f32>().collect()
}

/// Arrays of several types and shapes, one of them empty, in one all-reduce; and many independent all-reduces in one program and
/// in consecutive programs.
#[test]
fn programs_sum_over_ranks() {
    let sums = on_ranks(3, |comm, device| {
        let own = comm.rank() as f32 + 1.0;
        let of = |values: &[f32], dtype: DType| {
            AnyTensor::from(Tensor::<Xla, 1>::from_floats(values, &device).mul_scalar(own).cast(dtype))
        };
        let arrays = vec![
            of(&[1.0, 2.0, 3.0, 4.0], DType::F32).reshape([2, 2]),
            of(&[1.0, 100.0], DType::BF16),
            of(&[], DType::F32),
            of(&[0.5], DType::F64),
        ];
        let sums = ops::all_reduce(arrays, "arrays", comm);
        assert_eq!(
            sums.iter().map(AnyTensor::dtype).collect::<Vec<_>>(),
            [DType::F32, DType::BF16, DType::F32, DType::F64]
        );
        assert_eq!(sums[0].shape()[..], [2, 2]);
        let many: Vec<_> = (0..40)
            .map(|i| ops::all_reduce(vec![of(&[i as f32; 3], DType::F32)], "one of many", comm).remove(0))
            .collect();
        // Those that are read last are computed in another program, after the others.
        let later: Vec<_> = (0..40)
            .map(|i| {
                let x = ops::all_reduce(vec![of(&[i as f32 + 0.5], DType::F32)], "one of many", comm).remove(0);
                if i % 7 == 0 { numbers(x) } else { numbers(x.add_scalar(0.0)) }
            })
            .collect();
        (sums.into_iter().map(numbers).collect::<Vec<_>>(), many.into_iter().map(numbers).collect::<Vec<_>>(), later)
    });
    for (sums, many, later) in sums.into_iter().flatten() {
        assert_eq!(sums, [vec![6.0, 12.0, 18.0, 24.0], vec![6.0, 600.0], vec![], vec![3.0]]);
        assert!(
            (0..40).all(|i| many[i] == [6.0 * i as f32; 3] && later[i] == [6.0 * i as f32 + 3.0]),
            "{many:?} {later:?}"
        );
    }
}

#[test]
fn gradients_flow_through_sums() {
    let grads = on_ranks(2, |comm, device| {
        let x = Array::<Xla, 1>::new(Tensor::from_floats([1.0 + comm.rank() as f32, 2.0], &device));
        let loss = |x: Array<Autodiff<Xla>, 1>| ops::all_reduce_wide(x.val(), "x", comm).square().sum();
        let (value, grad) = value_and_grad(&x, loss);
        (value.into_data().iter::<f32>().next(), grad.val().into_data().iter::<f32>().collect::<Vec<_>>())
    });
    // The sums are 3 and 4, and the loss of every rank contributes to the gradient.
    for (value, grad) in grads.into_iter().flatten() {
        assert_eq!((value, grad), (Some(25.0), vec![12.0, 16.0]));
    }
}

/// Only rank 0 reads; the other rank waits for it elsewhere, and then ends.
#[test]
fn ranks_that_read_nothing_take_part() {
    let seen = on_ranks(2, |comm, device| {
        let mut x = Tensor::<Xla, 1>::from_floats([1.0], &device);
        let mut seen = Vec::new();
        for step in 0..4 {
            x = ops::all_reduce_wide(x, "x", comm);
            if comm.rank() == 0 {
                seen.extend(numbers(x.clone().into()));
            }
            if step < 3 {
                comm.all_reduce("of the host", vec![1.0f32]).expect("both come");
            }
        }
        comm.close().expect("both come");
        seen
    });
    assert!(seen.is_none_or(|seen| seen == [vec![2.0, 4.0, 8.0, 16.0], vec![]]));
}

/// Programs of ranks that have one device each of one client: XLA's collectives. Here, all devices belong to this process.
#[test]
fn replicas_sum_by_collectives() {
    type Arrays<B> = (Array<B, 2>, Array<B, 1>, Array<B, 1>);
    let comm = &Communicator::threads(2)[0];
    let of = |values: &[f32], dtype: DType| Tensor::<Flex, 1>::from_floats(values, &Default::default()).cast(dtype);
    let arrays = |x: f32| -> Arrays<Flex> {
        let matrix = of(&[x, 2.0 * x, 3.0, 4.0], DType::F32).reshape([2, 2]);
        (Array::new(matrix), Array::new(of(&[x, 0.5], DType::BF16)), Array::new(of(&[x], DType::F64)))
    };
    let sums = |(x, y, z): Arrays<Traced>| {
        let sums = ops::all_reduce(vec![x.val().into(), y.val().into(), z.val().into()], "arrays", comm);
        let [x, y, z] = <[AnyTensor<Traced>; 3]>::try_from(sums).unwrap();
        let again = ops::all_reduce_wide(x.clone().into_float::<2>().unwrap(), "one more", comm);
        (Array::new(again), Array::new(y.into_float::<1>().unwrap()), Array::new(z.into_float::<1>().unwrap()))
    };
    let graph = trace(sums, &arrays(0.0));
    for replicas in [2, 4] {
        let Some(results) = on_replicas(&graph, replicas, |i| bytes_of(&arrays(i as f32))) else { return };
        let (n, sum) = (replicas as f32, (0..replicas).sum::<usize>() as f32);
        for list in results {
            assert_eq!(common::floats(&list[0]), [sum, 2.0 * sum, 3.0 * n, 4.0 * n].map(|x| n * x));
            let halves: Vec<u8> = [sum, 0.5 * n].iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect();
            assert_eq!(list[1].to_host().unwrap(), halves);
            assert_eq!(list[2].to_host().unwrap(), f64::from(sum).to_le_bytes());
        }
    }
}

/// Returns the bytes of the leaves of a tree.
fn bytes_of(tree: &impl Tree<Flex>) -> Vec<Vec<u8>> {
    leaves(tree).into_iter().map(|(_, leaf)| leaf.into_data().unwrap().as_bytes().to_vec()).collect()
}

/// Returns the results of a graph on replicas with collectives, on as many devices of one client. `arguments` returns those of a
/// replica.
fn on_replicas(graph: &Graph, replicas: usize, arguments: impl Fn(usize) -> Vec<Vec<u8>>) -> Option<Vec<Vec<Buffer>>> {
    let client = common::client(replicas as i64)?;
    let devices = client.devices();
    let lowered = lower(graph, &LowerOptions { replicas, ..LowerOptions::default() }).unwrap();
    assert!(lowered.reduces && lowered.text.contains("stablehlo.all_reduce"), "{}", lowered.text);
    let ids = devices.iter().map(|device| device.id().unwrap()).collect();
    let options =
        CompileOptions { replicas: Some(Replicas { devices: ids, local: replicas }), ..CompileOptions::default() };
    let program = Program { text: &lowered.text, parameters: &lowered.parameters };
    let program = client.compile(program, &options).unwrap();
    let buffers: Vec<Vec<Buffer>> = devices
        .iter()
        .enumerate()
        .map(|(i, device)| {
            // The last argument is the order token of the all-reduces.
            let bytes = arguments(i).into_iter().chain([vec![0; 4]]);
            bytes.zip(&lowered.parameters).map(|(bytes, of)| Buffer::from_host(device, of, &bytes).unwrap()).collect()
        })
        .collect();
    Some(program.execute(buffers.iter().map(|list| list.iter().map(Argument::Keep).collect()).collect()).unwrap())
}

/// A loop with an all-reduce in each iteration: returns the results of all iterations.
fn scanned<B: Backend>(xs: Array<B, 2>, comm: &Communicator) -> Array<B, 2> {
    let step = |carry: Array<B, 1>, x: Array<B, 1>| {
        let next = Array::new(ops::all_reduce_wide(carry.val() * 0.25 + x.val(), "a round", comm));
        (next.clone(), next)
    };
    let first = ops::all_reduce_wide(xs.val().narrow(0, 0, 1).reshape([2]), "the first row", comm);
    scan(step, Array::new(first), xs).1
}

/// All-reduces in the iterations of loops and in a branch, with others before and after them, and a gradient through a loop.
fn in_loops<B: Backend>(xs: Array<B, 2>, comm: &Communicator) -> [Array<B, 1>; 4] {
    let sum = |x: Tensor<B, 1>| Array::<B, 1>::new(ops::all_reduce_wide(x, "x", comm));
    let steps = scanned(xs.clone(), comm).val();
    let last = Array::new(steps.clone().narrow(0, 2, 1).reshape([2]));
    let positive = last.val().sum().greater_elem(0.0);
    let branch = cond(positive, |x: Array<B, 1>| sum(x.val()), |x| x, last);
    let small = |x: Array<B, 1>| x.val().sum().lower_elem(1000.0);
    let grown = while_loop(small, |x: Array<B, 1>| sum(x.val() + 1.0), branch.clone());
    let gradient = grad(&xs, |xs: Array<Autodiff<B>, 2>| scanned(xs, comm).val().square().sum());
    [Array::new(steps.reshape([-1])), branch, sum(grown.val()), Array::new(gradient.val().reshape([-1]))]
}

/// XLA programs, with calls and with collectives, against flex.
#[test]
fn loops_and_branches_sum_over_ranks() {
    fn rows<B: Backend>(rank: usize, device: &B::Device) -> Array<B, 2> {
        let own = rank as f32 + 1.0;
        Array::new(Tensor::from_floats([[own, -0.5], [3.0, own], [0.25, 2.0 * own]], device))
    }
    fn numbers<B: Backend>(arrays: [Array<B, 1>; 4]) -> Vec<Vec<f32>> {
        arrays.map(|x| x.val().into_data().iter::<f32>().collect()).into()
    }
    let ranks = Communicator::threads(2);
    let expected: Vec<Vec<Vec<f32>>> = thread::scope(|scope| {
        let start = |comm: Communicator| {
            scope.spawn(move || numbers(in_loops::<Flex>(rows(comm.rank(), &Default::default()), &comm)))
        };
        let threads: Vec<_> = ranks.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // 6 iterations' values; every rank has its own gradient.
    assert_eq!(expected[0].iter().map(Vec::len).collect::<Vec<_>>(), [6, 2, 2, 6]);
    let close = |found: &[Vec<Vec<f32>>]| {
        let pairs = found.iter().flatten().flatten().zip(expected.iter().flatten().flatten());
        let same = pairs.clone().count() == 32 && pairs.clone().all(|(x, y)| (x - y).abs() <= 1e-5 * y.abs());
        assert!(same, "{found:?} {expected:?}");
    };
    let by_calls = on_ranks(2, |comm, device| {
        let program = jit(|xs: Array<Traced, 2>| in_loops(xs, comm)).on::<Xla>(&device);
        let first = numbers(program.call(rows::<Xla>(comm.rank(), &device)));
        assert_eq!(numbers(program.call(rows::<Xla>(comm.rank(), &device))), first);
        first
    });
    by_calls.iter().for_each(|found| close(found));
    let comm = &Communicator::threads(2)[0];
    let graph = trace(|xs: Array<Traced, 2>| in_loops(xs, comm), &rows::<Flex>(0, &Default::default()));
    let by_collectives = on_replicas(&graph, 2, |rank| bytes_of(&rows::<Flex>(rank, &Default::default())));
    let floats = |lists: Vec<Vec<Buffer>>| -> Vec<Vec<Vec<f32>>> {
        lists.iter().map(|list| list[..4].iter().map(common::floats).collect()).collect()
    };
    by_collectives.map(floats).iter().for_each(|found| close(found));
}

#[test]
fn rejects_all_reduce_in_a_loop_condition() {
    let comm = &Communicator::threads(2)[0];
    let sum = |x: Array<Traced, 1>| ops::all_reduce_wide(x.val(), "x", comm);
    let x = Array::<Flex, 1>::new(Tensor::ones([3], &Default::default()));
    let graph =
        trace(|x: Array<Traced, 1>| while_loop(|x| sum(x).sum().lower_elem(9.0), |x| Array::new(x.val() + 1.0), x), &x);
    let error = graph.to_stablehlo().unwrap_err().to_string();
    assert_eq!(
        error,
        "the operation all_reduce cannot be lowered to StableHLO: the condition of a loop cannot all-reduce over ranks"
    );
}

const EXAMPLES: usize = 24;

/// Trains on rows of nine tokens below 20.
fn of_tokens<B: Backend>(device: &B::Device, ranks: &Communicator) -> Vec<f32> {
    let config = Gpt2Config {
        vocab_size: 20,
        n_positions: 8,
        n_embd: 12,
        n_layer: 2,
        n_head: 2,
        embd_pdrop: 0.0,
        attn_pdrop: 0.0,
        resid_pdrop: 0.0,
        ..Gpt2Config::default()
    };
    let model = Gpt2::<B>::init(&config, Key::new(0), device).unwrap();
    let rows = (0..EXAMPLES).map(|i| (0..9).map(|j| ((i * 7 + j * j * 3 + i * j) % 20) as i64).collect()).collect();
    let loss = |model: Gpt2<Autodiff<B>>, rows: &Vec<Vec<i64>>, _: Key| {
        let ids = |from: usize| {
            let ids: Vec<i64> = rows.iter().flat_map(|row| row[from..from + 8].to_vec()).collect();
            Tensor::<Autodiff<B>, 2, Int>::from_data(TensorData::new(ids, [rows.len(), 8]), device)
        };
        Outcome::<B, Gpt2<B>>::new(model.next_token_loss(ids(0), ids(1), None)).weight((8 * rows.len()) as f64)
    };
    trained(model, rows, ranks, loss)
}

/// Trains on images of two channels, with batch normalisation over all ranks.
fn of_images<B: Backend>(device: &B::Device, ranks: &Communicator) -> Vec<f32> {
    let config = ResNetConfig {
        num_channels: 2,
        embedding_size: 4,
        hidden_sizes: vec![4, 6],
        depths: vec![1, 1],
        layer_type: LayerType::Basic,
        labels: ["a", "b", "c"].map(String::from).to_vec(),
        ..ResNetConfig::default()
    };
    let model = ResNet::<B>::init(&config, Key::new(3), device).unwrap();
    let image = |i: usize| (0..2 * 256).map(|j| ((i * 37 + j * 11 + i * j) % 17) as f32 / 8.0 - 1.0).collect();
    let images = (0..EXAMPLES).map(|i| (image(i), i % 3)).collect();
    let loss = |model: ResNet<Autodiff<B>>, images: &Vec<(Vec<f32>, usize)>, _: Key| {
        let pixels: Vec<f32> = images.iter().flat_map(|(pixels, _)| pixels.clone()).collect();
        let classes: Vec<i64> = images.iter().map(|(_, class)| *class as i64).collect();
        let pixels = Tensor::from_data(TensorData::new(pixels, [images.len(), 2, 16, 16]), device);
        let classes = Tensor::from_data(TensorData::new(classes, [images.len()]), device);
        let (loss, successor) = model.train_loss(pixels, classes);
        Outcome::<B, ResNet<B>>::new(loss).successor(successor)
    };
    trained(model, images, ranks, loss)
}

/// Returns parameters and buffers after 12 steps with batches of 10, the last batch of an epoch with 4 examples, and the last
/// loss.
fn trained<B: Backend, M: Tree<B>, T: Clone + Send + Sync + 'static, O: Into<Outcome<B, M>>>(
    model: M,
    examples: Vec<T>,
    ranks: &Communicator,
    loss: impl Fn(M::On<Autodiff<B>>, &Vec<T>, Key) -> O,
) -> Vec<f32> {
    let data = Examples::new(examples, 10).unwrap();
    let data = Arc::new(data.shuffle(Key::new(9)));
    // Nothing is read after the first step, so that one program contains two steps.
    let options = FitOptions { length: RunDuration::Steps(12), ranks: ranks.clone(), ..FitOptions::default() };
    let optimizer = adamw(0.01, Adamw { eps: 1e-3.into(), ..Adamw::default() });
    let Fitted { model, steps, .. } =
        fit(model, &optimizer, &data, loss, |_: &M| Ok(Default::default()), Key::new(1), &options).unwrap();
    assert_eq!(steps, 12);
    leaves(&model)
        .into_iter()
        .flat_map(|(_, leaf)| leaf.into_data().unwrap().iter::<f32>().collect::<Vec<_>>())
        .collect()
}

/// Checks that the parameters of all ranks are the same, and equal to those of one rank that trains on flex.
fn equal_one_rank(size: usize, expected: &[f32], train: impl Fn(&TraceDevice, &Communicator) -> Vec<f32> + Sync) {
    let all = on_ranks(size, |comm, device| train(&device, comm)).unwrap_or_default();
    for found in &all {
        assert_eq!(*found, all[0], "{size} ranks: one model on all");
        let close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-5);
        assert!(close && found.len() == expected.len(), "{size} ranks");
    }
}

#[test]
fn two_ranks_train_gpt2_like_one_rank() {
    let expected = of_tokens::<Flex>(&Default::default(), &Communicator::single());
    equal_one_rank(2, &expected, of_tokens::<Xla>);
}

#[test]
fn three_ranks_train_resnet_like_one_rank() {
    let expected = of_images::<Flex>(&Default::default(), &Communicator::single());
    equal_one_rank(3, &expected, of_images::<Xla>);
}
