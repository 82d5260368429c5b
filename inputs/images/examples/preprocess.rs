//! Shows a model's input: decodes images, resizes, crops and normalises them, and prints or saves the result.
//!
//! ```sh
//! cargo run -p grove-images --example preprocess -- --config vit photo.jpg
//! cargo run -p grove-images --example preprocess -- --config model/ --output tensors/ photos/
//! ```

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use grove_images::{Limits, Preprocessor, files, open};
use serde_json::{Value, json};

/// Prepares images for a model, as transformers, timm and torchvision do.
#[derive(Parser)]
#[command(max_term_width = 100)]
struct Args {
    /// A preset (torchvision, torchvision-v2, vit, timm, timm-imagenet, mnist, cifar10), or a configuration of
    /// transformers or timm: its file or its directory.
    #[arg(long, default_value = "torchvision")]
    config: String,

    /// Save each tensor here: 32-bit floats in native byte order, channels first, as `NAME.f32`; and the model's view
    /// as `NAME.png`.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Save the configuration as a preprocessor_config.json that transformers reads.
    #[arg(long, value_name = "FILE")]
    write_config: Option<PathBuf>,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,

    /// Image files, or directories of them.
    #[arg(value_name = "IMAGE")]
    images: Vec<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let preprocessor = if Preprocessor::PRESETS.contains(&args.config.as_str()) || !Path::new(&args.config).exists() {
        Preprocessor::preset(&args.config)?
    } else {
        Preprocessor::from_file(&args.config)?
    };
    if let Some(file) = &args.write_config {
        preprocessor.save(file)?;
    }
    if let Some(dir) = &args.output {
        std::fs::create_dir_all(dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
    }
    if !args.json && !args.images.is_empty() {
        println!(
            "{:>11} {:>13} {:>8} {:>8} {:>8} {:>8}  image",
            "pixels", "tensor", "mean", "std", "decode", "prepare"
        );
    }
    let mut reports = Vec::new();
    for path in &args.images {
        for file in files(path)? {
            let report = prepare(&preprocessor, &file, args.output.as_deref())?;
            if !args.json {
                print_row(&report);
            }
            reports.push(report);
        }
    }
    if args.json {
        println!("{}", json!({"config": args.config, "images": reports}));
    }
    Ok(())
}

/// Preprocesses one image, and reports the result and the time.
fn prepare(preprocessor: &Preprocessor, file: &Path, output: Option<&Path>) -> Result<Value, Box<dyn Error>> {
    let start = Instant::now();
    let image = open(file, &Limits::default())?;
    let decoded = start.elapsed();
    let view = preprocessor.prepare(&image)?;
    let tensor = preprocessor.normalise(&view)?;
    let prepared = start.elapsed() - decoded;
    if let Some(dir) = output {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let bytes: Vec<u8> = tensor.iter().flat_map(|v| v.to_ne_bytes()).collect();
        let path = dir.join(format!("{name}.f32"));
        std::fs::write(&path, bytes).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        view.save(dir.join(format!("{name}.png")))?;
    }
    let count = tensor.len().max(1) as f64;
    let mean = tensor.iter().map(|&v| f64::from(v)).sum::<f64>() / count;
    let variance = tensor.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / count;
    Ok(json!({
        "file": file.display().to_string(),
        "size": [image.height(), image.width()],
        "shape": [preprocessor.channels(), view.height(), view.width()],
        "mean": mean,
        "std": variance.sqrt(),
        "decode_ms": decoded.as_secs_f64() * 1e3,
        "prepare_ms": prepared.as_secs_f64() * 1e3,
    }))
}

fn print_row(report: &Value) {
    let sizes = |key: &str| {
        let sizes: Vec<String> = report[key].as_array().into_iter().flatten().map(Value::to_string).collect();
        sizes.join("×")
    };
    let number = |key: &str| report[key].as_f64().unwrap_or(f64::NAN);
    println!(
        "{:>11} {:>13} {:>8.4} {:>8.4} {:>5.1} ms {:>5.1} ms  {}",
        sizes("size"),
        sizes("shape"),
        number("mean"),
        number("std"),
        number("decode_ms"),
        number("prepare_ms"),
        report["file"].as_str().unwrap_or_default()
    );
}
