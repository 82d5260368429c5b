//! Every model of the zoo through XLA: results and training steps are those of flex.
#![recursion_limit = "256"]

mod graphs;

use burn::tensor::{Int, Tensor, TensorData};
use graphs::check;
use grove_backend::{Autodiff, Backend, Flex, set_deterministic};
use grove_compile::Traced;
use grove_models::{
    Bert, CausalLm, Gpt2, GptNeo, Llama, Pretrained, ResNet, RnnLm, TraceableLm, Vit,
    bert::{BertForMaskedLm, TextBatch},
};
use grove_optim::{Adamw, AdamwChain, GradientTransformation, adamw};
use grove_text::TextIds;
use grove_transform::{from_inner, value_and_grad};
use grove_tree::{Array, Tree};
use std::path::Path;

type B = Flex;

fn load<M: Pretrained<B>>(path: &str) -> M {
    M::from_path(Path::new("../../models/tests/fixtures").join(path), &Default::default(), None).unwrap().0
}

/// Returns integers below a limit.
fn ids(shape: [usize; 2], below: i64) -> Array<B, 2, Int> {
    let ids = (0..shape[0] * shape[1]).map(|i| (i as i64 * 7919 + 13) % below).collect();
    Array::new(Tensor::from_data(TensorData::new(ids, shape), &Default::default()))
}

