// Rows of COUNT neighbours. LANES threads share a row. Held: each keeps CHUNKS times V elements in registers, and memory is
// read once. Otherwise (CHUNKS 0) it is read again for each step.

#define BLOCK (LANES > 128 ? LANES : 128)

INLINE float exponential(float x) { return expf(x); }
INLINE double exponential(double x) { return exp(x); }
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

// Combines what the lanes of a row have; all of them get the result. Every thread of the block takes part. `turn` is 0 and
// 1 from call to call, so that one barrier will do: who writes the same words again has met all readers at the barrier
// between.
template <class Op> INLINE ACC over_row(ACC x, Op op, int turn) {
    constexpr int WIDTH = LANES < 32 ? LANES : 32;
#pragma unroll
    for (int by = WIDTH / 2; by > 0; by /= 2) x = op(x, __shfl_xor_sync(0xffffffffu, x, by));
#if LANES > 32
    __shared__ ACC shared[2][BLOCK / 32];
    if (threadIdx.x % 32 == 0) shared[turn][threadIdx.x / 32] = x;
    __syncthreads();
    const int first = threadIdx.x / LANES * (LANES / 32);
    x = shared[turn][first];
#pragma unroll
    for (int warp = 1; warp < LANES / 32; warp++) x = op(x, shared[turn][first + warp]);
#endif
    return x;
}

template <class To, class From> INLINE void convert_all(To (&to)[V], const From (&from)[V]) {
#pragma unroll
    for (int i = 0; i < V; i++) to[i] = convert<To>(from[i]);
}
template <class T> INLINE void take(ACC (&to)[V], const T* from) {
    T loaded[V];
    load<T, V>(loaded, from);
    convert_all(to, loaded);
}
template <class T> INLINE void give(T* to, const ACC (&from)[V]) {
    T stored[V];
    convert_all(stored, from);
    store<T, V>(to, stored);
}

// As `load` and `give`, for what the kernel touches once: it is loaded past the first cache, which has no use for it, and
// stored so that it is the first to leave the second. What is loaded so nobody writes meanwhile.
template <class T> INLINE void load_once(T (&to)[V], const T* from) {
    if constexpr (sizeof(T) * V == 16) {
        Vector<T, V> vector;
        asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
            : "=r"(vector.raw.x), "=r"(vector.raw.y), "=r"(vector.raw.z), "=r"(vector.raw.w) : "l"(from));
#pragma unroll
        for (int i = 0; i < V; i++) to[i] = vector.at[i];
    } else {
        load<T, V>(to, from);
    }
}
template <class T> INLINE void give_once(T* to, const ACC (&from)[V]) {
    Vector<T, V> vector;
    convert_all(vector.at, from);
    __stcs((typename Raw<sizeof(T) * V>::type*)to, vector.raw);
}

// The chunks of a row that a thread has, and where each starts.
#if CHUNKS > 0
#define FOR_CHUNKS _Pragma("unroll") for (int c = 0; c < CHUNKS; c++)
#define CHUNK_AT(c) ((long long)(c) * (LANES * V) + lane * V)
#endif
