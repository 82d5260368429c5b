// The processes of a communicator: how they find each other, and how bytes go between them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <vector>

namespace nccl {
// NCCL's numbers.
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

// Goes before all bytes that a rank sends, so that ranks find out when they do not call the same.
struct Call {
    Kind kind;
    uint32_t type, operation, root;
    uint64_t count, number;
};
std::string name_of(const Call &call);

// Says what is wrong, where NCCL gives a number alone.
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
    // Readable once aborted.
    const int abort_event = eventfd(0, EFD_CLOEXEC);

    bool wait_for(std::vector<pollfd> descriptors, int milliseconds = -1) const;
    Status accept_all(int listener);

public:
    Peers(const std::string &name, int rank, int ranks) : name(name), rank(rank), ranks(ranks), sockets(ranks, -1) {}

    // Waits until all have come.
    Status meet();
    // Moves a span to and from each peer, all at once.
    Status exchange(const Call &call, std::vector<Span> out, std::vector<Span> in) const;
    // What another thread waits for ends with IN_PROGRESS.
    void abort();
    bool is_aborted() const { return aborted; }
    void close();
};
} // namespace nccl
