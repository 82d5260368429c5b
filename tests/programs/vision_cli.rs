//! End-to-end tests of the examples `train_vision`, `finetune_vision`, `resnet` and `vit`: training a classifier on
//! folders of images, using it, and error messages.

use grove::images::{RgbImage, open, save_png};
use std::{fs, path::Path};

use crate::common::{Example, Place, json_file, text};

const TRAIN: Example = Example("train_vision");
const FINETUNE: Example = Example("finetune_vision");
const RESNET: Example = Example("resnet");
const VIT: Example = Example("vit");

/// Photographs in various formats.
const DECODE: &str = "inputs/images/tests/fixtures/decode";

/// Returns a random image that is lighter on the left or on the right.
fn image(right: bool, number: u32, side: u32) -> RgbImage {
    RgbImage::from_fn(side, side, |x, y| {
        let noise = ((x * 31 + y * 17 + number * 97) % 64) as u8;
        let light = if (x >= side / 2) == right { 160 } else { 20 };
        image_pixel([light + noise, light, noise])
    })
}

fn image_pixel<P: From<[u8; 3]>>(levels: [u8; 3]) -> P {
    levels.into()
}

/// Writes a folder with a subfolder of images for each class.
fn folder(place: &Place, name: &str, count: u32) -> String {
    for (class, right) in [("left", false), ("right", true)] {
        let directory = place.path(name).join(class);
        fs::create_dir_all(&directory).expect("a directory");
        for number in 0..count {
            save_png(&image(right, number, 20 + number % 5), directory.join(format!("{number:03}.png")))
                .expect("written");
        }
    }
    place.named(name)
}

const SMALL: [&str; 6] = ["--image-size", "16", "--channels", "4,8", "--depths", "1,1"];
const SMALL_VIT: [&str; 6] = ["--image-size", "16", "--hidden-size", "16", "--layers", "2"];

/// Trains a tiny classifier of these images.
fn trained(place: &Place, arch: &str) -> String {
    let (data, run) = (folder(place, "images", 40), place.named(arch));
    let options = ["--arch", arch, "--data", &data, "--output", &run, "--augment", "none", "--json"];
    let length = ["--batch-size", "16", "--steps", "40", "--learning-rate", "5e-3"];
    let sizes = if arch == "vit" { SMALL_VIT } else { SMALL };
    let made = TRAIN.json(&[&options[..], &sizes, &length].concat());
    assert_eq!((&made["steps"], &made["ended"]), (&40.into(), &"finished".into()));
    assert!(made["accuracy"].as_f64() >= Some(0.9), "{made}");
    assert_eq!(made["evaluation"]["top5"], 1.0);
    assert!(place.path(arch).join("confusion.svg").is_file());
    format!("{run}/model")
}

