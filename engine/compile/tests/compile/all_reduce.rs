//! All-reduces in traced functions: run, differentiated and vectorised. Ranks are threads.

use burn::tensor::{DType, Tensor};
use grove_backend::{Autodiff, Backend, Flex, ops};
use grove_communicator::Communicator;
use grove_compile::{Graph, Traced, jit, jvp, trace, vmap};
use grove_transform::grad;
use grove_tree::Array;
use std::thread;

type B = Flex;

fn on_two_ranks<T: Send>(body: impl Fn(&Communicator) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let body = &body;
        let start = |comm: Communicator| scope.spawn(move || body(&comm));
        let threads: Vec<_> = Communicator::threads(2).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn row(values: &[f32]) -> Array<B, 1> {
    Array::new(Tensor::from_floats(values, &Default::default()))
}

fn numbers<const D: usize>(x: Array<B, D>) -> Vec<f32> {
    x.val().into_data().iter::<f32>().collect()
}

/// All-reduces the squares of `x`, and a constant that differs between ranks.
fn squares<B: Backend>(x: Array<B, 1>, comm: &Communicator) -> Array<B, 1> {
    let own = Tensor::from_floats([comm.rank() as f32], &x.val().device());
    let sum = ops::all_reduce_wide(x.val().powi_scalar(2), "squares", comm);
    Array::new(sum + ops::all_reduce_wide(own, "a constant", comm) * 100.0)
}

#[test]
fn sums_are_traced_differentiated_and_vectorised() {
    let all = on_two_ranks(|comm| {
        let rank = comm.rank() as f32;
        let x = row(&[rank + 1.0, 2.0]);
        let program = jit(|x: Array<Traced, 1>| squares(x, comm));
        let jitted = [program.call::<B>(x.clone()), program.call::<B>(x.clone())].map(numbers);
        let (value, tangent) = jvp(|x: Array<Traced, 1>| squares(x, comm), &x, &row(&[1.0, rank]));
        let gradient = grad(&x, |x: Array<Autodiff<B>, 1>| squares(x, comm).val().sum());
        let jitted_gradient =
            jit(|x: Array<Traced, 1>| grad(&x, |x: Array<Autodiff<Traced>, 1>| squares(x, comm).val().sum()));
        let rows = Array::<B, 2>::new(Tensor::from_floats([[rank + 1.0, 2.0], [3.0, rank]], &Default::default()));
        let mapped = vmap(|x: Array<Traced, 1>| squares(x, comm)).call::<B, _>(rows);
        // A round trip through JSON.
        let graph = trace(|x: Array<Traced, 1>| squares(x, comm), &x);
        let read = Graph::from_json(&graph.to_json().expect("text")).expect("a graph");
        assert!(read.to_string().contains("all_reduce"), "{read}");
        [
            jitted[0].clone(),
            jitted[1].clone(),
            numbers(value),
            numbers(tangent),
            numbers(gradient),
            numbers(jitted_gradient.call::<B>(x.clone())),
            numbers(mapped),
        ]
    });
    for (rank, found) in all.into_iter().enumerate() {
        let x = [rank as f32 + 1.0, 2.0];
        let sums = vec![105.0, 108.0];
        // The losses of both ranks count, so the derivative of a square appears twice.
        let gradient = x.map(|x| 4.0 * x).to_vec();
        let mapped = vec![105.0, 108.0, 118.0, 101.0];
        assert_eq!(found, [sums.clone(), sums.clone(), sums, vec![6.0, 4.0], gradient.clone(), gradient, mapped]);
    }
}

/// All-reduces eight arrays in one operation; the last sum is not used.
fn several<B: Backend>(x: Array<B, 1>, comm: &Communicator) -> Tensor<B, 1> {
    let arrays = (1..=8).map(|i| x.val().mul_scalar(i).into()).collect();
    let sums = ops::all_reduce::<B>(arrays, "several", comm).into_iter().take(7);
    let sums = sums.map(|sum| sum.into_float::<1>().expect("an array").powi_scalar(2));
    sums.reduce(|one, other| one + other).expect("seven").sum()
}

#[test]
fn gradients_flow_to_all_arrays_of_a_sum() {
    let all = on_two_ranks(|comm| {
        let x = row(&[comm.rank() as f32 + 1.0, 0.5]);
        let eager = grad(&x, |x: Array<Autodiff<B>, 1>| several(x, comm));
        let jitted = jit(|x: Array<Traced, 1>| grad(&x, |x: Array<Autodiff<Traced>, 1>| several(x, comm)));
        let tangent = row(&[1.0, 0.0]);
        let (_, change) = jvp(|x: Array<Traced, 1>| Array::<Traced, 1>::new(several(x, comm)), &x, &tangent);
        let untracked =
            grad(&x, |x: Array<Autodiff<B>, 1>| several(Array::new(x.val().detach()), comm) + x.val().sum());
        [numbers(eager), numbers(jitted.call::<B>(x)), numbers(change), numbers(untracked)]
    });
    // The sums over two ranks are 3 i and 1 i, and each loss contributes 2 i: 4 (1 + 4 + .. + 49) times the sum.
    let gradient = vec![4.0 * 140.0 * 3.0, 4.0 * 140.0];
    // The arrays of both ranks change.
    let change = vec![2.0 * 140.0 * 3.0 * 2.0];
    assert!(
        all.iter().all(|found| *found == [gradient.clone(), gradient.clone(), change.clone(), vec![1.0, 1.0]]),
        "{all:?}"
    );
}

/// A rank that does not use an all-reduce executes it anyway, and two all-reduces of the same array are not merged.
#[test]
fn no_sum_is_left_out() {
    let all = on_two_ranks(|comm| {
        let program = jit(|x: Array<Traced, 1>| {
            let sum = |x: Tensor<Traced, 1>, what| ops::all_reduce_wide(x, what, comm);
            let first = sum(x.val(), "first");
            let second = sum(x.val(), "first") + sum(x.val() * 10.0, "second");
            Array::new(if comm.rank() == 0 { first * 100.0 + second } else { second })
        });
        numbers(program.call::<B>(row(&[comm.rank() as f32 + 1.0])))
    });
    assert_eq!(all, [[333.0], [33.0]]);
}

/// Each rank uses a different sum of several.
#[test]
fn sums_of_many_arrays_of_which_ranks_use_others() {
    let all = on_two_ranks(|comm| {
        let arrays: Vec<Array<B, 1>> = (0..8).map(|i| row(&[i as f32, comm.rank() as f32])).collect();
        let loss = |arrays: Vec<Array<Autodiff<B>, 1>>| {
            let sums = ops::all_reduce(arrays.iter().map(|x| x.val().into()).collect(), "arrays", comm);
            let (used, factor) = if comm.rank() == 0 { (1, 2.0) } else { (7, 3.0) };
            let mut sums: ops::Values<Autodiff<B>> = sums.into_iter().map(Some).collect();
            sums.take_tensor::<1>(used).sum() * factor
        };
        grad(&arrays, loss).into_iter().map(numbers).collect::<Vec<_>>()
    });
    for grads in all {
        for (i, grad) in grads.into_iter().enumerate() {
            let expected = match i {
                1 => 2.0,
                7 => 3.0,
                _ => 0.0,
            };
            assert_eq!(grad, [expected; 2], "array {i}");
        }
    }
}

/// A rank without a gradient takes part in the all-reduce of the other ranks' gradients.
#[test]
fn a_rank_without_a_gradient() {
    let all = on_two_ranks(|comm| {
        let sum = ops::AllReduce { ranks: ops::Ranks::of(comm), what: "x".into(), wide: false };
        let spec = ops::Spec { shape: [2].into(), dtype: DType::F32 };
        let own = (comm.rank() == 0).then(|| row(&[5.0, 7.0]).val().into_primitive().tensor());
        let (grads, wanted) = (ops::Values::optional_floats([own]), ops::Wanted::new(vec![Some(spec)]));
        let mut found = B::run_vjp(&sum.into(), ops::Values::default(), grads, &wanted);
        numbers(Array::<B, 1>::new(found.take_tensor(0)))
    });
    assert_eq!(all, [[5.0, 7.0], [5.0, 7.0]]);
}
