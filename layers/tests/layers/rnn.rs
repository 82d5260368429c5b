//! Recurrent layers and packing against torch. Fixture: tools/fixtures/rnn.py.

use crate::common;
use burn::tensor::{Tensor, TensorData};
use grove_backend::{Autodiff, Backend};
use grove_layers::rnn::{
    Cell, Gru, GruReset, Lstm, PackError, PackedSequence, Packing, Recurrent, Rnn, RnnActivation, RnnOptions, State,
    pack_padded_sequence, pack_sequence, pad_packed_sequence,
};
use grove_transform::value_and_grad_aux;
use grove_tree::{AnyArray, Array, Init, Key, Path, Tree, leaves};
use serde_json::Value;

use crate::case::Case;

/// A case and its options.
struct Setting {
    case: Case,
    json: Value,
}

impl Setting {
    fn all(list: &str) -> Vec<Self> {
        let json: Value = serde_json::from_slice(&std::fs::read("tests/fixtures/rnn.json").unwrap()).unwrap();
        let setting = |json: &Value| {
            let name: &'static str = json["name"].as_str().unwrap().to_owned().leak();
            Self { case: Case::of("rnn", name), json: json.clone() }
        };
        json[list].as_array().unwrap().iter().map(setting).collect()
    }

    fn number(&self, name: &str) -> usize {
        self.json[name].as_u64().unwrap_or_else(|| panic!("{name}")) as usize
    }

    fn flag(&self, name: &str) -> bool {
        self.json[name].as_bool().unwrap()
    }

    fn lengths(&self) -> Option<Vec<usize>> {
        Some(self.json["lengths"].as_array()?.iter().map(|length| length.as_u64().unwrap() as usize).collect())
    }

    /// The layers with the fixture's weights.
    fn filled<B: Backend, T: Tree<B>>(&self, layers: T, device: &B::Device) -> T {
        layers.map(&mut Path::root(), &mut |path, leaf| {
            let data = self.case.data(&published(&path.to_string()));
            assert_eq!(data.shape.to_vec(), leaf.shape(), "{path}");
            AnyArray::from_data(data, device)
        })
    }

    fn states<B: Backend, const S: usize>(&self, suffix: &str, device: &B::Device) -> State<B, S, 3> {
        std::array::from_fn(|i| self.case.floats(&format!("{}{suffix}", ["h", "c"][i]), device))
    }

    /// Asserts that `max |a - b| <= tolerance * max |b|`, and returns `max |a - b| / max |b|`.
    fn close(&self, backend: &str, part: &str, found: TensorData, tolerance: f64) -> f64 {
        let expected = self.case.data(part);
        assert_eq!(found.shape, expected.shape, "{} {part}", self.case.name);
        let (a, b): (Vec<f64>, Vec<f64>) = (found.iter().collect(), expected.iter().collect());
        let (apart, largest) = common::distance(&a, &b);
        assert!(apart <= tolerance * largest, "{backend} {} {part}: apart by {apart} of {largest}", self.case.name);
        apart / largest
    }
}

/// PyTorch's name of a leaf: `layers.1.backward.weight_ih` is `weight_ih_l1_reverse`.
fn published(path: &str) -> String {
    let parts: Vec<&str> = path.rsplitn(4, '.').collect();
    let [name, direction, layer, _] = parts[..] else { panic!("{path}") };
    format!("{name}_l{layer}{}", if direction == "backward" { "_reverse" } else { "" })
}

type Batch<B, C, const S: usize> = (Array<B, 3>, Option<State<B, S, 3>>, Recurrent<C>);

