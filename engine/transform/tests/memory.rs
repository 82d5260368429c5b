//! Memory leaked by differentiation, counted by the allocator.

use burn::tensor::{Int, Tensor};
use burn_flex::Flex;
use grove_backend::Autodiff;
use grove_transform::{GradOptions, clear_tape, value_and_grad, vjp};
use grove_tree::{Array, by_path};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicIsize, Ordering},
    },
};

/// The system allocator with a counter of live bytes.
struct Counting;

/// Number of bytes that are allocated and not freed.
static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call is forwarded unchanged to the system allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above with this layout, by the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Tests of one process share the counter, so each test holds this lock while it runs.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

fn exclusive() -> MutexGuard<'static, ()> {
    EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Elements of a leaf: 64 KiB.
const SIZE: usize = 1 << 14;
/// Number of calls that are counted.
const CALLS: usize = 1_000;

/// Returns the bytes leaked by `CALLS` calls, after 100 warm-up calls that let caches and tables grow.
fn leaked_bytes(mut call: impl FnMut()) -> isize {
    for _ in 0..100 {
        call();
    }
    let before = LIVE.load(Ordering::Relaxed);
    for _ in 0..CALLS {
        call();
    }
    LIVE.load(Ordering::Relaxed) - before
}

/// Less than a thousandth of the results: one leaf per call is 67 MB.
fn assert_no_leak(bytes: isize) {
    assert!(bytes < 64 * CALLS as isize, "{CALLS} calls leak {bytes} bytes");
}

fn leaf() -> Array<Flex, 1> {
    Array::new(Tensor::ones([SIZE], &Default::default()))
}

type Ad = Autodiff<Flex>;

/// Nested operations that store residuals.
fn chain(x: Tensor<Ad, 1>) -> Tensor<Ad, 1> {
    (x.clone() * x.clone()).exp().tanh() * x
}

#[test]
fn dropped_pullbacks() {
    let _exclusive = exclusive();
    let x = leaf();
    assert_no_leak(leaked_bytes(|| drop(vjp(&x, |x| Array::<_, 1>::new(chain(x.val()))))));
}

#[test]
fn pullbacks_that_are_called() {
    let _exclusive = exclusive();
    let x = leaf();
    assert_no_leak(leaked_bytes(|| {
        let (y, pullback) = vjp(&x, |x| Array::<_, 1>::new(chain(x.val())));
        pullback(y);
    }));
}

#[test]
fn pullbacks_of_constants() {
    let _exclusive = exclusive();
    let count = Array::<Flex, 1, Int>::new(Tensor::ones([4], &Default::default()));
    assert_no_leak(leaked_bytes(|| drop(vjp(&count, |x| Array::<_, 1>::new(x.val().float().exp().tanh())))));
}

#[test]
fn gradients_with_and_without_a_path_to_the_leaf() {
    let _exclusive = exclusive();
    let x = leaf();
    assert_no_leak(leaked_bytes(|| drop(value_and_grad(&x, |x| chain(x.val()).sum()))));
    assert_no_leak(leaked_bytes(|| drop(value_and_grad(&x, |x| chain(x.val()).detach().sum()))));
    assert_no_leak(leaked_bytes(|| {
        value_and_grad(&x, |x| {
            drop(chain(x.val()));
            Tensor::from_floats([1.0], &Default::default())
        });
    }));
    let pair = (x.clone(), x.clone());
    let options = GradOptions::new().only(by_path("0"));
    assert_no_leak(leaked_bytes(|| drop(options.value_and_grad_aux(&pair, |(_, x)| (chain(x.val()).sum(), ())))));
}

#[test]
fn forward_passes_alone() {
    let _exclusive = exclusive();
    let x = leaf().val();
    assert_no_leak(leaked_bytes(|| {
        drop(chain(Tensor::from_inner(x.clone())));
        clear_tape::<Flex>(&Default::default());
    }));
}
