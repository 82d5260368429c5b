//! Training steps, and optimizer steps without a model.

use grove::{
    compile::per_example_grads,
    layers::activation::gelu,
    models::bert::BertForSequenceClassification,
    optim::{Adamw, AdamwChain, GradientTransformation, adamw},
    prelude::*,
    train::{Outcome, StepOptions, train_step},
};

use super::{
    Outputs, Place, Run,
    models::{config, ids, resnet_config, texts, vit_config},
};
use crate::work::{Text, Work};

pub fn prepare<B: Backend>(work: &Work, place: Place<B>) -> Result<Run, String> {
    Ok(match work {
        Work::Resnet { size, batch, classes, .. } => {
            let model: ResNet<B> = place.model(&resnet_config(work))?;
            let pixels = place.normal::<4>(0, [*batch, 3, *size, *size]);
            let labels = place.integers::<1>(1, [*batch], *classes);
            steps(model, place, move |model: ResNet<Autodiff<B>>| {
                let (pixels, labels) = (Tensor::from_inner(pixels.clone()), Tensor::from_inner(labels.clone()));
                let (loss, successor) = model.train_loss(pixels, labels);
                Outcome::new(loss).successor(successor)
            })
        }
        Work::Vit { sizes, .. } => {
            let model: Vit<B> = place.model(&vit_config(*sizes))?;
            let pixels = place.normal::<4>(0, sizes.images());
            let labels = place.integers::<1>(1, [sizes.batch], sizes.classes);
            steps(model, place, move |model: Vit<Autodiff<B>>| {
                Outcome::new(model.loss(Tensor::from_inner(pixels.clone()), Tensor::from_inner(labels.clone()), None))
            })
        }
        Work::VitPerExample(sizes) => {
            let model: Vit<B> = place.model(&vit_config(*sizes))?;
            let pixels = Array::new(place.normal::<4>(0, sizes.images()));
            let labels = Array::new(place.integers::<2>(1, [sizes.batch, 1], sizes.classes));
            type Args = (Vit<Traced>, Array<Traced, 4>, Array<Traced, 2, Int>);
            let gradients = jit(|(model, pixels, labels): Args| {
                per_example_grads(&model, (pixels, labels), |model, (pixels, label)| {
                    model.loss(pixels.val().unsqueeze(), label.val(), None)
                })
            });
            place.run(move || gradients.call::<B>((model.clone(), pixels.clone(), labels.clone())))
        }
        Work::Bert(text) => {
            let mut config: BertConfig = config(&text.config)?;
            config.labels = vec!["no".into(), "yes".into()];
            let model: BertForSequenceClassification<B> = place.model(&config)?;
            let texts = texts(text, &config, &place)?;
            let labels = place.integers::<1>(1, [text.batch], 2);
            steps(model, place, move |model: BertForSequenceClassification<Autodiff<B>>| {
                let texts = from_inner(texts.clone());
                Outcome::new(model.loss(&texts, Tensor::from_inner(labels.clone()), None))
            })
        }
        Work::Gpt2(text) => language_steps::<B, Gpt2<B>>(text, place)?,
        Work::Llama(text) => language_steps::<B, Llama<B>>(text, place)?,
        &Work::FfnStep { rows, width, hidden, jit: as_program } => {
            let [x, y] = [0, 1].map(|number| Array::new(place.normal::<2>(number, [rows, width])));
            let [up, down] = [(2, width, hidden), (3, hidden, width)]
                .map(|(number, inputs, outputs)| place.cast(Linear::new(inputs, outputs, place.init(number))));
            let model = (up, down);
            let opt_state = optimizer::<B>().init(&model);
            let jitted = as_program.then(|| jit(ffn_step::<Traced>));
            repeat(place, (model, opt_state), move |(model, opt_state)| {
                let args = (model, opt_state, x.clone(), y.clone());
                let (model, opt_state, loss) = match &jitted {
                    Some(jitted) => jitted.call::<B>(args),
                    None => ffn_step(args),
                };
                std::hint::black_box(loss.val().into_data());
                ((loss, model.clone(), opt_state.clone()), (model, opt_state))
            })
        }
        Work::Optimizer { shapes } => {
            let numbers = |number: u32| {
                let leaf = |shape: &Vec<usize>| Array::<B, 1>::new(place.normal::<1>(number, [shape.iter().product()]));
                shapes.iter().map(leaf).collect::<Vec<_>>()
            };
            let (params, grads) = (numbers(0), numbers(1));
            let optimizer = optimizer::<B>();
            let opt_state = optimizer.init(&params);
            repeat(place, (params, opt_state), move |(params, opt_state)| {
                let state = optimizer.step(grads.clone(), opt_state, params);
                (state.clone(), state)
            })
        }
        _ => return Err("no such row on this backend".into()),
    })
}

