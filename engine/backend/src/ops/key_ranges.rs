//! Contiguous key ranges of queries, which replace a materialised mask.

use burn::tensor::{Bool, Int, IntDType, Tensor};

use super::{Backend, Shapes, Values};

/// Keys that queries attend to: all by default, else a range per query, described by a few parameters.
///
/// A query with an empty range returns zeros, and its gradients are zero.
#[derive(Clone, Debug, Default)]
pub struct KeyRanges<B: Backend> {
    /// If true, the queries are the last `t` of the `s` positions, and each attends to its own key and those before it.
    pub causal: bool,
    /// Sliding window: with `causal`, a query attends to at most the last `window` keys, including its own.
    pub window: Option<usize>,
    /// Number of padding keys before each sequence, `[b]`, which no query attends to. With `causal`, a padding query
    /// attends only to its own key. Values are clamped to `0..=s`.
    pub padding: Option<Tensor<B, 1, Int>>,
    /// Number of keys of each sequence, including padding before it, `[b]`. No query attends to later keys. Values are
    /// clamped to `0..=s`.
    pub lengths: Option<Tensor<B, 1, Int>>,
}

impl<B: Backend> KeyRanges<B> {
    /// Creates causal ranges if `causal` is true, else ranges of all keys, without window, padding or lengths.
    pub fn new(causal: bool) -> Self {
        Self { causal, ..Self::default() }
    }

    /// Takes padding and lengths from the inputs of an operation, at `first` and `first + 1`.
    pub(super) fn take(causal: bool, window: Option<usize>, inputs: &mut Values<B>, first: usize) -> Self {
        let (padding, lengths) = (inputs.take_optional_int(first), inputs.take_optional_int(first + 1));
        Self { causal, window, padding, lengths }
    }

    /// Returns true if only `causal` restricts the keys.
    pub(super) fn is_plain(&self) -> bool {
        self.window.is_none() && self.padding.is_none() && self.lengths.is_none()
    }

    /// Computes the mask on the device, `[b or 1, 1, t or 1, s]`, true at masked keys; `None` if no key is masked.
    pub(super) fn mask(&self, [t, s]: [usize; 2], device: &B::Device) -> Option<Tensor<B, 4, Bool>> {
        let keys = Tensor::<B, 1, Int>::arange(0..s as i64, device).reshape([1, 1, 1, s]);
        let dtype = IntDType::from(keys.dtype());
        // Broadcasts a value per sequence against all keys.
        let against_keys = |values: &Tensor<B, 1, Int>| {
            let values = values.clone();
            let values = if IntDType::from(values.dtype()) == dtype { values } else { values.cast(dtype) };
            let b = values.dims()[0];
            (keys.clone().expand([b, 1, 1, s]), values.reshape([b, 1, 1, 1]).expand([b, 1, 1, s]))
        };
        let padded = self.padding.as_ref().map(|padding| {
            let (keys, padding) = against_keys(padding);
            keys.lower(padding)
        });
        let beyond_length = self.lengths.as_ref().map(|lengths| {
            let (keys, lengths) = against_keys(lengths);
            keys.greater_equal(lengths)
        });
        let ranges = if self.causal {
            let own = Tensor::<B, 1, Int>::arange(s as i64 - t as i64..s as i64, device).reshape([1, 1, t, 1]);
            let (keys, own) = (keys.clone().expand([1, 1, t, s]), own.expand([1, 1, t, s]));
            let outside = keys.clone().greater(own.clone());
            let outside = match self.window.filter(|&window| window < s) {
                Some(window) => outside.bool_or(keys.clone().lower_equal(own.clone().sub_scalar(window as i64))),
                None => outside,
            };
            Some(match padded {
                Some(padded) => either(outside, both(padded, keys.not_equal(own))),
                None => outside,
            })
        } else {
            padded
        };
        match (ranges, beyond_length) {
            (Some(ranges), Some(beyond_length)) => Some(either(ranges, beyond_length)),
            (ranges, beyond_length) => ranges.or(beyond_length),
        }
    }

    /// Returns the ranges for several queries that each attend to the keys of the single query of one of `b` sequences.
    pub(super) fn for_single_queries(self, [b, s]: [usize; 2], device: &B::Device) -> Self {
        let from = self.window.map_or(0, |window| s.saturating_sub(window));
        let padding = match self.padding {
            // A padding query attends to its own key, which is the last.
            Some(padding) if self.causal && s > 0 => Some(padding.clamp(from as i64, s as i64 - 1)),
            None if from > 0 => Some(Tensor::full([b], from as i64, device)),
            padding => padding,
        };
        Self { causal: false, window: None, padding, lengths: self.lengths }
    }
}

/// Checks the static parameters of ranges, and the shapes of padding and lengths, the inputs at `first` and `first + 1`.
///
/// # Panics
/// If the window is 0 or used without `causal`, or a shape is not `[b]`.
pub(super) fn check(causal: bool, window: Option<usize>, b: usize, inputs: &Shapes, first: usize) {
    if let Some(window) = window {
        assert!(window > 0, "a window of 0 keys: a query attends to at least its own key");
        assert!(causal, "a window of {window} keys without `causal`: a window ends with the query's own key");
    }
    for (name, position) in [("padding", first), ("lengths", first + 1)] {
        if let Some(shape) = inputs.get(position) {
            assert!(shape == [b], "{name} of shape {shape:?} for {b} sequences");
        }
    }
}

/// Broadcasts two masks against each other.
fn broadcast<B: Backend>(a: Tensor<B, 4, Bool>, b: Tensor<B, 4, Bool>) -> [Tensor<B, 4, Bool>; 2] {
    let (a_sizes, b_sizes) = (a.dims(), b.dims());
    let sizes: [usize; 4] = std::array::from_fn(|i| if a_sizes[i] == 1 { b_sizes[i] } else { a_sizes[i] });
    [a.expand(sizes), b.expand(sizes)]
}

/// Logical or of two masks.
pub(super) fn either<B: Backend>(a: Tensor<B, 4, Bool>, b: Tensor<B, 4, Bool>) -> Tensor<B, 4, Bool> {
    let [a, b] = broadcast(a, b);
    a.bool_or(b)
}

/// Logical and of two masks.
fn both<B: Backend>(a: Tensor<B, 4, Bool>, b: Tensor<B, 4, Bool>) -> Tensor<B, 4, Bool> {
    let [a, b] = broadcast(a, b);
    a.bool_and(b)
}
