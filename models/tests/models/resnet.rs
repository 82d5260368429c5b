//! ResNets against torchvision, timm and transformers: all kinds of blocks and namings; logits, features, gradients,
//! and training mode with its running statistics. Fixtures: tools/fixtures/resnet.py.

use burn::tensor::DType;
use grove_backend::Backend;
use grove_models::resnet::{LayerType, Naming, ResNet, ResNetConfig, published_names};
use grove_models::{Pretrained, PretrainedConfig};
use grove_transform::{value_and_grad, value_and_grad_aux};
use grove_tree::{Array, Key, cast, eq, is_param, leaves, partition};

use crate::arrays::same_arrays;
use crate::reference::Reference;

const WITH_HEAD: [&str; 10] = [
    "torchvision_basic",
    "torchvision_bottleneck",
    "torchvision_grouped",
    "torchvision_wide",
    "timm_basic",
    "timm_bottleneck",
    "transformers_basic",
    "transformers_bottleneck",
    "transformers_v1",
    "transformers_silu",
];

fn load<B: Backend>(name: &str, device: &B::Device) -> (Reference, ResNet<B>) {
    let reference = Reference::of("resnet", name);
    let (model, report) = ResNet::from_path(&reference.directory, device, None).unwrap();
    assert!(report.is_complete(), "{name}: {report}");
    (reference, model)
}

fn inference<B: Backend>(device: B::Device) {
    for name in WITH_HEAD {
        let (reference, model) = load::<B>(name, &device);
        let pixels = || reference.tensor::<B, 4>("pixels", &device);
        reference.close("logits", model.forward(pixels()).into_data(), 1e-4);
        features(&reference, &model, &device);
        let names = published_names(&model.config);
        let (loss, grads) =
            value_and_grad(&model, |model| model.loss(reference.tensor("pixels", &device), reference.labels(&device)));
        reference.close("loss", loss.into_data(), 1e-4);
        reference.gradients("grad.", &grads, &names);
    }
}

fn features<B: Backend>(reference: &Reference, model: &ResNet<B>, device: &B::Device) {
    let features = model.features(reference.tensor("pixels", device));
    if reference.has("stem") {
        reference.close("stem", features.stem.into_data(), 1e-4);
    }
    assert_eq!(features.stages.len(), reference.parts("stages.").len());
    for (i, stage) in features.stages.into_iter().enumerate() {
        reference.close(&format!("stages.{i}"), stage.into_data(), 1e-4);
    }
    reference.close("pooled", features.pooled.into_data(), 1e-4);
}

fn without_head<B: Backend>(device: B::Device) {
    let (reference, model) = load::<B>("transformers_model", &device);
    assert!(model.head.is_none());
    features(&reference, &model, &device);
    reference.close("pooled", model.forward(reference.tensor("pixels", &device)).into_data(), 1e-4);
    let (pooled, successor) = model.train(reference.tensor("pixels", &device));
    reference.close("train.pooled", pooled.into_data(), 1e-4);
    reference.leaves("after.", &successor, &published_names(&model.config), 1e-4);
}

fn training<B: Backend>(device: B::Device) {
    for name in WITH_HEAD {
        one_step(&load::<B>(name, &device), &device);
    }
}

/// One kind of block, for slow backends.
fn one_kind<B: Backend>(device: B::Device) {
    let (reference, model) = load::<B>("torchvision_grouped", &device);
    reference.close("logits", model.forward(reference.tensor("pixels", &device)).into_data(), 1e-4);
    one_step(&(reference, model), &device);
}

/// One step in training mode: loss, logits and gradients with the batch's statistics, and the updated running
/// statistics.
fn one_step<B: Backend>((reference, model): &(Reference, ResNet<B>), device: &B::Device) {
    let names = published_names(&model.config);
    let (loss, grads, (logits, successor)) = value_and_grad_aux(model, |model| {
        let (logits, _) = model.train(reference.tensor("pixels", device));
        let (loss, successor) = model.train_loss(reference.tensor("pixels", device), reference.labels(device));
        (loss, (Array::<_, 2>::new(logits), successor))
    });
    // Running statistics are buffers and have no gradient.
    assert!(leaves(&partition(grads.clone(), &is_param()).1).iter().all(|(_, leaf)| !leaf.is_present()));
    reference.close("train.loss", loss.into_data(), 1e-4);
    reference.close("train.logits", logits.val().into_data(), 1e-4);
    reference.gradients("train.grad.", &grads, &names);
    let successor: ResNet<B> = successor;
    reference.leaves("after.", &successor, &names, 1e-4);
    let parameters = |model: &ResNet<B>| partition(model.clone(), &is_param()).0;
    assert!(eq(&parameters(&successor), &parameters(model)), "a step moves no parameter");
    assert!(!eq(&successor, model));
}

