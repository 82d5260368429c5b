//! Loops over small arrays, which run as planned programs if they are jitted: against JAX 0.10.2, against the same functions
//! outside traces, and against single steps as programs.

use burn::tensor::{Bool, Int, Tensor};
use grove_backend::{Backend, Flex};
use grove_compile::{Traced, cond, jit, scan, scan_with, switch, while_loop};
use grove_transform::{Scan, grad};
use grove_tree::{Array, Key};

type F = Flex;
type A1<B> = Array<B, 1>;
type A2<B> = Array<B, 2>;
type I1<B> = Array<B, 1, Int>;
type I2<B> = Array<B, 2, Int>;

fn floats<const N: usize>(values: [f32; N]) -> A1<F> {
    Array::new(Tensor::from_floats(values, &Default::default()))
}

fn ints<const N: usize>(values: [i64; N]) -> I1<F> {
    Array::new(Tensor::from_ints(values, &Default::default()))
}

fn list<const D: usize>(x: &Array<F, D>) -> Vec<f32> {
    x.val().into_data().iter::<f32>().collect()
}

fn int_list<const D: usize>(x: &Array<F, D, Int>) -> Vec<i64> {
    x.val().into_data().iter::<i64>().collect()
}

fn bits<const D: usize>(x: &Array<F, D>) -> Vec<u32> {
    x.val().into_data().iter::<f32>().map(f32::to_bits).collect()
}

fn near(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    let apart = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart < 1e-6, "{found:?} {expected:?}");
}

/// Computes `tanh(c / 2 + x)` of the carry and each row.
fn filter<B: Backend>((init, xs): (A1<B>, A2<B>)) -> (A1<B>, A2<B>) {
    let step = |c: A1<B>, x: A1<B>| {
        let c = A1::<B>::new((c.val() * 0.5 + x.val()).tanh());
        (c.clone(), c)
    };
    scan(step, init, xs)
}

fn filter_args() -> (A1<F>, A2<F>) {
    let xs = Tensor::from_floats([[0.1, 0.2], [-0.3, 0.4], [1.5, -2.0]], &Default::default());
    (floats([0.5, -1.0]), Array::new(xs))
}

#[test]
fn scan_and_its_gradient_match_jax() {
    let (last, ys) = jit(filter::<Traced>).call::<F>(filter_args());
    near(&list(&last), &[0.892_579_7, -0.954_090_24]);
    near(&list(&ys), &[0.336_375_53, -0.291_312_6, -0.131_054_12, 0.248_997_4, 0.892_579_7, -0.954_090_24]);
    let gradients = jit(|args: (A1<Traced>, A2<Traced>)| grad(&args, |args| filter(args).1.val().sum()));
    let (init, xs) = gradients.call::<F>(filter_args());
    near(&list(&init), &[0.683_480_9, 0.681_794_2]);
    near(&list(&xs), &[1.366_961_8, 1.363_588_5, 1.082_729_7, 0.980_075_2, 0.203_301_52, 0.089_711_82]);
    assert_eq!(gradients.graph().unwrap().counts()["scan"], 2);
}

/// Counts the Collatz steps of a number until it is 1: an even number is halved, an odd number is tripled and increased by 1.
fn collatz<B: Backend>(n: I1<B>) -> I1<B> {
    let zero = Array::new(n.val().zeros_like());
    let step = |(n, k): (I1<B>, I1<B>)| {
        let odd: Tensor<B, 1, Bool> = n.val().remainder_scalar(2).equal_elem(1);
        let next = cond(odd, |n: I1<B>| I1::<B>::new(n.val() * 3 + 1), |n| Array::new(n.val() / 2), n);
        (next, Array::new(k.val() + 1))
    };
    while_loop(|(n, _)| n.val().greater_elem(1), step, (n, zero)).1
}

type Totals<B> = (I1<B>, (I2<B>, I2<B>));

/// Nested loops with conditionals.
fn totals<B: Backend>(ns: I2<B>) -> Totals<B> {
    let zero: I1<B> = Array::new(Tensor::zeros([1], &ns.val().device()));
    let step = |(), sum: I1<B>, n: I1<B>| {
        let k = collatz(n.clone());
        (Array::new(sum.val() + k.val()), (k.clone(), Array::new(n.val() * k.val())))
    };
    scan_with(Scan::new().reverse(), &(), step, zero, ns)
}

#[test]
fn loops_in_loops_match_jax() {
    let ns: I2<F> = Array::new(ints([27, 97, 1, 871]).val().reshape([4, 1]));
    for (sum, (lengths, products)) in [totals(ns.clone()), jit(totals::<Traced>).call::<F>(ns)] {
        assert_eq!(int_list(&sum), [407]);
        assert_eq!(int_list(&lengths), [111, 118, 0, 178]);
        assert_eq!(int_list(&products), [2997, 11446, 0, 155_038]);
    }
}

