// Running the blocks of a kernel that g++ compiled.
#pragma once

struct Dim3 {
    unsigned x, y, z;
};

// What a compiled kernel sees of the thread that runs; include/cuda_runtime.h declares the same.
struct EmulatedThread {
    Dim3 thread, block, block_size, grid_size;
    unsigned lane, warp;
    // What the lanes of each warp hand each other.
    unsigned long long *exchanged;
};

struct Kernel {
    const char *name;
    void (*entry)(void **arguments);
    // Whether its threads wait for each other.
    bool waits;
};

// Null, or what is wrong with the kernel. One launch at a time.
const char *run_blocks(const Kernel &kernel, Dim3 grid, Dim3 block, unsigned shared_bytes, void **arguments);

constexpr unsigned MOST_SHARED_BYTES = 232448, MOST_THREADS = 1024;
