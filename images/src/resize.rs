//! Resizing as Pillow does it: an antialiased filter across, rounded to grey levels, then down.

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use image::RgbImage;

use crate::filter::Filter;

/// Resizes a picture with antialiasing, within one grey level of Pillow's `Image.resize` (and so of torchvision with
/// `antialias=True`). A side of zero gives an empty picture.
pub fn resize(image: &RgbImage, width: u32, height: u32, filter: Filter) -> RgbImage {
    let whole = Region { left: 0, top: 0, width, height };
    resize_region(image, [u64::from(height), u64::from(width)], whole, filter)
}

/// A part of a picture that was resized, in pixels of the resized picture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub left: u64,
    pub top: u64,
    pub width: u32,
    pub height: u32,
}

/// What resizing to `[height, width]` and then cutting out `region` gives, at the cost of the region alone. Pixels
/// outside it count as far as the filter reaches.
pub(crate) fn resize_region(image: &RgbImage, [height, width]: [u64; 2], region: Region, filter: Filter) -> RgbImage {
    if region.width == 0 || region.height == 0 || image.width() == 0 || image.height() == 0 {
        return RgbImage::new(region.width, region.height);
    }
    let across = Axis::new(image.width(), width, region.left, region.width, filter);
    let down = Axis::new(image.height(), height, region.top, region.height, filter);
    let pixels = if filter == Filter::Nearest {
        nearest(image, &across, &down)
    } else {
        let row = image.width() as usize * 3;
        let rows = &image.as_raw()[down.first as usize * row..][..down.count() as usize * row];
        // Pillow goes across first. Only where that needs much room for what lies between (a column of a million
        // pixels made broad) is it the other way round.
        let between = u64::from(region.width) * u64::from(down.count());
        if between <= 1 << 26 || across.count() >= region.width {
            let middle = pass(rows, [down.count(), image.width()], &across, None, filter);
            pass(&middle, [down.count(), region.width], &across.done(), Some(&down), filter)
        } else {
            let middle = pass(rows, [down.count(), image.width()], &Axis::all(image.width()), Some(&down), filter);
            pass(&middle, [region.height, image.width()], &across, None, filter)
        }
    };
    RgbImage::from_raw(region.width, region.height, pixels)
        .unwrap_or_else(|| RgbImage::new(region.width, region.height))
}

/// One direction of a resize.
struct Axis {
    /// Source pixels to a new one, and the new ones before the part.
    scale: f64,
    offset: u64,
    /// Where the part begins and how long it is, in source pixels.
    start: f64,
    length: f64,
    /// The source pixels that matter: `first..last`.
    first: u32,
    last: u32,
    /// Pixels to make.
    out: u32,
}

impl Axis {
    fn new(source: u32, resized: u64, offset: u64, out: u32, filter: Filter) -> Self {
        let scale = f64::from(source) / resized as f64;
        let start = offset as f64 * scale;
        let length = within(start, f64::from(out) * scale, source);
        // One pixel more than the filter reaches, so that cutting there changes no weight.
        let reach = filter.support() * scale.max(1.0) + 1.0;
        let first = (start - reach).floor().max(0.0) as u32;
        let last = ((start + length + reach).ceil() as u32).min(source);
        Self { scale, offset, start, length, first, last, out }
    }

    /// A direction in which nothing happens.
    fn all(source: u32) -> Self {
        Self { scale: 1.0, offset: 0, start: 0.0, length: f64::from(source), first: 0, last: source, out: source }
    }

    /// The direction after its pass.
    fn done(&self) -> Self {
        Self::all(self.out)
    }

    fn count(&self) -> u32 {
        self.last - self.first
    }

    /// The source pixel under the middle of each new one, of `side` source pixels.
    fn middles(&self, side: u32) -> Vec<usize> {
        let pixel = |place: f64| (place as usize).min(side as usize - 1);
        if self.offset > 1 << 20 {
            return (0..self.out).map(|i| pixel(self.start + (f64::from(i) + 0.5) * self.scale)).collect();
        }
        // Pillow adds up, which decides between two pixels where a middle lies on their border.
        let places = std::iter::successors(Some(0.5 * self.scale), |place| Some(place + self.scale));
        places.skip(self.offset as usize).take(self.out as usize).map(pixel).collect()
    }
}

/// `length`, or as much of it as lies before `end`, whatever the rounding.
fn within(start: f64, length: f64, end: u32) -> f64 {
    let end = f64::from(end);
    let mut length = length.min(end - start);
    while start + length > end {
        length = length.next_down();
    }
    length
}

/// Resizes in one direction: across by `across`, or, if `down` is given, down by it (whose rows before `first` are
/// not in `pixels`).
fn pass(pixels: &[u8], [height, width]: [u32; 2], across: &Axis, down: Option<&Axis>, filter: Filter) -> Vec<u8> {
    let kernel = match filter {
        Filter::Bilinear | Filter::Nearest => FilterType::Bilinear,
        Filter::Bicubic => FilterType::CatmullRom,
        Filter::Lanczos => FilterType::Lanczos3,
    };
    let (top, rows, out_height) = match down {
        Some(down) => (down.start - f64::from(down.first), down.length, down.out),
        None => (0.0, f64::from(height), height),
    };
    let rows = within(top, rows, height);
    let options = ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(kernel))
        .crop(across.start, top, across.length, rows)
        .use_alpha(false);
    let mut resized = Image::new(across.out, out_height, PixelType::U8x3);
    // Neither can fail: the length fits the sides, and the part lies inside.
    if let Ok(source) = ImageRef::new(width, height, pixels, PixelType::U8x3) {
        let done = Resizer::new().resize(&source, &mut resized, &options);
        debug_assert!(done.is_ok(), "{done:?}");
    }
    resized.into_vec()
}

/// The source pixel under the middle of each new one.
fn nearest(image: &RgbImage, across: &Axis, down: &Axis) -> Vec<u8> {
    let columns = across.middles(image.width());
    let mut pixels = Vec::with_capacity(across.out as usize * down.out as usize * 3);
    for y in down.middles(image.height()) {
        let row = &image.as_raw()[y * image.width() as usize * 3..];
        for x in &columns {
            pixels.extend_from_slice(&row[x * 3..x * 3 + 3]);
        }
    }
    pixels
}
