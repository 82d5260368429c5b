//! Files of every format against Pillow, and damaged files.

use std::panic::catch_unwind;
use std::path::Path;

use crate::common::{difference, fixture, image};
use grove_images::{ImageError, Limits, decode, open};

/// The image files, without their references.
fn files() -> Vec<String> {
    let names = std::fs::read_dir(fixture("decode")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| !name.ends_with(".ref.png")).collect();
    names.sort();
    names
}

#[test]
fn pixels_match_pillow() {
    let files = files();
    assert!(files.len() >= 40, "{files:?}");
    for name in files {
        let reference = image(&format!("decode/{name}.ref.png"));
        let (largest, mean) = difference(&name, &image(&format!("decode/{name}")), &reference);
        println!("{name}: largest {largest}, mean {mean:.3}");
        // JPEG does not specify the rounding of the transform and the interpolation of subsampled colour.
        let (most, most_mean) = match name.rsplit('.').next().unwrap() {
            "jpg" => (4, 0.5),
            _ => (0, 0.0),
        };
        assert!(largest <= most && mean <= most_mean, "{name}: largest {largest}, mean {mean}");
    }
}

#[test]
fn the_content_counts_and_not_the_name() {
    let bytes = std::fs::read(fixture("decode/420.jpg")).unwrap();
    let image = decode(&bytes, Path::new("really.png"), &Limits::default()).unwrap();
    assert_eq!(image.dimensions(), (96, 64));
}

#[test]
fn rejects_files_that_are_not_images() {
    let message = |bytes: &[u8]| decode(bytes, Path::new("x.jpg"), &Limits::default()).unwrap_err().to_string();
    assert!(message(b"").contains("x.jpg is not an image: the file is empty"));
    assert!(message(b"<!DOCTYPE html><html>").contains("web page"));
    assert!(message(b"version https://git-lfs.github.com/spec/v1").contains("git lfs pull"));
    assert!(message(b"\0\0\0\x1cftypavif\0\0\0\0").contains("AVIF"));
    assert!(message(b"<svg xmlns=").contains("SVG"));
    assert!(message(b"hello").contains("match no supported format"));
    assert!(message(b"\xff\xd8").contains("x.jpg"));
    let error = open("tests", &Limits::default()).unwrap_err();
    assert!(matches!(error, ImageError::NotAnImage { .. }) && error.to_string().contains("directory"));
    assert!(matches!(open("tests/none.png", &Limits::default()), Err(ImageError::Io(_))));
}

#[test]
fn limits_hold_before_the_pixels_are_read() {
    for name in files() {
        let path = fixture("decode").join(&name);
        let pixels = u64::from(image(&format!("decode/{name}")).pixels().len() as u32);
        let limits = Limits { max_pixels: pixels, ..Limits::default() };
        assert!(open(&path, &limits).is_ok(), "{name}");
        let limits = Limits { max_pixels: pixels - 1, ..limits };
        assert!(matches!(open(&path, &limits), Err(ImageError::TooLarge { .. })), "{name}");
    }
    let limits = Limits { max_file_bytes: 100, ..Limits::default() };
    assert!(matches!(open(fixture("decode/420.jpg"), &limits), Err(ImageError::TooLarge { .. })));
    let limits = Limits { max_side: 95, ..Limits::default() };
    assert!(
        open(fixture("decode/420.jpg"), &limits).unwrap_err().to_string().contains("no side may have more than 95")
    );
}

#[test]
fn a_wrong_header_allocates_nothing() {
    // The JPEG's frame header claims 65,500×65,500; the PNG's claims 2³¹ − 1 squared, with a valid checksum.
    let mut jpeg = std::fs::read(fixture("decode/420.jpg")).unwrap();
    let at = jpeg.windows(2).position(|w| w == [0xff, 0xc0]).unwrap();
    jpeg[at + 5..at + 9].copy_from_slice(&[0xff, 0xdc, 0xff, 0xdc]);
    let header = [0x49, 0x48, 0x44, 0x52, 0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 8, 2, 0, 0, 0];
    let mut png = vec![0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 13];
    png.extend(header);
    png.extend(crc32(&header).to_be_bytes());
    png.extend([0, 0, 0, 1, b'I', b'D', b'A', b'T', 0, 0, 0, 0, 0]);
    for bytes in [jpeg, png] {
        let error = decode(&bytes, Path::new("bomb"), &Limits::default()).unwrap_err();
        assert!(matches!(error, ImageError::TooLarge { .. }), "{error}");
        println!("{error}");
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

#[test]
fn truncated_files_are_errors() {
    for name in files() {
        let bytes = std::fs::read(fixture("decode").join(&name)).unwrap();
        for length in (0..bytes.len()).step_by(bytes.len() / 60 + 1) {
            let cut = catch_unwind(|| decode(&bytes[..length], Path::new(&name), &Limits::default()));
            // Data after the pixels may be missing (PNG's end, GIF's second frame, EXIF of WebP).
            let essential = length < bytes.len() / 3;
            match cut {
                Err(_) => panic!("{name}, {length} bytes: a panic"),
                Ok(Ok(_)) if name.ends_with("jpg") || essential => panic!("{name}, {length} bytes of {}", bytes.len()),
                Ok(_) => {}
            }
        }
    }
}

/// The error names the file and the format, and quotes the codec only in brackets.
#[test]
fn damaged_files_are_named_in_plain_words() {
    let errors_of = |name: &str| {
        let bytes = std::fs::read(fixture("decode").join(name)).unwrap();
        let errors = (8..bytes.len()).step_by(bytes.len() / 60 + 1).filter_map(|length| {
            let error = decode(&bytes[..length], Path::new(name), &Limits::default()).err()?.to_string();
            assert!(error.contains(name), "{error}");
            assert!(!error.contains("Format error decoding") && !error.contains("I/O errors"), "{error}");
            assert!(!error.contains('\n') && !error.contains("\\n"), "{error}");
            Some(error)
        });
        errors.collect::<Vec<_>>()
    };
    let mut jpegs = 0;
    for name in files() {
        let errors = errors_of(&name);
        if name.ends_with("jpg") {
            assert!(errors.iter().any(|error| error.contains("is damaged: ")), "{name}: {errors:?}");
            jpegs += 1;
        }
    }
    assert!(jpegs > 0);
    let marker = b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0";
    let error = decode(marker, Path::new("photo.jpg"), &Limits::default()).unwrap_err().to_string();
    assert!(error.starts_with("photo.jpg is damaged: the JPEG is truncated or broken"), "{error}");
}

#[test]
fn flipped_bytes_never_panic() {
    let mut state = 1u64;
    let mut random = move || {
        // Knuth's linear congruential generator.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for name in files() {
        let whole = std::fs::read(fixture("decode").join(&name)).unwrap();
        for round in 0..150 {
            let mut bytes = whole.clone();
            // Half of the time in the header, where more depends on each byte.
            let end = if round % 2 == 0 { bytes.len().min(200) } else { bytes.len() };
            for _ in 0..=random() % 4 {
                bytes[random() % end] = random() as u8;
            }
            let limits = Limits { max_pixels: 1 << 20, ..Limits::default() };
            let result = catch_unwind(|| decode(&bytes, Path::new(&name), &limits));
            assert!(result.is_ok(), "{name}, round {round}: a panic");
        }
    }
}
