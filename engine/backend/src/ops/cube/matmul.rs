//! Matrix products with cuBLAS if it is available, otherwise with a selection of CubeK's kernels wherever some kernel that
//! Burn may choose is wrong: f32 products on devices whose tensor cores would round the operands to TF32, products that
//! double-buffered kernels [overrun](overruns), and products whose kernels need [more shared memory](lacks_shared_memory)
//! than the device has.

use burn::tensor::{DType, Shape, TensorMetadata};
use burn_cubecl::{CubeRuntime, CubeTuneId, tensor::CubeTensor};
use cubecl::{
    device::{Device, DeviceId},
    ir::{ElemType, FloatKind, StorageType},
    tune::{LocalTuner, Tunable, TunableSet, TuneGroup, local_tuner},
};
use cubek::{
    matmul::{
        components::tile::TileMatmulKind,
        definition::{MatmulElems, MatmulGlobalElems, MatmulKind},
        launch::{MatmulAutotuneKey, MatmulGlobalScale, Strategy, launch_ref, should_tune_double_buffering},
        routines::{
            BlueprintStrategy, TileSizeSelection, double_unit::DoubleUnitSelectionArgs, simple::SimpleArgs,
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
    register::{FusedTensor, register_one},
    tensor::empty,
};
use crate::matmul_precision::{MatmulPrecision, matmul_precision};

static ON_EVERY_DEVICE: AtomicBool = AtomicBool::new(false);

/// Makes devices without TF32 use these kernels at the highest precision, and disables cuBLAS, for tests.
#[doc(hidden)]
pub fn use_f32_kernels_on_every_device() {
    ON_EVERY_DEVICE.store(true, Ordering::Relaxed);
    #[cfg(feature = "cuda")]
    super::cublas::leave_out();
}

/// Returns true for tensors whose products and convolutions must be computed in f32, but would be rounded on their device.
pub(super) fn must_stay_f32<R: CubeRuntime>(x: &FusedTensor<R>) -> bool {
    x.dtype == DType::F32
        && matmul_precision() == MatmulPrecision::Highest
        && (ON_EVERY_DEVICE.load(Ordering::Relaxed) || facts::<R>(x.client.device()).has_tf32)
}

/// Properties of a device.
#[derive(Clone, Copy)]
struct Facts {
    /// True if tensor cores support TF32.
    has_tf32: bool,
    /// Maximum number of units per plane.
    plane: usize,
    /// Shared memory per cube, in bytes.
    shared_memory: usize,
}

/// Returns the properties of a device. Each device is queried once.
fn facts<R: CubeRuntime>(device: &R::Device) -> Facts {
    static KNOWN: RwLock<Vec<((TypeId, DeviceId), Facts)>> = RwLock::new(Vec::new());
    let id = (TypeId::of::<R>(), device.to_id());
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, found)) = known.iter().find(|(known, _)| *known == id) {
        return *found;
    }
    drop(known);
    let client = R::client(device);
    let matmul = &client.properties().features.matmul;
    let tf32 = StorageType::Scalar(ElemType::Float(FloatKind::TF32));
    let has_tf32 = matmul.cmma.iter().chain(&matmul.mma).any(|config| config.a_type == tf32);
    let hardware = &client.properties().hardware;
    let (plane, shared_memory) = (hardware.plane_size_max as usize, hardware.max_shared_memory_size);
    let found = Facts { has_tf32, plane, shared_memory };
    KNOWN.write().unwrap_or_else(PoisonError::into_inner).push((id, found));
    found
}

/// Returns true for a product `[m, k]` by `[k, n]` that CubeK's double-buffered kernels compute wrongly.
///
/// They read an even number of stages along `k`, but check for the end of `k` only if it is not a multiple of one stage.
/// For an odd number of whole stages, they also add a stage of unrelated memory after the operand (CubeK 0.2; issue 434 and
/// pull request 441 of tracel-ai/cubek). A stage is a power of two: at most the plane size for matrices, and eight times
/// that for vectors.
fn overruns<R: CubeRuntime>(x: &FusedTensor<R>, sizes: [usize; 3]) -> bool {
    has_odd_stages(facts::<R>(x.client.device()).plane, sizes)
}

