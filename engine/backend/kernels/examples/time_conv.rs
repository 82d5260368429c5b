//! Times convolutions in f32, or in bf16: `cargo run -p grove-kernels --example time_conv -- bf16`.

use std::time::Instant;

use grove_kernels::{
    Conv2d, Epilogue, HalfFormat, conv2d, conv2d_backward_input, conv2d_backward_input_bf16, conv2d_backward_weight,
    conv2d_backward_weight_bf16, conv2d_half, narrowed,
};

fn time(rounds: usize, mut f: impl FnMut()) -> f64 {
    f();
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let start = Instant::now();
        f();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

/// Number of such layers in a network, input channels, size, output channels, kernel, stride.
type Layer = (usize, usize, usize, usize, usize, usize);

/// The convolutions of a ResNet-50, with the number of each.
fn resnet_50() -> Vec<Layer> {
    let mut layers = vec![(1, 3, 224, 64, 7, 2)];
    let (mut channels, mut size) = (64, 56);
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let (inner, stride) = (64 << stage, if stage == 0 { 1 } else { 2 });
        layers.push((1, channels, size, inner, 1, 1));
        layers.push((1, inner, size, inner, 3, stride));
        layers.push((1, channels, size, inner * 4, 1, stride));
        (channels, size) = (inner * 4, size / stride);
        layers.push((blocks, inner, size, channels, 1, 1));
        layers.push((blocks - 1, channels, size, inner, 1, 1));
        layers.push((blocks - 1, inner, size, inner, 3, 1));
    }
    layers
}

/// A small residual network for digits.
const SMALL: [Layer; 6] = [
    (1, 1, 28, 16, 3, 1),
    (4, 16, 28, 16, 3, 1),
    (1, 16, 28, 32, 3, 2),
    (3, 32, 14, 32, 3, 1),
    (1, 32, 14, 64, 3, 2),
    (3, 64, 7, 64, 3, 1),
];

fn run(name: &str, batch: usize, layers: &[Layer], rounds: usize, backward: bool, bf16: bool) {
    let values = |len: usize| -> Vec<f32> { (0..len).map(|i| (i * 7919 % 1013) as f32 / 500.0 - 1.0).collect() };
    let mut totals = [0.0; 3];
    let mut operations = 0.0;
    println!("{name}, batch {batch}: ms and GFLOP/s");
    for &(count, channels_in, size, channels_out, kernel, stride) in layers {
        let conv = Conv2d {
            batch,
            channels_in,
            height: size,
            width: size,
            channels_out,
            kernel: [kernel; 2],
            stride: [stride; 2],
            padding: [kernel / 2; 2],
            dilation: [1; 2],
            groups: 1,
        };
        let [rows, columns] = conv.output();
        let (x, y) = (values(batch * channels_in * size * size), values(batch * channels_out * rows * columns));
        let mut weight = values(channels_out * channels_in * kernel * kernel);
        let shift = vec![0.1; channels_out];
        let flop = 2.0 * (y.len() * channels_in * kernel * kernel) as f64;
        let shift = Some(&shift[..]);
        let mut times = vec![];
        if bf16 {
            let [x, y, weight] = [&x, &y, &weight].map(|values| narrowed(HalfFormat::Bf16, values));
            let epilogue = Epilogue { shift, ..Epilogue::default() };
            times.push(time(rounds, || drop(conv2d_half(HalfFormat::Bf16, &x, &weight, &conv, epilogue))));
            if backward {
                times.push(time(rounds, || drop(conv2d_backward_input_bf16(&weight, &y, &conv))));
                times.push(time(rounds, || drop(conv2d_backward_weight_bf16(&x, &y, &conv))));
            }
        } else {
            let epilogue = Epilogue { shift, ..Epilogue::default() };
            times.push(time(rounds, || drop(conv2d(&x, &weight, &conv, epilogue))));
            if backward {
                times.push(time(rounds, || drop(conv2d_backward_input(&weight, &y, &conv))));
                times.push(time(rounds, || conv2d_backward_weight(&x, &y, &conv, &mut weight)));
            }
        }
        print!("{count} x {channels_in:4} -> {channels_out:4}, {size:3} {kernel}x{kernel} /{stride}:");
        for (total, time) in totals.iter_mut().zip(&times) {
            print!(" {:9.3} {:5.0}", time * 1e3, flop / time / 1e9);
            *total += time * count as f64;
        }
        println!();
        operations += flop * count as f64;
    }
    print!("in all:                      ");
    for total in totals.into_iter().filter(|total| *total > 0.0) {
        print!(" {:9.3} {:5.0}", total * 1e3, operations / total / 1e9);
    }
    println!();
}

fn main() {
    grove_kernels::keep_freed_memory();
    let bf16 = std::env::args().nth(1).is_some_and(|dtype| dtype == "bf16");
    run("ResNet-50", 1, &resnet_50(), 25, false, bf16);
    run("ResNet-50", 16, &resnet_50(), 3, bf16, bf16);
    run("small ResNet", 128, &SMALL, 15, true, bf16);
}
