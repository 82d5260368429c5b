// The processes of a communicator: rendezvous, and data transfer between them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <vector>

namespace nccl {
// NCCL's status codes.
enum Status {
    SUCCESS,
    CUDA_ERROR,
    SYSTEM_ERROR,
    INTERNAL_ERROR,
    INVALID_ARGUMENT,
    INVALID_USAGE,
    REMOTE_ERROR,
    IN_PROGRESS,
};
enum Kind : uint32_t { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, INIT };

// Header of all data that a rank sends, so that ranks detect mismatched calls.
struct Call {
    Kind kind;
    uint32_t type, operation, root;
    uint64_t count, number;
};
std::string name_of(const Call &call);

// Logs an error message and returns the status, which is all that NCCL reports.
[[gnu::format(printf, 2, 3)]] Status refuse(Status status, const char *format, ...);

struct Span {
    char *begin = nullptr;
    size_t bytes = 0;
};

class Peers {
    const std::string name;
    const int rank, ranks;
    std::vector<int> sockets;
    std::atomic<bool> aborted{false};
    // Becomes readable on abort.
    const int abort_event = eventfd(0, EFD_CLOEXEC);

    bool wait_for(std::vector<pollfd> descriptors, int milliseconds = -1) const;
    Status accept_all(int listener);

public:
    Peers(const std::string &name, int rank, int ranks) : name(name), rank(rank), ranks(ranks), sockets(ranks, -1) {}

    // Waits until all ranks are connected.
    Status meet();
    // Sends a span to each peer and receives one from each, concurrently.
    Status exchange(const Call &call, std::vector<Span> out, std::vector<Span> in) const;
    // Waits of other threads end with IN_PROGRESS.
    void abort();
    bool is_aborted() const { return aborted; }
    void close();
};
} // namespace nccl