/// Two linear layers.
type Ffn<B> = (Linear<B>, Linear<B>);
type FfnState<B> = <AdamwChain<B> as GradientTransformation<B, Ffn<B>>>::State;

/// Runs one AdamW step on the mean squared error of linear, exact GELU, linear. Returns the loss before the step.
fn ffn_step<B: Backend>(
    (model, state, x, y): (Ffn<B>, FfnState<B>, Array<B, 2>, Array<B, 2>),
) -> (Ffn<B>, FfnState<B>, Array<B, 1>) {
    let (loss, grads) = value_and_grad(&model, |(up, down): Ffn<Autodiff<B>>| {
        let found = down.forward(gelu(up.forward(Tensor::from_inner(x.val()))));
        (found - Tensor::from_inner(y.val())).square().mean()
    });
    let (model, state) = optimizer().step(grads, state, model);
    (model, state, Array::new(loss))
}

fn optimizer<B: Backend>() -> AdamwChain<B> {
    adamw(1e-4, Adamw::default().weight_decay(0.01))
}

/// Returns a run of training steps of a language model.
fn language_steps<B: Backend, M>(text: &Text, place: Place<B>) -> Result<Run, String>
where
    M: Pretrained<B> + Tree<B, On<Autodiff<B>>: CausalLm<Autodiff<B>>> + 'static,
{
    let model: M = place.model(&config(&text.config)?)?;
    let (ids, targets) = (ids(text, &place), ids(text, &place));
    Ok(steps(model, place, move |model: M::On<Autodiff<B>>| {
        let [ids, targets] = [&ids, &targets].map(|ids| Tensor::from_inner(ids.clone()));
        Outcome::new(model.next_token_loss(ids, targets, None))
    }))
}

/// Returns a run of one training step: gradients, AdamW, and reading the loss. The outputs are loss, model and moments. After the
/// first step, the first moments are a tenth of the gradients.
fn steps<B: Backend, M>(model: M, place: Place<B>, loss: impl Fn(M::On<Autodiff<B>>) -> Outcome<B, M> + 'static) -> Run
where
    M: Tree<B> + 'static,
{
    let optimizer = optimizer::<B>();
    let opt_state = optimizer.init(&model);
    repeat(place, (model, opt_state), move |(model, opt_state)| {
        let step = train_step(|model, _: &(), _| loss(model), &optimizer, StepOptions::default());
        let (model, opt_state, metrics) = step(model, opt_state, &(), Key::new(0));
        std::hint::black_box(metrics.loss.val().into_data());
        ((metrics.loss, model.clone(), opt_state.clone()), (model, opt_state))
    })
}

/// Returns a run of one step, which returns the outputs and the state for the next run.
fn repeat<B: Backend, S: 'static, T: Tree<B> + 'static>(
    place: Place<B>,
    state: S,
    step: impl Fn(S) -> (T, S) + 'static,
) -> Run {
    let mut state = Some(state);
    Box::new(move || {
        let before = state.take().ok_or("the step before failed")?;
        let (outputs, after) = place.finish(|| step(before))?;
        state = Some(after);
        Ok(Outputs::new(outputs))
    })
}
