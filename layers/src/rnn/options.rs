/// Options of recurrent layers. The defaults are PyTorch's.
#[derive(Clone, Debug, PartialEq)]
pub struct RnnOptions {
    /// Number of layers; each reads the outputs of the layer below. Default: 1.
    pub layers: usize,
    /// If true, cells have biases. Default: true.
    pub bias: bool,
    /// If true, a second cell in each layer reads the sequences in reverse; both outputs are concatenated. Default:
    /// false.
    pub bidirectional: bool,
    /// If true, the only cell of each layer reads in reverse. Ignored with `bidirectional`. Default: false. (Not in
    /// PyTorch.)
    pub reverse: bool,
    /// Dropout rate between the layers, not after the last, if a key is given. Default: 0.
    pub dropout: f64,
    /// If true, padded batches are `[b, t, …]`, else `[t, b, …]`. Default: false. States are `[layers * directions, b,
    /// n]` either way.
    pub batch_first: bool,
}

impl Default for RnnOptions {
    fn default() -> Self {
        Self { layers: 1, bias: true, bidirectional: false, reverse: false, dropout: 0.0, batch_first: false }
    }
}