/// Runs the layers as the setting requires: padded, with lengths, or packed.
fn run<B: Backend, C: Cell<B, S>, const S: usize>(
    setting: &Setting,
    (x, state, layers): Batch<B, C, S>,
) -> (Tensor<B, 3>, State<B, S, 3>) {
    let batch_first = setting.flag("batch_first");
    match setting.lengths() {
        None => layers.forward(x.val(), state, None),
        Some(lengths) if setting.flag("enforce_sorted") => {
            let x = x.val();
            let t = x.dims()[usize::from(batch_first)];
            let packed: PackedSequence<Array<B, 2>> =
                pack_padded_sequence::<_, 3, 2, _>(x, &lengths, batch_first, true).unwrap();
            let (y, state) = layers.forward_packed(&packed, state, None);
            let (y, found) = pad_packed_sequence(&y, batch_first, 0.0, Some(t)).unwrap();
            assert_eq!(found, lengths);
            (y, state)
        }
        Some(lengths) => layers.forward_lengths(x.val(), &lengths, state, None).unwrap(),
    }
}

/// Compares outputs, final states and all gradients.
fn check<B: Backend, C, const S: usize>(setting: &Setting, layers: Recurrent<C>, device: &B::Device)
where
    C: Cell<B, S>,
    C::On<Autodiff<B>>: Cell<Autodiff<B>, S>,
{
    let backend = B::name(device);
    let state = setting.flag("initial_state").then(|| setting.states("0", device));
    let batch: Batch<B, C, S> = (setting.case.floats("x", device), state, setting.filled::<B, _>(layers, device));
    let mut worst = [0.0f64; 2];
    let mut outputs = |y: Tensor<B, 3>, state: State<B, S, 3>| {
        worst[0] = worst[0].max(setting.close(&backend, "y", y.into_data(), 1e-4));
        for (state, part) in state.into_iter().zip(["h_n", "c_n"]) {
            worst[0] = worst[0].max(setting.close(&backend, part, state.val().into_data(), 1e-4));
        }
    };
    let (y, state) = run(setting, batch.clone());
    outputs(y, state);
    let (_, grads, (y, state)) = value_and_grad_aux(&batch, |batch| {
        let (y, state) = run(setting, batch);
        let upstream = |part: &str| Tensor::<Autodiff<B>, 3>::from_data(setting.case.data(part), device);
        let mut loss = (y.clone() * upstream("dy")).sum();
        for (state, part) in state.iter().zip(["dh_n", "dc_n"]) {
            loss = loss + (state.val() * upstream(part)).sum();
        }
        (loss, (Array::<_, 3>::new(y), state))
    });
    outputs(y.val(), state);
    for (path, grad) in leaves(&grads) {
        let path = path.to_string();
        let part = match path.as_str() {
            "0" => "grad.x".to_owned(),
            "1.0" => "grad.h0".to_owned(),
            "1.1" => "grad.c0".to_owned(),
            _ => format!("grad.{}", published(&path)),
        };
        worst[1] = worst[1].max(setting.close(&backend, &part, grad.into_data().unwrap(), 1e-3));
    }
    println!("{backend} {}: apart by {:.1e}, gradients {:.1e}", setting.case.name, worst[0], worst[1]);
}

fn check_setting<B: Backend>(setting: &Setting, device: &B::Device) {
    let (inputs, n) = (setting.number("input_size"), setting.number("hidden_size"));
    let options = RnnOptions {
        layers: setting.number("layers"),
        bias: setting.flag("bias"),
        bidirectional: setting.flag("bidirectional"),
        batch_first: setting.flag("batch_first"),
        ..RnnOptions::default()
    };
    let init = Init::<B>::skeleton();
    match setting.json["kind"].as_str().unwrap() {
        "rnn_tanh" => check(setting, Rnn::new(inputs, n, RnnActivation::Tanh, &options, &init), device),
        "rnn_relu" => check(setting, Rnn::new(inputs, n, RnnActivation::Relu, &options, &init), device),
        "gru" => check(setting, Gru::new(inputs, n, &options, &init), device),
        "gru_reset_before" => check(setting, Gru::with_reset(inputs, n, GruReset::Before, &options, &init), device),
        "lstm" => match setting.number("proj_size") {
            0 => check(setting, Lstm::new(inputs, n, &options, &init), device),
            projection => check(setting, Lstm::projected(inputs, n, projection, &options, &init), device),
        },
        kind => panic!("no layers are called {kind}"),
    }
}

