"""PyTorch's times for the convolutions of `cargo run -p grove-kernels --example time_conv`."""

import time

import torch

torch.set_num_threads(2)


def best(rounds, f):
    f()
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        f()
        times.append(time.perf_counter() - begun)
    return min(times)


def resnet_50():
    """How many of each, channels in, size, channels out, kernel, stride."""
    layers = [(1, 3, 224, 64, 7, 2)]
    channels, size = 64, 56
    for stage, blocks in enumerate([3, 4, 6, 3]):
        inner, stride = 64 << stage, 1 if stage == 0 else 2
        layers += [(1, channels, size, inner, 1, 1), (1, inner, size, inner, 3, stride)]
        layers += [(1, channels, size, inner * 4, 1, stride)]
        channels, size = inner * 4, size // stride
        layers += [(blocks, inner, size, channels, 1, 1), (blocks - 1, channels, size, inner, 1, 1)]
        layers += [(blocks - 1, inner, size, inner, 3, 1)]
    return layers


# A small residual network for digits.
SMALL = [
    (1, 1, 28, 16, 3, 1),
    (4, 16, 28, 16, 3, 1),
    (1, 16, 28, 32, 3, 2),
    (3, 32, 14, 32, 3, 1),
    (1, 32, 14, 64, 3, 2),
    (3, 64, 7, 64, 3, 1),
]


def run(name, batch, layers, rounds, backward):
    print(f"{name}, batch {batch}: ms and GFLOP/s")
    totals, operations = [0.0] * 3, 0.0
    for count, channels, size, out, kernel, stride in layers:
        x, weight = torch.randn(batch, channels, size, size), torch.randn(out, channels, kernel, kernel)
        bias, pad = torch.randn(out), kernel // 2
        with torch.inference_mode():
            y = torch.conv2d(x, weight, bias, stride, pad)
            times = [best(rounds, lambda: torch.conv2d(x, weight, bias, stride, pad))]
        if backward:
            for mask in [[True, False, False], [False, True, False]]:
                sizes = ([stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, mask)
                with torch.no_grad():
                    backward_of = torch.ops.aten.convolution_backward
                    times.append(best(rounds, lambda: backward_of(y, x, weight, None, *sizes)))
        flop = 2.0 * y.numel() * channels * kernel * kernel
        line = f"{count} x {channels:4} -> {out:4}, {size:3} {kernel}x{kernel} /{stride}:"
        for i, t in enumerate(times):
            line += f" {t * 1e3:9.3f} {flop / t / 1e9:5.0f}"
            totals[i] += t * count
        operations += flop * count
        print(line)
    print("in all:                      " + "".join(f" {t * 1e3:9.3f} {operations / t / 1e9:5.0f}" for t in totals if t))


run("ResNet-50", 1, resnet_50(), 25, False)
run("ResNet-50", 16, resnet_50(), 3, False)
run("small ResNet", 128, SMALL, 15, True)
