// A libnccl.so.2 whose ranks are processes on this machine. Values are added in rank order, so that all ranks get the
// same bits. A thread of the communicator runs collectives asynchronously on their stream. If a peer is gone, a
// collective hangs until ncclCommAbort, as on a GPU.
//
// Environment variables:
//   GROVE_CUDA_NCCL     version that this library reports (22809)
//   GROVE_CUDA_KERNELS  if not `run`, the ranks wait for each other, but no data is moved

#include "peers.hpp"
#include "work.hpp"

#include <array>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <vector>

#include "include/cuda_bf16.h"
#include "include/cuda_fp16.h"

using namespace nccl;

namespace {
constexpr const char *TEXTS[] = {"no error",
                                 "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                 "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                 "internal error - please report this issue to the NCCL developers",
                                 "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                 "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                 "remote process exited or there was a network error",
                                 "NCCL operation in progress"};
enum Operation : uint32_t { SUM = 0, AVERAGE = 4 };
constexpr const char *KINDS[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "init"};

struct Id {
    char text[128];
};

std::mutex error_lock;
// Never destroyed: threads may report errors when the program ends.
std::string &last_error = *new std::string;

// Adds the parts elementwise, rounding after each addition as NCCL does. The result may overlap a part.
template <class T> void reduce(char *to, const std::vector<const char *> &parts, size_t count, bool average) {
    const auto at = [&](size_t part) { return reinterpret_cast<const T *>(parts[part]); };
    const auto result = reinterpret_cast<T *>(to);
    for (size_t i = 0; i < count; i++) {
        if constexpr (std::is_integral_v<T>) {
            std::make_unsigned_t<T> sum = 0;
            for (size_t part = 0; part < parts.size(); part++) sum += std::make_unsigned_t<T>(at(part)[i]);
            result[i] = average ? T(T(sum) / T(parts.size())) : T(sum);
        } else {
            const T factor = average ? T(1.0 / double(parts.size())) : T(1);
            T sum = at(0)[i] * factor;
            for (size_t part = 1; part < parts.size(); part++) sum = sum + at(part)[i] * factor;
            result[i] = sum;
        }
    }
}

// Indexed by NCCL's type codes.
const struct {
    const char *name;
    size_t size;
    void (*reduce)(char *, const std::vector<const char *> &, size_t, bool);
} TYPES[] = {{"i8", 1, reduce<int8_t>},   {"u8", 1, reduce<uint8_t>},   {"i32", 4, reduce<int32_t>},
             {"u32", 4, reduce<uint32_t>}, {"i64", 8, reduce<int64_t>},  {"u64", 8, reduce<uint64_t>},
             {"f16", 2, reduce<__half>},   {"f32", 4, reduce<float>},    {"f64", 8, reduce<double>},
             {"bf16", 2, reduce<__nv_bfloat16>}};

struct Collective {
    Call call;
    const char *from;
    char *to;
    void *stream;
    uint64_t work = 0;
};
} // namespace

std::string nccl::name_of(const Call &call) {
    if (call.kind == INIT) return "init of " + std::to_string(call.count) + " ranks";
    return std::string(KINDS[call.kind]) + " of " + std::to_string(call.count) + " " + TYPES[call.type].name +
           ", operation " + std::to_string(call.operation) + ", root " + std::to_string(call.root) + ", call " +
           std::to_string(call.number);
}

Status nccl::refuse(Status status, const char *format, ...) {
    char text[1000];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    fprintf(stderr, "emulated NCCL: %s\n", text);
    emulated_log((std::string("refused ") + text).c_str());
    const std::lock_guard<std::mutex> guard(error_lock);
    last_error = text;
    return status;
}

// Not freed when destroyed, because callers may still hold the handle.
struct ncclComm {
    const int rank, ranks;
    const bool blocking;
    int device = 0;

private:
    Peers peers;
    std::vector<char> buffer;
    std::thread thread;

    std::mutex lock;
    std::condition_variable changed;
    // The first one is running.
    std::deque<Collective> queue;
    bool met = false, finalized = false, ended = false;
    Status error = SUCCESS;
    uint64_t calls = 0;

