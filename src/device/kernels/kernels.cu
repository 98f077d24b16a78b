// What device stages do to tensors. Every kernel strides over the elements that the grid has no
// thread for. Kept free of headers, so that NVRTC alone compiles it: halves are handled by the two
// instructions that convert them.

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;
typedef double f64;
struct boolean { u8 value; };
struct f16 { u16 bits; };
struct bf16 { u16 bits; };

#define EACH(i, n)                                                                \
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n;               \
         i += (u64)gridDim.x * blockDim.x)

template <typename T> __device__ inline f64 widen(T x) { return (f64)x; }
template <> __device__ inline f64 widen(boolean x) { return x.value != 0 ? 1.0 : 0.0; }
template <> __device__ inline f64 widen(f16 x) {
    f32 wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
}
template <> __device__ inline f64 widen(bf16 x) { return __int_as_float((u32)x.bits << 16); }

template <typename T> __device__ inline T narrow(f64 x) { return (T)x; }
template <> __device__ inline f16 narrow(f64 x) {
    f16 half;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(half.bits) : "d"(x));
    return half;
}
// To the nearest, ties to even: first to a f32 that is rounded to odd, which makes the second rounding
// right. A NaN stays one.
template <> __device__ inline bf16 narrow(f64 x) {
    f32 near = __double2float_rz(x);
    u32 bits = __float_as_int(near);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bf16{(u16)((bits >> 16) | 0x40u)};
    if ((f64)near != x) bits |= 1;
    bits += 0x7fffu + ((bits >> 16) & 1);
    return bf16{(u16)(bits >> 16)};
}

#define CAST(from_name, from, to)                                                                 \
    extern "C" __global__ void cast_##from_name##_##to(const from *in, to *out, u64 n) {          \
        EACH(i, n) out[i] = narrow<to>(widen<from>(in[i]));                                       \
    }
#define CASTS(from_name, from)                                                                    \
    CAST(from_name, from, f16) CAST(from_name, from, bf16) CAST(from_name, from, f32)             \
    CAST(from_name, from, f64)
CASTS(bool, boolean)
CASTS(i8, i8) CASTS(i16, i16) CASTS(i32, i32) CASTS(i64, i64)
CASTS(u8, u8) CASTS(u16, u16) CASTS(u32, u32) CASTS(u64, u64)
CASTS(f16, f16) CASTS(bf16, bf16) CASTS(f32, f32) CASTS(f64, f64)

#define NORMALIZE(T)                                                                              \
    extern "C" __global__ void normalize_##T(T *data, u64 n, T mean, T inverse) {                 \
        EACH(i, n) data[i] = (data[i] - mean) * inverse;                                          \
    }
NORMALIZE(f32) NORMALIZE(f64)

// The elements of a box of a tensor in C order; a stride is negative where the box is flipped.
struct Eight { i64 of[8]; };
#define PICK(size, T)                                                                             \
    extern "C" __global__ void pick_##size(const T *in, T *out, u64 n, Eight shape, Eight strides, \
                                           u64 offset) {                                          \
        EACH(i, n) {                                                                              \
            u64 left = i;                                                                         \
            i64 at = offset;                                                                      \
            for (int dim = 7; dim >= 0; dim--) {                                                  \
                at += (i64)(left % shape.of[dim]) * strides.of[dim];                              \
                left /= shape.of[dim];                                                            \
            }                                                                                     \
            out[i] = in[at];                                                                      \
        }                                                                                         \
    }
PICK(1, u8) PICK(2, u16) PICK(4, u32) PICK(8, u64)

// For measurements: keeps one multiprocessor busy for so long.
extern "C" __global__ void spin(u64 n, u64 ns) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    u64 begun, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - begun < ns);
}

// For measurements: adds the words of a tensor to `sum`.
extern "C" __global__ void checksum(const u32 *in, u64 *sum, u64 n) {
    u64 of_thread = 0;
    EACH(i, n) of_thread += in[i];
    atomicAdd(sum, of_thread);
}
