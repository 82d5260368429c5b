//! Protobuf messages of a `tokenizer.model`, restricted to the fields in use:
//! <https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto>.

use prost::Message;

/// Model file.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Model {
    #[prost(message, repeated, tag = "1")]
    pub(super) pieces: Vec<Piece>,
    #[prost(message, optional, tag = "2")]
    pub(super) trainer: Option<Trainer>,
    #[prost(message, optional, tag = "3")]
    pub(super) normalizer: Option<Normalizer>,
}

/// A piece. The default kind is 1, normal.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Piece {
    #[prost(string, tag = "1")]
    pub(super) piece: String,
    #[prost(float, tag = "2")]
    pub(super) score: f32,
    #[prost(int32, optional, tag = "3")]
    pub(super) kind: Option<i32>,
}

/// Training options of the model: its type (1 or absent: unigram, 2: BPE, 3: words, 4: characters), the placement of
/// spaces, and the beginning and end pieces (default `<s>` and `</s>`).
#[derive(Clone, PartialEq, Message)]
pub(super) struct Trainer {
    #[prost(int32, optional, tag = "3")]
    pub(super) model: Option<i32>,
    #[prost(bool, tag = "24")]
    pub(super) space_as_suffix: bool,
    #[prost(string, optional, tag = "46")]
    pub(super) bos: Option<String>,
    #[prost(string, optional, tag = "47")]
    pub(super) eos: Option<String>,
}

/// Normalisation options. An absent option is on.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Normalizer {
    #[prost(bytes = "vec", tag = "2")]
    pub(super) charsmap: Vec<u8>,
    #[prost(bool, optional, tag = "3")]
    pub(super) add_dummy_prefix: Option<bool>,
    #[prost(bool, optional, tag = "4")]
    pub(super) remove_extra_whitespaces: Option<bool>,
    #[prost(bool, optional, tag = "5")]
    pub(super) escape_whitespaces: Option<bool>,
}