#[test]
fn a_resnet_is_trained_and_used_and_tuned() {
    let place = Place::new();
    let model = trained(&place, "resnet");
    let config = json_file(Path::new(&model).join("config.json"));
    assert_eq!((&config["id2label"]["0"], &config["hidden_sizes"][1]), (&"left".into(), &8.into()));
    let prepared = json_file(Path::new(&model).join("preprocessor_config.json"));
    assert!(prepared["image_mean"].is_array(), "{prepared}");

    // Files, folders and standard input. Unreadable images are reported, counted and skipped.
    let right = place.path("images/right");
    let broken = place.write("images/right/notes.png", "this is not an image");
    let found = RESNET.run(&["--model", &model, "--image", text(&right), "--json"], "");
    let message = String::from_utf8_lossy(&found.stderr).into_owned();
    assert!(found.status.success() && message.contains(&broken), "{message}");
    let found: serde_json::Value = serde_json::from_slice(&found.stdout).expect("JSON");
    assert_eq!((&found["skipped"], found["images"].as_array().map(Vec::len)), (&1.into(), Some(40)));
    let rightly = found["images"].as_array().expect("images").iter();
    let rightly = rightly.filter(|image| image["labels"][0]["label"] == "right").count();
    assert!(rightly >= 36, "{rightly} of 40");
    let bars = RESNET.run(&["--model", &model, "--image", text(&right.join("001.png"))], "");
    let bars = String::from_utf8_lossy(&bars.stdout).into_owned();
    assert!(bars.contains('█') && bars.contains("right") && bars.contains('%'), "{bars}");
    let table = place.named("predictions.csv");
    let written = RESNET.run(&["--model", &model, "--image", text(&right), "--output", &table], "");
    let written = String::from_utf8_lossy(&written.stdout).into_owned();
    assert_eq!(written, format!("{table} has 40 predictions\n"));
    let rows = fs::read_to_string(&table).expect("a table");
    let mut rows = rows.lines();
    assert_eq!(rows.next(), Some("image,label,score"));
    let rightly = rows.filter(|row| row.contains(".png,right,0.") || row.contains(".png,right,1")).count();
    assert!(rightly >= 36, "{rightly} of 40");

    // Fine-tune with a frozen backbone, and with all parameters.
    let tuned = place.named("tuned");
    let data = ["--data", &place.named("images"), "--augment", "none", "--image-size", "16", "--batch-size", "16"];
    let frozen = ["--model", &model, "--new-head", "--freeze", "backbone", "--steps", "30", "--learning-rate", "5e-2"];
    let made = FINETUNE.json(&[&data[..], &frozen, &["--json", "--output", &tuned]].concat());
    assert!(made["accuracy"].as_f64() >= Some(0.8) && made["evaluation"]["images"] == 8, "{made}");
    // The unreadable image is counted at most once, if the run loads it at all.
    assert!(made["unreadable"].as_u64() <= Some(1), "{made}");
    let changes = ["--augment", "rand", "--mixup", "0.2", "--cutmix", "1", "--erasing", "0.2", "--jitter", "0.2"];
    let rates =
        ["--layer-decay", "0.7", "--ema", "0.9", "--label-smoothing", "0.1", "--steps", "3", "--freeze", "stem.**"];
    let all = ["--model", &model, "--data", &place.named("images"), "--image-size", "16", "--json"];
    let made = FINETUNE.json(&[&all[..], &changes, &rates].concat());
    assert_eq!((&made["steps"], &made["model"]), (&3.into(), &serde_json::Value::Null));
    let evaluated = FINETUNE.json(&["--evaluate", "--model", &model, "--data", &place.named("images"), "--json"]);
    assert!(evaluated["accuracy"].as_f64() >= Some(0.9), "{evaluated}");
    let files = ["left", "right"].map(|class| fs::read_dir(place.path("images").join(class)).expect("images").count());
    let (seen, unreadable) = (evaluated["images"].as_u64(), evaluated["unreadable"].as_u64());
    assert_eq!(seen.zip(unreadable).map(|(a, b)| a + b), Some(files.iter().sum::<usize>() as u64), "all are evaluated");

    // Classes that differ from the model's.
    let (other, second) = (place.path("other/up"), place.path("other/down"));
    for directory in [&other, &second] {
        fs::create_dir_all(directory).expect("a directory");
        save_png(&image(true, 1, 16), directory.join("1.png")).expect("written");
    }
    let arguments = ["--evaluate", "--model", &model, "--data", &place.named("other")];
    FINETUNE.assert_refused(&arguments, 1, &["does not know these classes of the images: down, up", "it has 2"]);
}

#[test]
fn a_vit_is_trained_and_shows_where_it_looks() {
    let place = Place::new();
    let model = trained(&place, "vit");
    let (image, drawn) = (place.named("images/left/002.png"), place.named("seen.png"));
    let found = VIT.json(&["--model", &model, "--image", &image, "--attention", &drawn, "--json"]);
    assert_eq!(found["images"][0]["labels"][0]["label"], "left");
    let drawing = open(&drawn, &Default::default()).expect("an image");
    assert!(drawing.height() > drawing.width(), "a square map with its scale below");
    let mut colours: Vec<[u8; 3]> = drawing.pixels().map(|pixel| pixel.0).collect();
    colours.sort_unstable();
    colours.dedup();
    assert!(colours.len() > 50, "{} colours", colours.len());
    VIT.assert_refused(
        &["--model", &model, "--attention", &drawn, "--image", &image, &image],
        2,
        &["exactly one --image"],
    );

    // The input is never overwritten, under any path, and only PNG is written.
    let before = fs::read(&image).expect("the image");
    let roundabout = place.named("images/right/../left/002.png");
    for output in [&image, &roundabout] {
        VIT.assert_refused(&["--model", &model, "--image", &image, "--attention", output], 2, &["overwrite", output]);
    }
    let ships = "models/assets/images/digit.png";
    VIT.assert_refused(&["--attention", ships], 2, &["overwrite", ships]);
    for name in ["seen.xyz", "seen", "seen.jpg"] {
        let output = place.named(name);
        let arguments = ["--model", &model, "--image", &image, "--attention", &output];
        VIT.assert_refused(&arguments, 2, &["writes a PNG", name]);
        assert!(!Path::new(&output).exists());
    }
    assert_eq!(fs::read(&image).expect("the image"), before);
}

