// Each thread of a block is a fiber on the calling thread, and runs until it waits for other threads or ends. A kernel
// with a missing barrier therefore reads values before they are written, and is likely to fail in one of the two
// thread orders.

#include "blocks.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#ifndef __x86_64__
#error "the switch between fibers is written for x86-64"
#endif

extern "C" {
EmulatedThread emulated;
// Dynamic shared memory of kernels.
alignas(1024) unsigned char dynamic_shared_mem[MOST_SHARED_BYTES];
void emulated_wait_for_block();
void emulated_wait_for_warp();
void switch_fiber(void **leaves, void *enters);
}

// Saves the callee-saved registers, in the order in which `make_fiber` lays them out.
asm(R"(
.globl switch_fiber
.type switch_fiber, @function
switch_fiber:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
)");

namespace {
enum class State : unsigned char { Ready, AtBlock, AtWarp, Ended };

constexpr size_t STACK = 256 << 10, PAGE = 4096;
constexpr unsigned WARP = 32, SAVED_REGISTERS = 6;

char *stacks;
void *scheduler;
void *fibers[MOST_THREADS];
State states[MOST_THREADS];
unsigned long long exchanged[MOST_THREADS];
unsigned current, threads;
Kernel running;
void **running_arguments;

char *make_stacks() {
    const auto flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *memory = mmap(nullptr, MOST_THREADS * STACK, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) abort();
    auto bytes = static_cast<char *>(memory);
    // A guard page stops a stack overflow.
    for (unsigned i = 0; i < MOST_THREADS; i++) mprotect(bytes + i * STACK, PAGE, PROT_NONE);
    return bytes;
}

void enter(unsigned thread) {
    const auto &size = emulated.block_size;
    emulated.thread = {thread % size.x, thread / size.x % size.y, thread / size.x / size.y};
    emulated.lane = thread % WARP;
    emulated.warp = thread / WARP;
    current = thread;
}

void leave(State state) {
    states[current] = state;
    switch_fiber(&fibers[current], scheduler);
}

void fiber() {
    running.entry(running_arguments);
    leave(State::Ended);
    abort();
}

void make_fiber(unsigned thread) {
    auto top = reinterpret_cast<uintptr_t *>(stacks + (thread + 1) * STACK);
    // Lay out the stack as after a call; `fiber` never returns.
    *--top = 0;
    *--top = reinterpret_cast<uintptr_t>(&fiber);
    top -= SAVED_REGISTERS;
    std::memset(top, 0, SAVED_REGISTERS * sizeof(*top));
    fibers[thread] = top;
    states[thread] = State::Ready;
}

bool backwards() {
    static const bool backwards = getenv("GROVE_CUDA_BACKWARDS") != nullptr;
    return backwards;
}

unsigned nth(unsigned i, unsigned count) { return backwards() ? count - 1 - i : i; }

// Runs a warp until all of its threads have ended or wait at a block barrier.
const char *run_warp(unsigned first) {
    const unsigned lanes = std::min(WARP, threads - first);
    const auto count = [&](State state) { return std::count(states + first, states + first + lanes, state); };
    while (true) {
        for (unsigned i = 0; i < lanes; i++) {
            const unsigned thread = first + nth(i, lanes);
            if (states[thread] != State::Ready) continue;
            enter(thread);
            switch_fiber(&scheduler, fibers[thread]);
        }
        if (count(State::AtWarp) == 0) return nullptr;
        if (count(State::AtBlock) != 0) return "some threads of a warp wait for the warp, others for the block";
        std::replace(states + first, states + first + lanes, State::AtWarp, State::Ready);
    }
}

const char *run_block() {
    if (!running.waits) {
        for (unsigned i = 0; i < threads; i++) {
            enter(nth(i, threads));
            running.entry(running_arguments);
        }
        return nullptr;
    }
    for (unsigned thread = 0; thread < threads; thread++) make_fiber(thread);
    const unsigned warps = (threads + WARP - 1) / WARP;
    do {
        std::replace(states, states + threads, State::AtBlock, State::Ready);
        for (unsigned i = 0; i < warps; i++) {
            if (const char *wrong = run_warp(nth(i, warps) * WARP)) return wrong;
        }
    } while (std::count(states, states + threads, State::AtBlock) != 0);
    return nullptr;
}
} // namespace

void emulated_wait_for_block() { leave(State::AtBlock); }
void emulated_wait_for_warp() { leave(State::AtWarp); }

const char *run_blocks(const Kernel &kernel, Dim3 grid, Dim3 block, unsigned shared_bytes, void **arguments) {
    if (!stacks) stacks = make_stacks();
    running = kernel;
    running_arguments = arguments;
    threads = block.x * block.y * block.z;
    emulated.block_size = block;
    emulated.grid_size = grid;
    emulated.exchanged = exchanged;
    const unsigned long long blocks = 1ull * grid.x * grid.y * grid.z;
    for (unsigned long long i = 0; i < blocks; i++) {
        const auto index = backwards() ? blocks - 1 - i : i;
        emulated.block = {
            unsigned(index % grid.x), unsigned(index / grid.x % grid.y), unsigned(index / grid.x / grid.y)};
        // Fill with NaN, so that no kernel relies on initial values.
        std::memset(dynamic_shared_mem, 0xff, shared_bytes);
        if (const char *wrong = run_block()) return wrong;
    }
    return nullptr;
}
