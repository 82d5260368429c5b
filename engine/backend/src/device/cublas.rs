//! Bindings of cuBLAS, NVIDIA's matrix-product library, and of the required driver functions. Both libraries are loaded at
//! run time.
//!
//! cuBLAS runs on its own stream. CubeCL's streams are not accessible here, so a product waits for all earlier work of the
//! device's context, and all later work waits for the product. No host thread blocks.

use burn::tensor::DType;
use std::{
    collections::HashMap,
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    path::Path,
    ptr,
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError},
};

use super::{
    cuda::{driver_version, library_paths},
    driver::{NON_BLOCKING, SharedLibrary, WITHOUT_TIME, functions, load_any, of_driver},
};

/// Environment variable that disables cuBLAS if it is 0.
const VARIABLE: &str = "GROVE_CUBLAS";

functions! {
    /// Driver functions, CUDA 12.5 or later.
    Driver {
        init = b"cuInit\0" (c_uint),
        device = b"cuDeviceGet\0" (*mut c_int, c_int),
        retain_context = b"cuDevicePrimaryCtxRetain\0" (*mut *mut c_void, c_int),
        set_context = b"cuCtxSetCurrent\0" (*mut c_void),
        get_context = b"cuCtxGetCurrent\0" (*mut *mut c_void),
        new_stream = b"cuStreamCreate\0" (*mut *mut c_void, c_uint),
        new_event = b"cuEventCreate\0" (*mut *mut c_void, c_uint),
        record = b"cuEventRecord\0" (*mut c_void, *mut c_void),
        wait = b"cuStreamWaitEvent\0" (*mut c_void, *mut c_void, c_uint),
        record_context = b"cuCtxRecordEvent\0" (*mut c_void, *mut c_void),
        wait_context = b"cuCtxWaitEvent\0" (*mut c_void, *mut c_void),
        synchronize = b"cuStreamSynchronize\0" (*mut c_void),
        allocate = b"cuMemAlloc_v2\0" (*mut u64, usize),
        free = b"cuMemFree_v2\0" (u64),
    }
}

functions! {
    /// cuBLAS functions, version 12.0 or later.
    Functions {
        create = b"cublasCreate_v2\0" (*mut *mut c_void),
        set_stream = b"cublasSetStream_v2\0" (*mut c_void, *mut c_void),
        set_math_mode = b"cublasSetMathMode\0" (*mut c_void, c_int),
        multiply = b"cublasGemmStridedBatchedEx\0" (
            *mut c_void,
            c_int,
            c_int,
            c_int,
            c_int,
            c_int,
            *const c_void,
            *const c_void,
            c_int,
            c_int,
            i64,
            *const c_void,
            c_int,
            c_int,
            i64,
            *const c_void,
            *mut c_void,
            c_int,
            c_int,
            i64,
            c_int,
            c_int,
            c_int
        ),
    }
}

/// Accumulate 16-bit products in f32, including the reduction of partial sums.
const DISALLOW_REDUCED_PRECISION_REDUCTION: c_int = 16;

const COMPUTE_F32: c_int = 68;
const COMPUTE_F32_BY_TF32: c_int = 77;

/// cuBLAS chooses the algorithm.
const DEFAULT_ALGORITHM: c_int = -1;

struct Libraries {
    driver: Driver,
    functions: Functions,
    library: SharedLibrary,
}

/// Returns the libraries, or the reason why cuBLAS is not used. The first result is kept.
fn libraries() -> Result<&'static Libraries, String> {
    static LIBRARIES: OnceLock<Result<Libraries, String>> = OnceLock::new();
    LIBRARIES.get_or_init(load).as_ref().map_err(Clone::clone)
}

/// Returns the reason why matrix products on CUDA do not use cuBLAS; `None` if they do.
pub fn without_cublas() -> Option<String> {
    libraries().err()
}

fn load() -> Result<Libraries, String> {
    if std::env::var(VARIABLE).is_ok_and(|value| value.trim() == "0") {
        return Err(format!("{VARIABLE} is 0"));
    }
    let driver = load_any(&["libcuda.so.1", "libcuda.so"]).ok_or("libcuda.so.1 was not found")?;
    let version = driver_version(&driver).map_err(|missing| missing.lacks("libcuda.so.1"))?;
    let driver = Driver::of(&driver).map_err(|missing| missing.lacks("libcuda.so.1"))?;
    let majors = [13, 12].into_iter().filter(|&major| major <= version.major);
    let library = majors
        .into_iter()
        .find_map(|major| {
            let name = format!("libcublas.so.{major}");
            SharedLibrary::load(&name)
                .or_else(|| library_paths(&["cu13", "cublas"], &name).iter().find_map(|path| load_by_path(path, major)))
        })
        .ok_or(
            "cuBLAS (libcublas.so) was not found: `pip install nvidia-cublas-cu12` (or nvidia-cublas) in an active \
             virtual environment",
        )?;
    let functions = Functions::of(&library).map_err(|missing| missing.lacks("libcublas.so"))?;
    Ok(Libraries { driver, functions, library })
}