/// Grey images in MNIST's file format, and resumption.
#[test]
fn files_of_mnist_and_resuming() {
    let place = Place::new();
    let data = "models/assets/digits";
    let run = place.named("run");
    let options = ["--data", data, "--output", &run, "--channels", "4,8", "--depths", "1,1", "--json"];
    let made = TRAIN.json(&[&options[..], &["--steps", "4"]].concat());
    assert_eq!(made["evaluation"]["images"], 297);
    let config = json_file(place.path("run/model/config.json"));
    assert_eq!((&config["num_channels"], &config["stem"]), (&1.into(), &"small".into()));
    TRAIN.assert_refused(&[&options[..], &["--steps", "4"]].concat(), 1, &["run at step 4", "resume it"]);
    let resumed = TRAIN.json(&[&options[..], &["--steps", "6", "--resume"]].concat());
    assert_eq!(resumed["steps"], 6);
    // A colour image is converted to grey.
    let photograph = format!("{DECODE}/chelsea.png");
    let found = RESNET.json(&["--model", &place.named("run/model"), "--image", &photograph, "--json"]);
    assert_eq!(found["images"][0]["labels"].as_array().map(Vec::len), Some(5));
    // The number of labels differs from the number of images.
    fs::copy("models/assets/digits/train-images-idx3-ubyte", place.path("train-images-idx3-ubyte")).expect("copied");
    fs::copy("models/assets/digits/t10k-labels-idx1-ubyte", place.path("train-labels-idx1-ubyte")).expect("copied");
    TRAIN.assert_refused(&["--data", &place.named("train-images-idx3-ubyte")], 1, &["297 labels", "1500 images"]);
}

#[test]
fn bad_images_are_named() {
    let place = Place::new();
    let refuse = |name: &str, content: Vec<u8>, words: &[&str]| {
        let file = place.write(name, content);
        RESNET.assert_refused(&["--image", &file], 1, &[&[&file[..]], words].concat());
    };
    refuse("page.jpg", b"<!DOCTYPE html><html>".to_vec(), &["not an image"]);
    refuse("empty.png", vec![], &["empty"]);
    let jpeg = fs::read(format!("{DECODE}/420.jpg")).expect("a fixture");
    refuse("half.jpg", jpeg[..jpeg.len() / 2].to_vec(), &["damaged"]);
    // A BMP header of 60,000 x 60,000 pixels without pixel data.
    let numbers = [54, 40, 60_000, 60_000, 0x18_0001, 0, 0, 0, 0, 0, 0_u32];
    let header =
        [b"BM".to_vec(), vec![0; 8], numbers.iter().flat_map(|number| number.to_le_bytes()).collect()].concat();
    refuse("bomb.bmp", header, &["60000"]);
    RESNET.assert_refused(&["--image", &place.named("none.jpg")], 1, &["none.jpg"]);
    fs::create_dir(place.path("nothing")).expect("a directory");
    RESNET.assert_refused(&["--image", &place.named("nothing")], 1, &["no images"]);
    // A tiny and a very long image.
    for (name, width, height) in [("dot.png", 1, 1), ("line.png", 30_000, 2)] {
        save_png(&RgbImage::new(width, height), place.path(name)).expect("written");
        let found = RESNET.json(&["--image", &place.named(name), "--json"]);
        assert_eq!(found["images"].as_array().map(Vec::len), Some(1));
        let torchvision = ["--preprocess", "torchvision", "--image", &place.named(name)];
        RESNET.assert_refused(&torchvision, 1, &["3 channels", "expects 1"]);
    }
}

#[test]
fn bad_folders_and_options_are_named() {
    let place = Place::new();
    let data = folder(&place, "images", 4);
    let train = |words: &[&str]| TRAIN.assert_refused(&["--data", &data, "--steps", "1"], 1, words);
    TRAIN.assert_refused(&["--data", &place.named("images/left")], 1, &["no folders"]);
    fs::remove_dir_all(place.path("images/left")).expect("removed");
    train(&["right", "only class"]);
    TRAIN.assert_refused(&["--data", &place.named("nowhere")], 1, &["nowhere"]);

    TRAIN.assert_refused(&["--batch-size", "1"], 2, &["at least two images"]);
    TRAIN.assert_refused(&["--channels", "8,16"], 2, &["--channels has 2", "--depths has 3"]);
    TRAIN.assert_refused(&["--arch", "vit", "--heads", "5"], 2, &["not divisible"]);
    TRAIN.assert_refused(&["--arch", "vit", "--image-size", "16", "--patch-size", "5"], 2, &["patches of 5"]);
    TRAIN.assert_refused(&["--mixup", "-1"], 2, &["--mixup is -1"]);
    RESNET.assert_refused(&["--top-k", "0"], 2, &["--top-k is 0"]);
    RESNET.assert_refused(&["--model", "models/tests/fixtures/gpt2/tiny_a"], 1, &["is a GPT-2", "example gpt2"]);
    RESNET.assert_refused(&["--preprocess", "keras"], 2, &["keras", "torchvision"]);
    VIT.assert_refused(
        &["--model", "models/tests/fixtures/vit/dinov2"],
        1,
        &["no classification head", "finetune_vision"],
    );
    FINETUNE.assert_refused(&["--freeze", "tail.**"], 2, &["tail.**", "stem."]);
    FINETUNE.assert_refused(&["--layer-decay", "2"], 2, &["--layer-decay is 2"]);
    FINETUNE.assert_refused(&["--model", "models/tests/fixtures/gpt2/tiny_a"], 1, &["is a GPT-2", "example gpt2"]);
}

