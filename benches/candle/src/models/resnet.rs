//! ResNet, for inference.

use candle_core::D;
use candle_nn::{Func, VarBuilder};

/// candle-transformers' inference-only bottleneck ResNet, with any depths and base width; candle-transformers has only
/// the published sizes.
pub(super) fn resnet(
    depths: &[usize],
    width: usize,
    classes: usize,
    vb: VarBuilder,
) -> candle_core::Result<Func<'static>> {
    let stem = conv_norm([3, width, 7], 2, vb.pp("stem"))?;
    let (mut inputs, mut blocks) = (width, Vec::new());
    for (stage, &depth) in depths.iter().enumerate() {
        for block in 0..depth {
            let (planes, stride) = (width << stage, if stage > 0 && block == 0 { 2 } else { 1 });
            blocks.push(bottleneck(inputs, planes, stride, vb.pp(format!("layer{}.{block}", stage + 1)))?);
            inputs = 4 * planes;
        }
    }
    let classifier = candle_nn::linear(inputs, classes, vb.pp("fc"))?;
    Ok(Func::new(move |x| {
        let x = x.apply(&stem)?.relu()?;
        // Replicates the edges, which does not change a maximum.
        let mut x = x.pad_with_same(D::Minus1, 1, 1)?.pad_with_same(D::Minus2, 1, 1)?.max_pool2d_with_stride(3, 2)?;
        for block in &blocks {
            x = x.apply(block)?;
        }
        x.mean(D::Minus1)?.mean(D::Minus1)?.apply(&classifier)
    }))
}

/// Bottleneck block: three convolutions and a shortcut.
fn bottleneck(inputs: usize, planes: usize, stride: usize, vb: VarBuilder) -> candle_core::Result<Func<'static>> {
    let outputs = 4 * planes;
    let narrow = conv_norm([inputs, planes, 1], 1, vb.pp("1"))?;
    let middle = conv_norm([planes, planes, 3], stride, vb.pp("2"))?;
    let wide = conv_norm([planes, outputs, 1], 1, vb.pp("3"))?;
    let past = match stride != 1 || inputs != outputs {
        true => Some(conv_norm([inputs, outputs, 1], stride, vb.pp("downsample"))?),
        false => None,
    };
    Ok(Func::new(move |x| {
        let y = x.apply(&narrow)?.relu()?.apply(&middle)?.relu()?.apply(&wide)?;
        let x = past.as_ref().map_or_else(|| Ok(x.clone()), |past| x.apply(past))?;
        (x + y)?.relu()
    }))
}

/// Convolution without a bias, of the given inputs, outputs and kernel size, with batch normalisation.
fn conv_norm([inputs, outputs, size]: [usize; 3], stride: usize, vb: VarBuilder) -> candle_core::Result<Func<'static>> {
    let config = candle_nn::Conv2dConfig { stride, padding: size / 2, ..Default::default() };
    let conv = candle_nn::conv2d_no_bias(inputs, outputs, size, config, vb.pp("conv"))?;
    let norm = candle_nn::batch_norm(outputs, 1e-5, vb.pp("bn"))?;
    Ok(Func::new(move |x| x.apply(&conv)?.apply_t(&norm, false)))
}
