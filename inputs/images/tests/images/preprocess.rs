//! Whole pipelines against torchvision, transformers and timm.

use std::path::Path;

use crate::common::{difference, fixture, image, json, text};
use grove_images::{Filter, Preprocessor, ResampleCompat, Resize, RgbImage, resize};
use serde_json::{Value, json};

#[test]
fn tensors_match_the_reference() {
    let cases = json("pipelines/cases.json");
    for case in cases.as_array().unwrap() {
        let name = text(case, "levels");
        let preprocessor = match case["preset"].as_str() {
            Some(preset) => Preprocessor::preset(preset),
            None => Preprocessor::from_json(&case["config"], Path::new(name)),
        }
        .unwrap();
        let source = image(&format!("pipelines/{}.png", text(case, "picture")));
        let (largest, mean) =
            difference(name, &preprocessor.prepare(&source).unwrap(), &image(&format!("pipelines/{name}")));
        println!("{name}: largest {largest}, mean {mean:.4} levels");
        assert_eq!(largest, 0, "{name}: mean {mean}");

        let tensor = preprocessor.apply(&source).unwrap();
        let [channels, height, width] = [0, 1, 2].map(|i| case["shape"][i].as_u64().unwrap() as usize);
        assert_eq!((preprocessor.size(), preprocessor.channels()), (Some([height, width]), channels));
        assert_eq!(tensor.len(), channels * height * width);
        // One level, in the tensor's units.
        let level = |channel: usize| preprocessor.rescale / preprocessor.std[channel];
        for sample in case["samples"].as_array().unwrap() {
            let (i, expected) = (sample[0].as_u64().unwrap() as usize, sample[1].as_f64().unwrap() as f32);
            let off = (tensor[i] - expected).abs();
            assert!(off <= 1e-3 * level(i / (height * width)), "{name}[{i}]: {} and {expected}", tensor[i]);
        }
        for (channel, plane) in tensor.chunks_exact(height * width).enumerate() {
            let mean = plane.iter().map(|&v| f64::from(v)).sum::<f64>() / plane.len() as f64;
            let expected = case["mean"][channel].as_f64().unwrap();
            assert!((mean - expected).abs() < 1e-3 * f64::from(level(channel)), "{name}: mean {mean} and {expected}");
        }
    }
}

/// Reference: resizes the whole image, then crops.
fn resize_then_crop(image: &RgbImage, [height, width]: [u32; 2], crop: u32, filter: Filter) -> RgbImage {
    let whole = resize(image, width, height, filter);
    let half = |over: u32| (f64::from(over) / 2.0).round_ties_even() as u32;
    image::imageops::crop_imm(&whole, half(width - crop), half(height - crop), crop, crop).to_image()
}

#[test]
fn cropping_first_changes_nothing() {
    let source = image("pipelines/china.png"); // 160×107
    for filter in [Filter::Nearest, Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
        for (side, longer, crop) in [(64, 95, 48), (107, 160, 20), (256, 382, 40), (31, 46, 31)] {
            let preprocessor = Preprocessor {
                resize: Resize::Shorter(side),
                crop: Some([crop; 2]),
                filter,
                ..Preprocessor::preset("torchvision").unwrap()
            };
            let expected = resize_then_crop(&source, [side, longer], crop, filter);
            let (largest, _) = difference("crop", &preprocessor.prepare(&source).unwrap(), &expected);
            assert_eq!(largest, 0, "{side} {crop} {filter}");
        }
    }
}

#[test]
fn extreme_shapes_are_bounded() {
    for preset in Preprocessor::PRESETS {
        let preprocessor = Preprocessor::preset(preset).unwrap();
        for (w, h) in [(30_000, 2), (2, 30_000), (1, 1), (1, 65_535), (65_535, 1), (3, 5)] {
            let image = RgbImage::from_pixel(w, h, image::Rgb([50, 100, 150]));
            let prepared = preprocessor.prepare(&image).unwrap();
            assert!(prepared.pixels().all(|p| p.0 == [50, 100, 150]), "{preset} {w}×{h}");
        }
        assert!(preprocessor.apply(&RgbImage::new(0, 5)).is_err());
    }
    let uncropped = Preprocessor { crop: None, ..Preprocessor::preset("torchvision").unwrap() };
    assert_eq!(uncropped.size(), None);
    let error = uncropped.prepare(&RgbImage::new(30_000, 2)).unwrap_err().to_string();
    assert!(error.contains("3840000×256") && error.contains("crop it"), "{error}");
}

#[test]
fn grey_matches_pillows_luma() {
    let mnist = Preprocessor::preset("mnist").unwrap();
    let image = RgbImage::from_pixel(28, 28, image::Rgb([200, 100, 50]));
    // 0.299·200 + 0.587·100 + 0.114·50 = 124.2.
    assert_eq!(mnist.apply(&image).unwrap(), vec![(124.0 * (1.0 / 255.0) - 0.1307) / 0.3081; 784]);
}

