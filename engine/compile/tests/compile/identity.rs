//! Identity of programs and equations: constants in sub-graphs, static values, numbers of outputs, and paths.

use burn::tensor::{Bool, Tensor, TensorData, module};
use grove_backend::{Backend, Flex};
use grove_compile::{Traced, cond, jacfwd, jit, jvp, scan, trace, vmap};
use grove_transform::grad;
use grove_tree::{Array, Tree};
use proptest::prelude::*;
use std::{
    collections::BTreeMap,
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

type F = Flex;
type A1<B> = Array<B, 1>;

fn array<B: Backend, const N: usize>(values: [f32; N]) -> A1<B> {
    Array::new(Tensor::from_floats(values, &Default::default()))
}

fn floats<B: Backend, const D: usize>(x: &Array<B, D>) -> Vec<f32> {
    x.val().into_data().to_vec().unwrap()
}

/// Multiplies `x` by a table if its sum is positive.
fn times_table<B: Backend>(x: A1<B>, table: &[f32]) -> A1<B> {
    let is_positive: Tensor<B, 1, Bool> = x.val().sum().greater_elem(0.0);
    let times = |x: A1<B>| {
        let table = TensorData::new(table.to_vec(), [table.len()]);
        Array::new(x.val() * Tensor::from_data(table, &x.val().device()))
    };
    cond(is_positive, times, |x| x, x)
}

/// Multiplies `x` by a number, twice.
fn scaled_twice<B: Backend>(x: A1<B>, factor: f32) -> A1<B> {
    let step = |carry: A1<B>, _: A1<B>| {
        let next: A1<B> = Array::new(carry.val() * Tensor::from_floats([factor], &carry.val().device()));
        (next.clone(), next)
    };
    let steps = Array::<B, 2>::new(Tensor::zeros([2, 1], &x.val().device()));
    scan(step, x, steps).0
}

#[test]
fn branches_with_different_constants_are_not_merged() {
    fn both<B: Backend>(x: A1<B>) -> (A1<B>, A1<B>) {
        (times_table(x.clone(), &[1.0]), times_table(x, &[4.0]))
    }
    let (one, four) = jit(both).call::<F>(array([3.0]));
    assert_eq!((floats(&one), floats(&four)), (vec![3.0], vec![12.0]));
    let (values, tangents) = jvp(both::<Traced>, &array::<F, 1>([3.0]), &array::<F, 1>([1.0]));
    assert_eq!((floats(&values.1), floats(&tangents.0), floats(&tangents.1)), (vec![12.0], vec![1.0], vec![4.0]));

    // Tables with equal first elements.
    let tables =
        |x: A1<Traced>| (times_table(x.clone(), &[1.0, 2.0, 3.0, 4.0]), times_table(x, &[1.0, 20.0, 30.0, 40.0]));
    let (small, large) = jit(tables).call::<F>(array([1.0; 4]));
    assert_eq!(floats(&small), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(floats(&large), [1.0, 20.0, 30.0, 40.0]);
}

#[test]
fn loops_with_different_constants_are_not_merged() {
    fn both<B: Backend>(x: A1<B>) -> A1<B> {
        Array::new(scaled_twice(x.clone(), 2.0).val() + scaled_twice(x, 8.0).val())
    }
    assert_eq!(floats(&jit(both).call::<F>(array([3.0]))), [204.0]);
    assert_eq!(floats(&jit(|x: A1<Traced>| grad(&x, |x: A1<_>| both(x).val().sum())).call::<F>(array([3.0]))), [68.0]);
    let slopes = jacfwd(both::<Traced>, &array::<F, 1>([3.0])).array::<2>();
    assert_eq!(floats(&slopes), [68.0]);
    let rows = Array::<F, 2>::new(Tensor::from_floats([[1.0], [3.0]], &Default::default()));
    let mapped = vmap(both::<Traced>).call::<F, _>(rows);
    assert_eq!(floats(&mapped), [68.0, 204.0]);
}

#[test]
fn equal_branches_are_one() {
    let twice = |x: A1<Traced>| (times_table(x.clone(), &[4.0]), times_table(x, &[4.0]));
    let graph = trace(twice, &array::<F, 1>([3.0])).without_common_subexpressions();
    assert_eq!(graph.counts().get("cond"), Some(&1), "{graph}");
}

proptest! {
    /// The branches of two tables are merged only if the tables are equal.
    #[test]
    fn any_two_tables(bits in proptest::array::uniform3(any::<u32>()), other in 0_usize..3, flip in 0_u32..32) {
        let mut flipped = bits;
        flipped[other] ^= 1 << flip;
        let tables = [bits, flipped].map(|bits| bits.map(f32::from_bits));
        let both = move |x: A1<Traced>| (times_table(x.clone(), &tables[0]), times_table(x, &tables[1]));
        let found = jit(both).call::<F>(array([1.0; 3]));
        for (found, table) in [&found.0, &found.1].into_iter().zip(tables) {
            let same = |(x, y): (f32, f32)| x == y || x.is_nan() && y.is_nan();
            prop_assert!(floats(found).into_iter().zip(table).all(same), "{found} {table:?}");
        }
    }
}

/// Max pooling with and without the indices of the maxima.
#[test]
fn equations_that_differ_in_their_outputs() {
    fn pools<B: Backend>(x: Array<B, 4>) -> [Tensor<B, 4>; 3] {
        let first = module::max_pool2d(x.val(), [2, 2], [2, 2], [0, 0], [1, 1], false);
        let (second, at) = module::max_pool2d_with_indices(x.val(), [2, 2], [2, 2], [0, 0], [1, 1], false);
        [first, second, at.float()]
    }
    let image = || Array::<F, 4>::new(Tensor::from_data([[[[1.0_f32, 2.0], [4.0, 3.0]]]], &Default::default()));
    for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
        let f = move |x: Array<Traced, 4>| {
            let pools = pools(x);
            order.map(|i| Array::<_, 4>::new(pools[i].clone()))
        };
        let found = jit(f).call::<F>(image());
        let expected = order.map(|i| if i == 2 { 2.0 } else { 4.0 });
        assert_eq!(found.map(|x| x.val().into_scalar()), expected);
    }
}

/// Divides `x` by a number.
#[derive(Tree, Clone, Debug)]
struct Quotient<B: Backend> {
    x: A1<B>,
    #[tree(static)]
    by: Option<f32>,
}

#[test]
fn zeros_of_both_signs_have_programs_of_their_own() {
    let divide = jit(|Quotient { x, by }: Quotient<Traced>| {
        let by = Tensor::from_floats([by.unwrap()], &Default::default());
        A1::<Traced>::new(x.val() / by)
    });
    let x = |by: f32| Quotient::<F> { x: array([1.0]), by: Some(by) };
    for _ in 0..2 {
        assert_eq!(floats(&divide.call(x(0.0))), [f32::INFINITY]);
        assert_eq!(floats(&divide.call(x(-0.0))), [f32::NEG_INFINITY]);
        assert!(floats(&divide.call(x(f32::NAN)))[0].is_nan());
    }
    assert_eq!(divide.graphs().len(), 3);
}

#[test]
fn keys_with_dots_are_keys() {
    let double = jit(|map: BTreeMap<String, A1<Traced>>| {
        map.into_iter().map(|(key, x)| (key, A1::<Traced>::new(x.val() * 2.0))).collect::<BTreeMap<_, _>>()
    });
    for (key, value) in [("a.w", 1.0), ("b.w", 1.5), ("w", 2.0)] {
        let found = double.call::<F>(BTreeMap::from([(key.to_owned(), array([value]))]));
        let (name, x) = found.into_iter().next().unwrap();
        assert_eq!((name.as_str(), floats(&x)), (key, vec![2.0 * value]));
    }
}

/// A jitted function can be stored in a static, and threads that need the same program trace it once.
#[test]
fn threads_trace_once() {
    fn is_shared<T: Send + Sync>(_: &T) {}
    static TRACES: AtomicUsize = AtomicUsize::new(0);
    let double = jit(|x: A1<Traced>| {
        TRACES.fetch_add(1, Ordering::Relaxed);
        thread::sleep(std::time::Duration::from_millis(50));
        A1::<Traced>::new(x.val() * 2.0)
    });
    is_shared(&double);
    let begin = Barrier::new(8);
    thread::scope(|scope| {
        for i in 0..8 {
            let (double, begin) = (&double, &begin);
            scope.spawn(move || {
                begin.wait();
                assert_eq!(floats(&double.call::<F>(array([i as f32]))), [2.0 * i as f32]);
            });
        }
    });
    assert_eq!((TRACES.load(Ordering::Relaxed), double.graphs().len()), (1, 1));
}

/// Threads that wait for a trace that fails trace themselves.
#[test]
fn a_trace_that_fails_is_tried_by_the_next() {
    static TRACES: AtomicUsize = AtomicUsize::new(0);
    let fails_once = jit(|x: A1<Traced>| {
        thread::sleep(std::time::Duration::from_millis(50));
        assert!(TRACES.fetch_add(1, Ordering::Relaxed) > 0, "the first trace fails");
        A1::<Traced>::new(x.val() * 2.0)
    });
    let begin = Barrier::new(3);
    let results: Vec<_> = thread::scope(|scope| {
        let call = || {
            begin.wait();
            floats(&fails_once.call::<F>(array([1.0])))
        };
        let threads = [(); 3].map(|()| scope.spawn(call));
        threads.into_iter().map(|thread| thread.join().ok()).collect()
    });
    assert_eq!(results.iter().flatten().collect::<Vec<_>>(), [&[2.0], &[2.0]]);
    assert_eq!(TRACES.load(Ordering::Relaxed), 2);
}

/// A jitted function that calls itself with another argument while it is traced.
#[test]
fn a_function_that_is_called_by_its_own_trace() {
    fn halved(x: A1<Traced>) -> A1<Traced> {
        if x.shape()[0] == 1 {
            return x;
        }
        let half = x.shape()[0] / 2;
        A1::new(halved(A1::new(x.val().narrow(0, 0, half))).val() * 2.0)
    }
    assert_eq!(floats(&jit(halved).call::<F>(array([1.0, 2.0, 3.0, 4.0]))), [4.0]);
}
