//! Options of commands that use a trained model.

use grove::tensor::DType;

use crate::prelude::*;

/// Adapter, device and output of a command that uses a trained model.
#[derive(Args, Debug)]
pub struct InferenceArgs {
    /// LoRA adapter (peft) to add to the model: directory or hub id
    #[arg(long, value_name = "DIR|ID")]
    pub adapter: Option<String>,

    /// Device and type.
    #[command(flatten)]
    pub device: DeviceArgs,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl InferenceArgs {
    /// Returns the type of the weights and of the computation.
    pub fn dtype(&self) -> Option<DType> {
        Some(self.device.dtype.into())
    }

    /// Returns the files of the model at a path, with the adapter.
    pub fn files(&self, path: &Path) -> Result<ModelFiles, Exit> {
        with_adapter(path, self.adapter.as_deref())
    }
}
