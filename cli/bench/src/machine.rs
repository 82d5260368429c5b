//! Description of the machine and its peak speeds.

use rayon::prelude::*;
use std::{process::Command, time::Instant};
use sysinfo::System;

use crate::{results::Machine, work::Work};

/// Number of bytes to read for measuring the memory bandwidth, far more than caches hold.
const BYTES: usize = 1 << 28;
const READINGS: usize = 5;

/// Returns the machine with its memory bandwidth. The peak arithmetic speed is measured by the rows.
pub fn describe(threads: usize, on_gpu: bool) -> Machine {
    let mut system = System::new();
    system.refresh_memory();
    system.refresh_cpu_all();
    let cpu = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned()).unwrap_or_default();
    Machine {
        gpu: on_gpu.then(gpu).flatten(),
        cpu,
        threads,
        memory_bytes: system.total_memory(),
        system: System::long_os_version().unwrap_or_else(|| std::env::consts::OS.to_owned()),
        bytes_per_second: bytes_per_second(threads),
        operations_per_second: 0.0,
    }
}

/// Returns the name and driver of the first NVIDIA GPU, if `nvidia-smi` is available.
fn gpu() -> Option<String> {
    let query = ["--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"];
    let output = Command::new("nvidia-smi").args(query).output().ok().filter(|output| output.status.success())?;
    let line = String::from_utf8(output.stdout).ok()?;
    let (name, driver) = line.trim().split_once(", ")?;
    Some(format!("{name}, driver {driver}"))
}

/// Returns the memory bandwidth in bytes per second: the best of several reads of a large array by all threads.
fn bytes_per_second(threads: usize) -> f64 {
    let words: Vec<u64> = (0..(BYTES / size_of::<u64>()) as u64).collect();
    let share = words.len().div_ceil(threads.max(1));
    let reading = || {
        let start = Instant::now();
        let sum: u64 = words.par_chunks(share).map(|part| part.iter().fold(0, |sum, &x| x ^ sum)).sum();
        std::hint::black_box(sum);
        start.elapsed().as_secs_f64()
    };
    let least = (0..READINGS).map(|_| reading()).fold(f64::INFINITY, f64::min);
    BYTES as f64 / least
}

/// Returns the matrix product that measures the machine's peak arithmetic speed.
pub fn product() -> Work {
    let size = 2048;
    Work::Gemm { m: size, k: size, n: size }
}
