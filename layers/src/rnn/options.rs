/// Options of recurrent layers. The defaults are PyTorch's.
#[derive(Clone, Debug, PartialEq)]
pub struct RnnOptions {
    /// Number of layers; each reads the outputs of the layer below. Default: 1.
    pub layers: usize,
    /// If true, cells have biases. Default: true.
    pub bias: bool,
    /// If true, a second cell in each layer reads the sequences in reverse, and the outputs of both cells are concatenated.
    /// Default: false.
    pub bidirectional: bool,
    /// If true, the only cell of each layer reads in reverse. Ignored if `bidirectional` is true. Not in PyTorch. Default:
    /// false.
    pub reverse: bool,
    /// Dropout rate between layers, not after the last one. Applies only if a key is passed. Default: 0.
    pub dropout: f64,
    /// If true, padded batches are `[b, t, …]`, else `[t, b, …]`. States are `[layers * directions, b, n]` either way.
    /// Default: false.
    pub batch_first: bool,
}

impl Default for RnnOptions {
    fn default() -> Self {
        Self { layers: 1, bias: true, bidirectional: false, reverse: false, dropout: 0.0, batch_first: false }
    }
}
