// A libcuda.so.1 without a GPU: the driver's calls that CubeCL makes, through cudarc. Memory is the host's, copies are
// copies, and a launch runs its kernel here and now, or counts alone. What a driver refuses is refused.
//
// Read from the environment (the script `emulate` sets it):
//   GROVE_CUDA_CAPABILITY   compute capability times ten (61)
//   GROVE_CUDA_DEVICES      how many devices there are (1)
//   GROVE_CUDA_DRIVER       the version that the driver gives (12080)
//   GROVE_CUDA_MEMORY       bytes of each device's memory (as a GPU of that capability)
//   GROVE_CUDA_LOG          a file for a line of every event
//   GROVE_CUDA_LOAD_STATUS  what loading a module ends with (0)

#include "blocks.hpp"

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>
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
    NOT_FOUND = 500,
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

// A line of the log: seconds since the first, then what happened.
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

// Says what is wrong, where a driver gives a number alone.
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

// A handle of something that is only ever named.
void *new_handle() {
    static std::atomic<uintptr_t> last{0x2000};
    return reinterpret_cast<void *>(last += 16);
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

// Behind each block lies a page that nobody may touch.
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
    // Null where kernels are counted alone.
    Kernel kernel;
};

enum MemoryType { HOST = 1 };

// As the driver has it.
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
    *version = int(setting("GROVE_CUDA_DRIVER", 12080));
    return SUCCESS;
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

Status cuDevicePrimaryCtxRetain(void **context, Device) {
    static void *const handle = new_handle();
    *context = handle;
    return SUCCESS;
}
Status cuDevicePrimaryCtxRelease_v2(Device) { return SUCCESS; }
Status cuCtxSetCurrent(void *) { return SUCCESS; }
Status cuCtxGetCurrent(void **context) { return cuDevicePrimaryCtxRetain(context, 0); }

Status cuCtxSynchronize() {
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
    case NOT_FOUND: return "CUDA_ERROR_NOT_FOUND";
    case LAUNCH_FAILED: return "CUDA_ERROR_LAUNCH_FAILED";
    }
    return "CUDA_ERROR_UNKNOWN";
}
Status cuGetErrorName(Status status, const char **name) {
    *name = name_of(status);
    return SUCCESS;
}
Status cuGetErrorString(Status status, const char **text) { return cuGetErrorName(status, text); }

Status cuStreamCreate(void **stream, unsigned) {
    *stream = new_handle();
    return SUCCESS;
}
Status cuStreamDestroy_v2(void *) { return SUCCESS; }
Status cuStreamSynchronize(void *) {
    log_event("sync stream");
    return SUCCESS;
}
Status cuStreamWaitEvent(void *, void *, unsigned) {
    log_event("wait");
    return SUCCESS;
}
Status cuEventCreate(void **event, unsigned) {
    *event = new_handle();
    return SUCCESS;
}
Status cuEventRecord(void *, void *) {
    log_event("record");
    return SUCCESS;
}
Status cuEventSynchronize(void *) {
    log_event("sync event");
    return SUCCESS;
}
Status cuEventDestroy_v2(void *) { return SUCCESS; }

Status cuMemAllocAsync(Pointer *pointer, size_t bytes, void *) { return allocate(pointer, bytes, true); }
Status cuMemAlloc_v2(Pointer *pointer, size_t bytes) { return allocate(pointer, bytes, true); }
Status cuMemFreeAsync(Pointer pointer, void *) { return release(pointer, true); }
Status cuMemFree_v2(Pointer pointer) { return release(pointer, true); }
Status cuMemAllocHost_v2(void **pointer, size_t bytes) {
    return allocate(reinterpret_cast<Pointer *>(pointer), bytes, false);
}
Status cuMemFreeHost(void *pointer) { return release(reinterpret_cast<Pointer>(pointer), false); }

Status cuMemcpyHtoDAsync_v2(Pointer to, const void *from, size_t bytes, void *) {
    memcpy(reinterpret_cast<void *>(to), from, bytes);
    log_event("upload %zu", bytes);
    return SUCCESS;
}
// Where kernels are launched in name only, what is read is zero, so that no program stumbles over what memory held before.
bool reads_zero() {
    static const char *const kernels = getenv("GROVE_CUDA_KERNELS");
    static const bool in_name_only = kernels && strcmp(kernels, "run") != 0;
    return in_name_only;
}

Status cuMemcpyDtoHAsync_v2(void *to, Pointer from, size_t bytes, void *) {
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
Status cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, void *) {
    memmove(reinterpret_cast<void *>(to), reinterpret_cast<const void *>(from), bytes);
    log_event("copy %zu", bytes);
    return SUCCESS;
}
Status cuMemsetD8Async(Pointer to, unsigned char value, size_t bytes, void *) {
    memset(reinterpret_cast<void *>(to), value, bytes);
    log_event("fill %zu", bytes);
    return SUCCESS;
}

Status cuMemcpy2DAsync_v2(const Copy2D *copy, void *) {
    if (copy->width > copy->from_pitch || copy->width > copy->to_pitch) {
        return refuse(INVALID_VALUE, "rows of %zu bytes are copied in steps of %zu and %zu", copy->width,
                      copy->from_pitch, copy->to_pitch);
    }
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

// A module is what this folder's compiler.cpp made: 'run' and a shared library, 'count' alone, or PTX.
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
                      unsigned block_y, unsigned block_z, unsigned shared_bytes, void *, void **arguments, void **) {
    const auto &function = *static_cast<Function *>(handle);
    const Dim3 grid{grid_x, grid_y, grid_z}, block{block_x, block_y, block_z};
    const auto empty = [](Dim3 size) { return size.x == 0 || size.y == 0 || size.z == 0; };
    if (empty(grid) || empty(block) || grid_x > 2147483647 || grid_y > 65535 || grid_z > 65535 || block_z > 64 ||
        block_x > MOST_THREADS || block_y > MOST_THREADS || block_x * block_y * block_z > MOST_THREADS ||
        shared_bytes > most_shared_bytes()) {
        return refuse(INVALID_VALUE, "%s is launched with %u x %u x %u blocks of %u x %u x %u threads, %u bytes",
                      function.name.c_str(), grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes);
    }
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
