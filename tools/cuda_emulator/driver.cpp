// A libcuda.so.1 without a GPU, with the driver calls that CubeCL makes through cudarc. Device memory is host memory,
// copies are memory copies, and a launch runs its kernel synchronously, or is only counted. Calls that a real driver
// rejects are rejected. Other libraries (work.hpp) may have asynchronous work on a stream; later calls on the stream
// wait for it.
//
// Environment variables (set by the script `emulate`):
//   GROVE_CUDA_CAPABILITY   compute capability times ten (61)
//   GROVE_CUDA_DEVICES      number of devices (1)
//   GROVE_CUDA_DRIVER       driver version (13000)
//   GROVE_CUDA_MEMORY       memory of each device in bytes (as a GPU of that capability)
//   GROVE_CUDA_UUID         any text; processes with the same text share devices (default: each process has its own)
//   GROVE_CUDA_LOG          log file, one line per event
//   GROVE_CUDA_LOAD_STATUS  status of loading a module (0)

#include "blocks.hpp"
#include "work.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace {
using Device = int;
using Pointer = uint64_t;

enum Status {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    NOT_READY = 600,
    LAUNCH_FAILED = 719,
};

long setting(const char *name, long otherwise) {
    const char *value = getenv(name);
    return value ? atol(value) : otherwise;
}

long capability() {
    static const long capability = setting("GROVE_CUDA_CAPABILITY", 61);
    return capability;
}

double now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

std::mutex log_lock;

// Writes a log line: seconds since the first event, then the event.
[[gnu::format(printf, 1, 2)]] void log_event(const char *format, ...) {
    static FILE *const file = [] {
        const char *path = getenv("GROVE_CUDA_LOG");
        return path ? fopen(path, "w") : nullptr;
    }();
    static const double begin = now();
    if (!file) return;
    const std::lock_guard<std::mutex> guard(log_lock);
    fprintf(file, "%.6f ", now() - begin);
    va_list values;
    va_start(values, format);
    vfprintf(file, format, values);
    va_end(values);
    fputc('\n', file);
}

// Logs an error message and returns the status, which is all that a driver reports.
[[gnu::format(printf, 2, 3)]] Status refuse(Status status, const char *format, ...) {
    char text[1000];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    fprintf(stderr, "emulated CUDA: %s\n", text);
    log_event("refused %s", text);
    return status;
}

// Returns an opaque handle without an object.
void *new_handle() {
    static std::atomic<uintptr_t> last{0x2000};
    return reinterpret_cast<void *>(last += 16);
}

using Works = std::set<uint64_t>;

// Pending asynchronous work on streams.
class Schedule {
    std::mutex lock;
    std::condition_variable changed;
    uint64_t last = 0;
    // Pending works, with the works that they depend on.
    std::map<uint64_t, Works> under_way;
    // Works that each stream waits for, and each event since it was recorded.
    std::map<void *, Works> of_stream, of_event;
    // Works that every stream waits for.
    Works of_context;
    // Streams that do not wait for the default stream.
    std::set<void *> non_blocking;

    bool ended(const Works &works) const {
        for (const uint64_t work : works) {
            if (under_way.count(work)) return false;
        }
        return true;
    }

    // Includes the dependencies of the default stream, which waits for other streams, as they wait for it.
    Works before(void *stream) const {
        Works works;
        for (const uint64_t work : of_context) {
            if (under_way.count(work)) works.insert(work);
        }
        for (const auto &[other, others] : of_stream) {
            const bool joined = (!stream || !other) && !non_blocking.count(stream) && !non_blocking.count(other);
            if (stream != other && !joined) continue;
            for (const uint64_t work : others) {
                if (under_way.count(work)) works.insert(work);
            }
        }
        return works;
    }

