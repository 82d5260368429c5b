#pragma once

#include "emulated_float16.hpp"

struct EmulatedHalf {
    static uint16_t pack(float value) { return emulated_bits<uint16_t>(static_cast<_Float16>(value)); }
    static float unpack(uint16_t bits) { return float(emulated_bits<_Float16>(bits)); }
};
using __half = EmulatedFloat16<EmulatedHalf>;
using __half2 = EmulatedFloat16x2<EmulatedHalf>;
using half = __half;
using half2 = __half2;

inline __half __float2half(float value) { return value; }
inline __half __float2half_rn(float value) { return value; }
inline float __half2float(__half value) { return value; }
inline __half2 __half2half2(__half value) { return {value, value}; }
inline __half2 __float2half2_rn(float value) { return {value, value}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
