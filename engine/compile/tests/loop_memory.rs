//! The memory of long loops does not grow with the number of steps, apart from the arrays. A separate binary, because it
//! measures the whole process.

#![cfg(target_os = "linux")]

use burn::tensor::{FloatDType, Tensor};
use grove_backend::Flex;
use grove_compile::{Traced, jit, scan};
use grove_tree::{Array, Key};

type A1<B> = Array<B, 1>;
type A2<B> = Array<B, 2>;

/// Returns a field of the process status, in bytes.
fn status(name: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
fn scans_of_many_steps_need_no_memory_for_each() {
    let sums = |(c, xs): (A1<Traced>, A2<Traced>)| {
        let step = |c: A1<Traced>, x: A1<Traced>| {
            let c = A1::<Traced>::new(c.val() * 0.5 + x.val());
            (c.clone(), c)
        };
        scan(step, c, xs)
    };
    // A dtype whose loops have a plan, and one whose loops do not.
    for dtype in [FloatDType::F32, FloatDType::F16] {
        let jitted = jit(sums);
        let args = |steps: usize| {
            let xs = Key::new(1).normal::<Flex, 2>([steps, 3], &Default::default()).cast(dtype);
            (Array::new(Tensor::<Flex, 1>::zeros([3], &Default::default()).cast(dtype)), Array::new(xs))
        };
        jitted.call::<Flex>(args(10));
        let args = args(100_000);
        let before = status("VmHWM").max(status("VmRSS"));
        let (_, ys) = jitted.call::<Flex>(args);
        let grown = status("VmHWM") - before;
        assert_eq!(ys.shape(), [100_000, 3]);
        // Copies of the arrays, of 1.2 MB each. Handles of all rows at once used to take 170 MB.
        assert!(grown < 16 << 20, "{dtype:?}: {grown} bytes");
    }
}