    void wait(std::unique_lock<std::mutex> &guard, const Works &works) {
        changed.wait(guard, [&] { return ended(works); });
    }

public:
    void *create_stream(bool blocking) {
        const std::lock_guard<std::mutex> guard(lock);
        void *stream = new_handle();
        if (!blocking) non_blocking.insert(stream);
        return stream;
    }
    void destroy_stream(void *stream) {
        const std::lock_guard<std::mutex> guard(lock);
        of_stream.erase(stream);
        non_blocking.erase(stream);
    }
    void destroy_event(void *event) {
        const std::lock_guard<std::mutex> guard(lock);
        of_event.erase(event);
    }
    void record(void *event, void *stream) {
        const std::lock_guard<std::mutex> guard(lock);
        of_event[event] = before(stream);
    }
    void add_event(void *stream, void *event) {
        const std::lock_guard<std::mutex> guard(lock);
        Works works = before(stream);
        const Works &recorded = of_event[event];
        works.insert(recorded.begin(), recorded.end());
        of_stream[stream] = works;
    }
    // Records all work of the context, on every stream.
    void record_all(void *event) {
        const std::lock_guard<std::mutex> guard(lock);
        Works &works = of_event[event];
        works.clear();
        for (const auto &[work, earlier] : under_way) works.insert(work);
    }
    // Streams without work so far wait too.
    void add_event_to_all(void *event) {
        const std::lock_guard<std::mutex> guard(lock);
        const Works &recorded = of_event[event];
        of_context.insert(recorded.begin(), recorded.end());
        for (auto work = of_context.begin(); work != of_context.end();) {
            work = under_way.count(*work) ? std::next(work) : of_context.erase(work);
        }
    }
    bool stream_ready(void *stream) {
        const std::lock_guard<std::mutex> guard(lock);
        return before(stream).empty();
    }
    bool event_ready(void *event) {
        const std::lock_guard<std::mutex> guard(lock);
        return ended(of_event[event]);
    }
    void wait_for_stream(void *stream) {
        std::unique_lock<std::mutex> guard(lock);
        wait(guard, before(stream));
    }
    void wait_for_event(void *event) {
        std::unique_lock<std::mutex> guard(lock);
        wait(guard, Works(of_event[event]));
    }
    void wait_for_all() {
        std::unique_lock<std::mutex> guard(lock);
        Works works;
        for (const auto &[work, earlier] : under_way) works.insert(work);
        wait(guard, works);
    }
    uint64_t begin(void *stream) {
        const std::lock_guard<std::mutex> guard(lock);
        const Works works = before(stream);
        under_way[++last] = works;
        of_stream[stream] = works;
        of_stream[stream].insert(last);
        return last;
    }
    bool may_run(uint64_t work, int milliseconds) {
        std::unique_lock<std::mutex> guard(lock);
        return changed.wait_for(guard, std::chrono::milliseconds(milliseconds), [&] { return ended(under_way[work]); });
    }
    void end(uint64_t work) {
        const std::lock_guard<std::mutex> guard(lock);
        under_way.erase(work);
        changed.notify_all();
    }
};

// Never destroyed: threads may be working when the program ends.
Schedule &schedule() {
    static Schedule &schedule = *new Schedule;
    return schedule;
}

size_t memory_size() {
    const long usual = capability() >= 90 ? 141'000'000'000 : capability() >= 70 ? 16l << 30 : 8l << 30;
    static const long size = setting("GROVE_CUDA_MEMORY", usual);
    return size_t(size);
}

unsigned most_shared_bytes() {
    switch (capability()) {
    case 70: return 98304;
    case 75: return 65536;
    case 80: return 166912;
    case 86:
    case 89:
    case 120: return 101376;
    default: return capability() >= 90 ? MOST_SHARED_BYTES : 49152;
    }
}

int processors() { return capability() >= 90 ? 132 : capability() >= 80 ? 108 : capability() >= 70 ? 80 : 20; }

std::mutex memory_lock;
std::map<Pointer, size_t> blocks;
size_t in_use;

constexpr size_t PAGE = 4096;

// A guard page follows each allocation.
size_t with_guard(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE + PAGE; }

Status allocate(Pointer *pointer, size_t bytes, bool on_device) {
    if (bytes == 0) return refuse(INVALID_VALUE, "an allocation of nothing");
    const std::lock_guard<std::mutex> guard(memory_lock);
    if (on_device && bytes > memory_size() - in_use) return OUT_OF_MEMORY;
    const auto flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *memory = mmap(nullptr, with_guard(bytes), PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) return OUT_OF_MEMORY;
    const auto begin = static_cast<char *>(memory);
    mprotect(begin + with_guard(bytes) - PAGE, PAGE, PROT_NONE);
    *pointer = reinterpret_cast<Pointer>(memory);
    blocks[*pointer] = bytes;
    if (on_device) in_use += bytes;
    log_event("allocate %zu in_use %zu", bytes, in_use);
    return SUCCESS;
}

