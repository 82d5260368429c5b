//! Decoding the bytes of a file to RGB.

use std::error::Error;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use grove_files::{FileError, failed_download};
use image::error::{ImageError as CodecError, LimitErrorKind};
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, RgbImage};

use crate::error::{ImageError, Result};
use crate::jpeg;

/// Limits on the size of a file and its image. All are checked before the pixels are allocated, so that a small file
/// that claims to be a huge image costs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of pixels (width × height). The default, 178,956,970, is Pillow's limit.
    pub max_pixels: u64,
    /// Maximum width and height in pixels; default 1,000,000.
    pub max_side: u32,
    /// Maximum file size in bytes; default 512 MiB.
    pub max_file_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_pixels: 178_956_970, max_side: 1_000_000, max_file_bytes: 512 << 20 }
    }
}

/// Reads an image file; see [`decode`].
///
/// # Errors
/// As [`decode`]; also if the path is a directory, cannot be opened, or is larger than [`Limits::max_file_bytes`].
pub fn open(path: impl AsRef<Path>, limits: &Limits) -> Result<RgbImage> {
    let path = path.as_ref();
    let file = File::open(path).map_err(FileError::io("open", path))?;
    let metadata = file.metadata().map_err(FileError::io("read", path))?;
    if metadata.is_dir() {
        let found = "it is a directory; name one of its files".to_owned();
        return Err(ImageError::NotAnImage { file: path.to_owned(), found });
    }
    // The length is only a hint: a pipe has none, and a file can grow.
    if metadata.len() > limits.max_file_bytes {
        let reason = format!("the file exceeds the limit of {} bytes", limits.max_file_bytes);
        return Err(ImageError::TooLarge { file: path.to_owned(), reason });
    }
    read(file, path, limits)
}

/// Reads an image to the end of a stream, such as standard input; see [`decode`]. `name` only appears in errors.
///
/// # Errors
/// As [`decode`]; also if the stream cannot be read or is longer than [`Limits::max_file_bytes`].
pub fn read(stream: impl Read, name: &Path, limits: &Limits) -> Result<RgbImage> {
    let mut bytes = Vec::new();
    let most = limits.max_file_bytes.saturating_add(1);
    stream.take(most).read_to_end(&mut bytes).map_err(FileError::io("read", name))?;
    decode(&bytes, name, limits)
}

/// Decodes a JPEG, PNG, WebP, GIF (first frame), BMP or TIFF image like Pillow's `convert("RGB")`, and applies its
/// EXIF orientation.
///
/// The format is detected by content; `name` only appears in errors. Grey is copied to the three channels, palettes are
/// looked up, alpha is dropped (not blended), 16-bit values keep their upper 8 bits, and CMYK is assumed to be
/// inverted, as in JPEG files.
///
/// # Errors
/// The file is empty, is not an image, has an unsupported format, exceeds `limits`, or is damaged or truncated.
pub fn decode(bytes: &[u8], name: &Path, limits: &Limits) -> Result<RgbImage> {
    let too_large = |reason| ImageError::TooLarge { file: name.to_owned(), reason };
    let damaged = |reason: &str| ImageError::Damaged { file: name.to_owned(), reason: reason.to_owned() };
    if bytes.len() as u64 > limits.max_file_bytes {
        let most = limits.max_file_bytes;
        return Err(too_large(format!("the file exceeds the limit of {most} bytes")));
    }
    let format = image::guess_format(bytes).ok().filter(ImageFormat::reading_enabled);
    let Some(format) = format else { return Err(unknown(bytes, name)) };

    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut codec_limits = image::Limits::no_limits();
    // Up to 16 bytes per pixel (four floats in a TIFF), plus memory for a codec's own tables.
    codec_limits.max_alloc = Some(limits.max_pixels.saturating_mul(16).saturating_add(64 << 20));
    reader.limits(codec_limits);
    let mut decoder = reader.into_decoder().map_err(|e| codec(e, name, format, limits.max_pixels))?;

    let (width, height) = decoder.dimensions();
    if width == 0 || height == 0 {
        return Err(damaged(&format!("its header claims {width}×{height} pixels")));
    }
    if u64::from(width) * u64::from(height) > limits.max_pixels {
        let most = limits.max_pixels;
        return Err(too_large(format!("{width}×{height} pixels exceed the limit of {most}")));
    }
    if width.max(height) > limits.max_side {
        let most = limits.max_side;
        return Err(too_large(format!("{width}×{height} pixels: no side may have more than {most}")));
    }
    if format == ImageFormat::Jpeg && !jpeg::is_complete(bytes) {
        return Err(damaged("it ends before the image does (truncated)"));
    }
    // A malformed EXIF block does not affect the pixels; Pillow ignores it too.
    let exif = format != ImageFormat::WebP || chunks_fit(bytes);
    let orientation = exif.then(|| decoder.orientation().ok()).flatten();
    let mut image = DynamicImage::from_decoder(decoder).map_err(|e| codec(e, name, format, limits.max_pixels))?;
    if let Some(orientation) = orientation {
        image.apply_orientation(orientation);
    }
    Ok(to_rgb(image))
}