/// A saved model loads again, with either library's tensor names.
fn saved<B: Backend>(device: B::Device) {
    for name in ["torchvision_grouped", "timm_basic", "transformers_v1", "transformers_model"] {
        let (reference, model) = load::<B>(name, &device);
        let directory = tempfile::tempdir().unwrap();
        model.save_pretrained(directory.path()).unwrap();
        let (again, _) = ResNet::<B>::from_path(directory.path(), &device, None).unwrap();
        assert!(same_arrays(&again, &model), "{name}");
        let names = |path: &std::path::Path| {
            let checkpoint = grove_weights::TensorFiles::open(path).unwrap();
            checkpoint.names().map(str::to_owned).collect()
        };
        let (found, expected): (Vec<String>, Vec<String>) = (names(directory.path()), names(&reference.directory));
        assert_eq!(found, expected, "{name}");
        let counter = found.iter().find(|name| name.ends_with("num_batches_tracked")).unwrap();
        let counter = grove_weights::TensorFiles::open(directory.path()).unwrap().tensor(counter).unwrap();
        assert_eq!((counter.shape.num_dims(), counter.to_vec::<i64>().unwrap()), (0, vec![0]));
    }
    // A PyTorch file with the same weights.
    let file = "tests/fixtures/resnet/torchvision_pth/model.pth";
    let (from_pth, _) = ResNet::<B>::from_path(file, &device, None).unwrap();
    assert!(eq(&from_pth, &load::<B>("torchvision_basic", &device).1));
}

fn new_heads<B: Backend>(device: B::Device) {
    let (reference, model) = load::<B>("torchvision_basic", &device);
    let changed = model.clone().with_new_head(vec!["a".into(), "b".into()], Key::new(0));
    assert_eq!(changed.forward(reference.tensor("pixels", &device)).dims(), [3, 2]);
    assert!(eq(&changed.stages, &model.stages) && changed.config.labels == ["a", "b"]);
    let directory = tempfile::tempdir().unwrap();
    changed.save_pretrained(directory.path()).unwrap();
    assert!(same_arrays(&ResNet::<B>::from_path(directory.path(), &device, None).unwrap().0, &changed));
}

/// Classes that the network has keep their weights, at any index.
#[test]
fn classes_go_by_their_names() {
    use grove_models::vision::ImageClassifier;
    type B = burn_flex::Flex;
    let device = Default::default();
    let (reference, model) = load::<B>("torchvision_basic", &device);
    let own = model.config.labels.clone();
    let labels: Vec<String> = own.iter().rev().cloned().chain(["new".into()]).collect();
    let other = model.clone().with_labels(labels.clone(), Key::new(0));
    assert_eq!(other.config.labels, labels);
    let logits = |model: &ResNet<B>| -> Vec<Vec<f32>> {
        let logits = model.forward(reference.tensor("pixels", &device));
        let classes = logits.dims()[1];
        let numbers: Vec<f32> = logits.into_data().iter().collect();
        numbers.chunks(classes).map(<[f32]>::to_vec).collect()
    };
    for (old, new) in logits(&model).iter().zip(logits(&other)) {
        assert!(
            old.iter().rev().zip(&new).all(|(old, new)| (old - new).abs() <= 1e-5 * old.abs().max(1.0)),
            "{old:?}, {new:?}"
        );
        assert_eq!(new.len(), own.len() + 1);
    }
}

/// f32 pixels with 16-bit weights, in both modes: the logits match the reference to the dtype's precision.
#[test]
fn sixteen_bit_weights_take_f32_pixels() {
    use burn::tensor::{DType, FloatDType};
    type B = burn_flex::Flex;
    let device = Default::default();
    let (reference, model) = load::<B>("torchvision_bottleneck", &device);
    let pixels = || reference.tensor::<B, 4>("pixels", &device);
    for (dtype, tolerance) in [(FloatDType::F16, 1e-2), (FloatDType::BF16, 6e-2)] {
        let model = cast(model.clone(), dtype);
        let logits = model.forward(pixels());
        assert_eq!(logits.dtype(), DType::from(dtype));
        reference.close("logits", logits.cast(DType::F32).into_data(), tolerance);
        assert_eq!(model.features(pixels()).pooled.dtype(), DType::from(dtype));
        let (loss, grads, (logits, _)) = value_and_grad_aux(&model, |model| {
            let (logits, successor) = model.train(reference.tensor("pixels", &device));
            let loss = grove_layers::loss::cross_entropy(logits.clone().cast(DType::F32), reference.labels(&device));
            (loss, (Array::<_, 2>::new(logits), successor))
        });
        reference.close("train.loss", loss.cast(DType::F32).into_data(), tolerance);
        // Batch norm over a few 8-bit values amplifies the rounding of logits more than that of the loss.
        reference.close("train.logits", logits.val().cast(DType::F32).into_data(), 4.0 * tolerance);
        assert_eq!(grads.stem.conv.weight.dtype(), DType::from(dtype));
    }
}

