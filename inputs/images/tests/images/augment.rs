//! Augmentation against torchvision, and its random behaviour.

use crate::common::{difference, image, json, text};
use grove_images::augment::{
    Augment, ColorJitter, HorizontalFlip, Op, RandAugment, RandomCrop, RandomErasing, RandomResizedCrop, adjust_hue,
    apply_op,
};
use grove_images::{RgbImage, resize};
use rand::{SeedableRng, rngs::StdRng};

fn rng(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

#[test]
fn operations_match_torchvision() {
    let cases = json("augment/cases.json");
    for case in cases.as_array().unwrap() {
        let (op, name, magnitude) = (text(case, "op"), text(case, "result"), case["magnitude"].as_f64().unwrap());
        let source = image(&format!("augment/{}.png", text(case, "source")));
        let fill = [0, 1, 2].map(|i| case["fill"][i].as_u64().unwrap() as u8);
        let result = match Op::ALL.into_iter().find(|known| format!("{known:?}") == op) {
            Some(op) => apply_op(&source, op, magnitude, fill),
            None if op == "Hue" => adjust_hue(&source, magnitude),
            None => panic!("{op}"),
        };
        let (largest, mean) = difference(name, &result, &image(&format!("augment/{name}")));
        println!("{name}: largest {largest}, mean {mean:.4}");
        assert!(largest <= 1, "{name}: largest {largest}, mean {mean}");
    }
}

#[test]
fn magnitudes_match_torchvision() {
    let table = json("augment/magnitudes.json");
    let image = RgbImage::new(57, 45);
    for op in Op::ALL {
        let [values, signed] = [0, 1].map(|i| &table[format!("{op:?}")][i]);
        for magnitude in 0..31 {
            let (strength, either_way) = RandAugment { magnitude, ..RandAugment::default() }.strength(op, &image);
            let expected = values[magnitude as usize].as_f64().unwrap();
            assert!((strength - expected).abs() < 1e-4, "{op:?} {magnitude}: {strength} and {expected}");
            assert_eq!(either_way, signed.as_bool().unwrap(), "{op:?}");
        }
    }
    assert!(RandAugment { magnitude: 31, ..RandAugment::default() }.apply(&image, &mut rng(0)).is_err());
}

#[test]
fn the_same_generator_gives_the_same_view() {
    let source = image("augment/image.png");
    let augment = Augment::training([32, 40])
        .then(ColorJitter::new(0.4, 0.4, 0.4, 0.1))
        .then(RandAugment::default())
        .then(RandomCrop::new([24, 24], 4));
    let view = |seed| augment.apply(&source, &mut rng(seed)).unwrap();
    assert_eq!(view(1), view(1));
    assert_ne!(view(1), view(2));
    assert_eq!(view(3).dimensions(), (24, 24));
}

/// An image whose red counts columns and green counts rows, so that a crop shows its position.
fn map(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| image::Rgb([x as u8, y as u8, 255]))
}

#[test]
fn resized_crops_keep_to_area_and_proportions() {
    let source = map(200, 150);
    let crop = RandomResizedCrop { filter: grove_images::Filter::Nearest, ..RandomResizedCrop::new([50, 50]) };
    let mut areas = Vec::new();
    for seed in 0..500 {
        let view = crop.apply(&source, &mut rng(seed)).unwrap();
        let (first, last) = (view.get_pixel(0, 0).0, view.get_pixel(49, 49).0);
        // The centres of the first and last of 50 pixels are 49/50 of the crop's side apart, within a pixel.
        let side = |i: usize| (f64::from(last[i]) - f64::from(first[i])) * 50.0 / 49.0;
        let (w, h) = (side(0), side(1));
        assert!(w * h > 0.07 * 30_000.0 - 120.0 && w <= 203.0 && h <= 153.0, "{w}×{h}");
        assert!((0.70..1.43).contains(&(w / h)), "{w}×{h}");
        areas.push(w * h / 30_000.0);
    }
    let mean = areas.iter().sum::<f64>() / areas.len() as f64;
    // The mean of a uniform sample from 0.08 to 1 would be 0.54; rejected crops are resampled, which favours small
    // ones.
    assert!((0.40..0.56).contains(&mean), "{mean}");
}

#[test]
fn impossible_proportions_give_the_centre() {
    // A strip of 300×1 has no crop of ratio 3:4 to 4:3 with 8% of its area; torchvision takes the centre, 1 × 1 here.
    let strip = RgbImage::from_fn(255, 1, |x, _| image::Rgb([x as u8; 3]));
    let view = RandomResizedCrop::new([2, 2]).apply(&strip, &mut rng(0)).unwrap();
    assert!(view.pixels().all(|p| p.0 == [127; 3]), "{view:?}");
    let whole = RandomResizedCrop { ratio: (100.0, 400.0), scale: (0.9, 1.0), ..RandomResizedCrop::new([1, 255]) };
    assert_eq!(whole.apply(&strip, &mut rng(0)).unwrap().dimensions(), (255, 1));
}

