//! Times the kernels: `cargo run -p grove-kernels --example time`.

use std::time::Instant;

fn time(name: &str, mut f: impl FnMut()) {
    f();
    let mut best = f64::MAX;
    for _ in 0..15 {
        let start = Instant::now();
        f();
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{name:30} {:8.3} ms", best * 1e3);
}

fn main() {
    let n = 1 << 20;
    let x: Vec<f32> = (0..n).map(|i| ((i as u64 * 7919) % 1013) as f32 / 100.0 - 5.0).collect();
    let mut y = x.clone();
    time("gelu_tanh 1M", || drop(grove_kernels::gelu_tanh(&x)));
    time("gelu_tanh_backward 1M", || grove_kernels::gelu_tanh_backward(&x, &mut y));
    time("gelu_erf 1M", || drop(grove_kernels::gelu_erf(&x)));
    time("gelu_erf_backward 1M", || grove_kernels::gelu_erf_backward(&x, &mut y));
    time("softmax 4096 rows of 256", || grove_kernels::softmax_rows(&mut y, 256, 1.0, None));
    time("the same, looking back", || grove_kernels::softmax_rows(&mut y, 256, 1.0, Some(256)));
    time("softmax backward", || grove_kernels::softmax_rows_backward(&x, &mut y, 256, 1.0));
    let norm = grove_kernels::RowNorm { centred: true, eps: 1e-5 };
    let (weight, stats) = (vec![0.5; 256], vec![0.5; 2 * 4096]);
    time("layer norm 4096 rows of 256", || drop(norm.forward(&x, &weight, Some(&weight))));
    let (mut d_weight, mut d_bias) = (vec![0.0; 256], vec![0.0; 256]);
    time("layer norm backward", || norm.backward(&x, &weight, &stats, &mut y, &mut d_weight, &mut d_bias));
    time("selu 1M", || drop(grove_kernels::selu(&x)));
    time("sum of squares 1M", || {
        std::hint::black_box(grove_kernels::sum_of_squares(&x));
    });
    let labels = vec![7i64; 256];
    let (mut loss, mut normaliser) = (vec![0.0; 256], vec![0.0; 256]);
    time("nll 256 rows of 4096", || grove_kernels::nll(&x, &labels, &mut loss, &mut normaliser));
    time("nll backward", || drop(grove_kernels::nll_backward(&x, &labels, &normaliser, &loss)));

    // An LSTM layer, 50 steps of 32 sequences with 256 units: the recurrent part only, without the projection of the inputs.
    let (b, n) = (32, 256);
    let steps = grove_kernels::Steps::new(&[b; 50], false);
    let (w, mut gates) = (x[..4 * n * n].to_vec(), vec![0.0; 50 * b * 4 * n]);
    let (mut h, mut c, mut output) = (vec![0.0; b * n], vec![0.0; b * n], vec![0.0; 50 * b * n]);
    time("lstm 256, 50 steps of 32", || {
        gates.fill(0.1);
        grove_kernels::lstm(&steps, &w, &mut gates, &mut h, &mut c, &mut output, None);
    });
    let one = grove_kernels::Steps::new(&[1; 50], false);
    time("lstm 256, 50 steps of 1", || {
        gates[..50 * 4 * n].fill(0.1);
        grove_kernels::lstm(&one, &w, &mut gates[..50 * 4 * n], &mut h[..n], &mut c[..n], &mut output[..50 * n], None);
    });
    let mut product = vec![0.0; 1600 * 4 * n];
    let rows = grove_kernels::Matrix { data: &x[..1600 * n], rows: 1600, columns: n, stride: n, transposed: false };
    let weights = grove_kernels::Matrix { data: &w, rows: n, columns: 4 * n, stride: n, transposed: true };
    time("product 1600 x 256 x 1024", || grove_kernels::matmul(rows, weights, None, &mut product));
}
