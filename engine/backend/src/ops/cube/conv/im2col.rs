//! im2col and its inverse, col2im.

use burn::tensor::TensorMetadata;
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::{prelude::*, zspace::metadata::Metadata};

use super::Conv;
use crate::{
    Conv2dOptions,
    ops::cube::{
        register::{FusedTensor, register_one},
        tensor::{addresses, array, cubes, empty},
    },
};

const UNITS: usize = 256;

/// Sizes of a [`Conv`], as a kernel argument.
#[derive(CubeType, CubeLaunch)]
struct Geometry {
    groups: usize,
    channels: usize,
    height: usize,
    width: usize,
    out_height: usize,
    out_width: usize,
    kernel_height: usize,
    kernel_width: usize,
    stride_y: usize,
    stride_x: usize,
    padding_y: usize,
    padding_x: usize,
    dilation_y: usize,
    dilation_x: usize,
}

impl<R: Runtime> GeometryLaunch<R> {
    fn of(conv: &Conv) -> Self {
        let Conv2dOptions { stride, padding, dilation, groups } = conv.options;
        Self::new(
            groups,
            conv.channels,
            conv.size[0],
            conv.size[1],
            conv.output[0],
            conv.output[1],
            conv.kernel[0],
            conv.kernel[1],
            stride[0],
            stride[1],
            padding[0],
            padding[1],
            dilation[0],
            dilation[1],
        )
    }
}

/// Strides of a tensor `[b, c, h, w]`.
#[derive(CubeType, CubeLaunch)]
struct ImageStrides {
    image: usize,
    channel: usize,
    row: usize,
    column: usize,
}

/// im2col: each unit writes one element. The matrices are row-major if `by_rows`, otherwise column-major.
#[cube(launch_unchecked, address_type = "dynamic")]
fn unfold_kernel<F: Float>(
    x: &Array<F>,
    rows: &mut Array<F>,
    count: usize,
    conv: Geometry,
    strides: ImageStrides,
    rows_each: usize,
    columns: usize,
    #[comptime] by_rows: bool,
    #[define(F)] _dtype: StorageType,
) {
    let i = ABSOLUTE_POS;
    if i >= count {
        terminate!();
    }
    let (matrix, within) = (i / (rows_each * columns), i % (rows_each * columns));
    let (row, column) = if comptime!(by_rows) {
        (within / columns, within % columns)
    } else {
        (within % rows_each, within / rows_each)
    };
    let (part, group) = (matrix / conv.groups, matrix % conv.groups);
    let position = part * rows_each + row;
    let (line, out_x) = (position / conv.out_width, position % conv.out_width);
    let (image, out_y) = (line / conv.out_height, line % conv.out_height);
    let (tap, channel) = (column / conv.channels, column % conv.channels);
    let y = out_y * conv.stride_y + tap / conv.kernel_width * conv.dilation_y;
    let x_at = out_x * conv.stride_x + tap % conv.kernel_width * conv.dilation_x;
    let mut value = F::new(0.0);
    if y >= conv.padding_y
        && y < conv.height + conv.padding_y
        && x_at >= conv.padding_x
        && x_at < conv.width + conv.padding_x
    {
        value = x[image * strides.image
            + (group * conv.channels + channel) * strides.channel
            + (y - conv.padding_y) * strides.row
            + (x_at - conv.padding_x) * strides.column];
    }
    rows[i] = value;
}

/// col2im: each unit sums the im2col elements of one pixel of one channel. Channels are adjacent in memory.
#[allow(clippy::manual_is_multiple_of)] // the method does not exist in kernels
#[cube(launch_unchecked, address_type = "dynamic")]
fn fold_kernel<F: Float>(
    rows: &Array<F>,
    x: &mut Array<F>,
    count: usize,
    conv: Geometry,
    all_rows: usize,
    columns: usize,
    #[define(F)] _dtype: StorageType,
) {
    let i = ABSOLUTE_POS;
    if i >= count {
        terminate!();
    }
    let all_channels = conv.groups * conv.channels;
    let (pixel, of_all) = (i / all_channels, i % all_channels);
    let (group, channel) = (of_all / conv.channels, of_all % conv.channels);
    let (line, column) = (pixel / conv.width, pixel % conv.width);
    let (image, row) = (line / conv.height, line % conv.height);
    let mut sum = 0.0f32;
    for tap_y in 0..conv.kernel_height {
        let reach_y = tap_y * conv.dilation_y;
        let y = row + conv.padding_y;
        if y >= reach_y && (y - reach_y) % conv.stride_y == 0 && (y - reach_y) / conv.stride_y < conv.out_height {
            let out_y = (y - reach_y) / conv.stride_y;
            for tap_x in 0..conv.kernel_width {
                let reach_x = tap_x * conv.dilation_x;
                let x_at = column + conv.padding_x;
                if x_at >= reach_x
                    && (x_at - reach_x) % conv.stride_x == 0
                    && (x_at - reach_x) / conv.stride_x < conv.out_width
                {
                    let out_x = (x_at - reach_x) / conv.stride_x;
                    let position = (image * conv.out_height + out_y) * conv.out_width + out_x;
                    let tap = tap_y * conv.kernel_width + tap_x;
                    let of_tap = rows[(group * all_rows + position) * columns + tap * conv.channels + channel];
                    sum += f32::cast_from(of_tap);
                }
            }
        }
    }
    x[i] = F::cast_from(sum);
}

