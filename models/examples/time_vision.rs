//! Times ResNet-50 and ViT-B/16 with random weights on flex, on random pictures of 224x224; prints the JSON line that
//! benches/vision.sh reads. `cargo run -p grove-models --example time_vision -- --model resnet50 --batch 16`
#![recursion_limit = "256"]

use std::{error::Error, time::Instant};

use burn::tensor::{Int, Tensor};
use burn_flex::Flex;
use clap::{Parser, ValueEnum};
use grove_backend::Autodiff;
use grove_layers::loss::cross_entropy;
use grove_models::{
    resnet::{ResNet, ResNetConfig},
    vision::ImageClassifier,
    vit::{Vit, VitConfig},
};
use grove_transform::value_and_grad;
use grove_tree::{Key, Tree};
use serde_json::json;

#[derive(Parser)]
struct Options {
    /// What to time
    #[arg(long, value_enum, default_value_t = Model::Resnet50)]
    model: Model,

    /// Pictures in a batch
    #[arg(long, default_value_t = 1)]
    batch: usize,

    /// Passes after the first
    #[arg(long, default_value_t = 10)]
    runs: usize,

    /// Time a pass with the gradients of all weights, in training mode
    #[arg(long)]
    train: bool,
}

#[derive(ValueEnum, Clone, Copy)]
#[value(rename_all = "snake_case")]
enum Model {
    Resnet50,
    #[value(name = "vit_b_16")]
    VitB16,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let (key, device) = (Key::new(0), Default::default());
    match options.model {
        Model::Resnet50 => time(&options, "resnet50", ResNet::init(&ResNetConfig::preset("resnet50")?, key, &device)?),
        Model::VitB16 => time(&options, "vit_b_16", Vit::init(&VitConfig::preset("vit-base-patch16")?, key, &device)?),
    }
}

fn time<M>(options: &Options, name: &str, model: M) -> Result<(), Box<dyn Error>>
where
    M: ImageClassifier<Flex>,
    <M as Tree<Flex>>::On<Autodiff<Flex>>: ImageClassifier<Autodiff<Flex>>,
{
    let device = Default::default();
    let pixels = Key::new(1).normal::<Flex, 4>([options.batch, 3, 224, 224], &device);
    let labels = || Tensor::<Autodiff<Flex>, 1, Int>::zeros([options.batch], &device);
    let mut times = Vec::with_capacity(options.runs + 1);
    for _ in 0..=options.runs {
        let begun = Instant::now();
        if options.train {
            let (loss, grads) = value_and_grad(&model, |model| {
                let (logits, _) = model.logits_in_training(Tensor::from_inner(pixels.clone()), Key::new(2));
                cross_entropy(logits, labels())
            });
            std::hint::black_box((loss.into_data(), grads));
        } else {
            std::hint::black_box(model.logits(pixels.clone()).into_data());
        }
        times.push(begun.elapsed().as_secs_f64());
    }
    let first = times.remove(0);
    times.sort_by(f64::total_cmp);
    let (median, least) = (times.get(times.len() / 2).unwrap_or(&first), times.first().unwrap_or(&first));
    println!(
        "{}",
        json!({"framework": "grove", "form": "flex", "model": name, "batch": options.batch, "first_s": first,
               "median_s": median, "min_s": least})
    );
    Ok(())
}
