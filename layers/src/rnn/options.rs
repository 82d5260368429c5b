/// Structure of recurrent layers; defaults are PyTorch's.
#[derive(Clone, Debug, PartialEq)]
pub struct RnnOptions {
    /// Layers, one above the other: each reads the outputs of the one below. 1.
    pub layers: usize,
    /// Cells have biases. True.
    pub bias: bool,
    /// A second cell in each layer reads the sequences from their ends; the outputs of both lie side by side. False.
    pub bidirectional: bool,
    /// The only cell of each layer reads from the ends; of no meaning with `bidirectional`. False. (PyTorch has no such.)
    pub reverse: bool,
    /// Dropout between the layers, not after the last, where a key is given. 0.
    pub dropout: f64,
    /// Padded batches are `[b, t, …]` rather than `[t, b, …]`. False. States are `[layers * directions, b, n]` either way.
    pub batch_first: bool,
}

impl Default for RnnOptions {
    fn default() -> Self {
        Self { layers: 1, bias: true, bidirectional: false, reverse: false, dropout: 0.0, batch_first: false }
    }
}
