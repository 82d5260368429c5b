//! Every model of the zoo, traced and run again: results and train steps equal eager calls.
#![recursion_limit = "256"]

mod common;

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::{Autodiff, Backend, Candle, Flex, set_deterministic};
use grove_compile::{Graph, Jit, Traced, jit, trace};
use grove_models::{
    Bert, CausalLm, Gpt2, GptNeo, Llama, Pretrained, ResNet, RnnLm, Vit,
    bert::{BertForMaskedLm, TextBatch},
};
use grove_optim::{Adamw, AdamwChain, GradientTransformation, adamw};
use grove_text::TextIds;
use grove_transform::{from_inner, value_and_grad};
use grove_tree::{Array, Tree};
use std::path::{Path, PathBuf};

fn fixture(path: &str) -> PathBuf {
    Path::new("../../models/tests/fixtures").join(path)
}

fn load<B: Backend, M: Pretrained<B>>(path: &str) -> M {
    M::from_path(fixture(path), &Default::default(), None).unwrap().0
}

/// Returns integers below a limit.
fn ids<B: Backend>(shape: [usize; 2], below: i64) -> Array<B, 2, Int> {
    let ids = (0..shape[0] * shape[1]).map(|i| (i as i64 * 7919 + 13) % below).collect();
    Array::new(Tensor::from_data(TensorData::new(ids, shape), &Default::default()))
}

