//! Collectives over trees, between threads.

use burn::tensor::{DType, Int, Tensor, TensorData};
use burn_flex::Flex;
use grove_backend::{Autodiff, Backend, ops};
use grove_distributed::{
    CommError, Communicator, OverlappedSum, ReduceOptions, Wire, all_reduce_mean, all_reduce_sum,
    all_reduce_weighted_mean, broadcast, gather_missing,
};
use grove_optim::{Adamw, GradientTransformation, adamw, all_reduce_gradients, chain, matrices, zero1};
use grove_transform::GradOptions;
use grove_tree::{Array, Tree, by_path, filter, is_param, leaves};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// A model with leaves of several kinds and dtypes.
type Model = (Vec<Array<Flex, 2>>, Array<Flex, 1>, Array<Flex, 1, Int>, Array<Flex, 1>);

fn model(rank: usize) -> Model {
    let matrix = |i: usize, [r, c]: [usize; 2]| {
        let values = (0..r * c).map(|j| ((i * 7 + j * 5 + rank * 3) % 11) as f32 / 3.0 - 1.0).collect::<Vec<_>>();
        Array::new(Tensor::from_data(TensorData::new(values, [r, c]), &Default::default()))
    };
    let bias = Tensor::<Flex, 1>::from_floats([1.0 + rank as f32, 0.5], &Default::default()).cast(DType::BF16);
    let count = Tensor::from_ints([rank as i32], &Default::default());
    let matrices = [[3, 4], [5, 2], [1, 1], [7, 3]].into_iter().enumerate().map(|(i, shape)| matrix(i, shape));
    (matrices.collect(), Array::new(bias), Array::new(count), Array::absent([9]))
}

fn on_ranks<T: Send>(size: usize, body: impl Fn(&Communicator) -> Result<T, CommError> + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let start = |comm: Communicator| {
            scope.spawn(|| {
                let comm = comm;
                body(&comm)
            })
        };
        let threads: Vec<_> = Communicator::threads(size).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic").expect("no error")).collect()
    })
}

/// Returns the values of all present leaves.
fn values<T: Tree<Flex>>(tree: &T) -> Vec<f64> {
    leaves(tree)
        .into_iter()
        .filter_map(|(_, leaf)| leaf.into_data())
        .flat_map(|data| data.iter::<f64>().collect::<Vec<_>>())
        .collect()
}

#[test]
fn means_cover_all_ranks_for_any_buckets() {
    let all = on_ranks(3, |comm| all_reduce_mean::<Flex, _>(model(comm.rank()), comm));
    let ranks: Vec<Vec<f64>> = (0..3).map(|rank| values(&model(rank))).collect();
    let found = values(&all[0]);
    for (i, &found) in found.iter().enumerate() {
        let mean = (ranks[0][i] + ranks[1][i] + ranks[2][i]) / 3.0;
        // Integers stay unchanged.
        assert!((found - mean).abs() < 1e-6 || i == found_count(&all[0]), "{i}: {found} {mean}");
    }
    assert_eq!(all.iter().map(|tree| values(&tree.2)[0]).collect::<Vec<_>>(), [0.0, 1.0, 2.0]);
    assert_eq!(all[0].1.dtype(), DType::F32);
    assert!(!all[0].3.is_present());
    for bucket_bytes in [0, 40, 1 << 20] {
        let options = ReduceOptions { bucket_bytes, wire: Wire::Full };
        let cut = on_ranks(3, |comm| all_reduce_weighted_mean::<Flex, _>(model(comm.rank()), 2.5, comm, options));
        assert_eq!(values(&cut[1].0), values(&all[0].0), "buckets of {bucket_bytes}");
    }
}

/// Returns the index of the integer among the values.
fn found_count(tree: &Model) -> usize {
    values(&tree.0).len() + 2
}

#[test]
fn means_are_weighted() {
    let options = ReduceOptions::default();
    let weights = [3.0, 0.0, 1.0];
    let all = on_ranks(3, |comm| {
        let mut tree = model(comm.rank());
        if comm.rank() == 1 {
            // The mean over no examples.
            tree.0[0] = Array::new(tree.0[0].val() * f32::NAN);
        }
        all_reduce_weighted_mean::<Flex, _>(tree.0, weights[comm.rank()], comm, options)
    });
    let (first, last) = (values(&model(0).0), values(&model(2).0));
    for (i, found) in values(&all[1]).into_iter().enumerate() {
        assert!((found - (0.75 * first[i] + 0.25 * last[i])).abs() < 1e-6, "{i}: {found}");
    }
    let none = on_ranks(2, |comm| all_reduce_weighted_mean::<Flex, _>(model(comm.rank()).0, 0.0, comm, options));
    let mean = on_ranks(2, |comm| all_reduce_mean::<Flex, _>(model(comm.rank()).0, comm));
    assert_eq!(values(&none[0]), values(&mean[0]));
}

