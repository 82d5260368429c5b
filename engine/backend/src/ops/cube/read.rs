//! Reads that are queued on the device before they are awaited.

use burn::tensor::{TensorData, backend::ExecutionError};
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::{
    future::{DynFut, block_on},
    server::CopyDescriptor,
};
use std::{
    future::poll_fn,
    task::{Context, Poll, Waker},
};

use super::register::{FusedTensor, Inner};
use crate::PendingRead;

/// See [`Backend::start_read`](crate::Backend::start_read).
pub(super) fn start_read<R: CubeRuntime>(x: FusedTensor<R>) -> PendingRead {
    let client = x.client.clone();
    let read = queue_read(into_contiguous(client.resolve_tensor_float::<Inner<R>>(x)));
    PendingRead::new(move || block_on(read))
}

/// Queues the copy of a contiguous tensor to the host immediately, before any later operation. The returned future waits
/// for the copy.
///
/// Burn's own read is not suitable: its future does nothing until it is polled, and on CUDA the poll that queues the copy
/// also waits for it. This future queues the copy at the first poll, and waits at the second.
pub(super) fn queue_read<R: CubeRuntime>(x: CubeTensor<R>) -> DynFut<Result<TensorData, ExecutionError>> {
    let (count, dtype) = (x.meta.shape().num_elements(), x.dtype);
    // The future owns the client that the copy borrows.
    let mut read = Box::pin(async move {
        let descriptor = CopyDescriptor::new(x.handle.binding(), [count].into(), [1].into(), dtype.size());
        let bytes = x.client.read_one_tensor_async(descriptor);
        let mut queued = false;
        poll_fn(|_| if std::mem::replace(&mut queued, true) { Poll::Ready(()) } else { Poll::Pending }).await;
        match bytes.await {
            Ok(bytes) => Ok(TensorData::from_bytes(bytes, [count], dtype)),
            Err(error) => Err(ExecutionError::WithContext { reason: error.to_string() }),
        }
    });
    // Always pending: the future yields once it has queued the copy.
    let _ = read.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    read
}