/// Returns true if the device rejects, or may reject, some kernels for operands of `x`'s dtype.
///
/// 16-bit tiles take up to 64 KiB of shared memory, f32 tiles 48 KiB (CubeK 0.2). Autotuning skips rejected kernels, but
/// one measurement stands for all products of similar size, and some of these need more memory than the measured one. A
/// rejected launch writes nothing, and is reported at the next read.
fn lacks_shared_memory<R: CubeRuntime>(x: &FusedTensor<R>) -> bool {
    const MAX_SHARED_MEMORY: usize = 64 << 10;
    matches!(x.dtype, DType::F16 | DType::BF16) && facts::<R>(x.client.device()).shared_memory < MAX_SHARED_MEMORY
}

/// Returns true for a product `[m, k]` by `[k, n]`, with operand `x`, for which Burn's choice of kernels must not be used.
pub(super) fn takes<R: CubeRuntime>(x: &FusedTensor<R>, sizes: [usize; 3]) -> bool {
    must_stay_f32(x) || overruns(x, sizes) || lacks_shared_memory(x) || has_cublas(x)
}

/// Returns true if cuBLAS supports operands of `x`'s dtype on its device.
fn has_cublas<R: CubeRuntime>(x: &FusedTensor<R>) -> bool {
    #[cfg(feature = "cuda")]
    return super::cublas::on_device::<R>(x.client.device(), x.dtype).is_some();
    #[cfg(not(feature = "cuda"))]
    return false;
}

fn has_odd_stages(plane: usize, [m, k, n]: [usize; 3]) -> bool {
    const LONGEST_OF_UNITS: usize = 32;
    let longest = plane.max(LONGEST_OF_UNITS) * if m == 1 || n == 1 { 8 } else { 1 };
    // The only stage length that fits into k an odd number of times.
    let stage = k & k.wrapping_neg();
    k == 1 || (2..=longest).contains(&stage)
}

type Inputs<R> = (CubeTensor<R>, CubeTensor<R>, CubeTensor<R>);

fn launch<R: CubeRuntime>(strategy: &Strategy, (lhs, rhs, out): Inputs<R>) -> Result<(), String> {
    let client = out.client.clone();
    let dtype = StorageType::from(out.dtype);
    let mut types = MatmulElems::from_globals(&MatmulGlobalElems { lhs: dtype, rhs: dtype, out: dtype });
    let (lhs, rhs) = (InputBinding::new(lhs.binding(), dtype), InputBinding::new(rhs.binding(), dtype));
    launch_ref(strategy, &client, lhs, rhs, out.binding(), &mut types).map_err(|error| format!("{error:?}"))
}

/// Set of kernels among which autotuning chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kernels {
    tensor_cores: bool,
    double_buffered: bool,
    large_tiles: bool,
}