Status release(Pointer pointer, bool on_device) {
    const std::lock_guard<std::mutex> guard(memory_lock);
    const auto block = blocks.find(pointer);
    if (block == blocks.end()) return refuse(INVALID_VALUE, "memory is freed that was not allocated");
    if (on_device) in_use -= block->second;
    munmap(reinterpret_cast<void *>(pointer), with_guard(block->second));
    blocks.erase(block);
    log_event("free");
    return SUCCESS;
}

struct Module {
    std::string code;
};

struct Function {
    std::string name;
    // Null if kernels are only counted.
    Kernel kernel;
};

enum MemoryType { HOST = 1 };

// Layout of the driver's struct.
struct Copy2D {
    size_t from_x, from_y;
    int from_type;
    const void *from_host;
    Pointer from_device;
    void *from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    int to_type;
    void *to_host;
    Pointer to_device;
    void *to_array;
    size_t to_pitch;
    size_t width, height;
};
} // namespace

extern "C" {
Status cuInit(unsigned) { return SUCCESS; }

Status cuDriverGetVersion(int *version) {
    *version = int(setting("GROVE_CUDA_DRIVER", 13000));
    return SUCCESS;
}

// NVIDIA's libraries request tables of undocumented functions; NVRTC 13 crashes if this call is missing.
Status cuGetExportTable(const void **table, const void *) {
    *table = nullptr;
    return NOT_FOUND;
}

Status cuDeviceGetCount(int *count) {
    *count = int(setting("GROVE_CUDA_DEVICES", 1));
    return SUCCESS;
}

Status cuDeviceGet(Device *device, int index) {
    int count;
    cuDeviceGetCount(&count);
    *device = index;
    return index >= 0 && index < count ? SUCCESS : INVALID_DEVICE;
}

Status cuDeviceGetName(char *name, int length, Device) {
    snprintf(name, size_t(length), "Emulated GPU %ld.%ld", capability() / 10, capability() % 10);
    return SUCCESS;
}

Status cuDeviceTotalMem_v2(size_t *bytes, Device) {
    *bytes = memory_size();
    return SUCCESS;
}

Status cuMemGetInfo_v2(size_t *unused, size_t *all) {
    *all = memory_size();
    *unused = *all - in_use;
    return SUCCESS;
}

Status cuDeviceGetAttribute(int *value, int attribute, Device) {
    switch (attribute) {
    case 1: *value = MOST_THREADS; break;                        // threads a block
    case 2: case 3: *value = MOST_THREADS; break;                // of them along x, y
    case 4: *value = 64; break;                                  // along z
    case 5: *value = 2147483647; break;                          // blocks along x
    case 6: case 7: *value = 65535; break;                       // along y, z
    case 8: *value = 49152; break;                               // shared bytes without asking
    case 10: *value = 32; break;                                 // lanes of a warp
    case 12: *value = 65536; break;                              // registers a block
    case 16: *value = processors(); break;                       // multiprocessors
    case 39: *value = 2048; break;                               // threads a multiprocessor
    case 75: *value = int(capability() / 10); break;
    case 76: *value = int(capability() % 10); break;
    case 81: *value = int(most_shared_bytes() + 1024); break;    // shared bytes a multiprocessor
    case 97: *value = int(most_shared_bytes()); break;           // shared bytes a block that asks
    case 115: *value = 1; break;                                 // memory pools
    default: *value = 0; log_event("attribute %d", attribute);
    }
    return SUCCESS;
}

// A hash of the text, with the device index.
int cuDeviceGetUuid_v2(void *uuid, Device device) {
    const char *name = getenv("GROVE_CUDA_UUID");
    const std::string text = name ? name : "process " + std::to_string(getpid());
    uint64_t parts[] = {14695981039346656037u, uint64_t(device)};
    for (const unsigned char byte : text) parts[0] = (parts[0] ^ byte) * 1099511628211u;
    memcpy(uuid, parts, sizeof parts);
    return cuDeviceGet(&device, device);
}
int cuDeviceGetUuid(void *uuid, Device device) { return cuDeviceGetUuid_v2(uuid, device); }

// Each device has one context, whose handle is below those of `new_handle`.
constexpr uintptr_t FIRST_CONTEXT = 0x1000;
static thread_local void *current_context;

Status cuDevicePrimaryCtxRetain(void **context, Device device) {
    *context = reinterpret_cast<void *>(FIRST_CONTEXT + uintptr_t(device));
    return cuDeviceGet(&device, device);
}
Status cuDevicePrimaryCtxRelease_v2(Device) { return SUCCESS; }
Status cuCtxSetCurrent(void *context) {
    current_context = context;
    return SUCCESS;
}
Status cuCtxGetCurrent(void **context) {
    *context = current_context;
    return SUCCESS;
}
int cuCtxGetDevice(Device *device) {
    if (!current_context) return INVALID_CONTEXT;
    *device = Device(reinterpret_cast<uintptr_t>(current_context) - FIRST_CONTEXT);
    return SUCCESS;
}

Status cuCtxSynchronize() {
    schedule().wait_for_all();
    log_event("sync context");
    return SUCCESS;
}

static const char *name_of(Status status) {
    switch (status) {
    case SUCCESS: return "CUDA_SUCCESS";
    case INVALID_VALUE: return "CUDA_ERROR_INVALID_VALUE";
    case OUT_OF_MEMORY: return "CUDA_ERROR_OUT_OF_MEMORY";
    case INVALID_DEVICE: return "CUDA_ERROR_INVALID_DEVICE";
    case INVALID_IMAGE: return "CUDA_ERROR_INVALID_IMAGE";
    case INVALID_CONTEXT: return "CUDA_ERROR_INVALID_CONTEXT";
    case NOT_FOUND: return "CUDA_ERROR_NOT_FOUND";
    case NOT_READY: return "CUDA_ERROR_NOT_READY";
    case LAUNCH_FAILED: return "CUDA_ERROR_LAUNCH_FAILED";
    }
    return "CUDA_ERROR_UNKNOWN";
}
Status cuGetErrorName(Status status, const char **name) {
    *name = name_of(status);
    return SUCCESS;
}
Status cuGetErrorString(Status status, const char **text) { return cuGetErrorName(status, text); }

Status cuStreamCreate(void **stream, unsigned flags) {
    const unsigned non_blocking = 1;
    *stream = schedule().create_stream((flags & non_blocking) == 0);
    return SUCCESS;
}
Status cuStreamDestroy_v2(void *stream) {
    schedule().destroy_stream(stream);
    return SUCCESS;
}
Status cuStreamSynchronize(void *stream) {
    schedule().wait_for_stream(stream);
    log_event("sync stream");
    return SUCCESS;
}
Status cuStreamQuery(void *stream) { return schedule().stream_ready(stream) ? SUCCESS : NOT_READY; }
Status cuStreamWaitEvent(void *stream, void *event, unsigned) {
    schedule().add_event(stream, event);
    log_event("wait");
    return SUCCESS;
}
Status cuEventCreate(void **event, unsigned) {
    *event = new_handle();
    return SUCCESS;
}
Status cuEventRecord(void *event, void *stream) {
    schedule().record(event, stream);
    log_event("record");
    return SUCCESS;
}
Status cuCtxRecordEvent(void *, void *event) {
    schedule().record_all(event);
    log_event("record context");
    return SUCCESS;
}
Status cuCtxWaitEvent(void *, void *event) {
    schedule().add_event_to_all(event);
    log_event("wait context");
    return SUCCESS;
}
Status cuEventSynchronize(void *event) {
    schedule().wait_for_event(event);
    log_event("sync event");
    return SUCCESS;
}
Status cuEventQuery(void *event) { return schedule().event_ready(event) ? SUCCESS : NOT_READY; }
Status cuEventDestroy_v2(void *event) {
    schedule().destroy_event(event);
    return SUCCESS;
}

uint64_t emulated_work_begins(void *stream) { return schedule().begin(stream); }
bool emulated_work_may_run(uint64_t work, int milliseconds) { return schedule().may_run(work, milliseconds); }
void emulated_work_ends(uint64_t work) { schedule().end(work); }
void emulated_log(const char *line) { log_event("%s", line); }

bool emulated_memory_holds(const void *begin, size_t bytes) {
    const std::lock_guard<std::mutex> guard(memory_lock);
    const auto pointer = reinterpret_cast<Pointer>(begin);
    auto block = blocks.upper_bound(pointer);
    if (block == blocks.begin()) return false;
    block--;
    const size_t offset = pointer - block->first;
    return offset <= block->second && bytes <= block->second - offset;
}

Status cuMemAllocAsync(Pointer *pointer, size_t bytes, void *) { return allocate(pointer, bytes, true); }
Status cuMemAlloc_v2(Pointer *pointer, size_t bytes) { return allocate(pointer, bytes, true); }
Status cuMemFreeAsync(Pointer pointer, void *stream) {
    schedule().wait_for_stream(stream);
    return release(pointer, true);
}
Status cuMemFree_v2(Pointer pointer) {
    schedule().wait_for_all();
    return release(pointer, true);
}
Status cuMemAllocHost_v2(void **pointer, size_t bytes) {
    return allocate(reinterpret_cast<Pointer *>(pointer), bytes, false);
}
Status cuMemFreeHost(void *pointer) {
    schedule().wait_for_all();
    return release(reinterpret_cast<Pointer>(pointer), false);
}

Status cuMemcpyHtoDAsync_v2(Pointer to, const void *from, size_t bytes, void *stream) {
    schedule().wait_for_stream(stream);
    memcpy(reinterpret_cast<void *>(to), from, bytes);
    log_event("upload %zu", bytes);
    return SUCCESS;
}
// If kernels are not executed, reads return zeros, so that programs do not fail on uninitialised memory.
bool reads_zero() {
    static const char *const kernels = getenv("GROVE_CUDA_KERNELS");
    static const bool in_name_only = kernels && strcmp(kernels, "run") != 0;
    return in_name_only;
}

Status cuMemcpyDtoHAsync_v2(void *to, Pointer from, size_t bytes, void *stream) {
    schedule().wait_for_stream(stream);
    if (reads_zero()) memset(to, 0, bytes);
    else memcpy(to, reinterpret_cast<const void *>(from), bytes);
    log_event("download %zu", bytes);
    return SUCCESS;
}
Status cuMemcpyHtoD_v2(Pointer to, const void *from, size_t bytes) {
    return cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr);
}
Status cuMemcpyDtoH_v2(void *to, Pointer from, size_t bytes) {
    return cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr);
}
Status cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, void *stream) {
    schedule().wait_for_stream(stream);
    memmove(reinterpret_cast<void *>(to), reinterpret_cast<const void *>(from), bytes);
    log_event("copy %zu", bytes);
    return SUCCESS;
}
Status cuMemsetD8Async(Pointer to, unsigned char value, size_t bytes, void *stream) {
    schedule().wait_for_stream(stream);
    memset(reinterpret_cast<void *>(to), value, bytes);
    log_event("fill %zu", bytes);
    return SUCCESS;
}

