//! Matrix products with cuBLAS, if it is available.

use burn::tensor::DType;
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::{
    CompilationError, CubeTask, ExecutionMode, Runtime,
    backtrace::BackTrace,
    cuda::CudaRuntime,
    device::Device,
    device_handle::DeviceHandle,
    ir::{ElemType, StorageType, UIntKind},
    prelude::{CompiledKernel, CubeCount, KernelId, KernelMetadata},
    server::{ComputeServer, Handle, KernelArguments},
    stream_id::StreamId,
};
use std::{
    any::Any,
    ffi::c_int,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::tensor::joined;
use crate::device::cublas::{self, Cublas, Matrices, Product};

type Server = <CudaRuntime as Runtime>::Server;
type Compiler = <CudaRuntime as Runtime>::Compiler;

/// Maximum number of cuBLAS calls for one product whose batch axes cannot be joined, such as that of attention heads.
const MAX_CALLS: usize = 16;

static LEFT_OUT: AtomicBool = AtomicBool::new(false);

/// Disables cuBLAS from now on, for tests of other kernels.
pub(super) fn leave_out() {
    LEFT_OUT.store(true, Ordering::Relaxed);
}

/// Returns cuBLAS for a device of a runtime, if it supports an element type there.
pub(super) fn on_device<R: CubeRuntime>(device: &R::Device, dtype: DType) -> Option<Arc<Cublas>> {
    let is_cuda = (device as &dyn Any).is::<<CudaRuntime as Runtime>::Device>();
    if !is_cuda || LEFT_OUT.load(Ordering::Relaxed) {
        return None;
    }
    cublas::on_device(device.to_id().index_id as usize, dtype)
}

/// Multiplies `[.., m, k]` and `[.., k, n]` into a contiguous `[.., m, n]`. A batch axis may be 1 in one operand. f32
/// operands may be rounded to TF32 if `may_round`. Returns false, without computing anything, if a size exceeds cuBLAS's
/// integers.
pub(super) fn multiply<R: CubeRuntime>(
    cublas: &Arc<Cublas>,
    lhs: &CubeTensor<R>,
    rhs: &CubeTensor<R>,
    out: &CubeTensor<R>,
    may_round: bool,
) -> bool {
    let batch = &out.meta.shape()[..out.meta.shape().len() - 2];
    let d = batch.len();
    let in_place =
        |outer| [lhs, rhs].iter().all(|x| matrices(x.meta.shape(), x.meta.strides(), batch, outer).is_some());
    let outer = usize::from(!in_place(0) && d > 1 && batch[0] <= MAX_CALLS);
    let (Some((lhs, of_lhs)), Some((rhs, of_rhs))) = (factor(lhs, batch, outer), factor(rhs, batch, outer)) else {
        return false;
    };
    let (m, k, n) = (out.meta.shape()[d], lhs.meta.shape()[d + 1], out.meta.shape()[d + 1]);
    let (calls, count) = (batch[..outer].iter().product(), batch[outer..].iter().product());
    let Some([m, k, n, count]) = small([m, k, n, count]) else { return false };
    let batch_stride = i64::from(m) * i64::from(n);
    let call_stride = batch_stride * i64::from(count);
    let of_out = Matrices { address: 0, by_columns: false, stride: n, batch_stride, call_stride };
    let product = Product { m, k, n, count, calls, dtype: out.dtype, may_round, lhs: of_lhs, rhs: of_rhs, out: of_out };
    let handles = [lhs.handle, rhs.handle, out.handle.clone()];
    let cublas = cublas.clone();
    DeviceHandle::<Server>::new(out.device.to_id()).submit(move |server| {
        if let Err(reason) = start(server, &cublas, product, handles) {
            // The server reports the error at the next read, as for a kernel that fails to launch.
            let kernel = Box::new(Failed { reason });
            let (count, arguments) = (CubeCount::new_single(), KernelArguments::new());
            // SAFETY: the kernel fails to compile, so nothing is read or written.
            unsafe { server.launch(kernel, count, arguments, ExecutionMode::Unchecked, StreamId::current()) }
        }
    });
    true
}

/// Converts sizes to cuBLAS's integers.
fn small<const N: usize>(sizes: [usize; N]) -> Option<[c_int; N]> {
    let mut converted = [0; N];
    for (converted, size) in converted.iter_mut().zip(sizes) {
        *converted = c_int::try_from(size).ok()?;
    }
    Some(converted)
}

/// Returns the layout of an operand, without its address, and the tensor that holds it: a copy if cuBLAS cannot read the
/// operand in place. `None` if a size exceeds cuBLAS's integers.
fn factor<R: CubeRuntime>(x: &CubeTensor<R>, batch: &[usize], outer: usize) -> Option<(CubeTensor<R>, Matrices)> {
    let in_place = matrices(x.meta.shape(), x.meta.strides(), batch, outer);
    if let Some(found) = in_place {
        return Some((x.clone(), found));
    }
    let x = into_contiguous(x.clone());
    let found = matrices(x.meta.shape(), x.meta.strides(), batch, outer)?;
    Some((x, found))
}

/// Returns the layout of matrices `[.., rows, columns]`, broadcast along axes of `batch`, with one call per element of the
/// first `outer` axes (0 or 1). `None` if cuBLAS does not support the layout.
fn matrices(shape: &[usize], strides: &[usize], batch: &[usize], outer: usize) -> Option<Matrices> {
    let d = batch.len();
    let repeated: Vec<usize> = (0..d).map(|axis| if shape[axis] == 1 { 0 } else { strides[axis] }).collect();
    let (_, batch_stride) = joined(&batch[outer..], &repeated[outer..])?;
    let call_stride: usize = repeated[..outer].iter().sum();
    // The stride of an axis of size 1 is arbitrary.
    let stride = |axis: usize, least: usize| if shape[axis] == 1 { least } else { strides[axis] };
    let (rows, columns) = (shape[d], shape[d + 1]);
    let by_rows = stride(d + 1, 1) == 1 && stride(d, columns) >= columns;
    let by_columns = stride(d, 1) == 1 && stride(d + 1, rows) >= rows;
    let stride = match (by_rows, by_columns) {
        (true, _) => stride(d, columns),
        (false, true) => stride(d + 1, rows),
        (false, false) => return None,
    };
    Some(Matrices {
        address: 0,
        by_columns: !by_rows,
        stride: c_int::try_from(stride).ok()?,
        batch_stride: i64::try_from(batch_stride).ok()?,
        call_stride: i64::try_from(call_stride).ok()?,
    })
}

/// Starts a product on the thread of the device's server, which preserves the order of all work.
fn start(server: &mut Server, cublas: &Cublas, mut product: Product, handles: [Handle; 3]) -> Result<(), String> {
    let stream = StreamId::current();
    let mut held = Vec::new();
    for (handle, matrices) in handles.into_iter().zip([&mut product.lhs, &mut product.rhs, &mut product.out]) {
        let memory = server.get_resource(handle.binding(), stream).map_err(|error| format!("{error:?}"))?;
        matrices.address = memory.resource().ptr;
        held.push(memory);
    }
    // SAFETY: the addresses and layouts are those of the tensors. Their memory may be reused only by later work, which runs
    // after the product.
    unsafe { cublas.multiply(&product) }
}

/// Placeholder for a failed product: a kernel whose compilation fails with the reason.
struct Failed {
    reason: String,
}

impl KernelMetadata for Failed {
    fn id(&self) -> KernelId {
        KernelId::new::<Self>()
    }

    fn address_type(&self) -> StorageType {
        StorageType::Scalar(ElemType::UInt(UIntKind::U32))
    }
}

impl CubeTask<Compiler> for Failed {
    fn compile(
        &self,
        _: &mut Compiler,
        _: &<Compiler as cubecl::Compiler>::CompilationOptions,
        _: ExecutionMode,
        _: StorageType,
    ) -> Result<CompiledKernel<Compiler>, CompilationError> {
        Err(CompilationError::Generic { reason: self.reason.clone(), backtrace: BackTrace::capture() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(by_columns: bool, stride: c_int, batch_stride: i64) -> Option<Matrices> {
        Some(Matrices { address: 0, by_columns, stride, batch_stride, call_stride: 0 })
    }

    fn in_one_call(shape: &[usize], strides: &[usize], batch: &[usize]) -> Option<Matrices> {
        matrices(shape, strides, batch, 0)
    }

    #[test]
    fn layouts_that_cublas_reads_in_place() {
        assert_eq!(in_one_call(&[5, 7], &[7, 1], &[]), layout(false, 7, 0));
        assert_eq!(in_one_call(&[5, 7], &[128, 1], &[]), layout(false, 128, 0), "padded rows");
        assert_eq!(in_one_call(&[5, 7], &[1, 5], &[]), layout(true, 5, 0), "a transposed matrix");
        assert_eq!(in_one_call(&[2, 3, 5, 7], &[105, 35, 7, 1], &[2, 3]), layout(false, 7, 35));
        assert_eq!(in_one_call(&[1, 1, 5, 7], &[35, 35, 7, 1], &[2, 3]), layout(false, 7, 0), "one matrix for all");
        assert_eq!(in_one_call(&[4, 1, 7], &[7, 3, 1], &[4]), layout(false, 7, 7), "a single row");
        assert_eq!(in_one_call(&[4, 5, 1], &[5, 1, 9], &[4]), layout(false, 1, 5), "a single column");
        let heads = matrices(&[2, 3, 5, 7], &[105, 7, 21, 1], &[2, 3], 1);
        assert_eq!(heads, layout(false, 21, 7).map(|x| Matrices { call_stride: 105, ..x }), "heads between the rows");
    }

    #[test]
    fn other_layouts_are_copied() {
        assert_eq!(in_one_call(&[5, 7], &[14, 2], &[]), None, "every second element");
        assert_eq!(in_one_call(&[5, 7], &[0, 1], &[]), None, "a row that is repeated");
        assert_eq!(in_one_call(&[2, 3, 5, 7], &[105, 7, 21, 1], &[2, 3]), None, "heads between the rows");
        assert_eq!(in_one_call(&[2, 1, 5, 7], &[35, 35, 7, 1], &[2, 3]), None, "repeated along one axis of two");
    }
}