#[test]
fn what_is_saved_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut all: Vec<Preprocessor> =
        Preprocessor::PRESETS.iter().map(|name| Preprocessor::preset(name).unwrap()).collect();
    all.push(Preprocessor {
        resize: Resize::None,
        rescale: 1.0,
        mean: vec![0.0; 3],
        std: vec![1.0; 3],
        ..all[0].clone()
    });
    all.push(Preprocessor { crop: None, filter: Filter::Lanczos, rescale: 0.01, ..all[0].clone() });
    all.push(Preprocessor { crop: Some([20, 30]), convention: ResampleCompat::Transformers, ..all[2].clone() });
    for preprocessor in all {
        preprocessor.save(dir.path()).unwrap();
        assert_eq!(Preprocessor::from_file(dir.path()).unwrap(), preprocessor);
    }
    let border =
        Preprocessor { resize: Resize::Within { height: 8, width: 9 }, ..Preprocessor::preset("vit").unwrap() };
    assert!(border.to_json().unwrap_err().to_string().contains("use Exact or Shorter"));
}

/// Fixture: tools/fixtures/images.py, by transformers' AutoImageProcessor.
#[test]
fn files_of_a_directory_take_precedence_as_in_transformers() {
    let cases = json("files.json");
    for case in cases.as_array().unwrap() {
        let name = text(case, "name");
        let folder = tempfile::tempdir().unwrap();
        for (file, content) in case["files"].as_object().unwrap() {
            std::fs::write(folder.path().join(format!("{file}.json")), content.to_string()).unwrap();
        }
        let found = Preprocessor::beside(folder.path()).unwrap();
        if case["shape"].is_null() {
            assert_eq!(found, None, "{name}");
            let error = Preprocessor::from_file(folder.path()).unwrap_err().to_string();
            assert!(error.contains("no processor_config.json with an image_processor"), "{name}: {error}");
            continue;
        }
        let found = found.unwrap_or_else(|| panic!("{name}: no image processor"));
        assert_eq!(Preprocessor::from_file(folder.path()).unwrap(), found, "{name}");
        let [channels, height, width] = [0, 1, 2].map(|i| case["shape"][i].as_u64().unwrap() as usize);
        assert_eq!((found.size(), found.channels()), (Some([height, width]), channels), "{name}");
        let tensor = found.apply(&RgbImage::from_pixel(30, 24, image::Rgb([128; 3]))).unwrap();
        for (channel, expected) in case["first"].as_array().unwrap().iter().enumerate() {
            let (value, expected) = (tensor[channel * height * width], expected.as_f64().unwrap() as f32);
            assert!((value - expected).abs() < 1e-4, "{name}: {value} and {expected}");
        }
    }
}

/// timm reads both forms (`timm.models._hub._parse_model_cfg`).
#[test]
fn older_files_of_timm_have_the_entries_beside_the_architecture() {
    let folder = tempfile::tempdir().unwrap();
    let cfg = json!({"input_size": [3, 96, 96], "crop_pct": 1.0, "mean": [0.1, 0.2, 0.3]});
    let read = |config: Value| {
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        Preprocessor::beside(folder.path()).unwrap()
    };
    let mut older = cfg.clone();
    older["architecture"] = "resnet18".into();
    let found = read(older).expect("timm's");
    assert_eq!(found.crop, Some([96, 96]));
    assert_eq!(read(json!({"architecture": "resnet18", "pretrained_cfg": cfg})), Some(found));
    assert_eq!(read(json!({"model_type": "vit", "input_size": 3, "note": "pretrained_cfg"})), None);
}

#[test]
fn saving_replaces_an_image_processor_that_would_take_precedence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("processor_config.json");
    let nested =
        json!({"processor_class": "CLIPProcessor", "image_processor": {"image_processor_type": "ViTImageProcessor"}});
    let saved = Preprocessor::preset("torchvision").unwrap();
    for place in [folder.path().to_owned(), folder.path().join("preprocessor_config.json")] {
        std::fs::write(&file, nested.to_string()).unwrap();
        saved.save(&place).unwrap();
        assert_eq!(Preprocessor::from_file(folder.path()).unwrap(), saved);
        assert_eq!(Preprocessor::from_file(folder.path().join("preprocessor_config.json")).unwrap(), saved);
        let outer: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(outer["processor_class"], "CLIPProcessor");
    }
    std::fs::write(&file, "{}").unwrap();
    saved.save(folder.path()).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{}");
}

