//! Trees from a user's view: derive, paths, partition, replacement of parts, printing.

use burn::tensor::{DType, FloatDType, Int, Tensor, TensorData};
use burn_flex::Flex;
use grove_tree::*;
use std::collections::{BTreeMap, HashMap};

#[derive(Tree, Clone, Debug)]
struct Linear<B: Backend> {
    weight: Array<B, 2>,
    bias: Option<Array<B, 1>>,
}

#[derive(Tree, Clone, Debug)]
enum Mixer<B: Backend> {
    Attention { qkv: Linear<B>, heads: usize },
    Pool(Array<B, 1>),
    Other(Array<B, 1>),
    Identity,
}

#[derive(Clone, Debug, PartialEq)]
enum Mode {
    Fast,
    Slow,
}

#[derive(Tree, Clone, Debug)]
#[allow(clippy::type_complexity)]
struct Block<B: Backend, M: Tree<B>, const N: usize> {
    mixers: Vec<M>,
    ids: Array<B, 1, Int>,
    #[tree(buffer)]
    mean: Array<B, 1>,
    #[tree(static)]
    mode: Mode,
    sizes: [Option<Linear<B>>; N],
    extra: (Box<Array<B, 1>>, BTreeMap<String, Array<B, 1>>, HashMap<String, f64>),
}

type Model = Block<Flex, Mixer<Flex>, 2>;

fn vector(values: &[f32]) -> Array<Flex, 1> {
    Array::new(Tensor::from_floats(values, &Default::default()))
}

fn linear(rows: usize, bias: bool) -> Linear<Flex> {
    let weight = Array::new(Tensor::ones([rows, 2], &Default::default()));
    Linear { weight, bias: bias.then(|| vector(&vec![0.5; rows])) }
}

fn model() -> Model {
    Block {
        mixers: vec![
            Mixer::Attention { qkv: linear(3, true), heads: 3 },
            Mixer::Pool(vector(&[1.0, 2.0])),
            Mixer::Identity,
        ],
        ids: Array::new(Tensor::from_ints([4, 5], &Default::default())),
        mean: vector(&[7.0]),
        mode: Mode::Fast,
        sizes: [Some(linear(1, false)), None],
        extra: (
            Box::new(vector(&[8.0])),
            BTreeMap::from([("b".into(), vector(&[9.0])), ("a".into(), vector(&[10.0]))]),
            HashMap::from([("rate".into(), 0.5)]),
        ),
    }
}

#[test]
fn paths_are_field_names_and_indices() {
    let expected = [
        "mixers.0.qkv.weight",
        "mixers.0.qkv.bias",
        "mixers.1.0",
        "ids",
        "mean",
        "sizes.0.weight",
        "extra.0",
        "extra.1.a",
        "extra.1.b",
    ];
    assert_eq!(paths(&model()), expected);
    assert_eq!(model().mode, Mode::Fast);
}

#[test]
fn displays_types_and_static_fields_in_short_lines() {
    let ids = model().ids;
    let expected = format!(
        "Block {{
  mixers: [
    Attention {{ qkv: Linear {{ weight: f32[3,2], bias: f32[3] }}, heads: 3 }},
    Pool(f32[2]),
    Identity(),
  ],
  ids: {ids},
  mean: f32[1],
  mode: Fast,
  sizes: [Linear {{ weight: f32[1,2], bias: None }}, None],
  extra: (f32[1], {{ a: f32[1], b: f32[1] }}, {{ rate: 0.5 }}),
}}"
    );
    assert_eq!(display(&model()), expected);
    assert_eq!(format!("{:?}", linear(3, true)), "Linear { weight: f32[3,2], bias: Some(f32[3]) }");
}

#[test]
fn parts_come_together_again() {
    let keep = is_param() & !by_path("extra.**");
    let (kept, rest) = partition(model(), &keep);
    assert!(kept.mixers.iter().all(|mixer| match mixer {
        Mixer::Attention { qkv, .. } => qkv.weight.is_present(),
        Mixer::Pool(leaf) | Mixer::Other(leaf) => leaf.is_present(),
        Mixer::Identity => true,
    }));
    assert!(!kept.mean.is_present() && !kept.ids.is_present() && !kept.extra.0.is_present());
    assert!(eq(&combine(kept.clone(), rest.clone()).unwrap(), &model()));
    assert!(eq(&combine(rest, kept).unwrap(), &model()));
    let overlap = combine(model(), model()).unwrap_err();
    assert_eq!(overlap, TreeError::Overlap { path: "mixers.0.qkv.weight".into() });
}