#[test]
fn broadcast_gives_all_leaves_of_rank_0() {
    let all = on_ranks(4, |comm| broadcast::<Flex, _>(model(comm.rank()), comm));
    assert!(all.iter().all(|tree| values(tree) == values(&model(0)) && tree.1.dtype() == DType::BF16));
}

/// Returns parameters and state after some steps.
fn steps<T: GradientTransformation<Flex, Model>>(optimizer: &T, comm: &Communicator) -> (Model, T::State) {
    let mut params = model(0);
    let mut state = optimizer.init(&params);
    for i in 0..5 {
        (params, state) = optimizer.step(model(comm.rank() + i), state, params);
    }
    (params, state)
}

#[test]
fn zero1_gives_the_bits_of_the_undivided_optimizer_and_divides_its_state() {
    let adam = || adamw(0.01, Adamw::default().weight_decay(0.1).mask(matrices::<Flex>()));
    // With nine ranks, some have no leaf.
    for size in [1, 2, 3, 5, 9] {
        let whole = on_ranks(size, |comm| Ok(steps(&chain((all_reduce_gradients(comm), adam())), comm)));
        let divided = on_ranks(size, |comm| {
            let (params, state) = steps(&zero1(adam(), comm), comm);
            let present = leaves(&state).iter().filter(|(_, leaf)| leaf.is_present()).map(|(_, leaf)| leaf.len()).sum();
            let gathered = gather_missing::<Flex, _>(state, &Default::default(), comm)?;
            Ok((params, present, gathered))
        });
        let reduced = on_ranks(size, |comm| {
            Ok(steps(&chain((all_reduce_gradients(comm), zero1(adam(), comm).of_reduced())), comm).0)
        });
        let largest = divided.iter().map(|(_, present, _): &(_, usize, _)| *present).max().expect("ranks");
        let all = values(&whole[0].1).len();
        assert!(size == 1 || largest < all, "{largest} of {all}");
        for ((params, _, state), reduced) in divided.iter().zip(&reduced) {
            assert_eq!(values(params), values(&whole[0].0), "{size} ranks");
            assert_eq!(values(state), values(&whole[0].1), "{size} ranks");
            // Means of means are rounded once more.
            let same = values(reduced).iter().zip(values(params)).all(|(a, b)| (a - b).abs() < 1e-6);
            assert!(same, "{size} ranks");
        }
    }
}

/// A model that is partly trained.
#[derive(Tree, Clone, Debug)]
struct Partly<B: Backend> {
    #[tree(buffer)]
    mean: Array<B, 1>,
    a: Array<B, 1>,
    frozen: Array<B, 1>,
    b: Array<B, 1>,
    c: Array<B, 1>,
}

#[test]
fn zero1_divides_alike_whatever_is_trained() {
    fn steps<T: GradientTransformation<Flex, Partly<Flex>>>(comm: &Communicator, optimizer: T) -> [Vec<f64>; 3] {
        let numbers = |length: usize, first: f32| {
            let values: Vec<f32> = (0..length).map(|i| first + (i * 7 % 5) as f32).collect();
            Array::new(Tensor::from_floats(values.as_slice(), &Default::default()))
        };
        let tree = |first: f32| Partly {
            mean: numbers(100, first),
            a: numbers(10, first),
            frozen: numbers(7, first),
            b: numbers(6, first),
            c: numbers(3, first),
        };
        let trained = || is_param() & !by_path("frozen");
        let grads = || filter(tree(comm.rank() as f32 - 1.0), &trained());
        let model = tree(0.5);
        // The state of all parameters, and the state of the trained ones as `fit` makes it.
        let states = [optimizer.init(&model), optimizer.init(&filter(model.clone(), &trained()))];
        let [whole, of_trained] = states.map(|state| {
            let (params, state) = optimizer.step(grads(), state, model.clone());
            values(&optimizer.step(grads(), state, params).0)
        });
        let (updates, _) = optimizer.update(grads(), optimizer.init(&model), &model);
        assert!(!updates.frozen.is_present() && !updates.mean.is_present());
        [whole, of_trained, values(&updates)]
    }
    let adam = || adamw(0.01, Adamw::default());
    for size in [1, 2, 3, 7] {
        let whole = on_ranks(size, |comm| Ok(steps(comm, chain((all_reduce_gradients(comm), adam())))));
        let divided = on_ranks(size, |comm| Ok(steps(comm, zero1(adam(), comm))));
        let reduced = on_ranks(size, |comm| {
            Ok(steps(comm, chain((all_reduce_gradients(comm), zero1(adam(), comm).of_reduced()))))
        });
        assert!(divided.iter().all(|found| *found == whole[0]), "{size} ranks");
        let is_close = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(reduced.iter().all(|found| found.iter().zip(&whole[0]).all(is_close)), "{size} ranks");
    }
}