fn images(shape: [usize; 4]) -> Array<B, 4> {
    let values = (0..shape.iter().product()).map(|i: usize| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect();
    Array::new(Tensor::from_data(TensorData::new(values, shape), &Default::default()))
}

#[test]
fn logits_of_decoders() {
    fn decoder<M>(path: &str)
    where
        M: Pretrained<B> + Tree<B>,
        M::On<Traced>: CausalLm<Traced>,
    {
        let f =
            |(model, ids): (M::On<Traced>, Array<Traced, 2, Int>)| Array::<_, 3>::new(model.forward(ids.val(), None));
        check(path, f, &(load::<M>(path), ids([2, 5], 20)), 1e-4);
    }
    decoder::<Gpt2<B>>("gpt2/tiny_a");
    decoder::<GptNeo<B>>("gpt_neo/tiny");
    decoder::<Llama<B>>("llama/gqa");
    decoder::<Llama<B>>("llama/rope_llama3");
    decoder::<RnnLm<B>>("rnn/lm_lstm_tied/model.pt");
    decoder::<RnnLm<B>>("rnn/lm_gru/model.safetensors");
    decoder::<RnnLm<B>>("rnn/lm_rnn_relu/model.safetensors");
}

/// One decoding step with a cache of fixed size, whose position is an array.
#[test]
fn decoding_steps() {
    fn step<M: Pretrained<B> + TraceableLm<B>>(path: &str) {
        let model: M = load(path);
        let (_, cache) = model.decode(ids([2, 5], 20).val(), &[], model.new_fixed_cache(16));
        let f = |(model, ids, cache): (M::OnTraced, Array<Traced, 2, Int>, M::TracedCache)| {
            let (logits, cache) = model.decode(ids.val(), &[], cache);
            (Array::<_, 2>::new(logits), cache)
        };
        check(&format!("decoding, {path}"), f, &(model, ids([2, 1], 20), cache), 1e-4);
    }
    step::<Gpt2<B>>("gpt2/tiny_a");
    step::<GptNeo<B>>("gpt_neo/tiny");
    step::<Llama<B>>("llama/gqa");
    step::<RnnLm<B>>("rnn/lm_lstm_tied/model.pt");
}

#[test]
fn encoders_and_images() {
    let model: Bert<B> = load("bert/bert_model");
    let text = |ids: &[u32]| TextIds { ids: ids.to_vec(), token_types: vec![0; ids.len()] };
    let texts = model.batch(&[text(&[1, 5, 6, 7, 2]), text(&[1, 9, 2])]).unwrap();
    let f = |(model, texts): (Bert<Traced>, TextBatch<Traced>)| Array::<_, 3>::new(model.forward(&texts, None));
    check("bert", f, &(model, texts), 1e-4);

    let f = |(model, pixels): (ResNet<Traced>, Array<Traced, 4>)| Array::<_, 2>::new(model.forward(pixels.val()));
    check("resnet", f, &(load::<ResNet<B>>("resnet/torchvision_basic"), images([2, 3, 32, 32])), 1e-4);

    let model: Vit<B> = load("vit/transformers");
    let [height, width] = model.config.image_size;
    let f = |(model, pixels): (Vit<Traced>, Array<Traced, 4>)| Array::<_, 2>::new(model.forward(pixels.val(), None));
    check("vit", f, &(model, images([2, 3, height, width])), 1e-4);
}

type State<B, M> = <AdamwChain<B> as GradientTransformation<B, M>>::State;

/// A model, the state of its optimizer and the loss before the step.
type Step<B, M> = (M, State<B, M>, Array<B, 1>);

fn settings<B: Backend>() -> Adamw<B> {
    // Otherwise a gradient that is zero up to rounding, as for a bias of keys, moves its parameter by the whole learning rate.
    Adamw { eps: 1e-3.into(), ..Default::default() }
}

fn train_step<B: Backend, M: Tree<B>>(
    model: M,
    state: State<B, M>,
    loss: impl FnOnce(M::On<Autodiff<B>>) -> Tensor<Autodiff<B>, 1>,
) -> Step<B, M> {
    let (loss, grads) = value_and_grad(&model, loss);
    let (model, state) = adamw(0.01, settings()).step(grads, state, model);
    (model, state, Array::new(loss))
}

fn lift<B: Backend, const D: usize>(x: &Array<B, D, Int>) -> Tensor<Autodiff<B>, D, Int> {
    Tensor::from_primitive(x.val().into_primitive())
}

/// A traced model that is differentiated.
type Differentiated<M> = <<M as Tree<B>>::On<Traced> as Tree<Traced>>::On<Autodiff<Traced>>;

/// The loss of a batch.
type Loss<M, X> = fn(Differentiated<M>, <X as Tree<B>>::On<Traced>) -> Tensor<Autodiff<Traced>, 1>;

/// Runs a training step of a model with its loss.
fn training<M, X>(path: &str, batch: X, loss: Loss<M, X>)
where
    M: Pretrained<B> + Tree<B>,
    X: Tree<B>,
    State<B, M>: Tree<B, On<Traced> = State<Traced, M::On<Traced>>>,
{
    let model: M = load(path);
    let state = GradientTransformation::<B, _>::init(&adamw(0.01, settings()), &model);
    type Args<M, X> =
        (<M as Tree<B>>::On<Traced>, State<Traced, <M as Tree<B>>::On<Traced>>, <X as Tree<B>>::On<Traced>);
    let step = |(model, state, batch): Args<M, X>| train_step(model, state, |model| loss(model, batch));
    check(path, step, &(model, state, batch), 1e-3);
}

#[test]
fn training_steps() {
    set_deterministic(true);
    let labels = || Array::<B, 1, Int>::new(Tensor::from_ints([1, 0], &Default::default()));
    training::<ResNet<B>, _>(
        "resnet/torchvision_basic",
        (images([2, 3, 32, 32]), labels()),
        |model, (pixels, labels)| model.loss(Tensor::from_inner(pixels.val()), lift(&labels)),
    );
    let [height, width] = load::<Vit<B>>("vit/transformers").config.image_size;
    training::<Vit<B>, _>("vit/transformers", (images([2, 3, height, width]), labels()), |model, (pixels, labels)| {
        model.loss(Tensor::from_inner(pixels.val()), lift(&labels), None)
    });
    let model: BertForMaskedLm<B> = load("bert/bert_masked");
    let text = |ids: &[u32]| TextIds { ids: ids.to_vec(), token_types: vec![0; ids.len()] };
    let texts = model.bert.bucketed_batch(&[text(&[1, 5, 6, 7, 2]), text(&[1, 9, 2])]).unwrap();
    training::<BertForMaskedLm<B>, (TextBatch<B>, _)>(
        "bert/bert_masked",
        (texts, ids([2, 8], 20)),
        |model, (texts, labels)| model.loss(&from_inner::<Traced, _>(texts), lift(&labels), None),
    );
    fn of_tokens<M>(path: &str)
    where
        M: Pretrained<B> + Tree<B>,
        Differentiated<M>: CausalLm<Autodiff<Traced>>,
        State<B, M>: Tree<B, On<Traced> = State<Traced, M::On<Traced>>>,
    {
        training::<M, _>(path, ids([2, 5], 20), |model, ids| model.next_token_loss(lift(&ids), lift(&ids), None));
    }
    of_tokens::<RnnLm<B>>("rnn/lm_lstm_tied/model.pt");
    of_tokens::<RnnLm<B>>("rnn/lm_gru/model.safetensors");
    of_tokens::<GptNeo<B>>("gpt_neo/tiny");
    of_tokens::<Llama<B>>("llama/gqa");
    of_tokens::<Gpt2<B>>("gpt2/tiny_a");
}