#[test]
fn shifts_cover_every_offset() {
    let source = map(4, 4);
    let crop = RandomCrop { fill: [99; 3], ..RandomCrop::new([4, 4], 2) };
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..800 {
        let view = crop.apply(&source, &mut rng(seed)).unwrap();
        let (x, y, pixel) = view.enumerate_pixels().find(|(_, _, p)| p.0[2] == 255).unwrap();
        seen.insert((i64::from(pixel.0[0]) - i64::from(x), i64::from(pixel.0[1]) - i64::from(y)));
        assert!(view.pixels().all(|p| p.0[2] == 255 || p.0 == [99; 3]));
    }
    assert_eq!(seen.len(), 25, "{seen:?}");
    let error = RandomCrop::new([9, 4], 2).apply(&source, &mut rng(0)).unwrap_err().to_string();
    assert!(error.contains("4×9 does not fit into 4×4 pixels"), "{error}");
}

#[test]
fn flips_mirror_half_of_the_images() {
    let source = map(3, 2);
    let flip = HorizontalFlip { p: 0.5 };
    let flipped = (0..1000).filter(|&seed| flip.apply(source.clone(), &mut rng(seed)).get_pixel(0, 0).0[0] == 2);
    assert!((430..570).contains(&flipped.count()));
    assert_eq!(HorizontalFlip { p: 0.0 }.apply(source.clone(), &mut rng(0)), source);
}

#[test]
fn zero_jitter_changes_nothing() {
    let source = image("augment/image.png");
    assert_eq!(ColorJitter::default().apply(&source, &mut rng(0)).unwrap(), source);
    assert!(ColorJitter::new(0.0, 0.0, 0.0, 0.6).apply(&source, &mut rng(0)).is_err());
    // Brightness alone is a factor of 0.5 to 1.5 on every level.
    let jitter = ColorJitter::new(0.5, 0.0, 0.0, 0.0);
    let plain = RgbImage::from_pixel(2, 2, image::Rgb([100, 100, 100]));
    let levels: Vec<u8> =
        (0..300).map(|seed| jitter.apply(&plain, &mut rng(seed)).unwrap().get_pixel(1, 1).0[0]).collect();
    assert!(levels.iter().all(|level| (50..=150).contains(level)));
    assert!(levels.iter().min() < Some(&55) && levels.iter().max() > Some(&145));
}

#[test]
fn erasing_writes_one_rectangle() {
    let erasing = RandomErasing { p: 1.0, ..RandomErasing::default() };
    for seed in 0..200 {
        let mut pixels = vec![1.0; 3 * 20 * 30];
        erasing.apply(&mut pixels, [3, 20, 30], &mut rng(seed)).unwrap();
        let erased: Vec<usize> = (0..600).filter(|&i| pixels[i] == 0.0).collect();
        let (Some(first), Some(last)) = (erased.first(), erased.last()) else { panic!("nothing erased") };
        let (w, h) = (last % 30 - first % 30 + 1, last / 30 - first / 30 + 1);
        assert_eq!(w * h, erased.len());
        assert!((0.015..0.35).contains(&(erased.len() as f64 / 600.0)), "{w}×{h}");
        assert!((0..600).all(|i| pixels[i] == pixels[600 + i] && pixels[i] == pixels[1200 + i]));
    }
    let noise = RandomErasing { p: 1.0, scale: (0.3, 0.3), value: None, ..RandomErasing::default() };
    let mut pixels = vec![9.0; 3 * 64 * 64];
    noise.apply(&mut pixels, [3, 64, 64], &mut rng(0)).unwrap();
    let written: Vec<f64> = pixels.iter().filter(|&&v| v != 9.0).map(|&v| f64::from(v)).collect();
    let mean = written.iter().sum::<f64>() / written.len() as f64;
    let variance = written.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / written.len() as f64;
    assert!(mean.abs() < 0.1 && (variance - 1.0).abs() < 0.1, "{mean} {variance}");
    assert!(noise.apply(&mut pixels, [3, 64, 65], &mut rng(0)).is_err());
}

#[test]
fn tiny_images_survive_everything() {
    for (w, h) in [(1, 1), (1, 3), (2, 1)] {
        let image = RgbImage::from_pixel(w, h, image::Rgb([1, 128, 254]));
        for op in Op::ALL {
            for magnitude in [0.0, 1e300, -1e300, f64::NAN] {
                assert_eq!(apply_op(&image, op, magnitude, [0; 3]).dimensions(), (w, h));
            }
        }
        assert_eq!(
            Augment::training([8, 8]).apply(&image, &mut rng(1)).unwrap(),
            resize(&image, 8, 8, grove_images::Filter::Nearest)
        );
    }
}
