//! Products of f32 matrices in f32, on devices whose tensor cores would round the factors to TF32.

use burn::tensor::{DType, Shape, TensorMetadata};
use burn_cubecl::{CubeRuntime, CubeTuneId, tensor::CubeTensor};
use cubecl::{
    device::{Device, DeviceId},
    ir::{ElemType, FloatKind, StorageType},
    tune::{LocalTuner, Tunable, TunableSet, TuneGroup, local_tuner},
};
use cubek::{
    matmul::{
        definition::{MatmulElems, MatmulGlobalElems},
        launch::{MatmulAutotuneKey, MatmulGlobalScale, Strategy, launch_ref, should_tune_double_buffering},
        routines::{
            BlueprintStrategy, TileSizeSelection, double_unit::DoubleUnitSelectionArgs,
            simple_unit::SimpleUnitSelectionArgs,
        },
    },
    std::InputBinding,
};
use std::{
    any::TypeId,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    register::{Lazy, register},
    tensor::empty,
};
use crate::matmul_precision::{MatmulPrecision, matmul_precision};

static ON_EVERY_DEVICE: AtomicBool = AtomicBool::new(false);

/// Makes devices without TF32 use the same kernels at the highest precision, for tests of these kernels.
#[doc(hidden)]
pub fn use_f32_kernels_on_every_device() {
    ON_EVERY_DEVICE.store(true, Ordering::Relaxed);
}

/// Returns true for tensors whose products and convolutions would be rounded on their device, and must not be.
pub(super) fn must_stay_f32<R: CubeRuntime>(x: &Lazy<R>) -> bool {
    x.dtype == DType::F32
        && matmul_precision() == MatmulPrecision::Highest
        && (ON_EVERY_DEVICE.load(Ordering::Relaxed) || has_tf32::<R>(x.client.device()))
}

/// Returns true for a device whose tensor cores compute in TF32. Each device is queried once.
fn has_tf32<R: CubeRuntime>(device: &R::Device) -> bool {
    static KNOWN: RwLock<Vec<((TypeId, DeviceId), bool)>> = RwLock::new(Vec::new());
    let id = (TypeId::of::<R>(), device.to_id());
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, found)) = known.iter().find(|(known, _)| *known == id) {
        return *found;
    }
    drop(known);
    let client = R::client(device);
    let matmul = &client.properties().features.matmul;
    let tf32 = StorageType::Scalar(ElemType::Float(FloatKind::TF32));
    let found = matmul.cmma.iter().chain(&matmul.mma).any(|config| config.a_type == tf32);
    KNOWN.write().unwrap_or_else(PoisonError::into_inner).push((id, found));
    found
}

type Inputs<R> = (CubeTensor<R>, CubeTensor<R>, CubeTensor<R>);

fn launch<R: CubeRuntime>(strategy: &Strategy, (lhs, rhs, out): Inputs<R>) -> Result<(), String> {
    let client = out.client.clone();
    let f32 = StorageType::from(DType::F32);
    let mut types = MatmulElems::from_globals(&MatmulGlobalElems { lhs: f32, rhs: f32, out: f32 });
    let (lhs, rhs) = (InputBinding::new(lhs.binding(), f32), InputBinding::new(rhs.binding(), f32));
    launch_ref(strategy, &client, lhs, rhs, out.binding(), &mut types).map_err(|error| format!("{error:?}"))
}

/// Returns the kernels for autotuning: those of CubeK that use no tensor cores, in the order in which Burn tries them.
/// The first one runs everywhere.
fn candidates<R: CubeRuntime>() -> TunableSet<MatmulAutotuneKey, Inputs<R>, ()> {
    const BEST: i8 = 2;
    const GOOD: i8 = 1;
    const LAST: i8 = 0;
    let unit = TuneGroup::<MatmulAutotuneKey>::new("unit", |_| BEST);
    let key = |(lhs, rhs, out): &Inputs<R>| {
        let (a, b) = (&lhs.meta, &rhs.meta);
        let [of_lhs, of_rhs, of_out] = [lhs, rhs, out].map(|x| x.dtype.into());
        MatmulAutotuneKey::generate(
            &lhs.client,
            a.shape(),
            b.shape(),
            a.strides(),
            b.strides(),
            of_lhs,
            of_rhs,
            of_out,
            None,
            None,
        )
    };
    // Each candidate writes to its own output.
    let inputs = |_: &MatmulAutotuneKey, (lhs, rhs, out): &Inputs<R>| (lhs.clone(), rhs.clone(), out.copy());
    let naive = Tunable::new("matmul_naive", |inputs: Inputs<R>| launch(&Strategy::Naive, inputs));
    let mut set = TunableSet::new(key, inputs).with(naive.group(&unit, |key: &MatmulAutotuneKey| {
        if matches!(key.analysis.scale_global, MatmulGlobalScale::Small) { GOOD } else { LAST }
    }));
    for tile_size in [TileSizeSelection::MaxTileSize, TileSizeSelection::MinTileSize] {
        let simple = Strategy::SimpleUnit(BlueprintStrategy::Inferred(SimpleUnitSelectionArgs { tile_size }));
        let double = Strategy::DoubleUnit(BlueprintStrategy::Inferred(DoubleUnitSelectionArgs { tile_size }));
        for (strategy, buffers_twice) in [(simple, false), (double, true)] {
            let tunable = Tunable::new(&strategy.to_string(), move |inputs: Inputs<R>| launch(&strategy, inputs));
            set = set.with(tunable.group(&unit, move |key| match buffers_twice {
                true if !should_tune_double_buffering(false, key) => GOOD,
                _ => BEST,
            }));
        }
    }
    set
}

fn multiply<R: CubeRuntime>(lhs: CubeTensor<R>, rhs: CubeTensor<R>, shape: Shape) -> CubeTensor<R> {
    static TUNER: LocalTuner<MatmulAutotuneKey, CubeTuneId> = local_tuner!("f32");
    let out = empty(&lhs, shape, DType::F32);
    let candidates = TUNER.init(candidates::<R>);
    let client = lhs.client.clone();
    let id = CubeTuneId::new(&client, &lhs.device);
    TUNER.execute(&id, &client, candidates, (lhs, rhs, out.clone()));
    out
}

/// Returns the f32 product of `[.., m, k]` and `[.., k, n]`, of the same rank. An axis before the last two may be 1 in
/// one of them. No size may be zero.
pub(super) fn matmul<R: CubeRuntime>(lhs: Lazy<R>, rhs: Lazy<R>) -> Lazy<R> {
    let (mut shape, other) = (lhs.shape(), rhs.shape());
    let d = shape.num_dims();
    for axis in 0..d - 2 {
        shape[axis] = shape[axis].max(other[axis]);
    }
    shape[d - 1] = other[d - 1];
    let output = [(shape.clone(), DType::F32)];
    let [y] = register("grove_matmul_f32", [lhs, rhs], output, move |[lhs, rhs]| [multiply(lhs, rhs, shape.clone())]);
    y
}