#[test]
fn surgery_replaces_one_part() {
    let operated = at(model(), |m| &mut m.extra.0, Box::new(vector(&[-1.0])));
    assert_eq!(operated.extra.0.val().into_scalar(), -1.0);
    assert!(!eq(&operated, &model()));
    assert!(eq(&at(operated, |m| &mut m.extra, model().extra), &model()));
}

#[test]
fn mapping_and_zipping() {
    let doubled = map(model(), |leaf| leaf.mul_scalar(2.0));
    assert_eq!(doubled.mean.val().into_scalar(), 14.0);
    let sum =
        zip_map(doubled, &model(), |_, x, y| if x.dtype().is_float() { x.try_add(y).unwrap() } else { x }).unwrap();
    assert_eq!(sum.mean.val().into_scalar(), 21.0);
    assert_eq!(sum.ids.val().to_data().iter::<i64>().collect::<Vec<_>>(), [4, 5]);

    let shorter = at(model(), |m| &mut m.sizes, [None, None]);
    let error = zip_map(model(), &shorter, |_, x, _| x).unwrap_err();
    assert_eq!(error, TreeError::Structure { left: "sizes.0: Linear { .. }".into(), right: "sizes.0: None".into() });
}

/// Each pair of models has the same leaves at the same paths.
#[test]
fn structure_knows_variants_static_fields_and_constants() {
    let with = |change: &dyn Fn(&mut Model)| {
        let mut changed = model();
        change(&mut changed);
        changed
    };
    let cases: [(Model, &str, &str); 6] = [
        (with(&|m| m.mode = Mode::Slow), "mode: Fast", "mode: Slow"),
        (
            with(&|m| m.mixers[0] = Mixer::Attention { qkv: linear(3, true), heads: 1 }),
            "mixers.0.heads: 3",
            "mixers.0.heads: 1",
        ),
        (with(&|m| m.mixers[1] = Mixer::Other(vector(&[1.0, 2.0]))), "mixers.1: Pool(..)", "mixers.1: Other(..)"),
        (with(&|m| drop(m.mixers.pop())), "mixers.2: Identity(..)", "ids"),
        (with(&|m| m.extra.2 = HashMap::from([("rate".into(), 0.25)])), "extra.2.rate: 0.5", "extra.2.rate: 0.25"),
        (with(&|m| m.extra.2 = HashMap::new()), "extra.2.rate: 0.5", "(nothing)"),
    ];
    for (other, left, right) in cases {
        let expected = TreeError::Structure { left: left.into(), right: right.into() };
        assert_eq!(structure(&model()).difference(&structure(&other)), Some([left.to_owned(), right.to_owned()]));
        assert!(!structure(&model()).is_of(&other) && !structure(&other).is_of(&model()), "{left}");
        assert!(!eq(&model(), &other) && !all_close(&model(), &other, 1.0, 1.0), "{left}");
        assert_eq!(zip_map(model(), &other, |_, x, _| x).unwrap_err(), expected);
        assert_eq!(map_together([model(), other.clone()], |_, row| row).unwrap_err(), expected);
        assert_eq!(combine(model(), skeleton(other)).unwrap_err(), expected);
    }
    // Values, shapes and dtypes of leaves are not part of the structure, and NaN equals itself.
    let other = with(&|m| m.extra.2 = HashMap::from([("rate".into(), f64::NAN)]));
    assert_eq!(structure(&other), structure(&skeleton(cast(other.clone(), FloatDType::BF16))));
    assert!(structure(&other).is_of(&skeleton(cast(other, FloatDType::BF16))));
    assert!(structure(&model()).is_of(&model()));
    assert_eq!(structure(&model()).leaf_count(), paths(&model()).len());
    assert_eq!(structure(&model()).difference(&structure(&model())), None);
}

#[test]
fn structure_prints_like_the_tree() {
    assert_eq!(
        structure(&model()).to_string(),
        "Block { mixers: [Attention { qkv: Linear { weight: *, bias: * }, heads: 3 }, Pool(*), Identity()], ids: *, mean: *, \
         mode: Fast, sizes: [Linear { weight: *, bias: None }, None], extra: (*, { a: *, b: * }, { rate: 0.5 }) }"
    );
}

