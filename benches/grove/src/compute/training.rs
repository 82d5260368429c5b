//! Whole steps of training, and the optimizer alone.

use grove::{
    models::bert::{BertForSequenceClassification, TextBatch},
    optim::{Adamw, AdamwChain, GradientTransformation, adamw},
    prelude::*,
    train::{Outcome, StepOptions, train_step},
    tree::cast,
};

use super::{
    Place, Run,
    models::{config, ids, resnet_config, text_of, texts, vit_config},
};
use crate::work::Work;

pub fn prepare<B: Backend>(work: &Work, place: Place<B>) -> Result<Run, String> {
    let (key, device) = (Key::new(0), place.device.clone());
    Ok(match work {
        Work::Resnet { size, batch, classes, .. } => {
            let model = ResNet::init(&resnet_config(work), key, &device).map_err(text_of)?;
            let pixels = place.normal::<4>(0, [*batch, 3, *size, *size]);
            let labels = place.integers::<1>(1, [*batch], *classes);
            steps(model, place, move |model: ResNet<Autodiff<B>>| {
                let (pixels, labels) = (Tensor::from_inner(pixels.clone()), Tensor::from_inner(labels.clone()));
                let (loss, successor) = model.train_loss(pixels, labels);
                Outcome::new(loss).successor(successor)
            })
        }
        Work::Vit { size, batch, classes, .. } => {
            let model = Vit::init(&vit_config(work), key, &device).map_err(text_of)?;
            let pixels = place.normal::<4>(0, [*batch, 3, *size, *size]);
            let labels = place.integers::<1>(1, [*batch], *classes);
            steps(model, place, move |model: Vit<Autodiff<B>>| {
                Outcome::new(model.loss(Tensor::from_inner(pixels.clone()), Tensor::from_inner(labels.clone()), None))
            })
        }
        Work::Bert(text) => {
            let mut config: BertConfig = config(&text.config)?;
            config.labels = vec!["no".into(), "yes".into()];
            let model = BertForSequenceClassification::<B>::init(&config, key, &device).map_err(text_of)?;
            let texts = texts(text, &config, &place)?;
            let labels = place.integers::<1>(1, [text.batch], 2);
            steps(model, place, move |model: BertForSequenceClassification<Autodiff<B>>| {
                let texts = TextBatch::from_inner(texts.clone());
                Outcome::new(model.loss(&texts, Tensor::from_inner(labels.clone()), None))
            })
        }
        Work::Gpt2(text) => {
            let model = Gpt2::init(&config::<Gpt2Config>(&text.config)?, key, &device).map_err(text_of)?;
            let (ids, targets) = (ids(text, &place), ids(text, &place));
            steps(model, place, move |model: Gpt2<Autodiff<B>>| {
                let [ids, targets] = [&ids, &targets].map(|ids| Tensor::from_inner(ids.clone()));
                Outcome::new(model.next_token_loss(ids, targets, None))
            })
        }
        Work::Llama(text) => {
            let model = Llama::init(&config::<LlamaConfig>(&text.config)?, key, &device).map_err(text_of)?;
            let (ids, targets) = (ids(text, &place), ids(text, &place));
            steps(model, place, move |model: Llama<Autodiff<B>>| {
                let [ids, targets] = [&ids, &targets].map(|ids| Tensor::from_inner(ids.clone()));
                Outcome::new(model.next_token_loss(ids, targets, None))
            })
        }
        Work::Optimizer { shapes } => {
            let numbers = |number: u32| {
                let leaf = |shape: &Vec<usize>| Array::<B, 1>::new(place.normal::<1>(number, [shape.iter().product()]));
                shapes.iter().map(leaf).collect::<Vec<_>>()
            };
            let (params, grads) = (numbers(0), numbers(1));
            let optimizer = optimizer::<B>();
            let mut state = Some((optimizer.init(&params), params));
            Box::new(move || {
                let (opt_state, params) = state.take().ok_or("the step before failed")?;
                state = Some(place.finish(|| {
                    let (params, opt_state) = optimizer.step(grads.clone(), opt_state, params);
                    (opt_state, params)
                })?);
                Ok(())
            })
        }
        _ => return Err("no such row on this backend".into()),
    })
}

fn optimizer<B: Backend>() -> AdamwChain<B> {
    adamw(1e-4, Adamw::default().weight_decay(0.01))
}

/// A run is a step: gradients, AdamW, and the loss read.
fn steps<B: Backend, M>(model: M, place: Place<B>, loss: impl Fn(M::On<Autodiff<B>>) -> Outcome<B, M> + 'static) -> Run
where
    M: Tree<B> + 'static,
{
    let optimizer = optimizer::<B>();
    let model: M = cast(model, place.dtype);
    let mut state = Some((optimizer.init(&model), model));
    Box::new(move || {
        let (opt_state, model) = state.take().ok_or("the step before failed")?;
        let step = train_step(|model, _: &(), _| loss(model), &optimizer, StepOptions::default());
        let (model, opt_state, loss) = place.finish(|| {
            let (model, opt_state, metrics) = step(model, opt_state, &(), Key::new(0));
            (model, opt_state, metrics.loss.val().into_data())
        })?;
        std::hint::black_box(loss);
        state = Some((opt_state, model));
        Ok(())
    })
}
