//! `grove generate`: continues texts with a decoder of any family.

use grove::models::{DecoderFamily, ModelKind, families::WithDecoder};

use super::{
    decoder::{DecoderArgs, Run, shipped_decoder},
    many::FileArgs,
};
use crate::{
    kind::{WithModelAt, wrong_kind},
    prelude::*,
};

/// Options of `grove generate`.
#[derive(Args, Debug)]
#[command(about = None)]
pub struct GenerateCommand {
    /// Model, prompt and settings.
    #[command(flatten)]
    pub decoder: DecoderArgs,

    /// Prompts of a file.
    #[command(flatten)]
    pub file: FileArgs,
}

impl Command for GenerateCommand {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.file.check()?;
        self.decoder.check()
    }

    /// Continues texts or prints a summary, for the family of the model.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let DecoderArgs { model, summary, .. } = &self.decoder;
        let name = model.as_deref().unwrap_or_default();
        let elsewhere = !name.is_empty() && !Path::new(name).exists();
        let kind = match *summary && elsewhere {
            true if !name.contains('/') => ModelKind::of_preset(name).unwrap_or(ModelKind::Llama),
            true => ModelKind::of(resolve_config(name)?)?,
            false => ModelKind::of(resolve(model.as_deref(), shipped_decoder(ModelKind::Gpt2))?)?,
        };
        let path = Path::new(name);
        kind.with_decoder(WithModelAt::<B, _> { options: self, path, device })
            .unwrap_or_else(|other| Err(wrong_kind(path, other)))
    }
}

impl<B: Backend> WithDecoder for WithModelAt<'_, B, GenerateCommand> {
    type Output = Result<Ended, Exit>;

    fn run<F: DecoderFamily>(self) -> Self::Output {
        let GenerateCommand { decoder, file } = self.options;
        let run = Run { options: decoder, chat: None, file: Some(file), family: F::default() };
        run.run::<B>(self.device)
    }
}