#[test]
fn trees_are_mapped_together() {
    let [sum, second] = map_together([model(), model()], |path, [x, y]| {
        let sum = if path.as_str() == "mean" { x.clone().try_add(y.clone()).unwrap_or(x) } else { x };
        [sum, y.mul_scalar(3.0)]
    })
    .unwrap();
    assert_eq!([sum.mean.val().into_scalar(), second.mean.val().into_scalar()], [14.0, 21.0]);
    assert_eq!([sum.extra.0.val().into_scalar(), second.extra.1["b"].val().into_scalar()], [8.0, 27.0]);
}

#[test]
fn values_are_compared() {
    assert!(eq(&model(), &model()));
    let near = map(model(), |leaf| leaf.add_scalar(1e-6));
    assert!(!eq(&near, &model()));
    assert!(all_close(&near, &model(), 1e-5, 1e-5) && !all_close(&near, &model(), 0.0, 1e-9));
    let nan = at(model(), |m| &mut m.mean, vector(&[f32::NAN]));
    assert!(!all_close(&nan, &nan, 1.0, 1.0));
}

#[test]
fn skeletons_keep_shape_and_dtype() {
    let bare = skeleton(cast(model(), FloatDType::BF16));
    assert_eq!(bare.sizes[0].as_ref().expect("a map").weight.dtype(), DType::BF16);
    assert_eq!(bare.mean.dtype(), DType::F32, "a buffer does not get smaller than f32");
    let (half, wide) = (vector(&[7.0]).val().cast(FloatDType::F16), cast(model(), FloatDType::F64));
    let half = at(model(), |m| &mut m.mean, Array::new(half));
    assert_eq!([wide.mean.dtype(), cast(half, FloatDType::BF16).mean.dtype()], [DType::F64, DType::F32]);
    assert_eq!(bare.ids.dtype(), model().ids.dtype());
    assert_eq!(count_params(&bare), 6 + 3 + 2 + 2 + 1 + 1 + 1);
    assert_eq!(display(&bare), display(&cast(model(), FloatDType::BF16)));
    let table = summary(&model());
    assert!(table.contains("mixers.0.qkv.weight  f32[3,2]") && table.contains("(buffer)"), "{table}");
    assert!(table.contains("16 parameters, 3 elements of state, "), "{table}");
}

#[test]
#[should_panic(expected = "this leaf, f32[1], is absent")]
fn an_absent_leaf_has_no_value() {
    let _ = skeleton(model()).mean.val();
}

#[test]
fn another_backend() {
    let lifted: Block<Autodiff, Mixer<Autodiff>, 2> = to_backend::<Flex, Autodiff, _>(model(), &Default::default());
    assert_eq!(display(&lifted), display(&model()));
    assert_eq!(lifted.extra.1["a"].val().into_scalar(), 10.0);
    let bare = to_backend::<Flex, Autodiff, _>(skeleton(model()), &Default::default());
    assert!(!bare.mean.is_present());
}

type Autodiff = grove_backend::Autodiff<Flex>;

/// Checks `zeros_like` on special values, in each dtype.
fn zeros_are_zeros<B: Backend>() {
    let device = B::Device::default();
    let values = [f32::NAN, f32::INFINITY, -1.5, f32::NEG_INFINITY, 0.0, 3.0];
    let floats = Tensor::<B, 1>::from_floats(values, &device).reshape([2, 3]);
    let mut leaves = vec![
        Array::<B, 1, Int>::new(Tensor::from_ints([7, -2], &device)).into_any(),
        AnyArray::from_data(TensorData::from([true, false]), &device),
    ];
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        leaves.push(Array::<B, 2>::new(floats.clone().cast(dtype)).into_any());
    }
    for leaf in leaves {
        let zeros = leaf.zeros_like();
        assert_eq!(zeros.to_string(), leaf.to_string());
        assert!(zeros.into_data().unwrap().iter::<f64>().all(|x| x == 0.0), "{leaf}");
    }
    assert!(!AnyArray::<B>::absent([3], DType::F32).zeros_like().is_present());
}

#[test]
fn zeros_like_ignores_nan() {
    zeros_are_zeros::<Flex>();
    zeros_are_zeros::<Autodiff>();
    zeros_are_zeros::<grove_backend::Candle>();
}
