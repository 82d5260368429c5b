// Ranks run on one machine; each pair is connected by a Unix socket.

#include "peers.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace nccl {
namespace {
Span span_of(Call &call) { return {reinterpret_cast<char *>(&call), sizeof call}; }

// Sends or receives as many bytes as the socket accepts now.
Status advance(int socket, Span &span, bool sends) {
    while (span.bytes != 0) {
        const ssize_t moved = sends ? send(socket, span.begin, span.bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                                    : recv(socket, span.begin, span.bytes, MSG_DONTWAIT);
        if (moved < 0 && errno == EAGAIN) break;
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0 && errno == EFAULT) return refuse(CUDA_ERROR, "a collective's array is gone before it ended");
        if (moved <= 0) return REMOTE_ERROR;
        span.begin += moved;
        span.bytes -= size_t(moved);
    }
    return SUCCESS;
}

Status socket_fails() { return refuse(SYSTEM_ERROR, "a socket fails: %s", strerror(errno)); }

// Returns an abstract socket address, which disappears with its process.
std::pair<sockaddr_un, socklen_t> address_of(const std::string &name, int rank) {
    sockaddr_un address = {AF_UNIX, {}};
    const int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%.80s %d", name.c_str(), rank);
    return {address, socklen_t(offsetof(sockaddr_un, sun_path) + 1 + size_t(length))};
}
} // namespace

// Waits until a descriptor is ready; returns false on abort.
bool Peers::wait_for(std::vector<pollfd> descriptors, int milliseconds) const {
    descriptors.push_back({abort_event, POLLIN, 0});
    while (poll(descriptors.data(), descriptors.size(), milliseconds) < 0 && errno == EINTR) {
    }
    return !aborted;
}

// Accepts connections of higher ranks, which send their rank.
Status Peers::accept_all(int listener) {
    for (int missing = ranks - 1 - rank; missing > 0; missing--) {
        if (!wait_for({{listener, POLLIN, 0}})) return IN_PROGRESS;
        const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (socket < 0) return socket_fails();
        int peer = -1;
        const bool came = wait_for({{socket, POLLIN, 0}}) && recv(socket, &peer, sizeof peer, 0) == sizeof peer;
        if (!came || peer <= rank || peer >= ranks || sockets[peer] >= 0) {
            ::close(socket);
            return REMOTE_ERROR;
        }
        sockets[peer] = socket;
    }
    return SUCCESS;
}

Status Peers::meet() {
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto [own, own_length] = address_of(name, rank);
    if (bind(listener, reinterpret_cast<const sockaddr *>(&own), own_length) != 0 || listen(listener, ranks) != 0) {
        const bool twice = errno == EADDRINUSE;
        const Status status = twice ? refuse(INVALID_USAGE, "two processes are rank %d", rank) : socket_fails();
        ::close(listener);
        return status;
    }
    Status status = SUCCESS;
    for (int peer = 0; peer < rank && status == SUCCESS; peer++) {
        const auto [address, length] = address_of(name, peer);
        sockets[peer] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        while (status == SUCCESS && connect(sockets[peer], reinterpret_cast<const sockaddr *>(&address), length) != 0) {
            // The connection is refused until the peer listens.
            if (errno != ECONNREFUSED && errno != EINTR) status = socket_fails();
            else if (!wait_for({}, 2)) status = IN_PROGRESS;
        }
        const bool connected = status == SUCCESS;
        if (connected && send(sockets[peer], &rank, sizeof rank, MSG_NOSIGNAL) != sizeof rank) status = REMOTE_ERROR;
    }
    if (status == SUCCESS) status = accept_all(listener);
    ::close(listener);
    return status;
}

Status Peers::exchange(const Call &call, std::vector<Span> out, std::vector<Span> in) const {
    std::vector<Call> calls(ranks + 1, call);
    std::vector<Span> out_first(ranks, span_of(calls[ranks])), in_first;
    for (Call &theirs : calls) in_first.push_back(span_of(theirs));
    while (true) {
        std::vector<pollfd> unfinished;
        for (int peer = 0; peer < ranks; peer++) {
            if (peer == rank) continue;
            const int socket = sockets[peer];
            Status status = advance(socket, out_first[peer], true);
            if (status == SUCCESS && out_first[peer].bytes == 0) status = advance(socket, out[peer], true);
            if (status == SUCCESS) status = advance(socket, in_first[peer], false);
            if (status == SUCCESS && in_first[peer].bytes == 0) {
                if (memcmp(&calls[peer], &call, sizeof call) != 0) {
                    return refuse(INVALID_USAGE, "rank %d calls %s, but rank %d calls %s", rank,
                                  name_of(call).c_str(), peer, name_of(calls[peer]).c_str());
                }
                status = advance(socket, in[peer], false);
            }
            if (status != SUCCESS) return status;
            const int sends = out_first[peer].bytes + out[peer].bytes != 0 ? POLLOUT : 0;
            const int receives = in_first[peer].bytes + in[peer].bytes != 0 ? POLLIN : 0;
            if (sends | receives) unfinished.push_back({socket, short(sends | receives), 0});
        }
        if (unfinished.empty()) return SUCCESS;
        if (!wait_for(unfinished)) return IN_PROGRESS;
    }
}

void Peers::abort() {
    aborted = true;
    eventfd_write(abort_event, 1);
}

void Peers::close() {
    for (const int socket : sockets) {
        if (socket >= 0) ::close(socket);
    }
    ::close(abort_event);
}
} // namespace nccl
