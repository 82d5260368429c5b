// Execution of the blocks of a kernel compiled by g++.
#pragma once

struct Dim3 {
    unsigned x, y, z;
};

// State of the running thread, as compiled kernels see it; include/cuda_runtime.h declares the same struct.
struct EmulatedThread {
    Dim3 thread, block, block_size, grid_size;
    unsigned lane, warp;
    // Exchange buffer of the lanes of each warp.
    unsigned long long *exchanged;
};

struct Kernel {
    const char *name;
    void (*entry)(void **arguments);
    // True if its threads synchronise with each other.
    bool waits;
};

// Runs a kernel. Returns null, or an error message. Not reentrant.
const char *run_blocks(const Kernel &kernel, Dim3 grid, Dim3 block, unsigned shared_bytes, void **arguments);

constexpr unsigned MOST_SHARED_BYTES = 232448, MOST_THREADS = 1024;