Status cuMemcpy2DAsync_v2(const Copy2D *copy, void *stream) {
    if (copy->width > copy->from_pitch || copy->width > copy->to_pitch) {
        return refuse(INVALID_VALUE, "rows of %zu bytes are copied in steps of %zu and %zu", copy->width,
                      copy->from_pitch, copy->to_pitch);
    }
    schedule().wait_for_stream(stream);
    const bool up = copy->from_type == HOST;
    const char *from = up ? static_cast<const char *>(copy->from_host) : reinterpret_cast<const char *>(copy->from_device);
    char *to = copy->to_type == HOST ? static_cast<char *>(copy->to_host) : reinterpret_cast<char *>(copy->to_device);
    for (size_t row = 0; row < copy->height; row++) {
        if (!up && reads_zero()) memset(to + row * copy->to_pitch, 0, copy->width);
        else memcpy(to + row * copy->to_pitch, from + row * copy->from_pitch, copy->width);
    }
    log_event("%s %zu", up ? "upload" : "download", copy->width * copy->height);
    return SUCCESS;
}

Status cuModuleLoadData(void **module, const void *data) {
    if (const long status = setting("GROVE_CUDA_LOAD_STATUS", 0)) return Status(status);
    *module = new Module{static_cast<const char *>(data)};
    log_event("module");
    return SUCCESS;
}
Status cuModuleUnload(void *) { return SUCCESS; }