/// A chain of layers, a bias that Burn adds, and a matrix that is used twice.
fn layers(rank: usize) -> (Vec<Array<Flex, 2>>, Array<Flex, 1>) {
    let matrix = |i: usize| {
        let values = (0..16).map(|j| ((i * 7 + j * 5 + rank * 3) % 11) as f32 / 7.0 - 0.6).collect::<Vec<_>>();
        Array::new(Tensor::from_data(TensorData::new(values, [4, 4]), &Default::default()))
    };
    ((0..6).map(matrix).collect(), Array::new(Tensor::from_floats([0.1, 0.2, 0.3, 0.4], &Default::default())))
}

/// Returns the loss of the layers, `[1]`.
fn loss((layers, bias): (Vec<Array<Autodiff<Flex>, 2>>, Array<Autodiff<Flex>, 1>)) -> Tensor<Autodiff<Flex>, 1> {
    let x = ops::linear(layers[0].val(), layers[0].val(), None);
    let x = layers[1..].iter().fold(x, |x, layer| ops::linear(x, layer.val(), None));
    (x + bias.val().unsqueeze()).square().mean()
}

#[test]
fn sums_that_begin_during_the_backward_pass_are_the_same() {
    for (size, bytes) in [(1, 64), (2, 64), (3, 130), (4, 1 << 20)] {
        let early = AtomicUsize::new(0);
        let all = on_ranks(size, |comm| {
            let model = layers(comm.rank());
            let (_, grads, ()) = GradOptions::new().value_and_grad_aux(&model, |model| (loss(model), ()));
            let after = all_reduce_sum::<Flex, _>(grads, comm)?;
            let options = ReduceOptions { bucket_bytes: bytes, ..ReduceOptions::default() };
            let sums = Arc::new(OverlappedSum::new(&model, |_, _| true, comm, options));
            let (listening, told) = (sums.clone(), Arc::new(AtomicUsize::new(0)));
            let count = told.clone();
            let grad_options = GradOptions::new().on_gradient(move |leaf, gradient| {
                count.fetch_add(1, Ordering::Relaxed);
                listening.add(leaf, gradient);
            });
            let (_, grads, ()) = grad_options.value_and_grad_aux(&model, |model| (loss(model), ()));
            early.fetch_add(told.load(Ordering::Relaxed), Ordering::Relaxed);
            let during = sums.finish(grads)?;
            assert_eq!(leaves(&during).len(), leaves(&after).len());
            assert!(size == 1 || sums.times().iter().all(|times| times.left <= times.arrived && times.bytes > 0));
            Ok((values(&after), values(&during)))
        });
        assert!(all.iter().all(|(after, during)| after == during && *after == all[0].0), "{size} ranks");
        // The five matrices, each used by one operation.
        assert_eq!(early.into_inner(), 5 * size, "{size} ranks");
    }
}

#[test]
fn a_rank_that_is_left_out_counts_for_nothing() {
    let all = on_ranks(2, |comm| {
        let model = layers(0);
        let sums = OverlappedSum::new(&model, |_, _| true, comm, ReduceOptions::default());
        let grads = if comm.rank() == 0 { layers(7) } else { layers(0) };
        if comm.rank() == 1 {
            sums.leave_out();
            sums.add::<Flex>(0, grads.0[1].val().mul_scalar(f32::NAN).into());
        } else {
            sums.add::<Flex>(0, grads.0[0].val().into());
        }
        sums.finish(grads)
    });
    assert!(all.iter().all(|sums| values(sums) == values(&layers(7))));
}
