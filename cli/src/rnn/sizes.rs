//! The sizes of recurrent networks, on the command line.

use clap::Args;
use grove::models::RnnKind;

use crate::language::check_resumed;
use crate::prelude::*;

/// Sizes of a new model.
#[derive(Args, Debug)]
pub struct Sizes {
    /// Kind of cells: lstm, gru, rnn_tanh or rnn_relu [default: lstm]
    #[arg(long, value_name = "KIND", conflicts_with = "model", help_heading = "Model")]
    pub cell: Option<RnnKind>,

    /// Recurrent layers, one above the other [default: 2]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub layers: Option<usize>,

    /// Size of hidden states [default: 256]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub hidden: Option<usize>,

    /// Size of token embeddings [default: that of hidden states]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub embedding: Option<usize>,
}

impl Sizes {
    /// Refuses to resume a run with other cells or sizes than it has.
    pub fn check_resumed(&self, cell: RnnKind, [layers, hidden, embedding]: [usize; 3]) -> Result<(), Exit> {
        check_resumed("cell", self.cell, cell)?;
        check_resumed("layers", self.layers, layers)?;
        check_resumed("hidden", self.hidden, hidden)?;
        check_resumed("embedding", self.embedding, embedding)
    }
}