// A module is the output of compiler.cpp: 'run' and a shared library, 'count', or PTX.
Status cuModuleGetFunction(void **function, void *module, const char *name) {
    const std::string &code = static_cast<Module *>(module)->code;
    auto made = new Function{name, {}};
    *function = made;
    const std::string run = "run ";
    if (code.compare(0, run.size(), run) != 0) {
        const bool known = code == "count" || code.find(".entry " + made->name + "(") != std::string::npos;
        return known ? SUCCESS : refuse(NOT_FOUND, "the module has no kernel %s", name);
    }
    void *library = dlopen(code.c_str() + run.size(), RTLD_NOW);
    if (!library) return refuse(INVALID_IMAGE, "%s", dlerror());
    const auto entry = reinterpret_cast<void (*)(void **)>(dlsym(library, "emulated_entry"));
    const auto waits = static_cast<const bool *>(dlsym(library, "emulated_waits"));
    if (!entry || !waits) return refuse(NOT_FOUND, "%s has no kernel", code.c_str());
    made->kernel = {made->name.c_str(), entry, *waits};
    return SUCCESS;
}

Status cuFuncSetAttribute(void *function, int attribute, int value) {
    const int dynamic_shared_bytes = 8;
    if (attribute == dynamic_shared_bytes && value > int(most_shared_bytes())) {
        const char *name = static_cast<Function *>(function)->name.c_str();
        return refuse(INVALID_VALUE, "%s asks for %d bytes of shared memory", name, value);
    }
    return SUCCESS;
}
Status cuFuncGetAttribute(int *value, int, void *) {
    *value = 0;
    return SUCCESS;
}

