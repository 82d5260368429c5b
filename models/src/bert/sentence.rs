//! Sentence embeddings: "Sentence-BERT" (Reimers and Gurevych, 2019), as the files of sentence-transformers describe them.

use burn::tensor::{DType, Tensor};
use grove_backend::{Backend, at_least_f32};
use grove_tree::Tree;
use grove_weights::Report;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::Path;

use super::{Bert, TextBatch, model::first};
use crate::{
    Pretrained,
    error::{ModelError, Result},
    pretrained::{read_json, resolve},
};

/// Pooling of the tokens' states into one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The first token's state.
    Cls,
    /// The maximum of each component.
    Max,
    /// The mean of the states.
    Mean,
    /// The sum of the states divided by the square root of their number.
    MeanSqrtLen,
}

/// An encoder with the pooling that its repository prescribes.
#[derive(Tree, Clone, Debug)]
pub struct SentenceEncoder<B: Backend> {
    /// The encoder.
    pub bert: Bert<B>,
    /// Pooling methods. Their vectors are concatenated in this order.
    #[tree(static)]
    pub pooling: Vec<Pooling>,
    /// If true, vectors are scaled to length 1.
    pub normalize: bool,
    /// Maximum length, in tokens. Longer texts must be truncated.
    pub max_len: usize,
}

#[derive(Deserialize)]
struct Module {
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

/// The settings by which `1_Pooling/config.json` names each kind, in the order of the vector's parts.
const POOLING_MODES: [(&str, Pooling); 4] = [
    ("pooling_mode_cls_token", Pooling::Cls),
    ("pooling_mode_max_tokens", Pooling::Max),
    ("pooling_mode_mean_tokens", Pooling::Mean),
    ("pooling_mode_mean_sqrt_len_tokens", Pooling::MeanSqrtLen),
];

impl<B: Backend> SentenceEncoder<B> {
    /// Loads a published one: a directory, or a hub id such as `sentence-transformers/all-MiniLM-L6-v2`, which is
    /// downloaded unless it is in the cache.
    ///
    /// # Errors
    /// The error names the file or the hub's answer, and what to do.
    pub fn from_pretrained(source: &str, device: &B::Device) -> Result<Self> {
        Ok(Self::from_path(resolve(source)?, device, None)?.0)
    }

    /// Loads a directory. Pooling is as `modules.json` prescribes, or the mean of the tokens' states without that file.
    ///
    /// # Errors
    /// The error names the file and the cause. An unknown module is an error.
    pub fn from_path(directory: impl AsRef<Path>, device: &B::Device, dtype: Option<DType>) -> Result<(Self, Report)> {
        let directory = directory.as_ref();
        let (bert, report) = Bert::from_path(directory, device, dtype)?;
        let positions = bert.config.positions();
        let mut encoder = Self { bert, pooling: vec![Pooling::Mean], normalize: false, max_len: positions };
        let settings = directory.join("sentence_bert_config.json");
        if settings.is_file() {
            let settings: Map<String, Value> = read_json(&settings)?;
            if let Some(max_len) = settings.get("max_seq_length").and_then(Value::as_u64) {
                encoder.max_len = positions.min(usize::try_from(max_len).unwrap_or(positions)).max(1);
            }
        }
        let list = directory.join("modules.json");
        if list.is_file() {
            for module in read_json::<Vec<Module>>(&list)? {
                encoder.add(&module, directory, &list)?;
            }
        }
        Ok((encoder, report))
    }

    fn add(&mut self, module: &Module, directory: &Path, list: &Path) -> Result<()> {
        match module.kind.rsplit('.').next().unwrap_or_default() {
            "Transformer" if module.path.is_empty() => {}
            "Normalize" => self.normalize = true,
            "Pooling" => {
                // A path from outside: it stays below the directory.
                let safe =
                    Path::new(&module.path).components().all(|part| matches!(part, std::path::Component::Normal(_)));
                if !safe {
                    let reason = format!("the path '{}' leads out of the directory", module.path);
                    return Err(ModelError::Json { file: list.into(), reason });
                }
                self.pooling = read_pooling(&directory.join(&module.path).join("config.json"))?;
            }
            _ => {
                let reason = format!(
                    "the module '{}' in '{}' is not known; known are Transformer (in the directory itself), Pooling and \
                     Normalize",
                    module.kind, module.path
                );
                return Err(ModelError::Json { file: list.into(), reason });
            }
        }
        Ok(())
    }

    /// Vectors of texts.
    ///
    /// # Shapes
    /// - texts of `[b, t]`
    /// - output `[b, hidden_size]`, times the number of ways of pooling
    pub fn forward(&self, texts: &TextBatch<B>) -> Tensor<B, 2> {
        let states = self.bert.forward(texts, None); // [b, t, n]
        let [b, t, n] = states.dims();
        let (dtype, states) = (states.dtype(), at_least_f32(states)); // sums of 16 bits would overflow, or lose digits
        let mask = || texts.mask.val().float().cast(states.dtype()).reshape([b, t, 1]);
        let sum = || (states.clone() * mask()).sum_dim(1).reshape([b, n]);
        let count = || mask().sum_dim(1).reshape([b, 1]);
        let parts = self.pooling.iter().map(|pooling| match pooling {
            Pooling::Cls => first(states.clone()),
            Pooling::Mean => sum() / count(),
            Pooling::MeanSqrtLen => sum() / count().sqrt(),
            Pooling::Max => {
                let hidden = texts.mask.val().equal_elem(0).reshape([b, t, 1]).expand([b, t, n]);
                states.clone().mask_fill(hidden, f32::NEG_INFINITY).max_dim(1).reshape([b, n])
            }
        });
        let vectors = Tensor::cat(parts.collect(), 1);
        if !self.normalize {
            return vectors.cast(dtype);
        }
        let norm = (vectors.clone() * vectors.clone()).sum_dim(1).sqrt().clamp_min(1e-12); // [b, 1]
        (vectors / norm).cast(dtype)
    }
}

fn read_pooling(file: &Path) -> Result<Vec<Pooling>> {
    let settings: Map<String, Value> = read_json(file)?;
    let on = |name: &str| settings.get(name).and_then(Value::as_bool) == Some(true);
    let wrong = |reason: String| ModelError::Json { file: file.into(), reason };
    let known = |name: &str| POOLING_MODES.iter().any(|(mode, _)| *mode == name);
    if let Some(name) = settings.keys().find(|name| name.starts_with("pooling_mode_") && on(name) && !known(name)) {
        return Err(wrong(format!("{name} is not known")));
    }
    let pooling: Vec<Pooling> = POOLING_MODES.iter().filter(|(name, _)| on(name)).map(|(_, mode)| *mode).collect();
    if pooling.is_empty() {
        return Err(wrong("no way of pooling is chosen".into()));
    }
    Ok(pooling)
}