/// im2col: converts `[b, c, h, w]` to rows, `[parts * groups, rows / parts, kh * kw * c / groups]`.
fn unfolded<R: CubeRuntime>(mut x: CubeTensor<R>, conv: &Conv, parts: usize) -> CubeTensor<R> {
    let groups = conv.options.groups;
    let (rows, columns) = (conv.rows() / parts, conv.columns());
    let [image, channel, row, column] = [0, 1, 2, 3].map(|axis| x.meta.strides()[axis]);
    let [height, width] = conv.size;
    let shape = [parts * groups, rows, columns];
    if conv.is_pointwise() && [image, row, column, channel] == [height * width * columns, width * columns, columns, 1] {
        *x.meta = Metadata::new(shape, [rows * columns, columns, 1]);
        return x;
    }
    let by_rows = channel <= column;
    let mut out = empty(&x, shape, x.dtype);
    if !by_rows {
        *out.meta = Metadata::new(shape, [rows * columns, 1, rows]);
    }
    let count = shape.iter().product();
    // SAFETY: each element of the rows has a unit. A unit reads only elements within the image, by the image's strides.
    unsafe {
        unfold_kernel::launch_unchecked(
            &x.client,
            cubes(&x.client, usize::div_ceil(count, UNITS)),
            CubeDim::new_1d(UNITS as u32),
            addresses(&[&x, &out]),
            array(&x),
            array(&out),
            count,
            GeometryLaunch::of(conv),
            ImageStridesLaunch::new(image, channel, row, column),
            rows,
            columns,
            by_rows,
            x.dtype.into(),
        );
    }
    out
}

/// col2im: sums the elements of rows `[groups, rows, kh * kw * c / groups]` that belong to each pixel, `[b, c, h, w]`.
fn folded<R: CubeRuntime>(rows: CubeTensor<R>, conv: &Conv) -> CubeTensor<R> {
    let rows = into_contiguous(rows);
    let ([height, width], channels) = (conv.size, conv.channels * conv.options.groups);
    let shape = [conv.images, channels, height, width];
    let mut x = empty(&rows, shape, rows.dtype);
    *x.meta = Metadata::new(shape, [height * width * channels, 1, width * channels, channels]);
    let count = shape.iter().product();
    // SAFETY: each pixel of each channel has a unit, which reads only rows of existing output pixels.
    unsafe {
        fold_kernel::launch_unchecked(
            &x.client,
            cubes(&x.client, usize::div_ceil(count, UNITS)),
            CubeDim::new_1d(UNITS as u32),
            addresses(&[&x, &rows]),
            array(&rows),
            array(&x),
            count,
            GeometryLaunch::of(conv),
            conv.rows(),
            conv.columns(),
            rows.dtype.into(),
        );
    }
    x
}

/// [`unfolded`] of a tensor that may not be computed yet.
pub(super) fn unfold<R: CubeRuntime>(x: FusedTensor<R>, conv: Conv, parts: usize) -> FusedTensor<R> {
    let shape = [parts * conv.options.groups, conv.rows() / parts, conv.columns()];
    let output = (shape.into(), x.dtype());
    register_one("grove_unfold", [x], output, move |[x]| unfolded(x, &conv, parts))
}

/// [`folded`] of rows that may not be computed yet.
pub(super) fn fold<R: CubeRuntime>(rows: FusedTensor<R>, conv: Conv) -> FusedTensor<R> {
    let shape = [conv.images, conv.channels * conv.options.groups, conv.size[0], conv.size[1]];
    let output = (shape.into(), rows.dtype());
    register_one("grove_fold", [rows], output, move |[rows]| folded(rows, &conv))
}
