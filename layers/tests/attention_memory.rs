//! Attention with padding, a window or lengths materialises neither the mask nor the score matrix on the CPU: no allocation
//! reaches one byte per pair of a query and a key.

use burn::tensor::Tensor;
use grove_backend::{Autodiff, Flex};
use grove_layers::{AttentionMask, attend};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Allocator that records the largest allocation.
struct Watched;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every method forwards its arguments unchanged to the system allocator.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Relaxed);
        // SAFETY: the caller upholds the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Relaxed);
        // SAFETY: the caller upholds the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Relaxed);
        // SAFETY: the caller upholds the contract of `GlobalAlloc::realloc`.
        unsafe { System.realloc(place, layout, size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

#[test]
fn allocates_no_mask() {
    type A = Autodiff<Flex>;
    let (b, t, device) = (4, 2048, Default::default());
    for mask in [
        AttentionMask::<A>::causal(t, 0, &[0, 700, 1, 2047], &device),
        AttentionMask::within(Some(100), t, 0..t, &[0, 700, 1, 2047], &device),
        AttentionMask::to_lengths(&[t, 700, 1, 2047], t, &device),
    ] {
        LARGEST.store(0, Relaxed);
        let x = Tensor::<A, 4>::ones([b, 1, t, 8], &device).require_grad();
        let y = attend(x.clone(), x.clone(), x.clone(), &mask, 0.3, None);
        let grad = x.grad(&y.sum().backward()).expect("a gradient").sum().into_scalar();
        assert!(grad.is_finite());
        let largest = LARGEST.load(Relaxed);
        assert!(largest < t * t, "{largest} bytes at once");
        assert!(largest >= b * t * 8 * 4, "the inputs are allocated here too: {largest}");
    }
}
