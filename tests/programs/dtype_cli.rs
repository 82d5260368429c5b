//! `--dtype` in every example that trains or infers: 16-bit results match f32 within their precision.

use grove::images::{RgbImage, save_png};
use serde_json::Value;
use std::fs;

use crate::common::{Example, Place};

const HALVES: [&str; 2] = ["f16", "bf16"];

/// Asserts that a field of both objects is a number, with a relative difference of at most `tolerance`.
#[track_caller]
fn near(found: &Value, expected: &Value, name: &str, tolerance: f64) {
    let number = |of: &Value| of[name].as_f64().unwrap_or_else(|| panic!("no {name} in {of}"));
    let (found, expected) = (number(found), number(expected));
    assert!((found - expected).abs() <= tolerance * expected.abs(), "{name}: {found}, in f32 {expected}");
}

/// Runs a program in f32, f16 and bf16, and compares a number that it prints.
#[track_caller]
fn in_every_dtype(program: &'static str, arguments: &[&str], name: &str, tolerance: f64) {
    let run = |dtype: &str| Example(program).json(&[arguments, &["--json", "--dtype", dtype]].concat());
    let expected = run("f32");
    for dtype in HALVES {
        near(&run(dtype), &expected, name, tolerance);
    }
}

#[test]
fn slow_types_are_noted_once() {
    let notes = |[backend, dtype]: [&str; 2]| {
        let output = Example("resnet").run(&["--json", "--backend", backend, "--dtype", dtype], "");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).matches("slower than f32").count()
    };
    assert_eq!([["candle", "f32"], ["candle", "f16"], ["flex", "bf16"]].map(notes), [0, 1, 0]);
}

#[test]
fn kernels_are_chosen_by_name() {
    for program in [
        "bench",
        "bert",
        "finetune_bert",
        "finetune_vision",
        "gpt2",
        "gpt_neo",
        "llama",
        "resnet",
        "rnn",
        "train_bert",
        "train_gpt2",
        "train_llama",
        "train_vision",
        "vit",
    ] {
        let example = Example(program);
        example.assert_refused(&["--precision", "tf32"], 2, &["'tf32'", "--precision", "highest", "high"]);
        let levels = ["'fast'", "--autotune", "minimal", "balanced", "extensive", "full"];
        example.assert_refused(&["--autotune", "fast"], 2, &levels);
    }
    // These options have no effect on a CPU.
    let score = ["--score", "--prompt", "It is a truth universally acknowledged", "--json"];
    let options = ["--precision", "high", "--autotune", "minimal"];
    let [plain, chosen] = [&score[..], &[&score[..], &options].concat()].map(|options| Example("gpt2").json(options));
    assert_eq!(plain["loss"], chosen["loss"]);
}

#[test]
fn an_unknown_precision_in_the_environment_is_refused() {
    let mut command = std::process::Command::new(Example("gpt2").program());
    let ended = command.env("GROVE_MATMUL_PRECISION", "tf32").args(["--prompt", "A tree"]).output().expect("runs");
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("GROVE_MATMUL_PRECISION: unknown precision 'tf32'; choose one of highest, high"),
        "{stderr}"
    );
}

#[test]
fn texts_are_scored() {
    let prompt = ["--score", "--prompt", "It is a truth universally acknowledged, that a single man"];
    for program in ["gpt2", "gpt_neo", "llama", "rnn"] {
        in_every_dtype(program, &prompt, "loss", 0.02);
    }
}

#[test]
fn texts_are_continued() {
    for program in ["gpt2", "gpt_neo", "llama", "rnn"] {
        for dtype in ["f16", "bf16", "auto"] {
            let options =
                ["--prompt", "It is a truth", "--max-new-tokens", "4", "--ignore-eos", "--json", "--dtype", dtype];
            let made = Example(program).json(&options);
            assert_eq!(made["generated_ids"].as_array().map(Vec::len), Some(4), "{program} {dtype}: {made}");
        }
    }
}

#[test]
fn decoders_are_trained() {
    let place = Place::new();
    let book = place.book();
    let data = ["--data", &book, "--steps", "6", "--batch-size", "4", "--context", "16"];
    let gpt2 = ["--n-layer", "1", "--n-head", "2", "--n-embd", "16", "--vocab-size", "280"];
    in_every_dtype("train_gpt2", &[&data[..], &gpt2].concat(), "held_out_loss", 0.02);
    let llama = ["--layers", "1", "--heads", "2", "--kv-heads", "1", "--hidden-size", "16", "--vocab-size", "280"];
    let llama = [&llama[..], &["--intermediate-size", "24"]].concat();
    in_every_dtype("train_llama", &[&data[..], &llama].concat(), "held_out_loss", 0.02);
    let rnn = [&["lm"][..], &data, &["--hidden", "16", "--layers", "1"]].concat();
    in_every_dtype("train_rnn", &rnn, "held_out_loss", 0.02);
}

