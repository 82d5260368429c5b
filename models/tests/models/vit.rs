//! ViT and DINOv2 against transformers, timm and torchvision: all namings, states, attention, logits, gradients, and
//! images of other sizes, for which position embeddings are interpolated. Fixtures: tools/fixtures/vit.py.

use grove_backend::Backend;
use grove_models::Pretrained;
use grove_models::vit::{Naming, Vit, VitConfig, published_names};
use grove_transform::value_and_grad;
use grove_tree::{Key, eq};
use grove_weights::TensorFiles;
use std::path::Path;

use crate::arrays::same_arrays;
use crate::reference::Reference;

const ALL: [&str; 15] = [
    "transformers",
    "transformers_model",
    "transformers_plain",
    "transformers_pooler",
    "dinov2",
    "dinov2_classify",
    "dinov2_registers",
    "dinov2_registers_classify",
    "dinov2_swiglu",
    "timm_token",
    "timm_avg",
    "timm_plain",
    "timm_registers",
    "timm_dinov2",
    "timm_swiglu",
];

fn open<B: Backend>(path: impl AsRef<Path>, device: &B::Device) -> Vit<B> {
    let (model, report) = Vit::from_path(path.as_ref(), device, None).unwrap();
    assert!(report.is_complete(), "{}: {report}", path.as_ref().display());
    model
}

fn load<B: Backend>(name: &str, device: &B::Device) -> (Reference, Vit<B>) {
    let reference = Reference::of("vit", name);
    let model = open(&reference.directory, device);
    (reference, model)
}

