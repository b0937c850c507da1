// What every kernel starts with: element types, conversions as casts of tensors do them, indices.

#define INLINE static __device__ __forceinline__

struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
// True unless it is 0.
struct truth { unsigned char byte; };

template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };

// The type whose values are all those of an element, and which the machine computes with.
INLINE float widen(f16 x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
}
INLINE float widen(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
INLINE int widen(truth x) { return x.byte != 0; }
INLINE int widen(unsigned char x) { return x; }
INLINE int widen(int x) { return x; }
INLINE long long widen(long long x) { return x; }
INLINE float widen(float x) { return x; }
INLINE double widen(double x) { return x; }

// To float, rounded to odd: rounding that once more, to 16 bits, is as rounding once.
INLINE float to_odd(double x) {
    float near = __double2float_rz(x);
    return (double)near == x || x != x ? near : __uint_as_float(__float_as_uint(near) | 1);
}
INLINE f16 to_f16(float x) {
    f16 narrow;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
    return narrow;
}
INLINE bf16 to_bf16(float x) {
    bf16 narrow;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
    return narrow;
}

// Floats are truncated to integers and saturate, NaN becomes 0; integers wrap; all else is rounded once, to even.
template <class T> struct To;
template <> struct To<float> {
    INLINE float from(float x) { return x; }
    INLINE float from(double x) { return __double2float_rn(x); }
    INLINE float from(int x) { return (float)x; }
    INLINE float from(long long x) { return (float)x; }
};
template <> struct To<double> {
    template <class X> INLINE double from(X x) { return (double)x; }
};
template <> struct To<f16> {
    INLINE f16 from(float x) { return to_f16(x); }
    template <class X> INLINE f16 from(X x) { return to_f16(to_odd((double)x)); }
};
template <> struct To<bf16> {
    INLINE bf16 from(float x) { return to_bf16(x); }
    template <class X> INLINE bf16 from(X x) { return to_bf16(to_odd((double)x)); }
};
template <> struct To<long long> {
    INLINE long long from(float x) { return x != x ? 0 : __float2ll_rz(x); }
    INLINE long long from(double x) { return x != x ? 0 : __double2ll_rz(x); }
    INLINE long long from(int x) { return x; }
    INLINE long long from(long long x) { return x; }
};
template <> struct To<int> {
    INLINE int from(float x) { return x != x ? 0 : __float2int_rz(x); }
    INLINE int from(double x) { return x != x ? 0 : __double2int_rz(x); }
    INLINE int from(int x) { return x; }
    INLINE int from(long long x) { return (int)x; }
};
template <> struct To<unsigned char> {
    INLINE unsigned char from(float x) { return (unsigned char)(x >= 255.0f ? 255 : x > 0.0f ? (int)x : 0); }
    INLINE unsigned char from(double x) { return (unsigned char)(x >= 255.0 ? 255 : x > 0.0 ? (int)x : 0); }
    INLINE unsigned char from(int x) { return (unsigned char)x; }
    INLINE unsigned char from(long long x) { return (unsigned char)x; }
};
template <> struct To<truth> {
    template <class X> INLINE truth from(X x) { return truth{(unsigned char)(x != 0)}; }
};

template <class T, class From> struct Convert {
    INLINE T of(From x) { return To<T>::from(widen(x)); }
};
template <class T> struct Convert<T, T> {
    INLINE T of(T x) { return x; }
};
template <class T, class From> INLINE T convert(From x) { return Convert<T, From>::of(x); }

// Loads and stores of several neighbours at once; the address is a multiple of their size together.
template <int BYTES> struct Raw;
template <> struct Raw<16> { typedef uint4 type; };
template <> struct Raw<8> { typedef uint2 type; };
template <> struct Raw<4> { typedef unsigned type; };
template <> struct Raw<2> { typedef unsigned short type; };
template <> struct Raw<1> { typedef unsigned char type; };
template <class T, int V> union Vector {
    typename Raw<sizeof(T) * V>::type raw;
    T at[V];
};
template <class T, int V> INLINE void load(T (&to)[V], const T* from) {
    Vector<T, V> vector;
    vector.raw = *(const typename Raw<sizeof(T) * V>::type*)from;
#pragma unroll
    for (int i = 0; i < V; i++) to[i] = vector.at[i];
}
template <class T, int V> INLINE void store(T* to, const T (&from)[V]) {
    Vector<T, V> vector;
#pragma unroll
    for (int i = 0; i < V; i++) vector.at[i] = from[i];
    *(typename Raw<sizeof(T) * V>::type*)to = vector.raw;
}

INLINE unsigned long long block_index() { return blockIdx.x + (unsigned long long)blockIdx.y * gridDim.x; }

// Positions and offsets of elements. With 32 bits, both are below 2^31, and divisions are multiplications
// (T. Granlund, P. Montgomery, "Division by invariant integers using multiplication", 1994).
#if WIDE
typedef unsigned long long index_t;
struct Divider { index_t size; };
INLINE index_t quotient(index_t x, Divider by) { return x / by.size; }
#else
typedef unsigned index_t;
struct Divider { unsigned size, magic, shift; };
INLINE index_t quotient(index_t x, Divider by) { return (__umulhi(x, by.magic) + x) >> by.shift; }
#endif

// Axes, the fastest first, and what K operands step along each.
template <int K, int R> struct Grid {
    Divider axes[R];
    index_t strides[K][R];
    __device__ __forceinline__ void at(index_t position, index_t (&offsets)[K]) const {
#pragma unroll
        for (int k = 0; k < K; k++) offsets[k] = 0;
#pragma unroll
        for (int r = 0; r < R; r++) {
            index_t next = r + 1 < R ? quotient(position, axes[r]) : 0;
            index_t along = r + 1 < R ? position - next * axes[r].size : position;
#pragma unroll
            for (int k = 0; k < K; k++) offsets[k] += along * strides[k][r];
            position = next;
        }
    }
};

// The launch's error record: is there an error, the index, its position. The least position stands in the end. While
// somebody writes it the first word is 2; who finds a lower position there has nothing to say.
INLINE void report(long long* record, long long index, long long position) {
    volatile long long* seen = record;
    unsigned long long* lock = (unsigned long long*)record;
    for (;;) {
        long long state = seen[0];
        if (state == 2) continue;
        __threadfence();
        if (state == 1 && seen[2] <= position) return;
        if (atomicCAS(lock, (unsigned long long)state, 2ull) != (unsigned long long)state) continue;
        __threadfence();
        if (state == 0 || position < seen[2]) {
            seen[1] = index;
            seen[2] = position;
        }
        __threadfence();
        atomicExch(lock, 1ull);
        return;
    }
}

// Sums of integers wrap.
INLINE float plus(float a, float b) { return a + b; }
INLINE double plus(double a, double b) { return a + b; }
INLINE float multiplied(float a, float b) { return a * b; }
INLINE double multiplied(double a, double b) { return a * b; }
INLINE long long multiplied(long long a, long long b) {
    return (long long)((unsigned long long)a * (unsigned long long)b);
}
INLINE long long plus(long long a, long long b) {
    return (long long)((unsigned long long)a + (unsigned long long)b);
}