/// wgpu runs a subset, one case of every kind, because software Vulkan compiles kernels for every shape.
fn layers<B: Backend>(device: B::Device) {
    let part = B::name(&device).contains("wgpu");
    let mut seen = std::collections::BTreeSet::new();
    for setting in Setting::all("cases") {
        let small = setting.number("layers") == 1 && setting.lengths().is_some();
        if !part || (small && seen.insert(setting.json["kind"].to_string())) {
            check_setting::<B>(&setting, &device);
        }
    }
}

fn packing<B: Backend>(device: B::Device) {
    for setting in Setting::all("pack") {
        let (case, lengths, batch_first) = (&setting.case, setting.lengths().unwrap(), setting.flag("batch_first"));
        let sorted = setting.flag("enforce_sorted");
        let packed: PackedSequence<Array<B, 2>> = if setting.json["function"] == "pack_sequence" {
            let sequence = |i| case.floats::<B, 2>(&format!("sequence.{i}"), &device).val();
            let sequences: Vec<Tensor<B, 2>> = (0..lengths.len()).map(sequence).collect();
            pack_sequence::<B, 2, burn::tensor::Float>(&sequences, sorted).unwrap()
        } else {
            let x = case.floats::<B, 3>("x", &device).val();
            pack_padded_sequence::<_, 3, 2, burn::tensor::Float>(x, &lengths, batch_first, sorted).unwrap()
        };
        assert_eq!(packed.data.val().into_data(), case.data("data"), "{}", case.name);
        let numbers =
            |part: &str| case.find(part).map(|data| data.iter::<i64>().map(|i| i as usize).collect::<Vec<_>>());
        let packing = &packed.packing;
        assert_eq!(Some(packing.batch_sizes().to_vec()), numbers("batch_sizes"));
        assert_eq!(packing.sorted_indices().map(<[usize]>::to_vec), numbers("sorted_indices"));
        assert_eq!(packing.unsorted_indices(), numbers("unsorted_indices"));
        let total = setting.json["total_length"].as_u64().map(|total| total as usize);
        let value = setting.json["padding_value"].as_f64().unwrap();
        let (y, found) = pad_packed_sequence::<B, 2, 3>(&packed, batch_first, value, total).unwrap();
        assert_eq!((y.into_data(), found), (case.data("y"), lengths), "{}", case.name);
    }
}

/// Packing of integers (token sequences) of another rank.
fn packing_of_tokens<B: Backend>(device: B::Device) {
    use burn::tensor::Int;
    let ids = Tensor::<B, 2, Int>::from_data(TensorData::from([[1i64, 2, 3], [4, 0, 0]]), &device);
    let packed: PackedSequence<Array<B, 1, Int>> =
        pack_padded_sequence::<_, 2, 1, Int>(ids, &[3, 1], true, true).unwrap();
    assert_eq!(packed.data.val().into_data().iter::<i64>().collect::<Vec<_>>(), [1, 4, 2, 3]);
}

on_each_backend!(layers, packing, packing_of_tokens);

type B = grove_backend::Flex;