/// torchvision writes no configuration, and shapes do not determine the number of heads of this width.
fn torchvision(file: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let from = Path::new("tests/fixtures/vit").join(file);
    std::fs::copy(&from, directory.path().join(from.file_name().unwrap())).unwrap();
    std::fs::write(directory.path().join("config.json"), r#"{"num_attention_heads": 3}"#).unwrap();
    directory
}

fn check<B: Backend>(reference: &Reference, model: &Vit<B>, device: &B::Device) {
    let pixels = || reference.tensor::<B, 4>("pixels", device);
    for (i, state) in model.states(pixels(), None).enumerate() {
        reference.close(&format!("hidden.{i}"), state.into_data(), 1e-4);
    }
    let features = model.features(pixels());
    if reference.has("last") {
        reference.close("last", features.last.into_data(), 1e-4);
    }
    if reference.name != "transformers_pooler" {
        reference.close("pooled", features.pooled.into_data(), 1e-4);
    }
    let attentions = model.attentions(pixels());
    for (i, weights) in attentions.into_iter().enumerate().filter(|(i, _)| reference.has(&format!("attentions.{i}"))) {
        reference.close(&format!("attentions.{i}"), weights.into_data(), 1e-4);
    }
    if reference.has("large.pixels") {
        let large = || reference.tensor::<B, 4>("large.pixels", device);
        let embedded = model.states(large(), None).next().unwrap();
        reference.close("large.hidden.0", embedded.into_data(), 1e-4);
        let [_, _, h, w] = large().dims();
        let resized = model.clone().with_image_size([h, w]).unwrap();
        let embedded = resized.states(large(), None).next().unwrap();
        reference.close("large.hidden.0", embedded.into_data(), 1e-4);
        assert!(model.clone().with_image_size([h, 1]).is_err());
        if reference.has("large.logits") {
            reference.close("large.logits", model.forward(large(), None).into_data(), 1e-4);
        }
    }
    assert_eq!(reference.has("logits"), model.head.is_some());
    if model.head.is_some() {
        reference.close("logits", model.forward(pixels(), None).into_data(), 1e-4);
        let (loss, grads) = value_and_grad(model, |model| {
            model.loss(reference.tensor("pixels", device), reference.labels(device), None)
        });
        reference.close("loss", loss.into_data(), 1e-4);
        reference.gradients("grad.", &grads, &published_names(&model.config));
    }
}

fn models<B: Backend>(device: B::Device) {
    for name in ALL {
        let (reference, model) = load::<B>(name, &device);
        check(&reference, &model, &device);
    }
    let reference = Reference::of("vit", "torchvision");
    check(&reference, &open::<B>(torchvision("torchvision/model.safetensors").path(), &device), &device);
}

/// One kind of model, for slow backends.
fn one_kind<B: Backend>(device: B::Device) {
    let (reference, model) = load::<B>("dinov2_classify", &device);
    check(&reference, &model, &device);
}

/// The same weights under other names.
fn other_names<B: Backend>(device: B::Device) {
    for name in ["transformers", "dinov2_registers", "dinov2_swiglu"] {
        let (_, model) = load::<B>(name, &device);
        let again = open::<B>(format!("tests/fixtures/vit/{name}5"), &device);
        assert!(eq(&model, &again), "{name}");
    }
    let (old, new) = (torchvision("torchvision_old/model.pth"), torchvision("torchvision/model.safetensors"));
    assert!(eq(&open::<B>(old.path(), &device), &open::<B>(new.path(), &device)));
}

/// A saved model loads again, with the tensor names of its source.
fn saved<B: Backend>(device: B::Device) {
    let again = |model: &Vit<B>, expected: &Path| {
        let directory = tempfile::tempdir().unwrap();
        model.save_pretrained(directory.path()).unwrap();
        assert!(same_arrays(&open::<B>(directory.path(), &device), model), "{}", expected.display());
        let names = |path: &Path| {
            let checkpoint = TensorFiles::open(path).unwrap();
            let unused = ["mask_token", "pooler.dense.weight", "pooler.dense.bias"];
            checkpoint
                .names()
                .filter(|name| !unused.iter().any(|unused| name.ends_with(unused)))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(directory.path()), names(expected));
    };
    for name in ALL {
        let (reference, model) = load::<B>(name, &device);
        again(&model, &reference.directory);
    }
    let directory = torchvision("torchvision/model.safetensors");
    again(&open(directory.path(), &device), directory.path());
}

fn new_heads<B: Backend>(device: B::Device) {
    let (reference, model) = load::<B>("dinov2_classify", &device);
    let changed = model.clone().with_new_head(vec!["a".into(), "b".into()], Key::new(0));
    assert_eq!(changed.forward(reference.tensor("pixels", &device), None).dims(), [3, 2]);
    assert!(eq(&changed.blocks, &model.blocks) && changed.config.labels == ["a", "b"]);
}

on_each_backend!(one_kind, models, other_names, saved, new_heads);

#[test]
fn sizes_are_read_from_shapes() {
    let of = |name: &str| VitConfig::infer(&TensorFiles::open(Reference::of("vit", name).directory).unwrap()).unwrap();
    let timm = of("timm_registers");
    assert_eq!((timm.naming, timm.num_register_tokens, timm.position_prefix), (Naming::Timm, 4, 0));
    assert_eq!((timm.hidden_size, timm.patch_size, timm.image_size), (12, 5, [20, 20]));
    assert!(timm.layerscale_value.is_some() && timm.qkv_bias);
    let plain = of("timm_plain");
    assert_eq!((plain.class_token, plain.num_channels, plain.qkv_bias), (false, 1, false));
    assert_eq!(of("torchvision").naming, Naming::Torchvision);
    assert!(of("timm_swiglu").swiglu);
}

#[test]
fn rejects_weights_of_other_models() {
    let message = |path: &Path| {
        let result = Vit::<burn_flex::Flex>::from_path(path, &Default::default(), None);
        result.map(drop).unwrap_err().to_string()
    };
    let other = message("tests/fixtures/resnet/torchvision_basic".as_ref());
    assert!(other.contains("not a known ViT") && other.contains("torchvision_basic"), "{other}");
    let directory = tempfile::tempdir().unwrap();
    let from = Reference::of("vit", "transformers").directory;
    std::fs::copy(from.join("model.safetensors"), directory.path().join("model.safetensors")).unwrap();
    assert!(message(directory.path()).contains("config.json is missing"));
    let config = std::fs::read_to_string(from.join("config.json")).unwrap();
    let change = |from: &str, to: &str| {
        assert!(config.contains(from), "{config}");
        std::fs::write(directory.path().join("config.json"), config.replace(from, to)).unwrap();
        message(directory.path())
    };
    assert!(change("\"model_type\": \"vit\"", "\"model_type\": \"swin\"").contains("known are vit"));
    assert!(change("\"num_attention_heads\": 3", "\"num_attention_heads\": 5").contains("not divisible"));
    assert!(change("\"4\": \"wren\"", "\"4\": \"w\", \"5\": \"x\"").contains("names 6 classes"));
    assert!(change("\"patch_size\": 5", "\"patch_size\": 4").contains("embeddings.patch_embed.weight"));
}

/// Post-norm blocks have the same tensors, and no tensor determines the number of heads.
#[test]
fn timm_configuration_gives_what_shapes_do_not_determine() {
    let from = Reference::of("vit", "timm_token").directory;
    let config = std::fs::read_to_string(from.join("config.json")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::copy(from.join("model.safetensors"), directory.path().join("model.safetensors")).unwrap();
    let read = || {
        let result = Vit::<burn_flex::Flex>::from_path(directory.path(), &Default::default(), None);
        result.map(|(model, _)| model.config.num_attention_heads).map_err(|error| error.to_string())
    };
    let open = |old: &str, new: &str| {
        assert!(config.contains(old), "{config}");
        std::fs::write(directory.path().join("config.json"), config.replacen(old, new, 1)).unwrap();
        read()
    };
    assert_eq!(open("\"num_heads\": 3,", ""), Ok(12), "those of vit_base_patch16_224");
    assert_eq!(open("\"num_heads\": 3,", "\"num_heads\": 4, \"qk_norm\": false,"), Ok(4));
    for other in ["vit_base_patch16_rpn_224", "vit_base_patch16_clip_224", "beit_base_patch16_224", "vit_base"] {
        let message = open("\"vit_base_patch16_224\"", &format!("\"{other}\"")).unwrap_err();
        assert!(message.contains(&format!("'{other}'")), "{message}");
    }
    let message = open("\"num_heads\": 3,", "\"num_heads\": 3, \"act_layer\": \"quick_gelu\",").unwrap_err();
    assert!(message.contains("act_layer") && message.contains("quick_gelu"), "{message}");
    std::fs::remove_file(directory.path().join("config.json")).unwrap();
    let message = read().unwrap_err();
    assert!(message.contains("width 12") && message.contains("num_attention_heads"), "{message}");
}

/// f32 pixels with 16-bit weights: the logits match the reference to the dtype's precision.
#[test]
fn sixteen_bit_weights_take_f32_pixels() {
    use burn::tensor::{DType, FloatDType};
    type B = burn_flex::Flex;
    let device = Default::default();
    for name in ["transformers", "dinov2_classify", "timm_avg"] {
        let (reference, model) = load::<B>(name, &device);
        for (dtype, tolerance) in [(FloatDType::F16, 1e-2), (FloatDType::BF16, 6e-2)] {
            let model = grove_tree::cast(model.clone(), dtype);
            let pixels = || reference.tensor::<B, 4>("pixels", &device);
            let logits = model.forward(pixels(), None);
            assert_eq!(logits.dtype(), DType::from(dtype));
            reference.close("logits", logits.cast(DType::F32).into_data(), tolerance);
            assert_eq!(model.attentions(pixels())[0].dtype(), DType::from(dtype));
            let (loss, grads) = value_and_grad(&model, |model| {
                model.loss(reference.tensor("pixels", &device), reference.labels(&device), Some(Key::new(0)))
            });
            assert!(loss.into_data().iter::<f64>().all(f64::is_finite), "{name}");
            assert_eq!(grads.embeddings.patch_embed.weight.dtype(), DType::from(dtype));
        }
    }
}

#[derive(serde::Deserialize)]
struct Grid {
    config: serde_json::Value,
    image: [usize; 2],
    probabilities: Vec<f32>,
}

/// The shape of the position grid comes from the image size in the configuration: tensor shapes do not distinguish 2x8
/// from 4x4. Fixtures: tools/fixtures/timm_grids.py.
#[test]
fn non_square_grids_match_timm() {
    let fixtures = std::path::Path::new("tests/fixtures/timm_grids");
    let cases: Vec<Grid> = serde_json::from_slice(&std::fs::read(fixtures.join("cases.json")).unwrap()).unwrap();
    for Grid { config, image: [height, width], probabilities } in cases {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(fixtures.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let (model, _) = Vit::<grove_backend::Flex>::from_path(folder.path(), &Default::default(), None).unwrap();
        assert_eq!(model.config.image_size, [height, width], "{config}");
        let pixels: Vec<f32> = (0..3 * height * width).map(|i| (3 * i % 17) as f32 / 8.0 - 1.0).collect();
        let pixels = burn::tensor::TensorData::new(pixels, [1, 3, height, width]);
        let images = burn::tensor::Tensor::<grove_backend::Flex, 4>::from_data(pixels, &Default::default());
        let found = burn::tensor::activation::softmax(model.forward(images, None), 1);
        for (found, expected) in found.into_data().iter::<f32>().zip(&probabilities) {
            assert!((found - expected).abs() < 1e-5, "{height}x{width}: {found} {expected}");
        }
    }
}
