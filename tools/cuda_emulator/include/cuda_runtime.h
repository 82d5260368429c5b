// Replacement for CUDA's headers when g++ compiles generated kernels.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
// The emulator defines the array that kernels declare, dynamic_shared_mem.
#define __shared__
#define __constant__ const
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __restrict__ __restrict

struct uint3 {
    unsigned x, y, z;
};
using dim3 = uint3;
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }

// Same as in blocks.hpp; defined in libcuda.so.1.
struct EmulatedThread {
    uint3 thread, block, block_size, grid_size;
    unsigned lane, warp;
    unsigned long long *exchanged;
};
extern "C" {
extern EmulatedThread emulated;
void emulated_wait_for_block();
void emulated_wait_for_warp();
}

#define threadIdx emulated.thread
#define blockIdx emulated.block
#define blockDim emulated.block_size
#define gridDim emulated.grid_size
constexpr int warpSize = 32;

inline void __syncthreads() { emulated_wait_for_block(); }
inline void __syncwarp(unsigned = ~0u) { emulated_wait_for_warp(); }
inline void __threadfence() {}
inline void __threadfence_block() {}

// Calls a kernel with the addresses of its arguments, as the driver does.
template <class... A, size_t... I>
void emulated_call_with(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_cv_t<std::remove_reference_t<A>> *>(arguments[I])...);
}
template <class... A> void emulated_call(void (*kernel)(A...), void **arguments) {
    emulated_call_with(kernel, arguments, std::index_sequence_for<A...>{});
}

// --- between the lanes of a warp

// Returns the result of `from`, which reads the values of all lanes. Lanes that have ended keep their last values.
template <class T, class F> auto emulated_exchange(T value, F from) {
    static_assert(sizeof(T) <= sizeof(unsigned long long));
    auto exchanged = emulated.exchanged + emulated.warp * warpSize;
    exchanged[emulated.lane] = 0;
    std::memcpy(exchanged + emulated.lane, &value, sizeof(T));
    emulated_wait_for_warp();
    auto found = from([exchanged](unsigned lane) {
        T value;
        std::memcpy(&value, exchanged + lane, sizeof(T));
        return value;
    });
    // Wait until all lanes have read the values before any lane writes the next one.
    emulated_wait_for_warp();
    return found;
}

// Lanes exchange values within groups of `width`; a lane whose source is outside keeps its own value.
template <class T> T __shfl_sync(unsigned, T value, int lane, int width = 32) {
    const int group = int(emulated.lane) / width * width;
    return emulated_exchange(value, [=](auto at) { return at(unsigned(group + (lane & (width - 1)))); });
}
template <class T> T __shfl_xor_sync(unsigned, T value, int mask, int = 32) {
    const unsigned lane = emulated.lane ^ unsigned(mask);
    return emulated_exchange(value, [=](auto at) { return at(lane < 32 ? lane : emulated.lane); });
}
template <class T> T __shfl_up_sync(unsigned, T value, unsigned offset, int width = 32) {
    const int own = int(emulated.lane), from = own - int(offset);
    return emulated_exchange(value, [=](auto at) { return at(unsigned(from < own / width * width ? own : from)); });
}
template <class T> T __shfl_down_sync(unsigned, T value, unsigned offset, int width = 32) {
    const int own = int(emulated.lane), from = own + int(offset);
    return emulated_exchange(value, [=](auto at) { return at(unsigned(from >= own / width * width + width ? own : from)); });
}
// In an incomplete warp, missing lanes vote no.
inline unsigned __ballot_sync(unsigned, int yes) {
    const unsigned threads = blockDim.x * blockDim.y * blockDim.z, first = emulated.warp * 32;
    return emulated_exchange(yes != 0, [=](auto at) {
        unsigned lanes = 0;
        for (unsigned lane = 0; lane < 32 && first + lane < threads; lane++) lanes |= unsigned(at(lane)) << lane;
        return lanes;
    });
}
inline int __any_sync(unsigned mask, int yes) { return __ballot_sync(mask, yes) != 0; }
inline int __all_sync(unsigned mask, int yes) { return __ballot_sync(mask, !yes) == 0; }

