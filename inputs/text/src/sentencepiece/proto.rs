//! The messages of a `tokenizer.model`, as far as they are used:
//! <https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto>.

use prost::Message;

/// The file.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Model {
    #[prost(message, repeated, tag = "1")]
    pub(super) pieces: Vec<Piece>,
    #[prost(message, optional, tag = "2")]
    pub(super) trainer: Option<Trainer>,
    #[prost(message, optional, tag = "3")]
    pub(super) normalizer: Option<Normalizer>,
}

/// A piece. A kind that is missing is an ordinary one, number 1.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Piece {
    #[prost(string, tag = "1")]
    pub(super) piece: String,
    #[prost(float, tag = "2")]
    pub(super) score: f32,
    #[prost(int32, optional, tag = "3")]
    pub(super) kind: Option<i32>,
}

/// Training options of the model: its kind (missing or 1: unigram, 2: byte pairs, 3: words, 4: characters), the place
/// of the space, and the pieces that begin and end a text (missing: `<s>` and `</s>`).
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

/// Normalization of a text. A missing option is on.
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