/// Returns kernels for autotuning, in the order in which Burn tries them. The first one runs on every device.
fn candidates<R: CubeRuntime>(kernels: Kernels) -> TunableSet<MatmulAutotuneKey, Inputs<R>, ()> {
    const BEST: i8 = 2;
    const GOOD: i8 = 1;
    const LAST: i8 = 0;
    const NEVER: i8 = -1;
    let unit = TuneGroup::<MatmulAutotuneKey>::new("unit", |_| BEST);
    let gemv = TuneGroup::<MatmulAutotuneKey>::new("gemv", |key| match key.analysis.kind {
        MatmulKind::MatVec | MatmulKind::VecMat => BEST,
        _ => NEVER,
    });
    let accelerated = TuneGroup::<MatmulAutotuneKey>::new("accelerated", |_| BEST);
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
    let tunable =
        |strategy: Strategy| Tunable::new(&strategy.to_string(), move |inputs: Inputs<R>| launch(&strategy, inputs));
    let naive = Tunable::new("matmul_naive", |inputs: Inputs<R>| launch(&Strategy::Naive, inputs));
    let mut set = TunableSet::new(key, inputs).with(naive.group(&unit, |key: &MatmulAutotuneKey| {
        if matches!(key.analysis.scale_global, MatmulGlobalScale::Small) { GOOD } else { LAST }
    }));
    for strategy in [
        Strategy::SimpleVecMat(BlueprintStrategy::Inferred(().into())),
        Strategy::GemvPlaneParallel(BlueprintStrategy::Inferred(Default::default())),
        Strategy::GemvUnitPerpendicular(BlueprintStrategy::Inferred(Default::default())),
    ] {
        set = set.with(tunable(strategy).group(&gemv, |_| BEST));
    }
    for (tile_size, large) in [(TileSizeSelection::MaxTileSize, true), (TileSizeSelection::MinTileSize, false)] {
        if large && !kernels.large_tiles {
            continue;
        }
        let simple = Strategy::SimpleUnit(BlueprintStrategy::Inferred(SimpleUnitSelectionArgs { tile_size }));
        set = set.with(tunable(simple).group(&unit, |_| BEST));
        if kernels.double_buffered {
            let double = Strategy::DoubleUnit(BlueprintStrategy::Inferred(DoubleUnitSelectionArgs { tile_size }));
            set = set.with(
                tunable(double).group(&unit, |key| if should_tune_double_buffering(false, key) { BEST } else { GOOD }),
            );
        }
    }
    if kernels.tensor_cores {
        for multi_rows in [false, true] {
            let simple = |tile_matmul| BlueprintStrategy::Inferred(SimpleArgs { multi_rows, tile_matmul });
            for strategy in [
                Strategy::SimpleCyclicCmma(simple(TileMatmulKind::Cmma)),
                Strategy::SimpleCyclicMma(simple(TileMatmulKind::Mma)),
            ] {
                set = set.with(tunable(strategy).group(&accelerated, |_| BEST));
            }
        }
    }
    set
}

fn multiply<R: CubeRuntime>(lhs: CubeTensor<R>, rhs: CubeTensor<R>, shape: Shape, kernels: Kernels) -> CubeTensor<R> {
    // A tuner's key covers products of similar size, so each set of kernels has its own tuner.
    static OF_F32: LocalTuner<MatmulAutotuneKey, CubeTuneId> = local_tuner!("f32");
    static OF_F32_SINGLE: LocalTuner<MatmulAutotuneKey, CubeTuneId> = local_tuner!("f32_single_buffered");
    static SINGLE: LocalTuner<MatmulAutotuneKey, CubeTuneId> = local_tuner!("single_buffered");
    static SMALL: LocalTuner<MatmulAutotuneKey, CubeTuneId> = local_tuner!("small_tiles");
    let out = empty(&lhs, shape, lhs.dtype);
    #[cfg(feature = "cuda")]
    if let Some(cublas) = super::cublas::on_device::<R>(&lhs.device, lhs.dtype)
        && super::cublas::multiply(&cublas, &lhs, &rhs, &out, kernels.tensor_cores)
    {
        return out;
    }
    let client = lhs.client.clone();
    let id = CubeTuneId::new(&client, &lhs.device);
    let tuner = match kernels {
        Kernels { large_tiles: false, .. } => &SMALL,
        Kernels { tensor_cores: true, .. } => &SINGLE,
        Kernels { double_buffered: false, .. } => &OF_F32_SINGLE,
        Kernels { double_buffered: true, .. } => &OF_F32,
    };
    let candidates = tuner.init(move || candidates::<R>(kernels));
    tuner.execute(&id, &client, candidates, (lhs, rhs, out.clone()));
    out
}