/// A carry of several dtypes, a switch, captured arrays, and rows of several leaves.
#[allow(clippy::type_complexity)]
fn mixed<B: Backend>(
    (table, carry, xs): (A2<B>, (A1<B>, I1<B>), (A2<B>, I2<B>)),
) -> ((A1<B>, I1<B>), (A1<B>, (I2<B>, A2<B>))) {
    let step = |(x, i): (A1<B>, I1<B>), (row, k): (A1<B>, I1<B>)| {
        let of_table = A1::<B>::new(table.val().select(0, i.val()).reshape([-1]));
        let x = switch(
            k.val(),
            &[
                &|(x, row): (A1<B>, A1<B>)| A1::<B>::new(x.val() + row.val().exp()),
                &|(x, row)| Array::new(x.val().sin() * row.val()),
                &|(x, _)| x,
            ],
            (x, row.clone()),
        );
        let x = A1::<B>::new(x.val().clamp(-4.0, 4.0) - of_table.val().mean());
        let large = x.val().abs().max().greater_elem(2.0).int();
        let i = I1::<B>::new((i.val() + k.val() + large).remainder_scalar(3));
        ((x.clone(), i.clone()), (A1::<B>::new(x.val().sum()), (i, A1::<B>::new(x.val().flip([0]) * row.val()))))
    };
    let (carry, (sums, rest)) = scan(step, carry, xs);
    (carry, (Array::new(sums.val().reshape([-1])), rest))
}

#[test]
fn mixed_loops_are_the_same_jitted_and_not() {
    let normal = |shape, seed| Array::new(Key::new(seed).normal::<F, 2>(shape, &Default::default()));
    let steps = 40;
    let ks: Vec<i64> = (0..steps as i64).map(|i| i * i % 5 - 1).collect();
    let ks: I2<F> = Array::new(Tensor::<F, 1, Int>::from_ints(&ks[..], &Default::default()).reshape([steps, 1]));
    let args = || (normal([3, 4], 1), (floats([0.5, -0.5, 1.0]), ints([1])), (normal([steps, 3], 2), ks.clone()));
    let ((x, i), (sums, (counts, rows))) = mixed(args());
    let ((found_x, found_i), (found_sums, (found_counts, found_rows))) = jit(mixed::<Traced>).call::<F>(args());
    assert_eq!((int_list(&found_i), int_list(&found_counts)), (int_list(&i), int_list(&counts)));
    near(&list(&found_x), &list(&x));
    near(&list(&found_rows), &list(&rows));
    let apart = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-5;
    assert!(list(&found_sums).iter().zip(&list(&sums)).all(apart));
}

/// A jitted loop gives the same bits as its jitted step.
#[test]
fn jitted_loops_have_the_bits_of_jitted_steps() {
    fn step<B: Backend>((c, x): (A1<B>, A1<B>)) -> (A1<B>, A1<B>) {
        let y = (c.val() * 0.9 + x.val()).tanh() - (x.val() * c.val()).exp() * 0.01;
        let y = y.clone().mask_where(y.clone().greater_elem(0.5), y.clone().powf_scalar(3.0)) / (y.abs() + 1.5);
        (Array::new(y.clone()), Array::new(y.sqrt() + 1.0))
    }
    let xs = Key::new(5).normal::<F, 2>([50, 7], &Default::default());
    let init = floats([0.1, -0.2, 0.3, 2.0, -2.0, 0.0, 1.0]);
    let looped = jit(|(c, xs): (A1<Traced>, A2<Traced>)| scan(|c, x| step((c, x)), c, xs));
    let (last, ys) = looped.call::<F>((init.clone(), Array::new(xs.clone())));
    let jitted = jit(step::<Traced>);
    let (mut carry, mut rows) = (init, Vec::new());
    for x in xs.iter_dim(0) {
        let (next, y) = jitted.call::<F>((carry, Array::new(x.reshape([-1]))));
        carry = next;
        rows.extend(bits(&y));
    }
    assert_eq!((bits(&last), bits(&ys)), (bits(&carry), rows));
}

#[test]
fn loops_without_steps_return_their_start() {
    let never = |x: A1<Traced>| while_loop(|x| x.val().sum().greater_elem(1e9), |x| Array::new(x.val() * 2.0), x);
    assert_eq!(list(&jit(never).call::<F>(floats([1.0, 2.0]))), [1.0, 2.0]);
}

/// A step that panics gives the same message, jitted or not.
#[test]
fn messages_of_refused_steps() {
    fn positions<B: Backend>((table, i): (A1<B>, I1<B>)) -> A1<B> {
        let step =
            |(x, i): (A1<B>, I1<B>)| (Array::new(x.val() + table.val().select(0, i.val())), I1::<B>::new(i.val() + 2));
        let zero = Array::new(table.val().zeros_like().narrow(0, 0, 1));
        while_loop(|(_, i)| i.val().lower_elem(9), step, (zero, i)).0
    }
    let args = || (floats([1.0, 2.0, 3.0]), ints([0]));
    let eager = grove_backend::panic_hook::catch(|| positions(args())).unwrap_err();
    let jitted = jit(positions::<Traced>);
    let found = grove_backend::panic_hook::catch(|| jitted.call::<F>(args())).unwrap_err();
    assert_eq!(found, eager);
    assert!(found.contains('4'), "{found}");
}
