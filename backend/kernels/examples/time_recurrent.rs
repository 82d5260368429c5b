//! Times layers of LSTM: `cargo run -p grove-kernels --example time_recurrent -- 50 32 256` for steps, sequences and hidden
//! units.

use grove_kernels::{Steps, lstm, lstm_backward};
use std::time::Instant;

fn main() {
    let given: Vec<usize> = std::env::args().skip(1).filter_map(|size| size.parse().ok()).collect();
    let sizes = <[usize; 3]>::try_from(given).map_or(vec![[50, 32, 256], [50, 1, 256], [50, 32, 1024]], |s| vec![s]);
    for [steps, batch, n] in sizes {
        let numbers = |count: usize| -> Vec<f32> { (0..count).map(|i| (i * 7919 % 1013) as f32 / 2e4).collect() };
        let walk = Steps::new(&vec![batch; steps], false);
        let rows = steps * batch;
        let (w, projected, grad) = (numbers(4 * n * n), numbers(rows * 4 * n), numbers(rows * n));
        let (mut output, mut cells, mut dw) = (vec![0.0; rows * n], vec![0.0; rows * n], vec![0.0; 4 * n * n]);
        let mut best = [f64::INFINITY; 2];
        for _ in 0..if n > 500 { 5 } else { 50 } {
            let (mut gates, zeros) = (projected.clone(), vec![0.0; batch * n]);
            let (mut h, mut c) = (zeros.clone(), zeros.clone());
            let begun = Instant::now();
            lstm(&walk, &w, &mut gates, &mut h, &mut c, &mut output, Some(&mut cells));
            best[0] = best[0].min(begun.elapsed().as_secs_f64());
            let begun = Instant::now();
            let (mut dh, mut dc) = (zeros.clone(), zeros.clone());
            let dw = Some(&mut *dw);
            lstm_backward(&walk, &w, &mut gates, &output, &cells, &zeros, &zeros, &grad, &mut dh, &mut dc, dw);
            best[1] = best[1].min(begun.elapsed().as_secs_f64());
        }
        let [forward, backward] = best.map(|seconds| seconds * 1e3);
        println!("{steps} steps of {batch} with {n} units: {forward:.2} ms, backward {backward:.2} ms");
    }
}
