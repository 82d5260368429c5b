//! Training on meshes of virtual devices: losses and parameters are those of one device, and each device stores its part.

use crate::graphs;
use crate::graphs::common::client;
use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::{AnyTensor, Autodiff, Backend, Flex};

use grove_models::{
    CausalLm, Gpt2, Gpt2Config, Llama, LlamaConfig, Pretrained, ResNet, ResNetConfig, Vit, VitConfig,
    bert::{BertConfig, BertForMaskedLm, TextBatch},
};
use grove_optim::{Adamw, AdamwChain, GradientTransformation, adamw};
use grove_text::TextIds;
use grove_transform::{from_inner, value_and_grad};
use grove_tree::{Array, Key, Tree, leaves, to_backend};
use grove_xla::{
    LeafSpecs, Mesh, MeshDevice, PartitionSpec, Xla, XlaError, fully_sharded, tensor_parallel, visualize,
    with_sharding_constraint,
};

type State<B, M> = <AdamwChain<B> as GradientTransformation<B, M>>::State;
type A4<B> = Array<B, 4>;

/// A larger `eps`: otherwise a gradient that is zero up to rounding moves its parameter by the whole learning rate.
fn optimizer<B: Backend>() -> AdamwChain<B> {
    adamw(0.01, Adamw { eps: 1e-3.into(), ..Default::default() })
}

/// A strategy for training on a mesh: the split leaves, and the axis of each.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Plan {
    /// Splits only the batch.
    Data,
    /// Also splits the state of the optimizer.
    ShardedOptimizer,
    /// Also splits the parameters.
    FullySharded,
    /// Splits the batch over one axis, and matrix products over another.
    Tensor,
}

impl Plan {
    const ALL: [Self; 4] = [Self::Data, Self::ShardedOptimizer, Self::FullySharded, Self::Tensor];

    fn axes(self, devices: usize) -> Vec<(&'static str, usize)> {
        match self {
            Self::Tensor => vec![("data", devices / 2), ("model", 2)],
            _ => vec![("data", devices)],
        }
    }

    fn params<B: Backend, T: Tree<B>>(self, tree: &T, mesh: &Mesh) -> LeafSpecs {
        match self {
            Self::Tensor => tensor_parallel(tree, mesh, "model"),
            Self::FullySharded => fully_sharded(tree, mesh, "data"),
            _ => vec![],
        }
    }

    fn state<B: Backend, T: Tree<B>>(self, tree: &T, mesh: &Mesh) -> LeafSpecs {
        match self {
            Self::ShardedOptimizer => fully_sharded(tree, mesh, "data"),
            plan => plan.params(tree, mesh),
        }
    }
}

/// Runs three training steps; returns the losses and the model.
fn train<B: Backend, M: Tree<B>, X: Tree<B>>(
    mut model: M,
    mut state: State<B, M>,
    batch: X,
    loss: impl Fn(M::On<Autodiff<B>>, X) -> Tensor<Autodiff<B>, 1>,
) -> (Vec<f32>, M) {
    let mut losses = vec![];
    for _ in 0..3 {
        let (value, grads) = value_and_grad(&model, |model| loss(model, batch.clone()));
        (model, state) = optimizer().step(grads, state, model);
        losses.push(value.into_data().iter::<f32>().next().unwrap());
    }
    (losses, model)
}