/// The saved configuration names the dtype of the weights, whatever it named before.
#[test]
fn a_saved_configuration_names_the_dtype() {
    use burn::tensor::FloatDType;
    type B = burn_flex::Flex;
    let saved = |model: &ResNet<B>| -> Vec<(String, String)> {
        let directory = tempfile::tempdir().unwrap();
        model.save_pretrained(directory.path()).unwrap();
        let config = std::fs::read(directory.path().join("config.json")).unwrap();
        let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&config).unwrap();
        let dtypes = fields.into_iter().filter(|(key, _)| key.ends_with("dtype"));
        dtypes.map(|(key, value)| (key, value.as_str().unwrap().to_owned())).collect()
    };
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let (_, model) = load::<B>("transformers_v1", &Default::default());
    assert_eq!(saved(&model), [pair("dtype", "float32")]);
    assert_eq!(saved(&cast(model.clone(), FloatDType::BF16)), [pair("dtype", "bfloat16")]);
    let mut old = cast(model, FloatDType::F16);
    old.config.other.remove("dtype");
    assert_eq!(saved(&old), [pair("dtype", "float16")]);
    old.config.other.insert("torch_dtype".into(), "float32".into());
    assert_eq!(saved(&old), [pair("torch_dtype", "float16")]);
    let (_, without) = load::<B>("timm_basic", &Default::default());
    assert_eq!(saved(&without), []);
}

/// Inference in 16 bits, with f32 running statistics.
fn in_16_bits<B: Backend>(device: B::Device) {
    let types = [(DType::F16, 1e-2), (DType::BF16, 8e-2)];
    for (dtype, coarse) in types.into_iter().filter(|(dtype, _)| B::computes_in(&device, *dtype)) {
        let reference = Reference::of("resnet", "torchvision_basic");
        let (model, _) = ResNet::<B>::from_path(&reference.directory, &device, Some(dtype)).unwrap();
        let buffers = |model: &ResNet<B>| partition(model.clone(), &is_param()).1;
        let all = |part: &ResNet<B>, dtype| {
            let mut present = leaves(part).into_iter().filter(|(_, leaf)| leaf.is_present()).peekable();
            present.peek().is_some() && present.all(|(_, leaf)| leaf.dtype() == dtype)
        };
        assert!(all(&buffers(&model), DType::F32));
        assert!(all(&partition(model.clone(), &is_param()).0, dtype));
        let pixels = || reference.tensor::<B, 4>("pixels", &device).cast(dtype);
        reference.close("logits", model.forward(pixels()).cast(DType::F32).into_data(), coarse);
        let (logits, successor) = model.train(pixels());
        reference.close("train.logits", logits.cast(DType::F32).into_data(), coarse);
        assert!(all(&buffers(&successor), DType::F32));
        reference.leaves("after.", &successor, &published_names(&model.config), coarse);
    }
}

#[test]
fn candle_refuses_bf16_while_loading() {
    let directory = Reference::of("resnet", "torchvision_basic").directory;
    let loaded = ResNet::<grove_backend::Candle>::from_path(directory, &Default::default(), Some(DType::BF16));
    let error = loaded.expect_err("candle has no products of bf16").to_string();
    assert!(error.contains("bf16") && error.contains("candle"), "{error}");
}

on_each_backend!(one_kind, inference, without_head, training, saved, new_heads, in_16_bits);

#[test]
fn sizes_are_read_from_shapes() {
    let of = |name: &str| {
        let checkpoint = grove_weights::TensorFiles::open(Reference::of("resnet", name).directory).unwrap();
        ResNetConfig::infer(&checkpoint).unwrap()
    };
    let grouped = of("torchvision_grouped");
    assert_eq!((grouped.naming, grouped.layer_type, grouped.groups), (Naming::Torchvision, LayerType::Bottleneck, 2));
    assert!(grouped.bottleneck_sizes.is_some());
    let published = ResNetConfig::from_file(Reference::of("resnet", "transformers_bottleneck").directory).unwrap();
    let inferred = of("transformers_bottleneck");
    assert_eq!(
        (inferred.hidden_sizes, inferred.depths, inferred.num_channels, inferred.embedding_size),
        (published.hidden_sizes, published.depths, published.num_channels, published.embedding_size),
    );
    assert_eq!(published.labels, ["gull", "heron", "owl", "rook", "wren"]);
}

