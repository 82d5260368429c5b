//! Sampling of tokens from logits, `[rows, classes]`. Each row is divided into parts. A cube finds the best token of a
//! part, and another cube the best of the parts. With top-k, top-p or min-p, a cube first computes thresholds.

mod best;
mod thresholds;

use burn::tensor::{DType, TensorData, TensorMetadata, backend::ExecutionError};
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::{
    bytes::Bytes,
    future::{DynFut, block_on},
    prelude::*,
};
use std::{
    iter::once,
    sync::{Arc, Mutex, PoisonError},
};

use self::{
    best::{PARTS, UNITS, best_of_parts_kernel, best_of_rows_kernel},
    thresholds::{processing, thresholds},
};
use super::{
    Fusing,
    read::queue_read,
    register::{FusedTensor, register_list},
    tensor::{addresses, array, cubes, empty, owned},
};
use crate::ops::{PendingRead, PendingTokens, SampleOptions, SampledPrimitives};

/// Minimum number of tokens per part.
const PART: usize = 2048;

/// Returns the sampled tokens for the device and for the host, and the tokens that have occurred, if tracked.
fn launch<R: CubeRuntime>(
    logits: CubeTensor<R>,
    occurred: Option<CubeTensor<R>>,
    options: &SampleOptions,
) -> (CubeTensor<R>, CubeTensor<R>, Option<CubeTensor<R>>) {
    let logits = into_contiguous(logits);
    // A shared tensor is copied before it is written.
    let occurred = occurred.map(owned);
    let (rows, classes) = (logits.meta.shape()[0], logits.meta.shape()[1]);
    // Another array serves as placeholder for a missing one, and is not read.
    let flags = occurred.as_ref().unwrap_or(&logits);
    let thresholds = thresholds(&logits, flags, options);
    let part = classes.div_ceil(PARTS).max(PART);
    let parts = classes.div_ceil(part);
    let best = empty(&logits, [rows, parts], DType::F32);
    let tokens = empty(&logits, [rows, parts, 2], DType::U32);
    let [drawn, read] = [(); 2].map(|()| empty(&logits, [rows], DType::I32));
    let unused = empty(&logits, [1, 1], DType::I32);
    let limits = thresholds.as_ref().unwrap_or(&unused);
    let written = occurred.as_ref().unwrap_or(&unused);
    let random = options.temperature > 0.0;
    let keys = random.then(|| upload(&logits, &options.keys));
    let keys = keys.as_ref().unwrap_or(&unused);
    // SAFETY: logits and occurred tokens have `rows` rows of `classes` elements. Each part of a row has its elements in
    // `best` and `tokens`, and each row in `drawn` and `read`. A written token is below `classes`. If they are read, there
    // are 2 words of a key for each row, which `sample` checks.
    unsafe {
        best_of_parts_kernel::launch_unchecked(
            &logits.client,
            cubes(&logits.client, rows * parts),
            CubeDim::new_1d(UNITS as u32),
            addresses(&[&logits]),
            array(&logits),
            array(flags),
            array(limits),
            array(keys),
            array(&best),
            array(&tokens),
            processing(options),
            rows,
            classes,
            part,
            parts,
            thresholds.is_some(),
            random,
            [logits.dtype.into(), flags.dtype.into()],
        );
        best_of_rows_kernel::launch_unchecked(
            &logits.client,
            cubes(&logits.client, rows),
            CubeDim::new_1d(PARTS as u32),
            addresses(&[&logits]),
            array(&best),
            array(&tokens),
            array(&drawn),
            array(&read),
            array(written),
            rows,
            classes,
            parts,
            occurred.is_some(),
            written.dtype.into(),
        );
    }
    (drawn, read, occurred)
}

/// Copies the keys of the rows to the device, `[rows, 2]`.
fn upload<R: CubeRuntime>(like: &CubeTensor<R>, keys: &[[u32; 2]]) -> CubeTensor<R> {
    let bytes = keys.iter().flatten().flat_map(|word| word.to_ne_bytes()).collect();
    let handle = like.client.create(Bytes::from_bytes_vec(bytes));
    CubeTensor::new_contiguous(like.client.clone(), like.device.clone(), [keys.len(), 2].into(), handle, DType::U32)
}

/// Slot in which an operation stores the queued copy of its result once the operation has been executed.
type Slot = Arc<Mutex<Option<DynFut<Result<TensorData, ExecutionError>>>>>;

fn begin_read<R: CubeRuntime>(x: CubeTensor<R>, slot: &Slot) {
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(queue_read(x));
}

/// See [`Backend::sample`](crate::Backend::sample).
pub(super) fn sample<R: CubeRuntime, B: Fusing<R>>(
    logits: FusedTensor<R>,
    occurred: Option<FusedTensor<R>>,
    options: SampleOptions,
) -> SampledPrimitives<B> {
    let penalised = options.repetition_penalty != 1.0;
    assert!(!penalised || occurred.is_some(), "a repetition penalty needs the tokens that have occurred");
    let rows = logits.shape()[0];
    let keys = options.keys.len();
    assert!(options.temperature == 0.0 || keys >= rows, "{rows} rows need as many random keys; there are {keys}");
    let client = logits.client.clone();
    let slot = Slot::default();
    let filled = slot.clone();
    // The tokens that have occurred are the second input and output, if they are needed.
    let occurred = occurred.filter(|_| penalised);
    let updated = occurred.as_ref().map(|occurred| (occurred.shape(), occurred.dtype()));
    let outputs = once(([rows].into(), DType::I32)).chain(updated).collect();
    let inputs = once(logits).chain(occurred).collect();
    let results = register_list("grove_sample", inputs, outputs, move |inputs| {
        let mut inputs = inputs.into_iter();
        let logits = inputs.next().expect("the logits come first");
        let (drawn, read, occurred) = launch(logits, inputs.next(), &options);
        begin_read(read, &filled);
        once(drawn).chain(occurred).collect()
    });
    let mut results = results.into_iter();
    let (drawn, occurred) = (results.next().expect("the tokens come first"), results.next());
    let take = |slot: &Slot| slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    let pending = PendingRead::new(move || {
        // If the operation has not been executed yet, this executes all queued operations.
        let copy = take(&slot).or_else(|| {
            client.sync(|| ());
            take(&slot)
        });
        block_on(copy.expect("the operation was carried out"))
    });
    (drawn, occurred, PendingTokens(pending))
}