    Status meet() {
        if (const Status status = peers.meet()) return status;
        std::vector<std::array<char, 16>> uuids(ranks);
        if (cuDeviceGetUuid_v2(uuids[rank].data(), device) != 0) return CUDA_ERROR;
        std::vector<Span> out(ranks, {uuids[rank].data(), 16}), in;
        for (auto &uuid : uuids) in.push_back({uuid.data(), 16});
        if (const Status status = peers.exchange({INIT, 0, 0, 0, uint64_t(ranks), 0}, out, in)) return status;
        for (int i = 0; i < ranks; i++) {
            for (int j = 0; j < i; j++) {
                if (uuids[i] == uuids[j]) return refuse(INVALID_USAGE, "ranks %d and %d are on the same device", j, i);
            }
        }
        return SUCCESS;
    }

    Status perform(const Collective &collective) {
        const Call &call = collective.call;
        const auto &type = TYPES[call.type];
        const char *kernels = getenv("GROVE_CUDA_KERNELS");
        const size_t count = kernels && strcmp(kernels, "run") != 0 ? 0 : call.count, bytes = count * type.size;
        const auto from = const_cast<char *>(collective.from);
        const auto to = collective.to;
        std::vector<Span> out(ranks), in(ranks);
        if (call.kind == BROADCAST) {
            if (rank != int(call.root)) in[call.root] = {to, bytes};
            else out.assign(ranks, {from, bytes});
            if (rank == int(call.root) && bytes != 0) memmove(to, from, bytes);
            return peers.exchange(call, out, in);
        }
        if (call.kind == ALL_GATHER) {
            if (bytes != 0) memmove(to + rank * bytes, from, bytes);
            for (int peer = 0; peer < ranks; peer++) in[peer] = {to + peer * bytes, bytes};
            out.assign(ranks, {to + rank * bytes, bytes});
            return peers.exchange(call, out, in);
        }
        // Each rank reduces one piece of the array.
        const auto begin = [&](int piece) {
            const size_t even = count / ranks * piece + count % ranks * piece / ranks;
            return type.size * (call.kind == REDUCE_SCATTER ? count * piece : even);
        };
        const size_t own = begin(rank + 1) - begin(rank);
        if (buffer.size() < own * ranks) buffer.resize(own * ranks);
        std::vector<const char *> parts;
        for (int peer = 0; peer < ranks; peer++) {
            out[peer] = {from + begin(peer), begin(peer + 1) - begin(peer)};
            in[peer] = {buffer.data() + peer * own, own};
            parts.push_back(peer == rank ? out[peer].begin : in[peer].begin);
        }
        if (const Status status = peers.exchange(call, out, in)) return status;
        char *sums = call.kind == REDUCE_SCATTER ? to : to + begin(rank);
        type.reduce(sums, parts, own / type.size, call.operation == AVERAGE);
        if (call.kind == REDUCE_SCATTER) return SUCCESS;
        for (int peer = 0; peer < ranks; peer++) in[peer] = {to + begin(peer), begin(peer + 1) - begin(peer)};
        out.assign(ranks, {sums, own});
        return peers.exchange(call, out, in);
    }

    void run() {
        Status status = meet();
        Call now = {INIT, 0, 0, 0, uint64_t(ranks), 0};
        std::unique_lock<std::mutex> guard(lock);
        met = status == SUCCESS;
        while (true) {
            if (status == REMOTE_ERROR) refuse(status, "rank %d: a peer is gone, in %s", rank, name_of(now).c_str());
            error = status;
            changed.notify_all();
            // After an error no further collective runs, as on a GPU.
            changed.wait(guard, [&] { return ended || (error == SUCCESS && !queue.empty()); });
            if (ended) break;
            const Collective next = queue.front();
            now = next.call;
            guard.unlock();
            while (!emulated_work_may_run(next.work, 10) && !peers.is_aborted()) {
            }
            status = peers.is_aborted() ? IN_PROGRESS : perform(next);
            guard.lock();
            if (status != SUCCESS) continue;
            queue.pop_front();
            emulated_work_ends(next.work);
        }
        for (const Collective &collective : queue) emulated_work_ends(collective.work);
        peers.close();
        buffer = {};
    }

public:
    ncclComm(const Id &id, int rank, int ranks, bool blocking)
        : rank(rank), ranks(ranks), blocking(blocking), peers(id.text, rank, ranks) {
        // Use the device of the thread that creates the communicator.
        if (cuCtxGetDevice(&device) != 0) device = 0;
        thread = std::thread([this] { run(); });
    }