#[test]
fn texts_are_classified() {
    let place = Place::new();
    let data = place.labelled_table();
    let settings = ["--val-fraction", "0.25", "--steps", "12", "--dropout", "0", "--hidden", "8", "--embedding", "8"];
    in_every_dtype("train_rnn", &[&["classify", "--data", &data][..], &settings].concat(), "held_out_loss", 0.05);
}

#[test]
fn encoders_are_trained_and_used() {
    let place = Place::new();
    let book = place.book();
    let lines = place.write("lines.txt", fs::read_to_string(book).expect("a book").replace(". ", ".\n"));
    let sizes = ["--layers", "1", "--hidden", "16", "--heads", "2", "--context", "24", "--vocab-size", "500"];
    let data = ["--data", &lines, "--steps", "6", "--batch-size", "8", "--dropout", "0"];
    in_every_dtype("train_bert", &[&data[..], &sizes].concat(), "held_out_loss", 0.02);

    let texts = place.labelled_table();
    let columns = ["--label-column", "1", "--text-column", "2", "--val-fraction", "0.25"];
    let settings = ["--data", &texts, "--steps", "6", "--batch-size", "8"];
    in_every_dtype("finetune_bert", &[&settings[..], &columns].concat(), "held_out_loss", 0.05);
    let tuned = place.named("tuned");
    Example("finetune_bert").json(&[&settings[..], &columns, &["--output", &tuned, "--json"]].concat());
    let evaluate = ["--evaluate", "--model", &format!("{tuned}/model"), "--data", &texts];
    in_every_dtype("finetune_bert", &[&evaluate[..], &columns[..4]].concat(), "loss", 0.05);

    let likeliest = |dtype: &str| {
        let found = Example("bert").json(&["--json", "--top-k", "3", "--dtype", dtype, "She was [MASK] happy."]);
        found["texts"][0]["masks"][0]["candidates"][0].clone()
    };
    let expected = likeliest("f32");
    for dtype in HALVES {
        let found = likeliest(dtype);
        assert_eq!(found["token_str"], expected["token_str"], "{dtype}");
        near(&found, &expected, "score", 0.1);
    }
}

#[test]
fn images_are_classified() {
    for (program, most) in [("resnet", 0.05), ("vit", 0.05)] {
        let likeliest = |dtype: &str| {
            let found = Example(program).json(&["--json", "--dtype", dtype]);
            found["images"][0]["labels"][0].clone()
        };
        let expected = likeliest("f32");
        for dtype in HALVES {
            let found = likeliest(dtype);
            assert_eq!(found["label"], expected["label"], "{program} {dtype}");
            near(&found, &expected, "score", most);
        }
    }
}

#[test]
fn image_classifiers_are_trained() {
    let place = Place::new();
    for (class, light) in [("dark", 20), ("light", 160)] {
        let directory = place.path("images").join(class);
        fs::create_dir_all(&directory).expect("a directory");
        for number in 0..16_u32 {
            let image =
                RgbImage::from_fn(16, 16, |x, y| [light + ((x * 31 + y * 17 + number * 97) % 64) as u8; 3].into());
            save_png(&image, directory.join(format!("{number:02}.png"))).expect("written");
        }
    }
    let data = place.named("images");
    let resnet = ["--arch", "resnet", "--channels", "4,8", "--depths", "1,1"];
    let vit = ["--arch", "vit", "--hidden-size", "16", "--layers", "1"];
    let data = ["--data", &data, "--augment", "none", "--batch-size", "8", "--val-fraction", "0.25"];
    for sizes in [resnet, vit] {
        let run = place.named(sizes[1]);
        let train = [&data[..], &sizes, &["--image-size", "16", "--steps", "6"]].concat();
        in_every_dtype("train_vision", &train, "held_out_loss", 0.05);
        Example("train_vision").json(&[&train[..], &["--output", &run, "--json"]].concat());
        let model = format!("{run}/model");
        in_every_dtype("train_vision", &["--evaluate", "--model", &model, "--data", data[1]], "loss", 0.05);
        let tune = [&["--model", &model], &data[..], &["--steps", "4"]].concat();
        in_every_dtype("finetune_vision", &tune, "held_out_loss", 0.05);
        let head = [&tune[..], &["--new-head", "--freeze", "backbone"]].concat();
        in_every_dtype("finetune_vision", &head, "held_out_loss", 0.05);
        in_every_dtype("finetune_vision", &["--evaluate", "--model", &model, "--data", data[1]], "loss", 0.05);
    }
}
