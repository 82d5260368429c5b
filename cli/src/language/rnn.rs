//! Options and configuration of training a recurrent language model.

use grove::models::ModelKind;

use super::{LanguageArgs, LanguageOptions, check_resumed};
use crate::prelude::*;

/// Trains a recurrent language model on text, from scratch or from a trained model.
///
/// Tokens are bytes, unless --vocab-size or --tokenizer is given.
#[derive(Parser, Debug)]
#[command(
    allow_negative_numbers = true,
    mut_arg("context", |arg| arg.help("Training window in tokens; the recurrent state is reset between windows [default: 128]")),
    mut_arg("lora_targets", |arg| arg.help("Linear layers that get an adapter, as path patterns")),
    mut_arg("dropout", |arg| arg.help("Dropout rate of all layers [default: that of the model, else 0.1]")),
    mut_arg("vocab_size", |arg| arg.default_value("257").help(
        "Vocabulary size of the tokenizer to train, or of a token file; 257 is bytes only, a larger one merges frequent \
         sequences"
    )),
    mut_arg("batch_size", |arg| arg.default_value("32")),
    mut_arg("learning_rate", |arg| arg.default_value("2e-3")),
    mut_arg("weight_decay", |arg| arg.default_value("0.01")),
)]
pub struct LmOptions {
    /// Model, data and hyperparameters.
    #[command(flatten)]
    pub language: LanguageArgs,

    /// Sizes of a new model.
    #[command(flatten)]
    pub sizes: RnnSizes,

    /// Tie the output layer to the token embedding
    #[arg(long, conflicts_with = "model", help_heading = "Model")]
    tie: bool,
}

/// Sizes of a new model.
#[derive(Args, Debug)]
pub struct RnnSizes {
    /// Type of recurrent cell: lstm, gru, rnn_tanh or rnn_relu [default: lstm]
    #[arg(long, value_name = "KIND", conflicts_with = "model", help_heading = "Model")]
    pub cell: Option<RnnKind>,

    /// Number of recurrent layers [default: 2]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub layers: Option<usize>,

    /// Size of the hidden state [default: 256]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub hidden: Option<usize>,

    /// Size of the token embeddings [default: the value of --hidden]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub embedding: Option<usize>,
}

impl RnnSizes {
    /// Rejects a run to resume whose cell or sizes differ from those of the options.
    pub fn check_resumed(&self, cell: RnnKind, [layers, hidden, embedding]: [usize; 3]) -> Result<(), Exit> {
        check_resumed([("cell", self.cell, cell)])?;
        check_resumed([
            ("layers", self.layers, layers),
            ("hidden", self.hidden, hidden),
            ("embedding", self.embedding, embedding),
        ])
    }
}

impl LanguageOptions for LmOptions {
    type Model<B: Backend> = RnnLm<B>;
    type Config = RnnLmConfig;

    const KIND: ModelKind = ModelKind::RnnLm;
    const LORA_TARGETS: &'static [&'static str] = &[];
    const PEFT_PREFIX: &'static str = "";

    fn language(&self) -> &LanguageArgs {
        &self.language
    }

    fn new_config(&self, tokenizer: Option<&Tokenizer>) -> Result<RnnLmConfig, Exit> {
        let Self { sizes, tie, .. } = self;
        let hidden_size = sizes.hidden.unwrap_or(256);
        Ok(RnnLmConfig {
            cell: sizes.cell.unwrap_or_default(),
            vocab_size: tokenizer.map_or(self.language.vocab_size, Tokenizer::vocab_size),
            embedding_size: sizes.embedding.unwrap_or(hidden_size),
            hidden_size,
            num_layers: sizes.layers.unwrap_or(2),
            dropout: 0.1,
            tie_word_embeddings: *tie,
            eos_token_id: tokenizer.and_then(Tokenizer::end_of_text),
            ..RnnLmConfig::default()
        })
    }

    fn check_resumed(&self, config: &RnnLmConfig) -> Result<(), Exit> {
        self.sizes.check_resumed(config.cell, [config.num_layers, config.hidden_size, config.embedding_size])?;
        match self.tie && !config.tie_word_embeddings {
            true => Err(usage("--tie: the run to resume has a separate output layer: leave it out")),
            false => Ok(()),
        }
    }
}
