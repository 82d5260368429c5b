//! Instantiates each model once for each backend, so that programs need not compile it again. The crate `grove-backend`
//! does the same for operations. Never called.

use burn::tensor::{Int, Tensor};
use grove_backend::{Backend, DeviceError, DeviceSpec, Program};
use grove_layers::loss::cross_entropy;
use grove_models::{
    CausalLm, DecoderFamily, ImageFamily, ModelKind, Pretrained, RnnClassifier, TextClassifier,
    bert::{
        BertForMaskedLm, BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification,
        SentenceEncoder,
    },
    families::{WithDecoder, WithDecoderClassifier, WithImageClassifier},
    vision::{ImageClassifier, predictions},
};
use grove_tasks::{
    GenerateOptions, JitGenerate, generate,
    generation::{DecodeSession, generate_with_cache, generate_with_draft, score_text},
};
use grove_transform::{from_inner, value_and_grad};
use grove_tree::summary;
use std::path::Path;

/// A program that uses a decoder.
struct UseDecoder<'a, F>(&'a Path, F);

impl<F: DecoderFamily> Program for UseDecoder<'_, F> {
    type Output = grove_models::Result<String>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        let (model, _) = F::Model::<B>::from_path(self.0, &device, None)?;
        let options = GenerateOptions::default();
        let generated = generate(&model, &[vec![0, 1]], &options, |_, _| true)?;
        let jitted = model.jitted().generate(&[vec![0, 1]], &options)?;
        let drafted = generate_with_draft(&model, &model, &[0, 1], 2, &options, |_| true)?;
        let (spoken, _) = generate_with_cache(&model, DecodeSession::new(&model, 0), &[0, 1], &options, |_| true)?;
        let score = score_text(&model, &[0, 1], None)?;
        let (loss, grads) = value_and_grad(&model, |m| {
            let ids: Tensor<_, 2, Int> = Tensor::from_ints([[0, 1]], &device);
            let key = Some(grove_tree::Key::new(0));
            m.loss(ids.clone(), ids.clone(), key) + m.next_token_loss(ids.clone(), ids, key)
        });
        model.save_pretrained(self.0)?;
        Ok(format!(
            "{generated:?} {jitted:?} {drafted:?} {spoken:?} {score:?} {} {}",
            loss.into_data(),
            summary(&grads)
        ))
    }
}

/// A program that uses the decoders of a family that classify texts.
struct UseDecoderClassifier<'a>(&'a Path, ModelKind);

impl Program for UseDecoderClassifier<'_> {
    type Output = grove_models::Result<String>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        let classified = self.1.with_decoder_classifier(Classify::<B>(self.0, device));
        classified.unwrap_or_else(|kind| Ok(format!("{kind:?}")))
    }
}

struct Classify<'a, B: Backend>(&'a Path, B::Device);

impl<B: Backend> WithDecoderClassifier<B> for Classify<'_, B> {
    type Output = grove_models::Result<String>;

    fn run<M: TextClassifier<B>>(self) -> Self::Output {
        let (model, _) = M::from_path(self.0, &self.1, None)?;
        let logits = model.logits(&model.texts(&[vec![0, 1].into(), vec![0].into()])?, None);
        model.save_pretrained(self.0)?;
        Ok(format!("{}", logits.into_data()))
    }
}

/// A program that uses the recurrent classifier.
struct UseRnn<'a>(&'a Path);

impl Program for UseRnn<'_> {
    type Output = grove_models::Result<String>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        let (classifier, _) = RnnClassifier::<B>::from_path(self.0, &device, None)?;
        let texts = classifier.pack(&[vec![0, 1], vec![0]])?;
        let (_, slopes) = value_and_grad(&classifier, |m| {
            let (texts, labels) = (m.pack(&[vec![0, 1], vec![0]]), burn::tensor::Tensor::from_ints([0, 1], &device));
            m.loss(&texts.expect("tokens of the vocabulary"), labels, None)
        });
        classifier.save_pretrained(self.0)?;
        let found = classifier.predict(&texts);
        Ok(format!("{} {found:?}", summary(&slopes)))
    }
}