#[test]
fn empty_folders_are_left_out() {
    let place = Place::new();
    let data = folder(&place, "images", 8);
    fs::create_dir(place.path("images/middle")).expect("a directory");
    let steps = ["--steps", "1", "--batch-size", "4", "--json"];
    let made = TRAIN.run(&[&["--data", &data][..], &SMALL, &steps].concat(), "");
    let message = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(made.status.success() && message.contains("middle has no images"), "{message}");
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).expect("JSON");
    assert_eq!(made["evaluation"]["classes"].as_object().map(serde_json::Map::len), Some(2));

    // The held-out images lack a class: the class indices do not change, and a message names the class.
    folder(&place, "split/train", 8);
    let other = place.path("split/train/above");
    fs::create_dir_all(&other).expect("a directory");
    (0..4).for_each(|i| save_png(&image(true, i, 16), other.join(format!("{i}.png"))).expect("written"));
    folder(&place, "split/val", 4);
    let data = place.named("split");
    let made = TRAIN.run(&[&["--data", &data][..], &SMALL, &steps].concat(), "");
    let message = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(made.status.success() && message.contains("no example of these classes: above"), "{message}");
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).expect("JSON");
    let of = |class: &str| made["evaluation"]["classes"][class]["predicted"].as_object().expect("counts").values();
    let count = |class: &str| of(class).filter_map(serde_json::Value::as_u64).sum::<u64>();
    assert_eq!(["above", "left", "right"].map(count), [0, 4, 4]);
    // A held-out class without training images is an error.
    fs::rename(place.path("split/val/left"), place.path("split/val/under")).expect("renamed");
    TRAIN.assert_refused(&[&["--data", &data][..], &steps].concat(), 1, &["under", "above, left, right"]);
}

/// The preprocessing of a model may specify sizes that do not fit the model or take minutes to compute.
#[test]
fn impossible_sizes_are_refused() {
    let place = Place::new();
    let copy = |name: &str, size: &str| {
        let directory = place.path(name);
        fs::create_dir_all(&directory).expect("a directory");
        for file in ["config.json", "model.safetensors"] {
            fs::copy(format!("models/assets/mnist-vit/{file}"), directory.join(file)).expect("copied");
        }
        let prepared = fs::read("models/assets/mnist-vit/preprocessor_config.json").expect("it ships");
        let mut prepared: serde_json::Value = serde_json::from_slice(&prepared).expect("JSON");
        prepared["size"] = serde_json::from_str(size).expect("JSON");
        prepared["crop_size"] = prepared["size"].clone();
        fs::write(directory.join("preprocessor_config.json"), prepared.to_string()).expect("written");
        text(&directory).to_owned()
    };
    let small = copy("small", r#"{"height": 2, "width": 28}"#);
    VIT.assert_refused(&["--model", &small], 1, &["2x28", "no whole patch", "digit.png"]);
    let evaluate = ["--evaluate", "--data", "models/assets/digits", "--model"];
    FINETUNE.assert_refused(&[&evaluate[..], &[&small]].concat(), 1, &["2x28", "no whole patch"]);
    let long = copy("long", r#"{"height": 28, "width": 65536}"#);
    VIT.assert_refused(&["--model", &long], 1, &["28x65536", "limit of 16384", "--max-patches"]);
    FINETUNE.assert_refused(&[&evaluate[..], &[&long]].concat(), 1, &["28x65536", "--max-patches"]);
    let wide = copy("wide", r#"{"height": 28, "width": 56}"#);
    VIT.assert_refused(&["--model", &wide, "--max-patches", "31"], 1, &["32 patches", "limit of 31"]);
    assert!(VIT.json(&["--model", &wide, "--max-patches", "32", "--json"])["images"].is_array());
    // Sizes beyond any machine's memory.
    TRAIN.assert_refused(&["--image-size", "65536", "--batch-size", "1000000"], 1, &["of memory", "--batch-size"]);
    TRAIN.assert_refused(&["--channels", "1000000,1000000", "--depths", "9,9"], 1, &["of memory", "smaller sizes"]);
    let vit = ["--arch", "vit", "--heads", "1", "--layers", "9999", "--hidden-size", "200000"];
    TRAIN.assert_refused(&vit, 1, &["of memory", "smaller sizes"]);
    TRAIN.assert_fails(&["--arch", "vit", "--heads", "1", "--hidden-size", "18446744073709551615"], 2, &["2^20"]);
    TRAIN.assert_refused(&["--data", &folder(&place, "images", 8), "--image-size", "4294967295"], 2, &["--image-size"]);
}
