//! Bindings of NCCL, NVIDIA's collectives between GPUs, and of the required driver functions. Both libraries are loaded at
//! run time.

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests;

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    ptr,
    sync::OnceLock,
};

use burn::tensor::DType;

use super::{
    cuda::library_paths,
    driver::{NON_BLOCKING, SharedLibrary, WITHOUT_TIME, functions, load_any, of_driver},
};

/// Size of a unique ID, by which ranks find each other, in bytes.
pub(crate) const ID_BYTES: usize = 128;

/// `ncclUniqueId`, which is passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
struct UniqueId([u8; ID_BYTES]);

functions! {
    /// Driver functions, CUDA 11 or later.
    Driver {
        init = b"cuInit\0" (c_uint),
        device = b"cuDeviceGet\0" (*mut c_int, c_int),
        uuid = b"cuDeviceGetUuid\0" (*mut [u8; 16], c_int),
        retain_context = b"cuDevicePrimaryCtxRetain\0" (*mut *mut c_void, c_int),
        release_context = b"cuDevicePrimaryCtxRelease_v2\0" (c_int),
        set_context = b"cuCtxSetCurrent\0" (*mut c_void),
        new_stream = b"cuStreamCreate\0" (*mut *mut c_void, c_uint),
        destroy_stream = b"cuStreamDestroy_v2\0" (*mut c_void),
        new_event = b"cuEventCreate\0" (*mut *mut c_void, c_uint),
        destroy_event = b"cuEventDestroy_v2\0" (*mut c_void),
        record = b"cuEventRecord\0" (*mut c_void, *mut c_void),
        query = b"cuEventQuery\0" (*mut c_void),
    }
}

functions! {
    /// NCCL functions, version 2.4 or later.
    Nccl {
        unique_id = b"ncclGetUniqueId\0" (*mut UniqueId),
        start = b"ncclCommInitRank\0" (*mut *mut c_void, c_int, UniqueId, c_int),
        abort = b"ncclCommAbort\0" (*mut c_void),
        all_reduce = b"ncclAllReduce\0" (*const c_void, *mut c_void, usize, c_int, c_int, *mut c_void, *mut c_void),
        group_start = b"ncclGroupStart\0" (),
        group_end = b"ncclGroupEnd\0" (),
        async_error = b"ncclCommGetAsyncError\0" (*mut c_void, *mut c_int),
    }
}

/// `CUDA_ERROR_NOT_READY`: the event has not completed.
const NOT_READY: c_int = 600;

/// `ncclInProgress`: a collective is starting.
const IN_PROGRESS: c_int = 7;

const SUM: c_int = 0;

struct Libraries {
    driver: Driver,
    nccl: Nccl,
    library: SharedLibrary,
}

/// Returns the libraries, or names the missing one. The first result is kept.
fn libraries() -> Result<&'static Libraries, String> {
    static LIBRARIES: OnceLock<Result<Libraries, String>> = OnceLock::new();
    LIBRARIES.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Libraries, String> {
    let driver = load_any(&["libcuda.so.1", "libcuda.so"]).ok_or("libcuda.so.1 was not found")?;
    let driver = Driver::of(&driver).map_err(|missing| missing.lacks("libcuda.so.1"))?;
    let library = load_any(&["libnccl.so.2", "libnccl.so"])
        .or_else(|| library_paths(&["nccl"], "libnccl.so.2").iter().find_map(SharedLibrary::load))
        .ok_or(
            "NCCL (libnccl.so.2) was not found: `pip install nvidia-nccl-cu12` (or nvidia-nccl-cu13) in an active \
             virtual environment",
        )?;
    let nccl = Nccl::of(&library).map_err(|missing| missing.lacks("libnccl.so.2"))?;
    Ok(Libraries { driver, nccl, library })
}

impl Libraries {
    /// Converts an NCCL status to a result with NCCL's description.
    fn check(&self, function: &str, status: c_int) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the signatures are the documented ones, and both functions return static strings.
        let [error, last] = unsafe {
            let describe = self.library.get::<unsafe extern "C" fn(c_int) -> *const c_char>(b"ncclGetErrorString\0");
            let last = self.library.get::<unsafe extern "C" fn(*mut c_void) -> *const c_char>(b"ncclGetLastError\0");
            [describe.ok().map(|f| f(status)), last.ok().map(|f| f(ptr::null_mut()))]
        };
        let words = [error, last].into_iter().flatten().filter(|text| !text.is_null()).map(|text| {
            // SAFETY: the pointer is not null, and NCCL's strings end with a zero byte.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
        });
        let words: Vec<String> = words.filter(|text| !text.is_empty()).collect();
        Err(format!("{function} of NCCL fails (status {status}): {}", words.join("; ")))
    }
}