#[test]
fn rejects_weights_of_other_networks() {
    let message = |path: &std::path::Path| {
        let result = ResNet::<burn_flex::Flex>::from_path(path, &Default::default(), None);
        result.map(drop).unwrap_err().to_string()
    };
    let named = message("tests/fixtures/resnet/timm_deep".as_ref());
    assert!(named.contains("timm_deep/config.json") && named.contains("architecture 'resnet50d'"), "{named}");
    let deep = message("tests/fixtures/resnet/timm_deep/model.safetensors".as_ref());
    assert!(deep.contains("resnet50d"), "the config.json beside the weights: {deep}");
    let alone = tempfile::tempdir().unwrap();
    let weights = alone.path().join("model.safetensors");
    std::fs::copy("tests/fixtures/resnet/timm_deep/model.safetensors", weights).unwrap();
    let deep = message(alone.path());
    assert!(deep.contains("deep stem"), "{deep}");
    let other = message("tests/fixtures/gpt2/tiny_a".as_ref());
    assert!(other.contains("model_type is 'gpt2', but this is the loader of ResNet"), "{other}");

    // The configuration names more classes than the head has.
    let directory = tempfile::tempdir().unwrap();
    let from = Reference::of("resnet", "transformers_basic").directory;
    std::fs::copy(from.join("model.safetensors"), directory.path().join("model.safetensors")).unwrap();
    let config = std::fs::read_to_string(from.join("config.json"))
        .unwrap()
        .replace("\"4\": \"wren\"", "\"4\": \"w\", \"5\": \"x\"");
    std::fs::write(directory.path().join("config.json"), config).unwrap();
    let classes = message(directory.path());
    assert!(classes.contains("names 6 classes, but the weights have 5"), "{classes}");
}

/// Networks with the same tensors but other operations: blurred or averaged strides do not show in the weights.
#[test]
fn other_architectures_of_timm_are_refused() {
    let from = Reference::of("resnet", "timm_basic").directory;
    let config = std::fs::read_to_string(from.join("config.json")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::copy(from.join("model.safetensors"), directory.path().join("model.safetensors")).unwrap();
    let open = |old: &str, new: &str| {
        assert!(config.contains(old), "{config}");
        std::fs::write(directory.path().join("config.json"), config.replacen(old, new, 1)).unwrap();
        let result = ResNet::<burn_flex::Flex>::from_path(directory.path(), &Default::default(), None);
        result.map(drop).map_err(|error| error.to_string())
    };
    let architecture = |name: &str| open("\"architecture\": \"resnet18\"", &format!("\"architecture\": \"{name}\""));
    for known in ["resnet18", "resnet34", "resnext50_32x4d.a1_in1k", "gluon_resnet50_v1b", "wide_resnet50_2"] {
        assert_eq!(architecture(known), Ok(()), "{known}");
    }
    for other in ["resnetblur50", "resnetaa50", "resnet50d", "seresnet50", "resnet50_gn", "resnetblur18.x", "resnet"] {
        let message = architecture(other).unwrap_err();
        let name = other.split('.').next().unwrap();
        assert!(message.contains(&format!("'{name}'")) && message.contains("config.json"), "{message}");
    }
    let message = open("\"in_chans\": 1,", "\"in_chans\": 1, \"aa_layer\": \"avg\",").unwrap_err();
    assert!(message.contains("aa_layer") && message.contains("avg"), "{message}");
    assert_eq!(open("\"in_chans\": 1,", "\"in_chans\": 1, \"aa_layer\": null, \"avg_down\": false,"), Ok(()));
    let message = open("\"global_pool\": \"avg\"", "\"global_pool\": \"max\"").unwrap_err();
    assert!(message.contains("'max'"), "{message}");
    let message = open("\"num_classes\": 4,", "\"num_classes\": 4, \"model_type\": \"regnet\",").unwrap_err();
    assert!(message.contains("'regnet'"), "{message}");
    assert_eq!(open("\"num_classes\": 4,", "\"num_classes\": 4, \"model_type\": \"timm_wrapper\","), Ok(()));
}
