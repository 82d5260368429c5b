//! Epilogue of a convolution, applied to its sums.

use std::mem::MaybeUninit;

use super::Epilogue;
use crate::{dispatch::vectorized, fresh::zeroed};

/// An [`Epilogue`] with a scale and a shift per channel.
pub(super) struct Finish<'a> {
    scale: Option<Vec<f32>>,
    shift: Option<&'a [f32]>,
    pub residual: Option<&'a [f32]>,
    pub relu: bool,
}

impl<'a> Finish<'a> {
    pub fn new(epilogue: Epilogue<'a>, channels: usize) -> Self {
        let Epilogue { scale, shift, residual, relu } = epilogue;
        let scale = (scale.is_some() || shift.is_some()).then(|| scale.map_or(vec![1.0; channels], <[f32]>::to_vec));
        Self { scale, shift, residual, relu }
    }

    /// Returns true if the epilogue is the identity.
    #[cfg(target_arch = "x86_64")]
    pub fn nothing(&self) -> bool {
        self.scale.is_none() && self.residual.is_none() && !self.relu
    }

    /// Returns a channel's scale and shift, if any.
    #[inline(always)]
    pub fn factors(&self, channel: usize) -> Option<(f32, f32)> {
        self.scale.as_ref().map(|scale| (scale[channel], self.shift.map_or(0.0, |shift| shift[channel])))
    }

    /// Writes the results of one channel from the sums `y`. The first result is at index `at` of the output. Only the first
    /// `lines[0]` of each `lines[1]` sums are results.
    pub fn apply(&self, y: &[f32], lines: [usize; 2], channel: usize, at: usize, out: &mut [MaybeUninit<f32>]) {
        let factors = self.factors(channel);
        let residual = self.residual.map(|residual| &residual[at..at + out.len()]);
        finish(y, lines, factors, residual, self.relu, zeroed(out));
    }
}

vectorized! {
    /// Writes the results from the sums `y`; see [`Finish::apply`].
    fn finish<_FUSED>(
        y: &[f32], lines: [usize; 2], factors: Option<(f32, f32)>, residual: Option<&[f32]>, relu: bool, out: &mut [f32],
    ) {
        let (scale, shift) = factors.unwrap_or((1.0, 0.0));
        for (i, out) in out.chunks_mut(lines[0]).enumerate() {
            let y = &y[i * lines[1]..][..out.len()];
            if factors.is_some() {
                out.iter_mut().zip(y).for_each(|(out, y)| *out = scale * y + shift);
            } else {
                out.iter_mut().zip(y).for_each(|(out, y)| *out = *y);
            }
            if let Some(residual) = residual {
                let residual = &residual[i * lines[0]..][..out.len()];
                out.iter_mut().zip(residual).for_each(|(out, residual)| *out += residual);
            }
            if relu {
                // The comparison is false for NaN, so that NaN propagates.
                out.iter_mut().for_each(|out| *out = if *out < 0.0 { 0.0 } else { *out });
            }
        }
    }
}
