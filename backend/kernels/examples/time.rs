//! Times the kernels: `cargo run -p grove-kernels --example time`.

use std::time::Instant;

fn time(name: &str, mut f: impl FnMut()) {
    f();
    let mut best = f64::MAX;
    for _ in 0..15 {
        let begun = Instant::now();
        f();
        best = best.min(begun.elapsed().as_secs_f64());
    }
    println!("{name:30} {:8.3} ms", best * 1e3);
}

fn main() {
    let n = 1 << 20;
    let x: Vec<f32> = (0..n).map(|i| ((i as u64 * 7919) % 1013) as f32 / 100.0 - 5.0).collect();
    let mut y = x.clone();
    time("gelu_tanh 1M", || grove_kernels::gelu_tanh(&x, &mut y));
    time("gelu_tanh_backward 1M", || grove_kernels::gelu_tanh_backward(&x, &mut y));
    time("softmax 4096 rows of 256", || grove_kernels::softmax_rows(&mut y, 256, 1.0, None));
    time("the same, looking back", || grove_kernels::softmax_rows(&mut y, 256, 1.0, Some(256)));
    time("softmax backward", || grove_kernels::softmax_rows_backward(&x, &mut y, 256, 1.0));
    let mut inverse_std = vec![0.0; 4096];
    time("normalize 4096 rows of 256", || grove_kernels::normalize(&x, &mut y, &mut inverse_std, 1e-5));
    time("normalize backward", || grove_kernels::normalize_backward(&x, &inverse_std, &mut y));
    let labels = vec![7i64; 256];
    let (mut loss, mut normaliser) = (vec![0.0; 256], vec![0.0; 256]);
    time("nll 256 rows of 4096", || grove_kernels::nll(&x, &labels, &mut loss, &mut normaliser));
    time("nll backward", || grove_kernels::nll_backward(&x, &labels, &normaliser, &loss, &mut y));
}