/// Loads cuBLAS by its path, after cuBLASLt, which it looks up by name.
fn load_by_path(path: &Path, major: c_int) -> Option<SharedLibrary> {
    if !path.is_file() {
        return None;
    }
    // If this fails, cuBLAS may still find another copy.
    let _ = SharedLibrary::load(path.with_file_name(format!("libcublasLt.so.{major}")));
    SharedLibrary::load(path)
}

impl Libraries {
    /// Converts a cuBLAS status to a result with cuBLAS's description.
    fn check(&self, function: &str, status: c_int) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the signature is the documented one, and cuBLAS returns a static string.
        let text = unsafe {
            let describe = self.library.get::<unsafe extern "C" fn(c_int) -> *const c_char>(b"cublasGetStatusString\0");
            let text = describe.map_or(ptr::null(), |describe| describe(status));
            if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy() }
        };
        Err(format!("{function} of cuBLAS fails (status {status}: {text})"))
    }
}

/// Operand or result of a batched product: matrices of equal size at constant strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matrices {
    /// Address of the first matrix.
    pub address: u64,
    /// True for column-major, false for row-major.
    pub by_columns: bool,
    /// Leading dimension: elements from one row (or column) to the next.
    pub stride: c_int,
    /// Elements from one matrix to the next; 0 broadcasts the first.
    pub batch_stride: i64,
    /// Elements from the first matrix of one call to that of the next call.
    pub call_stride: i64,
}

/// Batched products `[m, k]` by `[k, n]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub m: c_int,
    pub k: c_int,
    pub n: c_int,
    /// Batch size of one call.
    pub count: c_int,
    pub calls: usize,
    /// Element type of operands and result. Sums are in f32.
    pub dtype: DType,
    /// True if f32 operands may be rounded to TF32.
    pub may_round: bool,
    pub lhs: Matrices,
    pub rhs: Matrices,
    /// Result, row-major.
    pub out: Matrices,
}

/// cuBLAS on one device. It lives until the process ends.
pub(crate) struct Cublas {
    found: &'static Libraries,
    context: *mut c_void,
    stream: *mut c_void,
    before: *mut c_void,
    after: *mut c_void,
    handle: *mut c_void,
    /// A handle must not be used by two threads at once.
    lock: Mutex<()>,
    /// Element types that were tried, and whether the device supports them.
    tried: Mutex<HashMap<DType, bool>>,
}

// SAFETY: the pointers never change and may be used from any thread. Calls with the handle and events hold `lock`.
unsafe impl Send for Cublas {}
// SAFETY: as for `Send`.
unsafe impl Sync for Cublas {}

/// Returns cuBLAS for a device, if it supports an element type there.
pub(crate) fn on_device(index: usize, dtype: DType) -> Option<Arc<Cublas>> {
    static DEVICES: LazyLock<Mutex<HashMap<usize, Option<Arc<Cublas>>>>> = LazyLock::new(Mutex::default);
    number_of(dtype)?;
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let cublas = devices.entry(index).or_insert_with(|| {
        let started = Cublas::start(index).map(Arc::new);
        started.inspect_err(|reason| log::info!("matrix products run without cuBLAS: {reason}")).ok()
    });
    let cublas = cublas.clone()?;
    drop(devices);
    cublas.takes(dtype).then_some(cublas)
}

impl Cublas {
    fn start(index: usize) -> Result<Self, String> {
        let found = libraries()?;
        let (driver, null) = (&found.driver, ptr::null_mut());
        let mut device = 0;
        let (mut context, mut stream, mut before, mut after, mut handle) = (null, null, null, null, null);
        // SAFETY: the out-pointers refer to live variables, and the handles come from earlier calls.
        unsafe {
            of_driver("cuInit", (driver.init)(0))?;
            of_driver("cuDeviceGet", (driver.device)(&raw mut device, index as c_int))?;
            of_driver("cuDevicePrimaryCtxRetain", (driver.retain_context)(&raw mut context, device))?;
            let _current = Current::set(driver, context)?;
            of_driver("cuStreamCreate", (driver.new_stream)(&raw mut stream, NON_BLOCKING))?;
            of_driver("cuEventCreate", (driver.new_event)(&raw mut before, WITHOUT_TIME))?;
            of_driver("cuEventCreate", (driver.new_event)(&raw mut after, WITHOUT_TIME))?;
            found.check("cublasCreate", (found.functions.create)(&raw mut handle))?;
            found.check("cublasSetStream", (found.functions.set_stream)(handle, stream))?;
            let mode = DISALLOW_REDUCED_PRECISION_REDUCTION;
            found.check("cublasSetMathMode", (found.functions.set_math_mode)(handle, mode))?;
        }
        Ok(Self { found, context, stream, before, after, handle, lock: Mutex::default(), tried: Mutex::default() })
    }