/// Returns the product of `[.., m, k]` and `[.., k, n]`, of the same rank and dtype. A batch axis may be 1 in one operand.
/// No size may be zero.
pub(super) fn matmul<R: CubeRuntime>(lhs: FusedTensor<R>, rhs: FusedTensor<R>) -> FusedTensor<R> {
    let (mut shape, other) = (lhs.shape(), rhs.shape());
    let d = shape.num_dims();
    for axis in 0..d - 2 {
        shape[axis] = shape[axis].max(other[axis]);
    }
    let sizes = [shape[d - 2], shape[d - 1], other[d - 1]];
    shape[d - 1] = other[d - 1];
    let large_tiles = !lacks_shared_memory(&lhs);
    let double_buffered = large_tiles && !overruns(&lhs, sizes);
    let kernels = Kernels { tensor_cores: !must_stay_f32(&lhs), double_buffered, large_tiles };
    let output = (shape.clone(), lhs.dtype);
    register_one("grove_matmul", [lhs, rhs], output, move |[lhs, rhs]| multiply(lhs, rhs, shape.clone(), kernels))
}

#[cfg(all(test, feature = "cuda_tests"))]
mod tests {
    use super::*;
    use burn::tensor::{bf16, f16};
    use cubecl::{Runtime, bytes::Bytes, cuda::CudaRuntime as R};
    use cubek::matmul::routines::double_buffering::DoubleBufferingArgs;

    /// Kernels that may be chosen for a product, including those of tensor cores if the device has them.
    fn kernels([m, k, n]: [usize; 3], dtype: DType) -> Vec<Strategy> {
        let facts = facts::<R>(&Default::default());
        let all_fit = dtype == DType::F32 || facts.shared_memory >= 64 << 10;
        let double_buffered = all_fit && !has_odd_stages(facts.plane, [m, k, n]);
        let mut all = vec![
            Strategy::Naive,
            Strategy::SimpleVecMat(BlueprintStrategy::Inferred(().into())),
            Strategy::GemvPlaneParallel(BlueprintStrategy::Inferred(Default::default())),
            Strategy::GemvUnitPerpendicular(BlueprintStrategy::Inferred(Default::default())),
        ];
        for (tile_size, large) in [(TileSizeSelection::MaxTileSize, true), (TileSizeSelection::MinTileSize, false)] {
            if all_fit || !large {
                all.push(Strategy::SimpleUnit(BlueprintStrategy::Inferred(SimpleUnitSelectionArgs { tile_size })));
            }
            if double_buffered {
                all.push(Strategy::DoubleUnit(BlueprintStrategy::Inferred(DoubleUnitSelectionArgs { tile_size })));
            }
        }
        for multi_rows in [false, true] {
            let simple = |tile_matmul| BlueprintStrategy::Inferred(SimpleArgs { multi_rows, tile_matmul });
            all.push(Strategy::SimpleCyclicCmma(simple(TileMatmulKind::Cmma)));
            all.push(Strategy::SimpleCyclicMma(simple(TileMatmulKind::Mma)));
        }
        if double_buffered {
            let double =
                |tile_matmul| BlueprintStrategy::Inferred(DoubleBufferingArgs { specialized: false, tile_matmul });
            all.push(Strategy::DoubleCyclicCmma(double(TileMatmulKind::Cmma)));
            all.push(Strategy::DoubleCyclicMma(double(TileMatmulKind::Mma)));
            if m == 1 || n == 1 {
                all.push(Strategy::DoubleVecMat(BlueprintStrategy::Inferred(().into())));
            }
        }
        all
    }

