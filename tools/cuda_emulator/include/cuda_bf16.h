#pragma once

#include "emulated_float16.hpp"

// bfloat16: the upper half of a float.
struct EmulatedBfloat16 {
    static uint16_t pack(float value) {
        const uint32_t bits = emulated_bits<uint32_t>(value);
        if (std::isnan(value)) return 0x7fff;
        // Rounds to nearest, ties to even.
        return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    static float unpack(uint16_t bits) { return emulated_bits<float>(uint32_t(bits) << 16); }
};
using __nv_bfloat16 = EmulatedFloat16<EmulatedBfloat16>;
using __nv_bfloat162 = EmulatedFloat16x2<EmulatedBfloat16>;

inline __nv_bfloat16 __float2bfloat16(float value) { return value; }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return value; }
inline float __bfloat162float(__nv_bfloat16 value) { return value; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 value) { return {value, value}; }
