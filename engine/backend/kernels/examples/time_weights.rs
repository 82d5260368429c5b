//! Times products with quantized and 16-bit weights, compared with plain reads and f32 products:
//! `cargo run -p grove-kernels --example time_weights`. Arguments select cases by parts of their names and shapes.

use std::{hint::black_box, time::Instant};

use grove_kernels::{
    HalfFormat, HalfMatrix, InputPrecision, Matrix, Quantization, QuantizedMatrix, in_pool, matmul, matmul_half,
    matmul_quantized,
};
use rayon::prelude::*;

/// Returns the best time of several rounds, in seconds, because other processes may be using the machine.
fn time(mut f: impl FnMut()) -> f64 {
    f();
    let (mut times, begun) = (Vec::new(), Instant::now());
    while times.len() < 5 || times.len() < 400 && begun.elapsed().as_secs_f64() < 0.3 {
        let begun = Instant::now();
        f();
        times.push(begun.elapsed().as_secs_f64());
    }
    times.into_iter().fold(f64::MAX, f64::min)
}

/// Reads all data once.
fn read(data: &[u8]) -> u64 {
    let sum = |data: &[u8]| data.as_chunks::<8>().0.iter().fold(0u64, |sum, bytes| sum ^ u64::from_le_bytes(*bytes));
    data.par_chunks(1 << 18).map(sum).reduce(|| 0, |a, b| a ^ b)
}

fn blocks(kind: Quantization, weights: usize) -> Vec<u8> {
    let mut data: Vec<u8> =
        (0..weights / kind.block_len() * kind.block_bytes()).map(|i| ((i * 7919) >> 3) as u8).collect();
    for block in data.chunks_exact_mut(kind.block_bytes()) {
        for at in [0, 2, kind.block_bytes() - 2] {
            block[at + 1] = 0x24;
        }
    }
    data
}

/// Consecutive copies of weights, in more memory than any cache holds, so that each round reads other copies.
struct Many<T> {
    data: Vec<T>,
    len: usize,
    at: usize,
}

impl<T: Copy> Many<T> {
    fn new(one: Vec<T>) -> Self {
        let copies = (128 << 20) / (one.len() * size_of::<T>()) + 2;
        Self { len: one.len(), data: one.repeat(copies), at: 0 }
    }

    fn next(&mut self) -> &[T] {
        self.at = if self.at + 2 * self.len > self.data.len() { 0 } else { self.at + self.len };
        &self.data[self.at..][..self.len]
    }
}

fn main() {
    let only: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |what: &str| only.first().is_none_or(|only| what.contains(only));
    let big = vec![1u8; 256 << 20];
    let seconds = time(|| {
        black_box(in_pool(|| read(&big)));
    });
    println!("reading memory: {:.1} GB/s", big.len() as f64 / seconds / 1e9);
    drop(big);
    println!("{:10} {:>14} {:>5} {:>10} {:>8} {:>9}", "weights", "[out, in]", "rows", "us", "GB/s", "GFLOP/s");
    let shapes = [[3072, 576], [576, 1536], [1536, 576], [49152, 576], [4096, 4096], [4096, 14336]];
    for [n, k] in shapes {
        if only.get(1).is_some_and(|only| !format!("[{n}, {k}]").contains(only)) {
            continue;
        }
        for m in [1, 2, 4, 8, 16, 64, 512] {
            if m > 4 && n * k > 1 << 25 || m == 512 && n * k > 1 << 24 {
                continue;
            }
            let a: Vec<f32> = (0..m * k).map(|i| ((i * 7919) % 1013) as f32 / 500.0 - 1.0).collect();
            let (a, mut c) = (Matrix::new(&a, m, k), vec![0.0; m * n]);
            let report = |name: &str, bytes: usize, seconds: f64| {
                let (speed, work) = (bytes as f64 / seconds / 1e9, 2.0 * (m * n * k) as f64 / seconds / 1e9);
                let shape = format!("[{n}, {k}]");
                println!("{name:10} {shape:>14} {m:>5} {:>10.1} {speed:>8.1} {work:>9.1}", seconds * 1e6);
            };
            if wanted("f32") {
                let mut b = Many::new(vec![0.5f32; n * k]);
                report(
                    "f32",
                    n * k * 4,
                    time(|| in_pool(|| matmul(a, Matrix::new(b.next(), n, k).transpose(), None, &mut c))),
                );
                report(
                    "f32 turned",
                    n * k * 4,
                    time(|| in_pool(|| matmul(a, Matrix::new(b.next(), k, n), None, &mut c))),
                );
            }
            for (format, name, other) in
                [(HalfFormat::Bf16, "bf16", "bf16 turned"), (HalfFormat::F16, "f16", "f16 turned")]
            {
                if wanted(name) {
                    let mut b = Many::new(vec![0x3801u16; n * k]);
                    report(
                        name,
                        n * k * 2,
                        time(|| {
                            in_pool(|| {
                                matmul_half(a, HalfMatrix::new(b.next(), format, n, k).transpose(), None, &mut c);
                            })
                        }),
                    );
                    report(
                        other,
                        n * k * 2,
                        time(|| {
                            in_pool(|| {
                                matmul_half(a, HalfMatrix::new(b.next(), format, k, n), None, &mut c);
                            })
                        }),
                    );
                }
            }
            for kind in Quantization::ALL {
                if k % kind.block_len() == 0 && wanted(kind.name()) {
                    let mut b = Many::new(blocks(kind, n * k));
                    let len = b.len;
                    for (precision, also) in [(InputPrecision::F32, ""), (InputPrecision::Int8, " int8")] {
                        report(
                            &format!("{kind}{also}"),
                            len,
                            time(|| {
                                in_pool(|| {
                                    let b = QuantizedMatrix { data: b.next(), rows: n, columns: k, kind };
                                    matmul_quantized(a, precision, b, None, &mut c);
                                })
                            }),
                        );
                    }
                }
            }
        }
    }
}
