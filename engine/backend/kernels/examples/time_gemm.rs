//! Times matrix products, some common sizes or a given one: `cargo run -p grove-kernels --example time_gemm -- 512 768 3072`

use grove_kernels::{Matrix, matmul};
use std::time::Instant;

const SIZES: [[usize; 3]; 5] =
    [[128, 768, 768], [512, 768, 3072], [512, 3072, 768], [2048, 2048, 2048], [3000, 3000, 3000]];
/// Approximate number of operations that are measured per size.
const OPERATIONS: f64 = 2e11;

fn main() {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|size| size.parse().ok()).collect();
    let sizes = <[usize; 3]>::try_from(sizes).map_or(SIZES.to_vec(), |sizes| vec![sizes]);
    for [m, k, n] in sizes {
        let values = |count: usize, step: u64| -> Vec<f32> {
            (0..count as u64).map(|i| (i * step % 1013) as f32 / 100.0 - 5.0).collect()
        };
        let (a, b, mut c) = (values(m * k, 7919), values(k * n, 104_729), vec![0.0; m * n]);
        let operations = 2.0 * (m * k * n) as f64;
        let mut best = f64::INFINITY;
        for _ in 0..(OPERATIONS / operations).clamp(3.0, 100.0) as usize {
            let start = Instant::now();
            matmul(Matrix::new(&a, m, k), Matrix::new(&b, k, n), None, &mut c);
            best = best.min(start.elapsed().as_secs_f64());
        }
        println!("{m} x {k} x {n}: {:.3} ms, {:.1} GFLOP/s", best * 1e3, operations / best / 1e9);
    }
}
