// A libcublas.so.12 for the CPU, with the calls that grove makes. A thread of the handle computes products
// asynchronously on their stream: a program that reads a result without waiting for the stream gets the old data.
//
// Environment variables:
//   GROVE_CUDA_CUBLAS_STATUS  status of products (0), except of the small product that probes a dtype
//   GROVE_CUDA_KERNELS        if not `run`, nothing is computed

#include "work.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "include/cuda_bf16.h"
#include "include/cuda_fp16.h"

namespace {
enum Status { SUCCESS = 0, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum Type { F32 = 0, F16 = 2, BF16 = 14 };

size_t size_of(int type) { return type == F32 ? 4 : 2; }

// A matrix in column-major order, or row-major if transposed.
struct Matrix {
    const char *begin;
    int transposed, stride;
    int64_t batch_stride;
};

struct Product {
    int m, n, k, count, type;
    Matrix a, b;
    char *c;
    int stride;
    int64_t batch_stride;
    uint64_t work = 0;
};

float value(const char *begin, size_t index, int type) {
    if (type == F32) return reinterpret_cast<const float *>(begin)[index];
    if (type == F16) return float(reinterpret_cast<const __half *>(begin)[index]);
    return float(reinterpret_cast<const __nv_bfloat16 *>(begin)[index]);
}

void store(char *begin, size_t index, int type, float x) {
    if (type == F32) reinterpret_cast<float *>(begin)[index] = x;
    else if (type == F16) reinterpret_cast<__half *>(begin)[index] = __half(x);
    else reinterpret_cast<__nv_bfloat16 *>(begin)[index] = __nv_bfloat16(x);
}

// Converts a matrix to floats [rows, columns] in row-major order.
std::vector<float> floats(const Matrix &x, int64_t batch, int rows, int columns, int type) {
    std::vector<float> all(size_t(rows) * columns);
    const char *begin = x.begin + batch * x.batch_stride * int64_t(size_of(type));
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++) {
            const size_t index = x.transposed ? size_t(i) * x.stride + j : size_t(j) * x.stride + i;
            all[size_t(i) * columns + j] = value(begin, index, type);
        }
    }
    return all;
}

void compute(const Product &product) {
    const auto &[m, n, k, count, type, a, b, c, stride, batch_stride, work] = product;
    for (int batch = 0; batch < count; batch++) {
        const std::vector<float> lhs = floats(a, batch, m, k, type), rhs = floats(b, batch, k, n, type);
        std::vector<float> row(n);
        for (int i = 0; i < m; i++) {
            std::fill(row.begin(), row.end(), 0.0f);
            for (int l = 0; l < k; l++) {
                const float factor = lhs[size_t(i) * k + l];
                for (int j = 0; j < n; j++) row[j] += factor * rhs[size_t(l) * n + j];
            }
            char *begin = c + batch * batch_stride * int64_t(size_of(type));
            for (int j = 0; j < n; j++) store(begin, size_t(j) * stride + i, type, row[j]);
        }
    }
}

// Returns the number of bytes from the first to the last element of a batch of matrices.
size_t extent(int rows, int columns, const Matrix &x, int count, int type) {
    const size_t lines = x.transposed ? rows : columns, line = x.transposed ? columns : rows;
    return size_of(type) * ((lines - 1) * x.stride + line + size_t(count - 1) * x.batch_stride);
}

[[gnu::format(printf, 2, 3)]] Status refuse(Status status, const char *format, ...) {
    char text[1000];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    fprintf(stderr, "emulated cuBLAS: %s\n", text);
    emulated_log((std::string("refused ") + text).c_str());
    return status;
}

// Never destroyed: its thread may be working when the program ends.
struct Handle {
    void *stream = nullptr;
    std::mutex lock;
    std::condition_variable changed;
    std::deque<Product> queue;

    Handle() { std::thread([this] { run(); }).detach(); }

    void add(Product product) {
        const std::lock_guard<std::mutex> guard(lock);
        product.work = emulated_work_begins(stream);
        queue.push_back(product);
        changed.notify_all();
    }

    void run() {
        const char *kernels = getenv("GROVE_CUDA_KERNELS");
        const bool computes = !kernels || strcmp(kernels, "run") == 0;
        while (true) {
            std::unique_lock<std::mutex> guard(lock);
            changed.wait(guard, [&] { return !queue.empty(); });
            const Product next = queue.front();
            queue.pop_front();
            guard.unlock();
            while (!emulated_work_may_run(next.work, 10)) {
            }
            if (computes) compute(next);
            emulated_work_ends(next.work);
        }
    }
};
} // namespace

extern "C" {
Status cublasCreate_v2(Handle **handle) {
    *handle = new Handle;
    return SUCCESS;
}
Status cublasSetStream_v2(Handle *handle, void *stream) {
    handle->stream = stream;
    return SUCCESS;
}
Status cublasSetMathMode(Handle *, int) { return SUCCESS; }

const char *cublasGetStatusString(Status status) {
    switch (status) {
    case SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "unknown status";
}

Status cublasGemmStridedBatchedEx(Handle *handle, int a_transposed, int b_transposed, int m, int n, int k, const float *alpha,
                                  const char *a, int a_type, int a_stride, int64_t a_batch_stride, const char *b, int b_type,
                                  int b_stride, int64_t b_batch_stride, const float *beta, char *c, int c_type, int c_stride,
                                  int64_t c_batch_stride, int count, int, int) {
    const char *status = getenv("GROVE_CUDA_CUBLAS_STATUS");
    if (status && m != 16) return Status(atoi(status));
    if (*alpha != 1 || *beta != 0) return refuse(NOT_SUPPORTED, "factors other than 1 and 0");
    if (a_type != b_type || a_type != c_type || (a_type != F32 && a_type != F16 && a_type != BF16)) {
        return refuse(NOT_SUPPORTED, "types %d, %d and %d", a_type, b_type, c_type);
    }
    if (m < 1 || n < 1 || k < 1 || count < 1) return refuse(INVALID_VALUE, "sizes %d, %d, %d, %d", m, n, k, count);
    if (a_stride < (a_transposed ? k : m) || b_stride < (b_transposed ? n : k) || c_stride < m) {
        return refuse(INVALID_VALUE, "strides %d, %d and %d", a_stride, b_stride, c_stride);
    }
    const Product product = {m,           n, k, count, a_type, {a, a_transposed, a_stride, a_batch_stride}, {b, b_transposed, b_stride, b_batch_stride}, c, c_stride, c_batch_stride};
    const Matrix out = {c, 0, c_stride, c_batch_stride};
    if (!emulated_memory_holds(a, extent(m, k, product.a, count, a_type)) ||
        !emulated_memory_holds(b, extent(k, n, product.b, count, a_type)) ||
        !emulated_memory_holds(c, extent(m, n, out, count, a_type))) {
        return refuse(EXECUTION_FAILED, "a matrix lies outside of allocations");
    }
    char line[200];
    snprintf(line, sizeof line, "cublas %d x [%d, %d] x [%d, %d], type %d", count, n, k, k, m, a_type);
    emulated_log(line);
    handle->add(product);
    return SUCCESS;
}
}