Status cuLaunchKernel(void *handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                      unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments,
                      void **) {
    const auto &function = *static_cast<Function *>(handle);
    const Dim3 grid{grid_x, grid_y, grid_z}, block{block_x, block_y, block_z};
    const auto empty = [](Dim3 size) { return size.x == 0 || size.y == 0 || size.z == 0; };
    if (empty(grid) || empty(block) || grid_x > 2147483647 || grid_y > 65535 || grid_z > 65535 || block_z > 64 ||
        block_x > MOST_THREADS || block_y > MOST_THREADS || block_x * block_y * block_z > MOST_THREADS ||
        shared_bytes > most_shared_bytes()) {
        return refuse(INVALID_VALUE, "%s is launched with %u x %u x %u blocks of %u x %u x %u threads, %u bytes",
                      function.name.c_str(), grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes);
    }
    schedule().wait_for_stream(stream);
    const double begin = now();
    if (function.kernel.entry) {
        static std::mutex one_at_a_time;
        const std::lock_guard<std::mutex> guard(one_at_a_time);
        if (const char *wrong = run_blocks(function.kernel, grid, block, shared_bytes, arguments)) {
            return refuse(LAUNCH_FAILED, "%s: %s", function.name.c_str(), wrong);
        }
    }
    log_event("launch %s grid %u %u %u block %u %u %u shared %u seconds %.6f", function.name.c_str(), grid_x, grid_y,
              grid_z, block_x, block_y, block_z, shared_bytes, now() - begin);
    return SUCCESS;
}

Status cuTensorMapEncodeTiled(void *, int, unsigned rank, const void *memory, const uint64_t *sizes,
                              const uint64_t *strides, const unsigned *box, const unsigned *, int, int, int, int) {
    bool valid = reinterpret_cast<uintptr_t>(memory) % 16 == 0;
    for (unsigned i = 0; i < rank; i++) valid &= sizes[i] != 0 && box[i] != 0 && box[i] <= 256;
    for (unsigned i = 0; i + 1 < rank; i++) valid &= strides[i] % 16 == 0;
    log_event("tensor_map");
    return valid ? SUCCESS : refuse(INVALID_VALUE, "a tensor map with sizes that the hardware cannot take");
}
Status cuTensorMapEncodeIm2col() { return SUCCESS; }
Status cuTensorMapEncodeIm2colWide() { return SUCCESS; }
}