/// Returns true if all chunks of a WebP file end within it. Otherwise the codec would allocate as much memory as a
/// chunk claims.
fn chunks_fit(bytes: &[u8]) -> bool {
    let mut rest = bytes.get(12..).unwrap_or_default();
    while let Some((head, behind)) = rest.split_first_chunk::<8>() {
        let size = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if size > behind.len() {
            return false;
        }
        // A chunk of odd length is followed by a padding byte, which may be missing after the last chunk.
        rest = behind.get(size.next_multiple_of(2)..).unwrap_or_default();
    }
    true
}

/// Converts an image of any pixel type to RGB.
fn to_rgb(image: DynamicImage) -> RgbImage {
    // `to_rgb8` rounds 16 bits to 8, whereas Pillow truncates them.
    let high = |value: u16| (value >> 8) as u8;
    let rgb = |width, height, pixels: Vec<u8>| RgbImage::from_raw(width, height, pixels);
    let (width, height) = (image.width(), image.height());
    let converted = match &image {
        DynamicImage::ImageLuma16(p) => rgb(width, height, p.pixels().flat_map(|p| [high(p.0[0]); 3]).collect()),
        DynamicImage::ImageLumaA16(p) => rgb(width, height, p.pixels().flat_map(|p| [high(p.0[0]); 3]).collect()),
        DynamicImage::ImageRgb16(p) => rgb(width, height, p.pixels().flat_map(|p| p.0.map(high)).collect()),
        DynamicImage::ImageRgba16(p) => {
            rgb(width, height, p.pixels().flat_map(|p| [high(p.0[0]), high(p.0[1]), high(p.0[2])]).collect())
        }
        _ => None,
    };
    converted.unwrap_or_else(|| image.into_rgb8())
}

/// Converts a codec's error to this crate's.
fn codec(error: CodecError, name: &Path, format: ImageFormat, most_pixels: u64) -> ImageError {
    let file = name.to_owned();
    match error {
        CodecError::Unsupported(e) => {
            ImageError::Unsupported { file, reason: format!("{e}; save it again as PNG or JPEG") }
        }
        CodecError::Limits(e) => {
            let reason = match e.kind() {
                LimitErrorKind::InsufficientMemory => {
                    format!("decoding needs more memory than an image of {most_pixels} pixels, the limit")
                }
                _ => e.to_string(),
            };
            ImageError::TooLarge { file, reason }
        }
        CodecError::IoError(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            ImageError::Damaged { file, reason: "it ends before the image does (truncated)".into() }
        }
        CodecError::Decoding(e) => {
            let reason = e.source().map(|cause| format!(" ({})", one_line(cause))).unwrap_or_default();
            ImageError::Damaged { file, reason: format!("the {} is truncated or broken{reason}", name_of(format)) }
        }
        other => ImageError::Damaged { file, reason: one_line(&other) },
    }
}

/// Returns the usual name of a format.
fn name_of(format: ImageFormat) -> String {
    match format {
        ImageFormat::WebP => "WebP".into(),
        other => format!("{other:?}").to_uppercase(),
    }
}

/// Returns a codec's message. Codecs end messages with line breaks, which some escape, and quote messages in others.
fn one_line(error: &dyn Error) -> String {
    let message = error.to_string().replace("\\n", "").replace('\n', "");
    let message = message.strip_prefix("I/O errors ").unwrap_or(&message);
    let unquoted = message.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    unquoted.unwrap_or(message).to_owned()
}

/// Describes a file that no codec recognises.
fn unknown(bytes: &[u8], name: &Path) -> ImageError {
    let file = name.to_owned();
    let start = bytes.get(..64).unwrap_or(bytes);
    let text = String::from_utf8_lossy(start).trim_start_matches('\u{feff}').trim_start().to_lowercase();
    let brand = if bytes.get(4..8) == Some(b"ftyp") { bytes.get(8..12).unwrap_or_default() } else { &[] };
    let unsupported = |kind: &str| ImageError::Unsupported {
        file: file.clone(),
        reason: format!("it is {kind}; save it as PNG or JPEG first"),
    };
    let found = match () {
        () if bytes.is_empty() => "the file is empty",
        () if matches!(brand, b"avif" | b"avis") => return unsupported("an AVIF image"),
        () if matches!(brand, b"heic" | b"heix" | b"hevc" | b"mif1" | b"msf1") => return unsupported("a HEIC image"),
        () if start.starts_with(b"\xff\x0a") || start.get(4..8) == Some(b"JXL ") => return unsupported("JPEG XL"),
        () if start.get(4..8) == Some(b"jP  ") => return unsupported("JPEG 2000"),
        () if start.starts_with(b"8BPS") => return unsupported("a Photoshop document"),
        () if start.starts_with(b"%PDF") => return unsupported("a PDF document"),
        () if text.starts_with("<svg") || text.starts_with("<?xml") => return unsupported("an SVG or XML document"),
        () => failed_download(bytes)
            .unwrap_or("its first bytes match no supported format (JPEG, PNG, WebP, GIF, BMP, TIFF)"),
    };
    ImageError::NotAnImage { file, found: found.to_owned() }
}
