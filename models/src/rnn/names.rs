use grove_weights::NameMap;

use super::RnnLmConfig;
use crate::names::{linear_names, output_names};

/// Returns the names of a language model's tensors: those of PyTorch's `word_language_model` example, with or without
/// the prefix `model.` or `module.`.
pub fn published_names(config: &RnnLmConfig) -> NameMap {
    let names = NameMap::new().prefix("model.").prefix("module.").rule("encoder.weight", "encoder.weight");
    let names = output_names(names, "decoder.weight", "decoder.weight", config.tie_word_embeddings, "encoder.weight");
    torch_rnn_names(names, "rnn.", "rnn.").rule("decoder.bias", "decoder.bias")
}

/// Returns the names of a classifier's tensors, with or without the prefix `model.` or `module.`.
pub fn classifier_names() -> NameMap {
    let names = NameMap::new().prefix("model.").prefix("module.").rule("embedding.weight", "embedding.weight");
    linear_names(torch_rnn_names(names, "rnn.", "rnn."), "classifier", "classifier")
}

/// Adds rules from the weights of `torch.nn.RNN`, `GRU` and `LSTM` to those of
/// [`Recurrent`](grove_layers::rnn::Recurrent): `weight_ih_l0` is `layers.0.forward.weight_ih`, `weight_ih_l0_reverse`
/// is `layers.0.backward.weight_ih`, and likewise for `weight_hh`, `bias_ih`, `bias_hh` and `weight_hr`. `name_prefix`
/// is prepended to the names in files, `path_prefix` to the paths; either can be empty.
///
/// ```
/// use grove_layers::rnn::{Lstm, RnnOptions};
/// use grove_models::rnn::torch_rnn_names;
/// use grove_tree::{Init, Key, eq};
/// use grove_weights::{TensorFiles, LoadOptions, NameMap, SaveOptions, load, save_model};
/// # type B = burn_flex::Flex;
/// # let (device, directory) = (Default::default(), tempfile::tempdir()?);
/// # let file = directory.path().join("tagger.safetensors");
/// let options = RnnOptions { bidirectional: true, ..RnnOptions::default() };
/// let lstm = Lstm::<B>::new(3, 5, &options, &Init::new(Key::new(0), &device));
/// let names = torch_rnn_names(NameMap::new(), "tagger.lstm.", "");
/// save_model(&lstm, &names, &file, &SaveOptions::default())?;
///
/// let checkpoint = TensorFiles::open(&file)?;
/// assert!(checkpoint.contains("tagger.lstm.weight_hh_l0_reverse"));
/// let skeleton = Lstm::new(3, 5, &options, &Init::skeleton());
/// let (loaded, _) = load(skeleton, &checkpoint, &names, &LoadOptions::new(&device))?;
/// assert!(eq(&loaded, &lstm));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn torch_rnn_names(map: NameMap, name_prefix: &str, path_prefix: &str) -> NameMap {
    let directions = [("_reverse", "backward"), ("", "forward")];
    let parts = ["weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"];
    let rules = directions.iter().flat_map(|direction| parts.iter().map(move |part| (part, direction)));
    rules.fold(map, |map, (part, (suffix, direction))| {
        let name = format!("{name_prefix}{part}_l{{k}}{suffix}");
        map.rule(&name, &format!("{path_prefix}layers.{{k}}.{direction}.{part}"))
    })
}