/// A program that uses BERT.
struct UseBert<'a>(&'a Path);

impl Program for UseBert<'_> {
    type Output = grove_models::Result<String>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        let (encoder, _) = SentenceEncoder::<B>::from_path(self.0, &device, None)?;
        let texts = encoder.bert.batch(&[vec![0, 1].into(), vec![0].into()])?;
        let vectors = encoder.forward(&texts);
        let (masked, _) = BertForMaskedLm::<B>::from_path(self.0, &device, None)?;
        let (classifier, _) = BertForSequenceClassification::<B>::from_path(self.0, &device, None)?;
        let (tokens, _) = BertForTokenClassification::<B>::from_path(self.0, &device, None)?;
        let (answers, _) = BertForQuestionAnswering::<B>::from_path(self.0, &device, None)?;
        let [starts, ends] = answers.forward(&texts, None);
        let found = [masked.forward(&texts, None), tokens.forward(&texts, None), starts.unsqueeze(), ends.unsqueeze()];
        let texts = from_inner(texts);
        let zeros = || burn::tensor::Tensor::from_ints([0, 0], &device);
        let key = Some(grove_tree::Key::new(0));
        let (_, slopes) = value_and_grad(&masked, |m| m.loss_at(&texts, zeros(), zeros(), key));
        let (_, grads) = value_and_grad(&classifier, |m| m.loss(&texts, zeros(), key));
        masked.save_pretrained(self.0)?;
        classifier.save_pretrained(self.0)?;
        let found = found.map(|logits| logits.into_data());
        Ok(format!("{} {found:?} {} {}", vectors.into_data(), summary(&slopes), summary(&grads)))
    }
}

/// A program that uses an image model.
struct UseImages<'a, F>(&'a Path, F);

impl<F: ImageFamily> Program for UseImages<'_, F> {
    type Output = grove_models::Result<String>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        let pixels = burn::tensor::Tensor::<B, 4>::ones([1, 3, 8, 8], &device);
        let (model, _) = F::Model::<B>::from_path(self.0, &device, None)?;
        let found = predictions(model.logits(pixels.clone()), model.labels(), 1);
        let (loss, grads) = value_and_grad(&model, |m| {
            let pixels = burn::tensor::Tensor::from_inner(pixels.clone());
            let (logits, _) = m.logits_in_training(pixels.clone(), grove_tree::Key::new(0));
            cross_entropy(logits + m.logits(pixels), burn::tensor::Tensor::from_ints([0], &device))
        });
        let model = model.with_labels(vec!["a".into()], grove_tree::Key::new(0));
        model.save_pretrained(self.0)?;
        Ok(format!("{found:?} {} {}", loss.into_data(), summary(&grads)))
    }
}

/// Every model on a device.
struct Every<'a>(DeviceSpec, &'a Path);

impl WithDecoder for &Every<'_> {
    type Output = Result<grove_models::Result<String>, DeviceError>;

    fn run<F: DecoderFamily>(self) -> Self::Output {
        crate::run(self.0, UseDecoder(self.1, F::default()))
    }
}

impl WithImageClassifier for &Every<'_> {
    type Output = Result<grove_models::Result<String>, DeviceError>;

    fn run<F: ImageFamily>(self) -> Self::Output {
        crate::run(self.0, UseImages(self.1, F::default()))
    }
}

/// Runs every model on a device.
#[doc(hidden)]
pub fn anchors(device: DeviceSpec, model: &Path) -> Result<Vec<grove_models::Result<String>>, DeviceError> {
    let every = Every(device, model);
    let others = [crate::run(device, UseRnn(model)), crate::run(device, UseBert(model))];
    let kinds = || ModelKind::model_types().map(|(_, kind)| kind);
    let decoders = kinds().filter_map(|kind| kind.with_decoder(&every).ok());
    let images = kinds().filter_map(|kind| kind.with_image_classifier(&every).ok());
    let classifiers = kinds().map(|kind| crate::run(device, UseDecoderClassifier(model, kind)));
    others.into_iter().chain(decoders).chain(classifiers).chain(images).collect()
}