/// Returns the UUID of a GPU in hexadecimal, if NCCL can be used on it; otherwise the reason.
pub(crate) fn gpu(index: usize) -> Result<String, String> {
    let Libraries { driver, .. } = libraries()?;
    let (mut device, mut uuid) = (0, [0; 16]);
    // SAFETY: the out-pointers refer to live variables. CubeCL may not have initialised the driver yet; a second call of
    // cuInit does nothing.
    unsafe {
        of_driver("cuInit", (driver.init)(0))?;
        of_driver("cuDeviceGet", (driver.device)(&raw mut device, index as c_int))?;
        of_driver("cuDeviceGetUuid", (driver.uuid)(&raw mut uuid, device))?;
    }
    Ok(uuid.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Creates a unique ID, by which ranks find each other. One rank calls this and shares the ID.
pub(crate) fn unique_id() -> Result<Vec<u8>, String> {
    let found = libraries()?;
    let mut id = UniqueId([0; ID_BYTES]);
    // SAFETY: the call writes exactly `ID_BYTES` bytes.
    found.check("ncclGetUniqueId", unsafe { (found.nccl.unique_id)(&raw mut id) })?;
    Ok(id.0.to_vec())
}

/// Operand of an all-reduce.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceArray {
    /// Address of this rank's values.
    pub send: u64,
    /// Address of the sums; may equal `send`.
    pub receive: u64,
    pub count: usize,
    pub dtype: DType,
}

/// A communicator with the GPUs of several ranks, with its own stream. The pointers are null until they are created.
pub(crate) struct Group {
    found: &'static Libraries,
    device: c_int,
    context: *mut c_void,
    comm: *mut c_void,
    stream: *mut c_void,
    event: *mut c_void,
}

// SAFETY: NCCL and the driver may be called from any thread, and the pointers never change. Collectives are issued one at a
// time.
unsafe impl Send for Group {}
// SAFETY: as for `Send`.
unsafe impl Sync for Group {}

impl Group {
    /// Joins the group. Blocks until all ranks have joined.
    pub fn start(index: usize, id: &[u8], rank: usize, size: usize) -> Result<Self, String> {
        Self::start_with(libraries()?, index, id, rank, size)
    }

    fn start_with(
        found: &'static Libraries,
        index: usize,
        id: &[u8],
        rank: usize,
        size: usize,
    ) -> Result<Self, String> {
        let id: [u8; ID_BYTES] = id.try_into().map_err(|_| format!("the id of NCCL has {} bytes", id.len()))?;
        let driver = &found.driver;
        let null = ptr::null_mut();
        let mut group = Self { found, device: 0, context: null, comm: null, stream: null, event: null };
        // SAFETY: the out-pointers refer to live variables, and the handles come from earlier calls.
        unsafe {
            of_driver("cuDeviceGet", (driver.device)(&raw mut group.device, index as c_int))?;
            of_driver("cuDevicePrimaryCtxRetain", (driver.retain_context)(&raw mut group.context, group.device))?;
            of_driver("cuCtxSetCurrent", (driver.set_context)(group.context))?;
            of_driver("cuStreamCreate", (driver.new_stream)(&raw mut group.stream, NON_BLOCKING))?;
            of_driver("cuEventCreate", (driver.new_event)(&raw mut group.event, WITHOUT_TIME))?;
            // NCCL frees a communicator that it cannot start.
            let mut comm = null;
            let status = (found.nccl.start)(&raw mut comm, size as c_int, UniqueId(id), rank as c_int);
            found.check("ncclCommInitRank", status)?;
            group.comm = comm;
        }
        Ok(group)
    }

    /// Starts all-reduces of arrays whose values are already computed. Their memory must stay valid until
    /// [`is_done`](Self::is_done).
    pub fn all_reduce(&self, arrays: &[DeviceArray]) -> Result<(), String> {
        let Self { found, context, comm, stream, event, .. } = self;
        let Libraries { driver, nccl, .. } = found;
        let types: Vec<c_int> = arrays.iter().map(|array| number_of(array.dtype)).collect::<Result<_, _>>()?;
        // SAFETY: the caller guarantees that the addresses refer to this many elements of device memory. The handles come
        // from `start`.
        unsafe {
            of_driver("cuCtxSetCurrent", (driver.set_context)(*context))?;
            found.check("ncclGroupStart", (nccl.group_start)())?;
            let queued = arrays.iter().zip(types).try_for_each(|(array, dtype)| {
                let (send, receive) = (array.send as *const c_void, array.receive as *mut c_void);
                let status = (nccl.all_reduce)(send, receive, array.count, dtype, SUM, *comm, *stream);
                found.check("ncclAllReduce", status)
            });
            // NCCL queues all calls of this thread until the group ends, so the group must end even if a call fails.
            let ended = found.check("ncclGroupEnd", (nccl.group_end)());
            queued.and(ended)?;
            of_driver("cuEventRecord", (driver.record)(*event, *stream))
        }
    }

    /// Returns true if the all-reduces that were started last are complete.
    pub fn is_done(&self) -> Result<bool, String> {
        let Self { found, comm, event, .. } = self;
        let mut error = 0;
        // SAFETY: the communicator and event come from `start`, and the out-pointer refers to a live variable.
        let status = unsafe {
            found.check("ncclCommGetAsyncError", (found.nccl.async_error)(*comm, &raw mut error))?;
            (found.driver.query)(*event)
        };
        if error != IN_PROGRESS {
            found.check("a collective", error)?;
        }
        match status {
            NOT_READY => Ok(false),
            status => of_driver("cuEventQuery", status).map(|()| true),
        }
    }
}

impl Drop for Group {
    /// Aborts without waiting for other ranks, which may have exited.
    fn drop(&mut self) {
        let Self { found, device, context, comm, stream, event } = self;
        let Libraries { driver, nccl, .. } = found;
        if context.is_null() {
            return;
        }
        // SAFETY: `start` created every handle that is not null, and `self` owns them. An error leaks a handle until the
        // process ends.
        unsafe {
            (driver.set_context)(*context);
            if !comm.is_null() {
                (nccl.abort)(*comm);
            }
            if !event.is_null() {
                (driver.destroy_event)(*event);
            }
            if !stream.is_null() {
                (driver.destroy_stream)(*stream);
            }
            (driver.release_context)(*device);
        }
    }
}

/// Returns NCCL's code (`ncclDataType_t`) of a dtype.
fn number_of(dtype: DType) -> Result<c_int, String> {
    match dtype {
        DType::F16 => Ok(6),
        DType::F32 => Ok(7),
        DType::F64 => Ok(8),
        DType::BF16 => Ok(9),
        other => Err(format!("NCCL does not sum {other:?}")),
    }
}
