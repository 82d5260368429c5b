//! Code shared by the training commands: options, the run, and its final report.

#[cfg(not(test))]
mod anchor;
mod job;
mod lora;
mod optimizer;
mod options;
mod report;
mod settings;

#[cfg(not(test))]
#[doc(hidden)]
pub use anchor::optimizer_anchors;
pub use job::{Job, Setup, new_model, new_tokenizer, with_new_parameters};
pub use lora::LoraArgs;
pub use optimizer::Given;
pub use options::{
    RunArgs, TrainingArgs, at_least_one, check_held_out, check_layer_decay, fraction, need, not_negative,
    with_text_rates,
};
pub use report::Summary;
pub use settings::config_json;
