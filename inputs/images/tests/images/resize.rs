//! Resizing against Pillow and torchvision.

use crate::common::{difference, fixture, image};
use grove_images::{Filter, RgbImage, resize};

#[test]
fn pillows_bits_and_within_a_level_of_torchvision() {
    let mut compared = 0;
    for entry in std::fs::read_dir(fixture("resize")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let parts: Vec<&str> = name.trim_start_matches("tv_").trim_end_matches(".png").split('_').collect();
        let [source, size, filter] = parts.as_slice() else { continue };
        let (width, height) = size.split_once('x').unwrap();
        let filter: Filter = filter.parse().unwrap();
        let source = image(&format!("resize/{source}.png"));
        let resized = resize(&source, width.parse().unwrap(), height.parse().unwrap(), filter);
        let (largest, mean) = difference(&name, &resized, &image(&format!("resize/{name}")));
        println!("{name}: largest {largest}, mean {mean:.4}");
        // torchvision's weights have 16 bits.
        assert!(largest <= u8::from(name.starts_with("tv_")), "{name}: largest {largest}, mean {mean}");
        compared += 1;
    }
    assert_eq!(compared, 34);
}

#[test]
fn extreme_shapes() {
    let grey = |w, h| RgbImage::from_pixel(w, h, image::Rgb([10, 20, 30]));
    for filter in [Filter::Nearest, Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
        for (w, h) in [(1, 1), (30_000, 2), (1, 100_000), (3, 7)] {
            for (width, height) in [(1, 1), (224, 224), (5, 1000)] {
                let resized = resize(&grey(w, h), width, height, filter);
                assert!(resized.pixels().all(|p| p.0 == [10, 20, 30]), "{w}×{h} to {width}×{height}, {filter}");
            }
        }
        assert_eq!(resize(&grey(4, 4), 0, 3, filter).dimensions(), (0, 3));
    }
}
