//! Tests of this crate, linked into one program.

#[path = "../common/mod.rs"]
mod common;

mod bench_cli;
mod bert_cli;
mod cli;
mod convert_cli;
mod dtype_cli;
mod help;
mod llama_cli;
mod new_project;
mod packages;
mod reference;
mod rnn_cli;
mod runs_cli;
mod text_cli;
mod train_cli;
mod vision_cli;
