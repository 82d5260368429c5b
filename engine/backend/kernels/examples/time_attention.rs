//! Times attention of one query per head over keys and values in more memory than any cache holds, as in decoding, with keys
//! and values of 32 and 16 bits:
//! `cargo run -p grove-kernels --example time_attention`.

use std::time::Instant;

use grove_kernels::{Attention, HalfFormat, Heads, KeyHeads, in_pool, narrowed};

fn main() {
    println!("{:>10} {:>8} {:>6} {:>6} {:>10} {:>8}", "positions", "heads", "keys", "dtype", "us", "GB/s");
    for (s, n_head, n_kv_head, head_dim) in
        [(256, 32, 1, 64), (256, 9, 3, 64), (2048, 9, 3, 64), (2048, 32, 8, 64), (2048, 12, 12, 64), (2048, 32, 8, 128)]
    {
        let one = n_kv_head * s * head_dim;
        let copies = (64 << 20) / one + 2;
        let values: Vec<f32> = (0..one).map(|i| ((i * 7919) % 1013) as f32 / 500.0 - 1.0).collect();
        let (keys, values) = (values.repeat(copies), values.repeat(copies));
        let q = vec![0.5; n_head * head_dim];
        let mut output = vec![0.0; n_head * head_dim];
        let attention = Attention {
            b: 1,
            n_head,
            n_kv_head,
            t: 1,
            s,
            head_dim,
            scale: 0.125,
            causal: true,
            window: None,
            padding: None,
            lengths: None,
            hidden: None,
            dropout: None,
        };
        let half = |format| [&keys, &values].map(|x| narrowed(format, x));
        let (f16, bf16) = (half(HalfFormat::F16), half(HalfFormat::Bf16));
        for (dtype, size) in [("f32", 4), ("f16", 2), ("bf16", 2)] {
            let heads = |copy: usize, i: usize| {
                let (part, strides) = (copy * one..(copy + 1) * one, [one, s * head_dim, head_dim]);
                match dtype {
                    "f32" => KeyHeads::F32(Heads { data: &[&keys, &values][i][part], strides }),
                    "f16" => KeyHeads::Half(HalfFormat::F16, Heads { data: &f16[i][part], strides }),
                    _ => KeyHeads::Half(HalfFormat::Bf16, Heads { data: &bf16[i][part], strides }),
                }
            };
            let mut best = f64::MAX;
            for round in 0..8 {
                for copy in 0..copies {
                    let [k, v] = [0, 1].map(|i| heads(copy, i));
                    let q = Heads { data: &q, strides: [n_head * head_dim, head_dim, head_dim] };
                    let begun = Instant::now();
                    in_pool(|| attention.forward(q, k, v, &mut output));
                    if round > 0 {
                        best = best.min(begun.elapsed().as_secs_f64());
                    }
                }
            }
            let speed = (2 * one * size) as f64 / best / 1e9;
            println!("{s:>10} {n_head:>8} {n_kv_head:>6} {dtype:>6} {:>10.1} {speed:>8.1}", best * 1e6);
        }
    }
}