    /// Small integers, whose sums of products are exact in f32 and f16.
    fn integers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7919 + seed * 104_729) % 31 % 5) as f32 - 2.0).collect()
    }

    fn tensor(values: &[f32], shape: [usize; 3], dtype: DType) -> CubeTensor<R> {
        let device = Default::default();
        let bytes: Vec<u8> = match dtype {
            DType::F16 => values.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
            DType::BF16 => values.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect(),
            _ => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        };
        let client = R::client(&device);
        let handle = client.create(Bytes::from_bytes_vec(bytes));
        CubeTensor::new_contiguous(client, device, Shape::from(shape), handle, dtype)
    }

    fn values(x: &CubeTensor<R>) -> Vec<f32> {
        let bytes = x.client.read_one(x.handle.clone()).expect("no launch is refused");
        match x.dtype {
            DType::F16 => bytes.chunks_exact(2).map(|x| f16::from_le_bytes([x[0], x[1]]).to_f32()).collect(),
            DType::BF16 => bytes.chunks_exact(2).map(|x| bf16::from_le_bytes([x[0], x[1]]).to_f32()).collect(),
            _ => bytes.chunks_exact(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]])).collect(),
        }
    }

    /// An operand `[batch, rows, columns]`, stored as its transpose if `transposed`.
    fn factor(values: &[f32], [batch, rows, columns]: [usize; 3], transposed: bool, dtype: DType) -> CubeTensor<R> {
        if !transposed {
            return tensor(values, [batch, rows, columns], dtype);
        }
        let mut turned = vec![0.0; values.len()];
        for (i, value) in values.iter().enumerate() {
            let (matrix, row, column) = (i / (rows * columns), i / columns % rows, i % columns);
            turned[(matrix * columns + column) * rows + row] = *value;
        }
        let mut x = tensor(&turned, [batch, columns, rows], dtype);
        x.meta.swap(1, 2);
        x
    }

    /// Autotuning chooses kernels by time, so a wrong kernel would give wrong results only on some machines, at some times.
    #[test]
    fn every_kernel_that_may_be_chosen_is_right_cuda() {
        let (mut ran, mut wrong) = (0, vec![]);
        let sizes = [
            [1, 611, 40, 40],
            [2, 30, 611, 16],
            [3, 1, 40, 70],
            [1, 70, 40, 1],
            [2, 64, 64, 64],
            [2, 33, 96, 17],
            [1, 5, 300, 7],
            [1, 6, 40, 160],
            [4, 1, 300, 32],
            [2, 1, 768, 33],
            [2, 9, 768, 33],
            [2, 9, 288, 33],
            [2, 9, 1, 12],
        ];
        for (dtype, [batch, m, k, n]) in
            [DType::F32, DType::F16, DType::BF16].into_iter().flat_map(|dtype| sizes.map(|sizes| (dtype, sizes)))
        {
            let (a, b) = (integers(batch * m * k, 1), integers(batch * k * n, 2));
            let expected: Vec<f32> = (0..batch * m * n)
                .map(|i| {
                    let (matrix, row, column) = (i / (m * n), i / n % m, i % n);
                    let sum = (0..k).map(|l| a[(matrix * m + row) * k + l] * b[(matrix * k + l) * n + column]).sum();
                    if dtype == DType::BF16 { bf16::from_f32(sum).to_f32() } else { sum }
                })
                .collect();
            for (transposed, kernel) in [(false, false), (false, true), (true, false), (true, true)]
                .into_iter()
                .flat_map(|transposed| kernels([m, k, n], dtype).into_iter().map(move |kernel| (transposed, kernel)))
            {
                let lhs = factor(&a, [batch, m, k], transposed.0, dtype);
                let rhs = factor(&b, [batch, k, n], transposed.1, dtype);
                // NaN marks elements that a kernel does not write.
                let out = tensor(&vec![f32::NAN; expected.len()], [batch, m, n], dtype);
                // Some kernels support vectors only, and some need tensor cores.
                let launched = launch(&kernel, (lhs, rhs, out.clone()));
                if launched.is_ok() {
                    ran += 1;
                    if values(&out) != expected {
                        let case =
                            format!("{kernel}, {dtype:?}, {batch}x[{m}, {k}]x[{k}, {n}], transposed {transposed:?}");
                        println!("{case}");
                        wrong.push(case);
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{} of {ran} wrong: {}", wrong.len(), wrong[0]);
        assert!(ran > 300, "{ran} ran");
    }
}
