//! The sizes of recurrent networks, on the command line.

use clap::Args;
use grove::models::RnnKind;

use crate::Exit;

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
    /// Refuses to resume a run with other cells or sizes (layers, hidden states, embeddings) than it has.
    pub fn check_resumed(&self, cell: RnnKind, sizes: [usize; 3]) -> Result<(), Exit> {
        let asked = [("layers", self.layers), ("hidden", self.hidden), ("embedding", self.embedding)];
        let sizes = asked.into_iter().zip(sizes).map(|((name, asked), has)| (name, asked.map(text), text(has)));
        for (name, asked, has) in [("cell", self.cell.map(text), text(cell))].into_iter().chain(sizes) {
            if let Some(asked) = asked.filter(|asked| *asked != has) {
                return Err(Exit::Usage(format!("--{name} is {asked}, and the run to resume has {has}: leave it out")));
            }
        }
        Ok(())
    }
}

fn text(value: impl ToString) -> String {
    value.to_string()
}