// --- bits

inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((1ull * a * b) >> 32); }
inline int __mulhi(int a, int b) { return int((1ll * a * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
inline long long __mul64hi(long long a, long long b) {
    return static_cast<long long>((static_cast<__int128>(a) * b) >> 64);
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; bit++) reversed |= (x >> bit & 1) << (31 - bit);
    return reversed;
}
inline unsigned long long __brevll(unsigned long long x) {
    return static_cast<unsigned long long>(__brev(unsigned(x))) << 32 | __brev(unsigned(x >> 32));
}

template <class To, class From> To emulated_bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof(To));
    return to;
}
inline unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
inline int __float_as_int(float x) { return emulated_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return emulated_bits<float>(x); }
inline float __int_as_float(int x) { return emulated_bits<float>(x); }

// --- numbers

using std::abs, std::acos, std::acosh, std::asin, std::asinh, std::atan, std::atan2, std::atanh, std::cbrt, std::ceil,
    std::copysign, std::cos, std::cosh, std::erf, std::exp, std::exp2, std::expm1, std::floor, std::fma, std::fmod, std::hypot,
    std::isinf, std::isnan, std::log, std::log10, std::log1p, std::log2, std::pow, std::rint, std::round, std::sin, std::sinh,
    std::sqrt, std::tan, std::tanh, std::trunc;

// If one argument is NaN, min and max return the other.
template <class T, class U> using EmulatedCommon = std::enable_if_t<std::is_arithmetic_v<T> && std::is_arithmetic_v<U>, std::common_type_t<T, U>>;
template <class T, class U> EmulatedCommon<T, U> min(T a, U b) {
    using R = std::common_type_t<T, U>;
    if constexpr (std::is_floating_point_v<R>) return std::fmin(R(a), R(b));
    else return R(b) < R(a) ? R(b) : R(a);
}
template <class T, class U> EmulatedCommon<T, U> max(T a, U b) {
    using R = std::common_type_t<T, U>;
    if constexpr (std::is_floating_point_v<R>) return std::fmax(R(a), R(b));
    else return R(a) < R(b) ? R(b) : R(a);
}
inline float rsqrt(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __tanf(float x) { return std::tan(x); }
inline float __tanhf(float x) { return std::tanh(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __frsqrt_rn(float x) { return 1 / std::sqrt(x); }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }

// --- atomic operations: one thread runs at a time

template <class T, class F> T emulated_replace(T *at, F next) {
    const T before = *at;
    *at = next(before);
    return before;
}
template <class T, class U> T atomicAdd(T *at, U x) { return emulated_replace(at, [=](T was) { return T(was + T(x)); }); }
template <class T, class U> T atomicSub(T *at, U x) { return emulated_replace(at, [=](T was) { return T(was - T(x)); }); }
template <class T, class U> T atomicMax(T *at, U x) { return emulated_replace(at, [=](T was) { return max(was, T(x)); }); }
template <class T, class U> T atomicMin(T *at, U x) { return emulated_replace(at, [=](T was) { return min(was, T(x)); }); }
template <class T, class U> T atomicAnd(T *at, U x) { return emulated_replace(at, [=](T was) { return was & T(x); }); }
template <class T, class U> T atomicOr(T *at, U x) { return emulated_replace(at, [=](T was) { return was | T(x); }); }
template <class T, class U> T atomicXor(T *at, U x) { return emulated_replace(at, [=](T was) { return was ^ T(x); }); }
template <class T, class U> T atomicExch(T *at, U x) { return emulated_replace(at, [=](T) { return T(x); }); }
template <class T, class U, class V> T atomicCAS(T *at, U expected, V x) {
    return emulated_replace(at, [=](T was) { return was == T(expected) ? T(x) : was; });
}
