// Rows of COUNT neighbours. LANES threads share a row. Held: each keeps CHUNKS times V elements in registers, and memory is
// read once. Otherwise (CHUNKS 0) it is read again for each step.

#define BLOCK (LANES > 128 ? LANES : 128)

INLINE float exponential(float x) { return expf(x); }
INLINE double exponential(double x) { return exp(x); }
INLINE float logarithm(float x) { return logf(x); }
INLINE double logarithm(double x) { return log(x); }
INLINE float root(float x) { return sqrtf(x); }
INLINE double root(double x) { return sqrt(x); }
INLINE float infinity(float) { return __int_as_float(0x7f800000); }
INLINE double infinity(double) { return __longlong_as_double(0x7ff0000000000000ll); }

struct Add {
    template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return a + b; }
};
// NaN wins.
struct Largest {
    template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return b > a || b != b ? b : a; }
};

// Combines what the lanes of a row have; all of them get the result. Every thread of the block takes part.
template <class Op> INLINE ACC over_row(ACC x, Op op) {
    constexpr int WIDTH = LANES < 32 ? LANES : 32;
#pragma unroll
    for (int by = WIDTH / 2; by > 0; by /= 2) x = op(x, __shfl_xor_sync(0xffffffffu, x, by));
#if LANES > 32
    __shared__ ACC shared[BLOCK / 32];
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    const int first = threadIdx.x / LANES * (LANES / 32);
    x = shared[first];
#pragma unroll
    for (int warp = 1; warp < LANES / 32; warp++) x = op(x, shared[first + warp]);
#endif
    return x;
}

template <class T> INLINE void take(ACC (&to)[V], const T* from) {
    T loaded[V];
    load<T, V>(loaded, from);
#pragma unroll
    for (int i = 0; i < V; i++) to[i] = convert<ACC>(loaded[i]);
}
template <class T> INLINE void give(T* to, const ACC (&from)[V]) {
    T stored[V];
#pragma unroll
    for (int i = 0; i < V; i++) stored[i] = convert<T>(from[i]);
    store<T, V>(to, stored);
}

// Visits a row: for (Walk w(count); w.next();) …, with w.at the first of V elements.
#if CHUNKS > 0
#define FOR_CHUNKS _Pragma("unroll") for (int c = 0; c < CHUNKS; c++)
#define CHUNK_AT(c) ((long long)(c) * (LANES * V) + lane * V)
#endif