#[test]
fn published_files_of_the_hub() {
    // microsoft/resnet-50: 224 / 0.875 = 256.
    let resnet = json!({"crop_pct": 0.875, "do_normalize": true, "do_resize": true,
        "feature_extractor_type": "ConvNextFeatureExtractor", "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225], "resample": 3, "size": 224});
    let read = |config: &Value| Preprocessor::from_json(config, Path::new("config.json"));
    let expected = Preprocessor {
        resize: Resize::Shorter(256),
        filter: Filter::Bicubic,
        convention: ResampleCompat::Transformers,
        ..Preprocessor::preset("torchvision").unwrap()
    };
    assert_eq!(read(&resnet).unwrap(), expected);
    // facebook/convnext-*-384: no crop.
    let large = json!({"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 384}});
    assert_eq!(read(&large).unwrap().resize, Resize::Exact { height: 384, width: 384 });
    assert_eq!(read(&large).unwrap().size(), Some([384, 384]));
    // facebook/dinov2-*.
    let dino = json!({"crop_size": {"height": 224, "width": 224}, "do_center_crop": true, "do_convert_rgb": true,
        "do_normalize": true, "do_rescale": true, "do_resize": true, "image_mean": [0.485, 0.456, 0.406],
        "image_processor_type": "BitImageProcessor", "image_std": [0.229, 0.224, 0.225], "resample": 3,
        "rescale_factor": 0.00392156862745098, "size": {"shortest_edge": 256}});
    assert_eq!(read(&dino).unwrap(), expected);
    // BEiT's class has a crop size, but does not crop unless `do_center_crop` is set.
    let beit = |crops: Value| {
        let config = json!({"image_processor_type": "BeitImageProcessor", "size": 256, "do_center_crop": crops});
        read(&config).unwrap().crop
    };
    assert_eq!((beit(json!(true)), beit(json!(false)), beit(Value::Null)), (Some([224; 2]), None, None));
}

#[test]
fn bad_configurations_are_errors() {
    let message = |config: Value| Preprocessor::from_json(&config, Path::new("p.json")).unwrap_err().to_string();
    let vit = |key: &str, value: Value| {
        let mut config = json!({"image_processor_type": "ViTImageProcessor"});
        config[key] = value;
        message(config)
    };
    assert!(message(json!([])).contains("p.json"));
    assert!(message(json!({})).contains("image_processor_type"));
    assert!(message(json!({"image_processor_type": "SamImageProcessor"})).contains("unknown image processor `Sam`"));
    assert!(message(json!({"image_processor": 3})).contains("image_processor is 3; it must be an object"));
    assert!(vit("use_square_size", json!(true)).contains("use_square_size is true"));
    assert!(vit("size", json!({"height": 224})).contains("`width`"));
    assert!(vit("size", json!(-3)).contains("-3"));
    assert!(vit("size", json!(1e12)).contains("65536"));
    assert!(vit("size", json!({"longest_edge": 300})).contains("longest_edge"));
    assert!(vit("resample", json!(9)).contains("resample"));
    assert!(vit("do_resize", json!("yes")).contains("neither true nor false"));
    assert!(vit("image_mean", json!([0.5, 0.5])).contains("2 means"));
    assert!(vit("image_std", json!([0.5, 0.0, 0.5])).contains("not 0"));
    assert!(vit("do_center_crop", json!(true)).contains("crop_size"));
    let pad = vit("do_pad", json!(true));
    assert!(pad.contains("p.json") && pad.contains("do_pad is true, which is not supported; set it to false"), "{pad}");
    assert!(vit("do_flip_channel_order", json!(true)).contains("do_flip_channel_order is true"));
    let harmless = json!({"image_processor_type": "ViTImageProcessor", "do_pad": false, "do_convert_rgb": true, "ours": 1,
        "size": 20, "default_to_square": false});
    let harmless = Preprocessor::from_json(&harmless, Path::new("p.json")).unwrap();
    assert_eq!(harmless.resize, Resize::Shorter(20));
    let timm = |key: &str, value: Value| {
        let mut config = json!({"input_size": [3, 224, 224]});
        config[key] = value;
        message(json!({"pretrained_cfg": config}))
    };
    assert!(timm("crop_mode", json!("corner")).contains("crop_mode"));
    assert!(timm("interpolation", json!("random")).contains("random"));
    assert!(timm("crop_pct", json!(0)).contains("crop_pct"));
    assert!(timm("input_size", json!([3, 224])).contains("input_size"));
    let error = Preprocessor::from_file("tests").unwrap_err().to_string();
    assert!(error.contains("preprocessor_config.json"), "{error}");
    assert!(Preprocessor::from_file(fixture("decode/420.jpg")).is_err());
    assert!(Preprocessor::preset("resnet").unwrap_err().to_string().contains("torchvision"));
}

/// Resize and crop for images of another size follow timm: `floor(size / crop_pct)`, not a multiple of the rounded old
/// size.
#[test]
fn other_sizes_of_timms_files() {
    let read = |mode: &str| {
        let config = json!({"pretrained_cfg": {"input_size": [3, 224, 224], "crop_pct": 0.9, "crop_mode": mode}});
        Preprocessor::from_json(&config, Path::new("config.json")).unwrap()
    };
    let resize = |mode: &str, side: u32| {
        let other = read(mode).with_side(side).unwrap();
        assert_eq!(other.crop, Some([side; 2]));
        other.resize
    };
    assert_eq!(read("center").resize, Resize::Shorter(248));
    // timm.data.create_transform(384, crop_pct=0.9) and (320, …).
    assert_eq!([resize("center", 384), resize("center", 320)], [Resize::Shorter(426), Resize::Shorter(355)]);
    assert_eq!(resize("squash", 384), Resize::Exact { height: 426, width: 426 });
    assert_eq!(resize("border", 384), Resize::Within { height: 426, width: 426 });
}
