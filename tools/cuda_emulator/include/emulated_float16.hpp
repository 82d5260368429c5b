// 16-bit floating-point types: computed in f32 and rounded to nearest, as on the hardware.
#pragma once

#include "cuda_runtime.h"

// `Format` has `pack` and `unpack`, which convert between a float and its 16-bit encoding.
template <class Format> struct EmulatedFloat16 {
    uint16_t bits;

    EmulatedFloat16() = default;
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    EmulatedFloat16(T value) : bits(Format::pack(float(value))) {}
    // Converts from the other format.
    template <class Other> explicit EmulatedFloat16(EmulatedFloat16<Other> value) : EmulatedFloat16(float(value)) {}
    operator float() const { return Format::unpack(bits); }
};

template <class Format> struct EmulatedFloat16x2 {
    EmulatedFloat16<Format> x, y;
};

#define EMULATED_ARITHMETIC(op)                                                                                        \
    template <class F> EmulatedFloat16<F> operator op(EmulatedFloat16<F> a, EmulatedFloat16<F> b) {                    \
        return float(a) op float(b);                                                                                   \
    }                                                                                                                  \
    template <class F> EmulatedFloat16<F> &operator op##=(EmulatedFloat16<F> &a, EmulatedFloat16<F> b) {               \
        return a = a op b;                                                                                             \
    }                                                                                                                  \
    template <class F> EmulatedFloat16x2<F> operator op(EmulatedFloat16x2<F> a, EmulatedFloat16x2<F> b) {              \
        return {a.x op b.x, a.y op b.y};                                                                               \
    }                                                                                                                  \
    template <class F> EmulatedFloat16x2<F> &operator op##=(EmulatedFloat16x2<F> &a, EmulatedFloat16x2<F> b) {         \
        return a = a op b;                                                                                             \
    }
EMULATED_ARITHMETIC(+)
EMULATED_ARITHMETIC(-)
EMULATED_ARITHMETIC(*)
EMULATED_ARITHMETIC(/)
#undef EMULATED_ARITHMETIC

#define EMULATED_COMPARISON(op)                                                                                        \
    template <class F> bool operator op(EmulatedFloat16<F> a, EmulatedFloat16<F> b) { return float(a) op float(b); }
EMULATED_COMPARISON(==)
EMULATED_COMPARISON(!=)
EMULATED_COMPARISON(<)
EMULATED_COMPARISON(<=)
EMULATED_COMPARISON(>)
EMULATED_COMPARISON(>=)
#undef EMULATED_COMPARISON

template <class F> EmulatedFloat16<F> operator-(EmulatedFloat16<F> a) { return -float(a); }
template <class F> EmulatedFloat16x2<F> operator-(EmulatedFloat16x2<F> a) { return {-a.x, -a.y}; }

// A function of a scalar, and its elementwise version for pairs.
#define EMULATED_FUNCTION(name, name2, formula)                                                                        \
    template <class F> EmulatedFloat16<F> name(EmulatedFloat16<F> number) {                                            \
        const float x = number;                                                                                        \
        return formula;                                                                                                \
    }                                                                                                                  \
    template <class F> EmulatedFloat16x2<F> name2(EmulatedFloat16x2<F> both) { return {name(both.x), name(both.y)}; }
EMULATED_FUNCTION(hexp, h2exp, std::exp(x))
EMULATED_FUNCTION(hexp2, h2exp2, std::exp2(x))
EMULATED_FUNCTION(hexp10, h2exp10, std::pow(10.0f, x))
EMULATED_FUNCTION(hlog, h2log, std::log(x))
EMULATED_FUNCTION(hlog2, h2log2, std::log2(x))
EMULATED_FUNCTION(hlog10, h2log10, std::log10(x))
EMULATED_FUNCTION(hsin, h2sin, std::sin(x))
EMULATED_FUNCTION(hcos, h2cos, std::cos(x))
EMULATED_FUNCTION(htanh, h2tanh, std::tanh(x))
EMULATED_FUNCTION(hsqrt, h2sqrt, std::sqrt(x))
EMULATED_FUNCTION(hrsqrt, h2rsqrt, 1 / std::sqrt(x))
EMULATED_FUNCTION(hrcp, h2rcp, 1 / x)
EMULATED_FUNCTION(hfloor, h2floor, std::floor(x))
EMULATED_FUNCTION(hceil, h2ceil, std::ceil(x))
EMULATED_FUNCTION(htrunc, h2trunc, std::trunc(x))
EMULATED_FUNCTION(hrint, h2rint, std::rint(x))
EMULATED_FUNCTION(__habs, __habs2, std::fabs(x))
EMULATED_FUNCTION(__hneg, __hneg2, -x)
#undef EMULATED_FUNCTION

template <class F> bool __hisnan(EmulatedFloat16<F> x) { return std::isnan(float(x)); }
template <class F> int __hisinf(EmulatedFloat16<F> x) { return std::isinf(float(x)) ? (float(x) < 0 ? -1 : 1) : 0; }
template <class F> EmulatedFloat16<F> __hmax(EmulatedFloat16<F> a, EmulatedFloat16<F> b) { return std::fmax(float(a), float(b)); }
template <class F> EmulatedFloat16<F> __hmin(EmulatedFloat16<F> a, EmulatedFloat16<F> b) { return std::fmin(float(a), float(b)); }
template <class F> EmulatedFloat16x2<F> __hmax2(EmulatedFloat16x2<F> a, EmulatedFloat16x2<F> b) {
    return {__hmax(a.x, b.x), __hmax(a.y, b.y)};
}
template <class F> EmulatedFloat16x2<F> __hmin2(EmulatedFloat16x2<F> a, EmulatedFloat16x2<F> b) {
    return {__hmin(a.x, b.x), __hmin(a.y, b.y)};
}
// The product is exact in f64, so only the sum and the conversion round.
template <class F> EmulatedFloat16<F> __hfma(EmulatedFloat16<F> a, EmulatedFloat16<F> b, EmulatedFloat16<F> c) {
    return double(float(a)) * double(float(b)) + double(float(c));
}
template <class F> EmulatedFloat16x2<F> __hfma2(EmulatedFloat16x2<F> a, EmulatedFloat16x2<F> b, EmulatedFloat16x2<F> c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
template <class F> EmulatedFloat16<F> fma(EmulatedFloat16<F> a, EmulatedFloat16<F> b, EmulatedFloat16<F> c) { return __hfma(a, b, c); }