fn images<B: Backend>(shape: [usize; 4]) -> Array<B, 4> {
    let values = (0..shape.iter().product()).map(|i: usize| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect();
    Array::new(Tensor::from_data(TensorData::new(values, shape), &Default::default()))
}

/// Fails unless two trees have the same paths and values, relative to the largest value of each leaf.
fn same<B: Backend, T: Tree<B>>(what: &str, found: &T, expected: &T, tolerance: f64) {
    common::same::<B, T>(what, found, expected, tolerance, 0.0);
}

/// Returns the tolerance: 0, unless chains are fused or the backend's fusion depends on previous operations.
fn tolerance<B: Backend>() -> f64 {
    if B::FUSES || B::CHAINS { 1e-5 } else { 0.0 }
}

/// Calls a function eagerly and jitted, twice, and compares the results. Returns the graph.
fn check<B, In, Out, F>(what: &str, eager: Out::On<B>, jitted: &Jit<In, Out, F>, args: In::On<B>) -> Graph
where
    B: Backend,
    In: Tree<Traced>,
    Out: Tree<Traced>,
    F: Fn(In) -> Out,
    In::On<B>: Tree<B, On<Traced> = In>,
{
    for _ in 0..2 {
        same::<B, _>(what, &jitted.call::<B>(args.clone()), &eager, tolerance::<B>());
    }
    assert_eq!(jitted.graphs().len(), 1, "{what}");
    let graph = jitted.graph().unwrap();
    assert!(graph.equations().len() > 5, "{what}");
    graph
}

fn logits_of_decoders<B: Backend>() {
    fn decoder<B, M>(path: &str)
    where
        B: Backend,
        M: Pretrained<B> + CausalLm<B> + Tree<B>,
        M::On<Traced>: CausalLm<Traced> + Tree<Traced, On<B> = M>,
    {
        let (model, ids): (M, _) = (load(path), ids::<B>([2, 5], 20));
        let eager = Array::<B, 3>::new(model.forward(ids.val(), None));
        let jitted = jit(|(model, ids): (M::On<Traced>, Array<Traced, 2, Int>)| {
            Array::<_, 3>::new(model.forward(ids.val(), None))
        });
        check::<B, _, _, _>(path, eager, &jitted, (model, ids));
    }
    decoder::<B, Gpt2<B>>("gpt2/tiny_a");
    decoder::<B, GptNeo<B>>("gpt_neo/tiny");
    decoder::<B, Llama<B>>("llama/gqa");
    decoder::<B, Llama<B>>("llama/rope_llama3");
    decoder::<B, RnnLm<B>>("rnn/lm_lstm_tied/model.pt");
    decoder::<B, RnnLm<B>>("rnn/lm_gru/model.safetensors");
    decoder::<B, RnnLm<B>>("rnn/lm_rnn_relu/model.safetensors");
}

fn encoders_and_images<B: Backend>() {
    let model: Bert<B> = load("bert/bert_model");
    let text = |ids: &[u32]| TextIds { ids: ids.to_vec(), token_types: vec![0; ids.len()] };
    let texts = model.batch(&[text(&[1, 5, 6, 7, 2]), text(&[1, 9, 2])]).unwrap();
    let eager = Array::<B, 3>::new(model.forward(&texts, None));
    let jitted =
        jit(|(model, texts): (Bert<Traced>, TextBatch<Traced>)| Array::<_, 3>::new(model.forward(&texts, None)));
    check::<B, _, _, _>("bert", eager, &jitted, (model, texts));

    let (model, pixels): (ResNet<B>, _) = (load("resnet/torchvision_basic"), images::<B>([2, 3, 32, 32]));
    let eager = Array::<B, 2>::new(model.forward(pixels.val()));
    let jitted =
        jit(|(model, pixels): (ResNet<Traced>, Array<Traced, 4>)| Array::<_, 2>::new(model.forward(pixels.val())));
    check::<B, _, _, _>("resnet", eager, &jitted, (model, pixels));

    let model: Vit<B> = load("vit/transformers");
    let size = model.config.image_size;
    let pixels = images::<B>([2, 3, size[0], size[1]]);
    let eager = Array::<B, 2>::new(model.forward(pixels.val(), None));
    let jitted =
        jit(|(model, pixels): (Vit<Traced>, Array<Traced, 4>)| Array::<_, 2>::new(model.forward(pixels.val(), None)));
    check::<B, _, _, _>("vit", eager, &jitted, (model, pixels));
}

type Optimizer<B> = AdamwChain<B>;
type State<B, M> = <Optimizer<B> as GradientTransformation<B, M>>::State;

/// A model, its optimizer state, and the loss before the step.
type Step<B, M> = (M, State<B, M>, Array<B, 1>);

/// With the usual eps of 1e-8, a gradient that is zero up to rounding, such as the gradient of a key bias, would move its
/// parameter by the whole learning rate in a random direction.
fn settings<B: Backend>() -> Adamw<B> {
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

/// Train step of any language model.
fn token_step<B: Backend, M: Tree<B, On<Autodiff<B>>: CausalLm<Autodiff<B>>>>(
    model: M,
    state: State<B, M>,
    ids: Array<B, 2, Int>,
) -> Step<B, M> {
    train_step(model, state, |model| model.next_token_loss(lift(&ids), lift(&ids), None))
}

fn bert_step<B: Backend>(
    model: BertForMaskedLm<B>,
    state: State<B, BertForMaskedLm<B>>,
    (texts, labels): (TextBatch<B>, Array<B, 2, Int>),
) -> Step<B, BertForMaskedLm<B>> {
    train_step(model, state, |model| model.loss(&from_inner::<B, _>(texts), lift(&labels), None))
}

fn vit_step<B: Backend>(
    model: Vit<B>,
    state: State<B, Vit<B>>,
    (pixels, labels): (Array<B, 4>, Array<B, 1, Int>),
) -> Step<B, Vit<B>> {
    train_step(model, state, |model| model.loss(Tensor::from_inner(pixels.val()), lift(&labels), None))
}

fn resnet_step<B: Backend>(
    model: ResNet<B>,
    state: State<B, ResNet<B>>,
    (pixels, labels): (Array<B, 4>, Array<B, 1, Int>),
) -> Step<B, ResNet<B>> {
    train_step(model, state, |model| model.loss(Tensor::from_inner(pixels.val()), lift(&labels)))
}

/// Runs three train steps in sequence. The program is traced once.
macro_rules! steps {
    ($B:ty, $what:literal, $step:ident, $model:ident, $batch:expr, $batch_type:ty, $tolerance:expr) => {
        steps!($B, $what, $step, $model, $batch, $batch_type, $tolerance, 0.0)
    };
    // A leaf that is zero up to rounding, such as the gradient of a key bias, is compared as if its largest value were `least`.
    ($B:ty, $what:literal, $step:ident, $model:ident, $batch:expr, $batch_type:ty, $tolerance:expr, $least:literal) => {{
        let model: $model<$B> = load($what);
        let optimizer = adamw(0.01, settings());
        let state = GradientTransformation::<$B, _>::init(&optimizer, &model);
        let jitted = jit(|(model, state, batch): ($model<Traced>, State<Traced, $model<Traced>>, $batch_type)| {
            $step(model, state, batch)
        });
        let mut eager = (model.clone(), state.clone());
        let mut traced = (model, state);
        let mut losses = vec![];
        for i in 0..3 {
            let expected = $step(eager.0, eager.1, $batch);
            let found = jitted.call::<$B>((traced.0, traced.1, $batch));
            common::same::<$B, _>(&format!("{}, step {i}", $what), &found, &expected, $tolerance, $least);
            losses.push(found.2.val().into_data().iter::<f32>().next().unwrap());
            (eager, traced) = ((expected.0, expected.1), (found.0, found.1));
        }
        assert!(losses[2] < losses[0], "{}: {losses:?}", $what);
        assert_eq!(jitted.graphs().len(), 1);
        jitted.graph().unwrap()
    }};
}

fn training<B: Backend>() -> Graph {
    // Otherwise threads sum the gradient of a convolution in a different order in each run.
    set_deterministic(true);
    let labels = || Array::<B, 1, Int>::new(Tensor::from_ints([1, 0], &Default::default()));
    steps!(
        B,
        "resnet/torchvision_basic",
        resnet_step,
        ResNet,
        (images([2, 3, 32, 32]), labels()),
        (Array<Traced, 4>, Array<Traced, 1, Int>),
        tolerance::<B>()
    );
    let model: Vit<B> = load("vit/transformers");
    let [height, width] = model.config.image_size;
    steps!(
        B,
        "vit/transformers",
        vit_step,
        Vit,
        (images([2, 3, height, width]), labels()),
        (Array<Traced, 4>, Array<Traced, 1, Int>),
        tolerance::<B>(),
        1e-3
    );
    let model: BertForMaskedLm<B> = load("bert/bert_masked");
    let text = |ids: &[u32]| TextIds { ids: ids.to_vec(), token_types: vec![0; ids.len()] };
    let texts = model.bert.bucketed_batch(&[text(&[1, 5, 6, 7, 2]), text(&[1, 9, 2])]).unwrap();
    steps!(
        B,
        "bert/bert_masked",
        bert_step,
        BertForMaskedLm,
        (texts.clone(), ids([2, 8], 20)),
        (TextBatch<Traced>, Array<Traced, 2, Int>),
        tolerance::<B>(),
        1e-3
    );
    type Ids = Array<Traced, 2, Int>;
    let ids = || ids([2, 5], 20);
    steps!(B, "rnn/lm_lstm_tied/model.pt", token_step, RnnLm, ids(), Ids, tolerance::<B>());
    steps!(B, "rnn/lm_gru/model.safetensors", token_step, RnnLm, ids(), Ids, tolerance::<B>());
    steps!(B, "gpt_neo/tiny", token_step, GptNeo, ids(), Ids, tolerance::<B>());
    steps!(B, "llama/gqa", token_step, Llama, ids(), Ids, tolerance::<B>());
    steps!(B, "gpt2/tiny_a", token_step, Gpt2, ids(), Ids, tolerance::<B>())
}

mod on_flex {
    #[test]
    fn logits_of_decoders() {
        super::logits_of_decoders::<super::Flex>();
    }

    #[test]
    fn encoders_and_images() {
        super::encoders_and_images::<super::Flex>();
    }

    #[test]
    fn training() {
        let graph = super::training::<super::Flex>();
        println!("{:?}", graph.counts());
    }
}

mod on_candle {
    #[test]
    fn logits_of_decoders() {
        super::logits_of_decoders::<super::Candle>();
    }

    #[test]
    fn encoders_and_images() {
        super::encoders_and_images::<super::Candle>();
    }

    #[test]
    fn training() {
        super::training::<super::Candle>();
    }
}

#[cfg(feature = "cuda_tests")]
mod on_cuda {
    type Cuda = grove_backend::Cuda;

    #[test]
    fn logits_of_decoders_cuda() {
        super::logits_of_decoders::<Cuda>();
    }

    #[test]
    fn encoders_and_images_cuda() {
        super::encoders_and_images::<Cuda>();
    }

    #[test]
    fn training_cuda() {
        super::training::<Cuda>();
    }
}

#[cfg(feature = "wgpu")]
mod on_wgpu {
    type Wgpu = grove_backend::Wgpu;

    #[test]
    fn logits_of_decoders_wgpu() {
        super::logits_of_decoders::<Wgpu>();
    }

    #[test]
    fn encoders_and_images_wgpu() {
        super::encoders_and_images::<Wgpu>();
    }

    #[test]
    fn training_wgpu() {
        super::training::<Wgpu>();
    }
}

/// Tracing twice gives the same text, and needs neither weights nor a device.
#[test]
fn a_model_traced_twice_is_the_same_text() {
    let (model, ids): (Gpt2<Flex>, _) = (load("gpt2/tiny_a"), ids::<Flex>([2, 5], 20));
    let text = || {
        let graph = trace(
            |(model, ids): (Gpt2<Traced>, Array<Traced, 2, Int>)| Array::<_, 3>::new(model.forward(ids.val(), None)),
            &(model.clone(), ids.clone()),
        );
        graph.to_string_with_paths()
    };
    let first = text();
    assert_eq!(first, text());
    assert!(first.contains("attention"), "{first}");
}
