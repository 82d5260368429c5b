//! TensorBoard event files: protobuf messages and their framing.
//!
//! The messages are the required subset of
//! <https://github.com/tensorflow/tensorboard/tree/master/tensorboard/compat/proto> (`event.proto`, `summary.proto`,
//! `tensor.proto`); the framing is TFRecord, <https://www.tensorflow.org/tutorials/load_data/tfrecord>.

use crc::{CRC_32_ISCSI, Crc};
use prost::Message;

/// CRC-32C (Castagnoli).
static CRC32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// Version string in the first event of every file.
pub(crate) const FILE_VERSION: &str = "brain.Event:2";

/// One event.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    pub(crate) wall_time: f64,
    #[prost(int64, tag = "2")]
    pub(crate) step: i64,
    #[prost(oneof = "What", tags = "3, 5, 7")]
    pub(crate) what: Option<What>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(Summary),
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

/// Start of a session. TensorBoard discards earlier events of this step and later ones.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SessionLog {
    #[prost(enumeration = "Status", tag = "1")]
    pub(crate) status: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Status {
    Unspecified = 0,
    Start = 1,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub(crate) value: Vec<Value>,
}

/// A named scalar or tensor. The metadata select the plugin that shows a tensor.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Value {
    #[prost(string, tag = "1")]
    pub(crate) tag: String,
    #[prost(message, optional, tag = "9")]
    pub(crate) metadata: Option<Metadata>,
    #[prost(oneof = "Content", tags = "2, 8")]
    pub(crate) content: Option<Content>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Content {
    #[prost(float, tag = "2")]
    Scalar(f32),
    #[prost(message, tag = "8")]
    Tensor(Tensor),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metadata {
    #[prost(message, optional, tag = "1")]
    pub(crate) plugin_data: Option<PluginData>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PluginData {
    #[prost(string, tag = "1")]
    pub(crate) plugin_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Tensor {
    #[prost(int32, tag = "1")]
    pub(crate) dtype: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) shape: Option<Shape>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    pub(crate) string_val: Vec<Vec<u8>>,
}

/// `DT_STRING`.
const STRING: i32 = 7;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Shape {
    #[prost(message, repeated, tag = "2")]
    pub(crate) dim: Vec<Dimension>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Dimension {
    #[prost(int64, tag = "1")]
    pub(crate) size: i64,
}

impl Value {
    /// Creates a scalar.
    pub(crate) fn scalar(tag: &str, value: f32) -> Self {
        Self { tag: tag.into(), metadata: None, content: Some(Content::Scalar(value)) }
    }

    /// Creates a text for the text plugin, which renders Markdown.
    pub(crate) fn text(tag: &str, markdown: &str) -> Self {
        let plugin_data = Some(PluginData { plugin_name: "text".into() });
        let shape = Some(Shape { dim: vec![Dimension { size: 1 }] });
        let tensor = Tensor { dtype: STRING, shape, string_val: vec![markdown.into()] };
        Self { tag: tag.into(), metadata: Some(Metadata { plugin_data }), content: Some(Content::Tensor(tensor)) }
    }
}

/// Encodes an event as in the file: length, checksum of the length, message, checksum of the message.
pub(crate) fn frame(event: &Event) -> Vec<u8> {
    let message = event.encode_to_vec();
    let length = (message.len() as u64).to_le_bytes();
    let mut bytes = Vec::with_capacity(message.len() + 16);
    bytes.extend(length);
    bytes.extend(masked_crc(&length).to_le_bytes());
    bytes.extend(&message);
    bytes.extend(masked_crc(&message).to_le_bytes());
    bytes
}

/// Masked checksum of TFRecord. The mask avoids the CRC of data that contains its own CRC, which is weak.
fn masked_crc(bytes: &[u8]) -> u32 {
    CRC32C.checksum(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}
