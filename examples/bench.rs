//! Benchmarks grove against other libraries: `cargo run --example bench -- --peers torch,jax --only gpt2`, as `grove
//! bench`.
//!
//! The benchmarks and charts are in `cli/bench`.

use grove_bench::Options;
use grove_cli::{arguments::parse_options, finish};
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = parse_options::<Options>();
    finish(|| grove_bench::run(&options, None, |device, serve| grove::run(device, serve)))
}