    Status state() {
        const std::lock_guard<std::mutex> guard(lock);
        if (ended) return INVALID_ARGUMENT;
        if (error != SUCCESS) return error;
        return !met || (finalized && !queue.empty()) ? IN_PROGRESS : SUCCESS;
    }

    Status wait_until_met() {
        std::unique_lock<std::mutex> guard(lock);
        changed.wait(guard, [&] { return met || error != SUCCESS; });
        return error;
    }

    void add(Collective collective) {
        const std::lock_guard<std::mutex> guard(lock);
        if (ended) return;
        collective.call.number = calls++;
        collective.work = emulated_work_begins(collective.stream);
        queue.push_back(collective);
        changed.notify_all();
    }

    Status finalize(bool waits) {
        std::unique_lock<std::mutex> guard(lock);
        finalized = true;
        if (waits && error != SUCCESS && !queue.empty()) {
            refuse(error, "rank %d waits for a collective that only ncclCommAbort can end", rank);
        }
        if (waits) changed.wait(guard, [&] { return ended || queue.empty(); });
        return error != SUCCESS || queue.empty() ? error : IN_PROGRESS;
    }

    Status end(bool aborts) {
        {
            const std::lock_guard<std::mutex> guard(lock);
            if (ended) return SUCCESS;
            ended = true;
            if (aborts || !met) peers.abort();
            changed.notify_all();
        }
        thread.join();
        return SUCCESS;
    }
};

namespace {
thread_local int group_depth;
thread_local Status group_status;
thread_local std::vector<std::pair<ncclComm *, Collective>> group;

Status usable(ncclComm *comm) {
    const Status state = comm ? comm->state() : INVALID_ARGUMENT;
    if (state == INVALID_ARGUMENT) return refuse(state, "the communicator is null, destroyed or aborted");
    return state;
}

Status end_group() {
    const Status status = group_status;
    for (const auto &[comm, collective] : group) {
        if (status != SUCCESS) break;
        const Call &call = collective.call;
        const std::string bytes = std::to_string(call.count * TYPES[call.type].size);
        emulated_log((std::string("nccl ") + KINDS[call.kind] + " " + bytes).c_str());
        comm->add(collective);
    }
    group.clear();
    group_status = SUCCESS;
    return status;
}

Status check(const Call &call, const void *from, const void *to, ncclComm *comm) {
    if (const Status state = usable(comm)) {
        if (state != IN_PROGRESS) return state;
        return refuse(INVALID_ARGUMENT, "%s before the communicator is ready", KINDS[call.kind]);
    }
    if (call.type >= std::size(TYPES)) return refuse(INVALID_ARGUMENT, "%s of type %u", KINDS[call.kind], call.type);
    if (call.operation != SUM && call.operation != AVERAGE) {
        return refuse(INVALID_ARGUMENT, "operation %u of %s, not sum or average", call.operation, KINDS[call.kind]);
    }
    if (call.root >= unsigned(comm->ranks)) return refuse(INVALID_ARGUMENT, "broadcast from root %u", call.root);
    const size_t bytes = call.count * TYPES[call.type].size, all = bytes * comm->ranks;
    const bool reads = call.kind != BROADCAST || int(call.root) == comm->rank;
    const bool holds = emulated_memory_holds(to, call.kind == ALL_GATHER ? all : bytes) &&
                       (!reads || emulated_memory_holds(from, call.kind == REDUCE_SCATTER ? all : bytes));
    if (bytes == 0 || holds) return SUCCESS;
    return refuse(INVALID_ARGUMENT, "an array of %s lies outside of allocations", name_of(call).c_str());
}

// A call outside a group forms its own group.
Status enqueue(const Call &call, const void *from, void *to, ncclComm *comm, void *stream) {
    const Status status = check(call, from, to, comm);
    if (status != SUCCESS) group_status = status;
    else group.emplace_back(comm, Collective{call, static_cast<const char *>(from), static_cast<char *>(to), stream});
    return group_depth == 0 ? end_group() : status;
}

// Layout of NCCL's struct, up to the fields read here.
struct Config {
    size_t size;
    unsigned magic, version;
    int blocking;
};
} // namespace

