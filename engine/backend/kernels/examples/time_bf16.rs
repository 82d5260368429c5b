//! Times matrix products of bf16, some common sizes or a given one: `cargo run -p grove-kernels --example time_bf16 -- 512 768 3072`

use grove_kernels::{HalfFormat, Matrix, narrowed, rounded_product_bf16};
use std::time::Instant;

const SIZES: [[usize; 3]; 7] = [
    [128, 768, 768],
    [128, 768, 3072],
    [512, 768, 3072],
    [512, 3072, 768],
    [2048, 2048, 2048],
    [3000, 3000, 3000],
    [768, 512, 768],
];
/// Approximate number of operations that are measured per size.
const OPERATIONS: f64 = 4e11;

fn main() {
    grove_kernels::keep_freed_memory();
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|size| size.parse().ok()).collect();
    let sizes = <[usize; 3]>::try_from(sizes).map_or(SIZES.to_vec(), |sizes| vec![sizes]);
    for [m, k, n] in sizes {
        let values = |count: usize, step: u64| -> Vec<u16> {
            let values: Vec<f32> = (0..count as u64).map(|i| (i * step % 1013) as f32 / 100.0 - 5.0).collect();
            narrowed(HalfFormat::Bf16, &values)
        };
        let (a, b) = (values(m * k, 7919), values(k * n, 104_729));
        let operations = 2.0 * (m * k * n) as f64;
        let layouts = [
            ("a b", Matrix::new(&a, m, k), Matrix::new(&b, k, n)),
            ("a b^T", Matrix::new(&a, m, k), Matrix::new(&b, n, k).transpose()),
            ("a^T b", Matrix::new(&a, k, m).transpose(), Matrix::new(&b, k, n)),
        ];
        for (name, a, b) in layouts {
            let mut best = f64::INFINITY;
            for _ in 0..(OPERATIONS / operations).clamp(3.0, 100.0) as usize {
                let start = Instant::now();
                let Some(c) = rounded_product_bf16(a, b, None) else {
                    println!("this CPU does not multiply bf16");
                    return;
                };
                best = best.min(start.elapsed().as_secs_f64());
                assert!(c.len() == m * n);
            }
            println!("{m} x {k} x {n}, {name}: {:.3} ms, {:.1} GFLOP/s", best * 1e3, operations / best / 1e9);
        }
    }
}