fn close<B: Backend, M: Tree<B>, N: Tree<Flex>>(what: &str, found: (Vec<f32>, M), expected: &(Vec<f32>, N)) {
    for (found, expected) in found.0.iter().zip(&expected.0) {
        assert!((found - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{what}: {found} for {expected}");
    }
    for ((name, found), (_, expected)) in leaves(&found.1).into_iter().zip(leaves(&expected.1)) {
        let (Some(found), Some(expected)) = (found.into_data(), expected.into_data()) else { continue };
        graphs::close(&format!("{what}, {name}"), &found, &expected, 2e-4, 1e-2);
    }
}

/// Trains a model on one device, and on meshes of several devices with every plan, and compares.
macro_rules! on_meshes {
    ($what:literal, $model:expr, $batch:expr, $loss:ident, $sizes:expr) => {
        on_meshes!($what, $model, $batch, $loss, $sizes, Plan::ALL)
    };
    ($what:literal, $model:expr, $batch:expr, $loss:ident, $sizes:expr, $plans:expr) => {{
        let (model, batch) = ($model, $batch);
        let state = optimizer::<Flex>().init(&model);
        let expected = train(model.clone(), state.clone(), batch.clone(), $loss::<Flex>);
        assert!(expected.0[2] < expected.0[0], "{:?}", expected.0);
        let Some(client) = client(8) else { return };
        let mut table = Vec::new();
        for devices in $sizes {
            for plan in $plans {
                let what = format!("{} on {devices} devices, {plan:?}", $what);
                let mesh = Mesh::new(&client.devices()[..devices], plan.axes(devices)).unwrap();
                let on: MeshDevice = mesh.lazy();
                let params = on.shard(model.clone(), &plan.params(&model, &mesh)).unwrap();
                let state = on.shard(state.clone(), &plan.state(&state, &mesh)).unwrap();
                let batch = on.shard(batch.clone(), &[("**", PartitionSpec::new([Some("data")]))]).unwrap();
                close(&what, train(params, state, batch, $loss::<Xla>), &expected);
                let programs = on.programs();
                let last = programs.last().unwrap();
                let memory = last.memory.unwrap();
                assert!(!last.collectives.is_empty(), "{what}");
                table.push((plan, devices, memory.arguments));
                println!("{what}: {} KiB of arguments a device, {:?}", memory.arguments / 1024, last.collectives);
            }
        }
        // Split parameters and states take less memory.
        let of = |plan, devices| table.iter().find(|row| (row.0, row.1) == (plan, devices)).unwrap().2;
        for devices in $sizes {
            let [data, optimizer, full] =
                [Plan::Data, Plan::ShardedOptimizer, Plan::FullySharded].map(|plan| of(plan, devices));
            assert!(full < optimizer && optimizer < data, "{}: {data}, {optimizer}, {full}", $what);
            assert!(!$plans.contains(&Plan::Tensor) || of(Plan::Tensor, devices) < data, "{}", $what);
        }
    }};
}

fn ids(shape: [usize; 2], below: i64) -> Array<Flex, 2, Int> {
    let ids = (0..shape[0] * shape[1]).map(|i| (i as i64 * 7919 + 13) % below).collect();
    Array::new(Tensor::from_data(TensorData::new(ids, shape), &Default::default()))
}

fn lift<B: Backend, const D: usize>(x: &Array<B, D, Int>) -> Tensor<Autodiff<B>, D, Int> {
    Tensor::from_primitive(x.val().into_primitive())
}

fn images(shape: [usize; 4]) -> A4<Flex> {
    Array::new(Key::new(11).normal(shape, &Default::default()))
}

fn labels(count: usize) -> Array<Flex, 1, Int> {
    Array::new(Tensor::from_data(
        TensorData::new((0..count as i64).map(|i| i % 2).collect(), [count]),
        &Default::default(),
    ))
}

fn gpt2_loss<B: Backend>(model: Gpt2<Autodiff<B>>, ids: Array<B, 2, Int>) -> Tensor<Autodiff<B>, 1> {
    model.next_token_loss(lift(&ids), lift(&ids), Some(Key::new(3)))
}

#[test]
fn gpt2() {
    let config = Gpt2Config {
        n_embd: 32,
        n_layer: 2,
        n_head: 4,
        vocab_size: 64,
        n_positions: 16,
        resid_pdrop: 0.1,
        ..Gpt2Config::default()
    };
    let model = Gpt2::<Flex>::init(&config, Key::new(0), &Default::default()).unwrap();
    on_meshes!("gpt2", model, ids([8, 6], 64), gpt2_loss, [2, 4, 8]);
}

/// A model on four devices is saved like one on the host, and continues on two devices.
#[test]
fn trees_move_from_mesh_to_mesh() {
    let config =
        Gpt2Config { n_embd: 16, n_layer: 1, n_head: 2, vocab_size: 32, n_positions: 8, ..Gpt2Config::default() };
    let model = Gpt2::<Flex>::init(&config, Key::new(0), &Default::default()).unwrap();
    let (state, batch) = (optimizer::<Flex>().init(&model), ids([4, 6], 32));
    fn step<B: Backend>(
        model: Gpt2<B>,
        state: State<B, Gpt2<B>>,
        ids: Array<B, 2, Int>,
    ) -> (Gpt2<B>, State<B, Gpt2<B>>) {
        let (_, grads) = value_and_grad(&model, |model| gpt2_loss::<B>(model, ids));
        optimizer().step(grads, state, model)
    }
    let first = step(model.clone(), state.clone(), batch.clone());
    let expected = step(first.0, first.1, batch.clone()).0;
    let Some(client) = client(4) else { return };
    let mut host = (model, state);
    for devices in [4, 2] {
        let mesh = Mesh::new(&client.devices()[..devices], [("data", devices)]).unwrap();
        let on = mesh.lazy();
        let [params, state] = [fully_sharded(&host.0, &mesh, "data"), fully_sharded(&host.1, &mesh, "data")];
        let (model, state) = (on.shard(host.0, &params).unwrap(), on.shard(host.1, &state).unwrap());
        let (model, state) =
            step(model, state, on.shard(batch.clone(), &[("**", PartitionSpec::new([Some("data")]))]).unwrap());
        let [of_mesh, of_host] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        model.save_pretrained(of_mesh.path()).unwrap();
        host = (
            to_backend::<Xla, Flex, _>(model, &Default::default()),
            to_backend::<Xla, Flex, _>(state, &Default::default()),
        );
        host.0.save_pretrained(of_host.path()).unwrap();
        let [of_mesh, of_host] =
            [of_mesh, of_host].map(|folder| std::fs::read(folder.path().join("model.safetensors")).unwrap());
        assert_eq!(of_mesh, of_host);
    }
    close("from 4 devices to 2", (vec![], host.0), &(vec![], expected));
}

fn llama_loss<B: Backend>(model: Llama<Autodiff<B>>, ids: Array<B, 2, Int>) -> Tensor<Autodiff<B>, 1> {
    model.next_token_loss(lift(&ids), lift(&ids), None)
}

#[test]
fn llama() {
    let config = LlamaConfig {
        vocab_size: 64,
        hidden_size: 32,
        intermediate_size: 64,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        ..LlamaConfig::default()
    };
    let model = Llama::<Flex>::init(&config, Key::new(0), &Default::default()).unwrap();
    on_meshes!("llama", model, ids([8, 6], 64), llama_loss, [4]);
}

type Masked<B> = (TextBatch<B>, Array<B, 2, Int>);

fn bert_loss<B: Backend>(model: BertForMaskedLm<Autodiff<B>>, (texts, labels): Masked<B>) -> Tensor<Autodiff<B>, 1> {
    model.loss(&from_inner::<B, _>(texts), lift(&labels), Some(Key::new(4)))
}

#[test]
fn bert() {
    let config = BertConfig {
        vocab_size: 64,
        hidden_size: 32,
        intermediate_size: 64,
        num_hidden_layers: 1,
        num_attention_heads: 4,
        max_position_embeddings: 16,
        ..BertConfig::default()
    };
    let model = BertForMaskedLm::<Flex>::init(&config, Key::new(0), &Default::default()).unwrap();
    let text = |i: u32| TextIds {
        ids: (0..6 + i % 3).map(|j| (i * 7 + j) % 60 + 1).collect(),
        token_types: vec![0; 6 + i as usize % 3],
    };
    let texts = model.bert.bucketed_batch(&(0..8).map(text).collect::<Vec<_>>()).unwrap();
    on_meshes!("bert", model, (texts, ids([8, 8], 60)), bert_loss, [4]);
}

type Pictures<B> = (A4<B>, Array<B, 1, Int>);

fn vit_loss<B: Backend>(model: Vit<Autodiff<B>>, (pixels, labels): Pictures<B>) -> Tensor<Autodiff<B>, 1> {
    model.loss(Tensor::from_inner(pixels.val()), lift(&labels), None)
}

#[test]
fn vit() {
    let config = VitConfig {
        hidden_size: 32,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        intermediate_size: 64,
        image_size: [16, 16],
        patch_size: 8,
        ..VitConfig::default()
    };
    let config = config.with_labels(["a", "b"].map(String::from).to_vec());
    let model = Vit::<Flex>::init(&config, Key::new(0), &Default::default()).unwrap();
    on_meshes!("vit", model, (images([8, 3, 16, 16]), labels(8)), vit_loss, [4]);
}

fn resnet_loss<B: Backend>(model: ResNet<Autodiff<B>>, (pixels, labels): Pictures<B>) -> Tensor<Autodiff<B>, 1> {
    model.loss(Tensor::from_inner(pixels.val()), lift(&labels))
}

#[test]
fn resnet() {
    let config = ResNetConfig::basic(3, 16, vec![8, 16], vec![1, 1]).with_labels(["a", "b"].map(String::from).to_vec());
    let model = ResNet::<Flex>::init(&config, Key::new(0), &Default::default()).unwrap();
    let batch = (images([8, 3, 16, 16]), labels(8));
    // Batch statistics are those of the whole batch.
    on_meshes!("resnet", model, batch, resnet_loss, [2, 4], [Plan::Data, Plan::ShardedOptimizer, Plan::FullySharded]);
}

#[test]
fn arrays_follow_the_requested_sharding() {
    let Some(client) = client(8) else { return };
    let mesh = Mesh::new(&client.devices(), [("data", 4), ("model", 2)]).unwrap();
    let on = mesh.lazy();
    let values: Vec<f32> = (0..8 * 6).map(|i| i as f32).collect();
    let whole = Array::<Flex, 2>::new(Tensor::from_data(TensorData::new(values.clone(), [8, 6]), &Default::default()));
    let show = |spec: PartitionSpec| {
        let x = on.shard(whole.clone(), &[("**", spec)]).unwrap();
        assert_eq!(x.val().into_data().to_vec::<f32>().unwrap(), values);
        assert_eq!((x.val() * 2.0).sum_dim(1).into_data().to_vec::<f32>().unwrap()[1], 102.0);
        visualize(&AnyTensor::Float(x.val().into_primitive().tensor()), &mesh).unwrap()
    };
    assert_eq!(
        show(PartitionSpec::new([Some("data"), Some("model")])),
        "┌───┬───┐\n│ 0 │ 1 │\n├───┼───┤\n│ 2 │ 3 │\n├───┼───┤\n│ 4 │ 5 │\n├───┼───┤\n│ 6 │ 7 │\n└───┴───┘"
    );
    assert_eq!(
        show(PartitionSpec::new([Some("data")])),
        "┌─────┐\n│ 0,1 │\n├─────┤\n│ 2,3 │\n├─────┤\n│ 4,5 │\n├─────┤\n│ 6,7 │\n└─────┘"
    );
    assert_eq!(
        show(PartitionSpec::new([None, Some("model")])),
        "┌─────────┬─────────┐\n│ 0,2,4,6 │ 1,3,5,7 │\n└─────────┴─────────┘"
    );
    assert_eq!(show(PartitionSpec::replicated()), "┌─────────────────┐\n│ 0,1,2,3,4,5,6,7 │\n└─────────────────┘");
    assert!(show(PartitionSpec::new([Some("data,model")])).contains("│ 7 │"));
    // Programs are partitioned like their arguments.
    let x = on.shard(whole.clone(), &[("**", PartitionSpec::new([Some("data"), Some("model")]))]).unwrap();
    let sum = (x.val() * x.val()).sum();
    assert_eq!(sum.into_data().to_vec::<f32>().unwrap(), [(0..48).map(|i| (i * i) as f32).sum::<f32>()]);
    assert!(on.programs().last().unwrap().collectives.iter().any(|(kind, _)| kind == "all-reduce"));
}

/// Later arrays have the specification of the first split array of their type.
#[test]
fn later_arrays_are_sharded_like_the_first_of_their_type() {
    let Some(client) = client(2) else { return };
    let mesh = Mesh::new(&client.devices(), [("data", 2)]).unwrap();
    let on = mesh.lazy();
    let show = |x: Tensor<Xla, 2>| visualize(&AnyTensor::Float(x.into_primitive().tensor()), &mesh).unwrap();
    let (whole, split) = ("┌─────┐\n│ 0,1 │\n└─────┘", "┌───┐\n│ 0 │\n├───┤\n│ 1 │\n└───┘");
    let new = || Tensor::<Xla, 2>::from_data([[1.0, 2.0], [3.0, 4.0]], on.device());
    assert_eq!(show(new()), whole);
    let first = Array::<Flex, 2>::new(Tensor::zeros([2, 2], &Default::default()));
    on.shard(first.clone(), &[("**", PartitionSpec::new([Some("data")]))]).unwrap();
    assert_eq!(show(new()), split);
    assert_eq!(new().into_data().to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(show(Tensor::ones([2, 2], on.device())), split);
    assert_eq!(show(Tensor::from_data([[1.0, 2.0, 3.0, 4.0]], on.device())), whole);
    let none: [(&str, PartitionSpec); 0] = [];
    assert_eq!(show(on.shard(first, &none).unwrap().val()), whole);
}

#[test]
fn arrays_in_a_function_follow_the_requested_sharding() {
    let Some(client) = client(4) else { return };
    let mesh = Mesh::new(&client.devices(), [("data", 2), ("model", 2)]).unwrap();
    fn loss<B: Backend>(x: Tensor<Autodiff<B>, 2>, spec: Option<PartitionSpec>) -> [Vec<f32>; 2] {
        let x = x.require_grad();
        let y = x.clone().sin();
        let y = spec.map_or_else(|| y.clone(), |spec| with_sharding_constraint(y.clone(), &spec));
        let loss = (y.clone() * y).sum();
        let grad = x.grad(&loss.backward()).unwrap();
        [loss.into_data(), grad.into_data()].map(|data| data.iter().collect())
    }
    let values: Vec<f32> = (0..64).map(|i| i as f32 / 8.0).collect();
    let data = || TensorData::new(values.clone(), [8, 8]);
    let both = PartitionSpec::new([Some("data"), Some("model")]);
    let expected = loss::<Flex>(Tensor::from_data(data(), &Default::default()), Some(both.clone()));
    for (spec, collective) in [(None, false), (Some(both), true), (Some(PartitionSpec::replicated()), false)] {
        let on = mesh.lazy();
        let found = loss::<Xla>(Tensor::from_data(data(), on.device()), spec.clone());
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            assert!((found - expected).abs() < 1e-5 * expected.abs().max(1.0), "{spec:?}: {found} {expected}");
        }
        // A sum over a split axis requires an all-reduce.
        let reduced =
            on.programs().iter().flat_map(|program| program.collectives.clone()).any(|(kind, _)| kind == "all-reduce");
        assert_eq!(reduced, collective, "{spec:?}");
    }
    let failed = |spec: PartitionSpec| {
        let on = mesh.lazy();
        let x = Tensor::<Xla, 2>::from_data([[1.0, 2.0, 3.0]], on.device());
        format!("{:?}", with_sharding_constraint(x, &spec).try_into_data().unwrap_err())
    };
    let message = failed(PartitionSpec::new([Some("rows")]));
    assert!(
        message.contains("P(\"rows\") names the axis \"rows\", which the mesh (data: 2, model: 2) does not have"),
        "{message}"
    );
    let message = failed(PartitionSpec::new([None, Some("model")]));
    assert!(message.contains("axis 1 of 3 elements is not divisible by 2"), "{message}");
}

#[test]
fn rejects_meshes_and_specs_that_do_not_fit() {
    let Some(client) = client(4) else { return };
    let devices = client.devices();
    let message = |result: Result<Mesh, XlaError>| result.unwrap_err().to_string();
    assert_eq!(
        message(Mesh::new(&devices, [("data", 3)])),
        "the mesh (data: 3) cannot be created: it has 3 positions, but there are 4 devices"
    );
    assert!(message(Mesh::new(&devices, [("a", 2), ("a", 2)])).contains("two axes have the same name"));
    assert!(message(Mesh::new(&[], [])).contains("there are 0 devices"));
    assert!(message(Mesh::new(&devices, [("a", usize::MAX), ("b", 2)])).contains("too many positions"));
    let on = Mesh::new(&devices, [("data", 4)]).unwrap().lazy();
    let tree = || (ids([6, 4], 9), labels(4));
    let refused = |pattern: &str, spec: PartitionSpec| on.shard(tree(), &[(pattern, spec)]).unwrap_err().to_string();
    assert_eq!(
        refused("0", PartitionSpec::new([Some("data")])),
        "the leaf `0`: axis 0 of 6 elements is not divisible by 4, as P(\"data\") requires on (data: 4)"
    );
    assert_eq!(
        refused("1", PartitionSpec::new([Some("model")])),
        "the leaf `1`: P(\"model\") names the axis \"model\", which the mesh (data: 4) does not have"
    );
    assert!(refused("0", PartitionSpec::new([None, Some("data"), None])).contains("has 3 axes, but the array has 2"));
    assert!(refused("0", PartitionSpec::new([Some("data"), Some("data")])).contains("twice"));
    assert!(refused("**.nothing", PartitionSpec::replicated()).contains("nothing"));
}