extern "C" {
Status ncclGetVersion(int *version) {
    const char *set = getenv("GROVE_CUDA_NCCL");
    *version = set ? atoi(set) : 22809;
    return SUCCESS;
}

Status ncclGetUniqueId(Id *id) {
    std::random_device random;
    *id = {};
    snprintf(id->text, sizeof id->text, "grove_nccl %d %08x%08x", int(getpid()), random(), random());
    return SUCCESS;
}

// Waits for all ranks, also in a group, unless the configuration is non-blocking.
Status ncclCommInitRankConfig(ncclComm **comm, int ranks, Id id, int rank, const Config *config) {
    *comm = nullptr;
    if (rank < 0 || rank >= ranks) return refuse(INVALID_ARGUMENT, "rank %d of %d", rank, ranks);
    if (memchr(id.text, 0, sizeof id.text) == nullptr || strncmp(id.text, "grove_nccl ", 11) != 0) {
        return refuse(INVALID_ARGUMENT, "the id is not one of ncclGetUniqueId");
    }
    if (config && config->magic != 0xcafebeef) return refuse(INVALID_ARGUMENT, "the configuration is not initialized");
    const auto made = new ncclComm(id, rank, ranks, !config || config->blocking != 0);
    const Status status = made->blocking ? made->wait_until_met() : IN_PROGRESS;
    if (status == SUCCESS || status == IN_PROGRESS) *comm = made;
    else made->end(true);
    return status;
}
Status ncclCommInitRank(ncclComm **comm, int ranks, Id id, int rank) {
    return ncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}

Status ncclCommCount(const ncclComm *comm, int *count) {
    *count = comm->ranks;
    return SUCCESS;
}
Status ncclCommUserRank(const ncclComm *comm, int *rank) {
    *rank = comm->rank;
    return SUCCESS;
}
Status ncclCommCuDevice(const ncclComm *comm, int *device) {
    *device = comm->device;
    return SUCCESS;
}
Status ncclCommGetAsyncError(ncclComm *comm, Status *error) {
    *error = comm ? comm->state() : INVALID_ARGUMENT;
    return *error == INVALID_ARGUMENT ? usable(comm) : SUCCESS;
}

Status ncclCommFinalize(ncclComm *comm) {
    const Status state = usable(comm);
    return state == INVALID_ARGUMENT ? state : comm->finalize(comm->blocking);
}
Status ncclCommDestroy(ncclComm *comm) {
    if (const Status state = usable(comm); state == INVALID_ARGUMENT) return state;
    comm->finalize(true);
    return comm->end(false);
}
Status ncclCommAbort(ncclComm *comm) {
    const Status state = usable(comm);
    return state == INVALID_ARGUMENT ? state : comm->end(true);
}

const char *ncclGetErrorString(Status status) {
    return unsigned(status) < std::size(TEXTS) ? TEXTS[status] : "unknown result code";
}
const char *ncclGetLastError(ncclComm *) {
    static thread_local std::string text;
    const std::lock_guard<std::mutex> guard(error_lock);
    text = last_error;
    return text.c_str();
}

Status ncclGroupStart() {
    group_depth++;
    return SUCCESS;
}
Status ncclGroupEnd() {
    if (group_depth == 0) return refuse(INVALID_USAGE, "a group ends that did not begin");
    return --group_depth == 0 ? end_group() : SUCCESS;
}

Status ncclAllReduce(const void *from, void *to, size_t count, unsigned type, unsigned operation, ncclComm *comm,
                     void *stream) {
    return enqueue({ALL_REDUCE, type, operation, 0, count, 0}, from, to, comm, stream);
}
Status ncclReduceScatter(const void *from, void *to, size_t count, unsigned type, unsigned operation, ncclComm *comm,
                         void *stream) {
    return enqueue({REDUCE_SCATTER, type, operation, 0, count, 0}, from, to, comm, stream);
}
Status ncclAllGather(const void *from, void *to, size_t count, unsigned type, ncclComm *comm, void *stream) {
    return enqueue({ALL_GATHER, type, SUM, 0, count, 0}, from, to, comm, stream);
}
Status ncclBroadcast(const void *from, void *to, size_t count, unsigned type, int root, ncclComm *comm, void *stream) {
    return enqueue({BROADCAST, type, SUM, uint32_t(root), count, 0}, from, to, comm, stream);
}
}