#[test]
fn a_layer_that_reads_from_the_end_is_the_second_direction() {
    let (device, init) = (Default::default(), Init::<B>::new(Key::new(3), &Default::default()));
    let both = RnnOptions { bidirectional: true, ..RnnOptions::default() };
    let mut both = Gru::new(4, 5, &both, &init);
    let reverse = RnnOptions { reverse: true, ..RnnOptions::default() };
    let mut layer = Gru::new(4, 5, &reverse, &init);
    layer.layers[0].forward = both.layers[0].backward.clone().unwrap();
    let x = Key::new(4).normal::<B, 3>([6, 3, 4], &device);
    let (y, [h]) = layer.forward_lengths(x.clone(), &[2, 6, 3], None, None).unwrap();
    let (all, [states]) = both.forward_lengths(x.clone(), &[2, 6, 3], None, None).unwrap();
    assert_eq!(y.into_data(), all.narrow(2, 5, 5).into_data());
    assert_eq!(h.val().into_data(), states.val().narrow(0, 1, 1).into_data());

    // Dropout depends on its key, and does not apply to the first layer.
    both.options.dropout = 0.5;
    assert_eq!(
        both.forward(x.clone(), None, Some(Key::new(1))).0.into_data(),
        both.forward(x.clone(), None, None).0.into_data()
    );
    let options = RnnOptions { layers: 2, dropout: 0.5, ..RnnOptions::default() };
    let deep = Lstm::new(4, 5, &options, &init);
    let run = |key: Option<u64>| deep.forward(x.clone(), None, key.map(Key::new)).0.into_data();
    assert_eq!(run(Some(1)), run(Some(1)));
    assert_ne!(run(Some(1)), run(Some(2)));
    assert_ne!(run(Some(1)), run(None));
}

#[test]
fn cells_make_the_steps_of_layers() {
    let (device, init) = (Default::default(), Init::<B>::new(Key::new(3), &Default::default()));
    let lstm = Lstm::new(4, 5, &RnnOptions::default(), &init);
    let x = Key::new(4).normal::<B, 3>([6, 3, 4], &device);
    let (y, [h, c]) = lstm.forward(x.clone(), None, None);
    let cell = &lstm.layers[0].forward;
    let zeros = cell.zeros(3, &x.clone().narrow(0, 0, 1).reshape([3, 4]));
    let (state, steps) =
        grove_transform::scan(|state, x: Array<B, 2>| cell.step(state, x), zeros, Array::<B, 3>::new(x));
    let apart = |a: Tensor<B, 3>, b: Tensor<B, 3>| (a - b).abs().max().into_scalar();
    assert!(apart(y, steps.val()) < 1e-6);
    for (state, whole) in state.into_iter().zip([h, c]) {
        assert!(apart(state.val().unsqueeze(), whole.val()) < 1e-6);
    }
}

#[test]
fn lengths_that_fit_no_batch() {
    let (device, init) = (Default::default(), Init::<B>::new(Key::new(3), &Default::default()));
    let gru = Gru::new(4, 5, &RnnOptions::default(), &init);
    let errors = |lengths: &[usize]| {
        let x = Tensor::<B, 3>::ones([6, 3, 4], &device);
        gru.forward_lengths(x, lengths, None, None).unwrap_err()
    };
    assert_eq!(errors(&[2, 6]), PackError::Count { lengths: 2, sequences: 3 });
    assert_eq!(errors(&[2, 0, 3]), PackError::ZeroLength { index: 1 });
    assert_eq!(errors(&[2, 7, 3]), PackError::TooLong { index: 1, length: 7, steps: 6 });
    assert_eq!(errors(&[2, 7, 3]).to_string(), "sequence 1 has length 7, but the padded batch has only 6 steps");
    let packed = PackedSequence {
        data: Array::<B, 2>::new(Tensor::ones([4, 2], &device)),
        packing: Packing::new(&[3, 1], true).unwrap(),
    };
    let short = pad_packed_sequence::<B, 2, 3>(&packed, false, 0.0, Some(2)).unwrap_err();
    assert_eq!(short, PackError::TotalLength { total: 2, longest: 3 });
    let rows = [Tensor::<B, 2>::ones([2, 3], &device), Tensor::ones([2, 4], &device)];
    assert!(matches!(
        pack_sequence::<B, 2, burn::tensor::Float>(&rows, false),
        Err(PackError::RowShape { index: 1, .. })
    ));
}