    /// Returns whether the device supports an element type, tried once on a small product: old devices reject some types.
    fn takes(&self, dtype: DType) -> bool {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        *tried.entry(dtype).or_insert_with(|| {
            let refused = |reason: &String| log::info!("products of {dtype:?} run without cuBLAS: {reason}");
            self.try_product(dtype).inspect_err(refused).is_ok()
        })
    }

    fn try_product(&self, dtype: DType) -> Result<(), String> {
        const SIZE: usize = 16;
        let driver = &self.found.driver;
        let mut address = 0;
        // SAFETY: the out-pointers refer to live variables, and the context comes from `start`.
        let _current = unsafe { Current::set(driver, self.context) }?;
        // SAFETY: `address` is a live variable, and the context is current.
        of_driver("cuMemAlloc", unsafe { (driver.allocate)(&raw mut address, 3 * SIZE * SIZE * dtype.size()) })?;
        let matrix = |i: usize| Matrices {
            address: address + (i * SIZE * SIZE * dtype.size()) as u64,
            by_columns: false,
            stride: SIZE as c_int,
            batch_stride: 0,
            call_stride: 0,
        };
        let size = SIZE as c_int;
        let sizes = Product {
            m: size,
            k: size,
            n: size,
            count: 1,
            calls: 1,
            dtype,
            may_round: false,
            lhs: matrix(0),
            rhs: matrix(1),
            out: matrix(2),
        };
        // SAFETY: the memory was allocated above for three matrices, and is freed after the product.
        unsafe {
            let multiplied = self.multiply(&sizes);
            let done = of_driver("cuStreamSynchronize", (driver.synchronize)(self.stream));
            let freed = of_driver("cuMemFree", (driver.free)(address));
            multiplied.and(done).and(freed)
        }
    }

    /// Enqueues products after all earlier work of the device and before all later work.
    ///
    /// # Safety
    /// The addresses must be those of matrices of these sizes in the device's memory.
    pub unsafe fn multiply(&self, product: &Product) -> Result<(), String> {
        let Product { m, k, n, count, calls, dtype, may_round, lhs, rhs, out } = *product;
        let Self { found, context, stream, before, after, handle, .. } = *self;
        let Libraries { driver, functions, .. } = found;
        let number = number_of(dtype).ok_or_else(|| format!("cuBLAS does not multiply {dtype:?}"))?;
        let compute = if may_round && dtype == DType::F32 { COMPUTE_F32_BY_TF32 } else { COMPUTE_F32 };
        let (one, zero) = (1f32, 0f32);
        let _held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the context, stream, events and handle come from `start`. The caller guarantees the addresses.
        unsafe {
            let _current = Current::set(driver, context)?;
            of_driver("cuCtxRecordEvent", (driver.record_context)(context, before))?;
            of_driver("cuStreamWaitEvent", (driver.wait)(stream, before, 0))?;
            for call in 0..calls as u64 {
                let at = |x: Matrices| x.address + call * (x.call_stride as u64) * dtype.size() as u64;
                // cuBLAS is column-major: the transposed product is computed, whose columns are the rows of the result.
                let status = (functions.multiply)(
                    handle,
                    c_int::from(rhs.by_columns),
                    c_int::from(lhs.by_columns),
                    n,
                    m,
                    k,
                    (&raw const one).cast(),
                    at(rhs) as *const c_void,
                    number,
                    rhs.stride,
                    rhs.batch_stride,
                    at(lhs) as *const c_void,
                    number,
                    lhs.stride,
                    lhs.batch_stride,
                    (&raw const zero).cast(),
                    at(out) as *mut c_void,
                    number,
                    out.stride,
                    out.batch_stride,
                    count,
                    compute,
                    DEFAULT_ALGORITHM,
                );
                found.check("cublasGemmStridedBatchedEx", status)?;
            }
            of_driver("cuEventRecord", (driver.record)(after, stream))?;
            of_driver("cuCtxWaitEvent", (driver.wait_context)(context, after))
        }
    }
}

/// Makes a context current on this thread until it is dropped.
struct Current<'a> {
    driver: &'a Driver,
    earlier: *mut c_void,
}

impl<'a> Current<'a> {
    /// # Safety
    /// `context` must be one of the driver's.
    unsafe fn set(driver: &'a Driver, context: *mut c_void) -> Result<Self, String> {
        let mut earlier = ptr::null_mut();
        // SAFETY: the out-pointer refers to a live variable, and the caller guarantees the context.
        unsafe {
            of_driver("cuCtxGetCurrent", (driver.get_context)(&raw mut earlier))?;
            of_driver("cuCtxSetCurrent", (driver.set_context)(context))?;
        }
        Ok(Self { driver, earlier })
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        // SAFETY: `earlier` was this thread's current context.
        unsafe { (self.driver.set_context)(self.earlier) };
    }
}

/// Returns cuBLAS's code (`cudaDataType_t`) of an element type, if products of that type run on cuBLAS.
fn number_of(dtype: DType) -> Option<c_int> {
    match dtype {
        DType::F32 => Some(0),
        DType::F16 => Some(2),
        DType::BF16 => Some(14),
        _ => None,
    }
}
