// CHUNKs of rows folded up to each element. IN, OUT, ACC: types; FOLD: a `ScanOp`; TOTALS: only the sum of each chunk is made, for the next step;
// STARTS: a chunk goes on from the running sum of those before it.

#define THREADS 256
#define EACH 8
#define CHUNK (THREADS * EACH)

#if FOLD == 0
#define NEUTRAL ((ACC)0)
#elif FOLD == 1
#define NEUTRAL ((ACC)1)
#elif FOLD == 3
#define NEUTRAL (Same<ACC, double>::value ? (ACC)(1.0 / 0.0) : (ACC)0x7fffffffffffffffll)
#else
#define NEUTRAL (Same<ACC, double>::value ? (ACC)(-1.0 / 0.0) : (ACC)(-0x7fffffffffffffffll - 1))
#endif

INLINE ACC folded(ACC a, ACC b) {
#if FOLD == 0
    return plus(a, b);
#elif FOLD == 1
    return multiplied(a, b);
#elif FOLD == 2
    return a > b || a != a ? a : b;
#elif FOLD == 3
    return a < b || a != a ? a : b;
#else
    const double most = a > b || a != a ? a : b, apart = (double)a - (double)b;
    return most - most == 0 ? (ACC)(most + log1p(exp(-fabs(apart)))) : (ACC)most;
#endif
}

struct Params {
    const IN* in;
    long long in_stride;
    OUT* out;
    long long out_stride;
    const ACC* starts;
    long long row_count, count, chunk_count;
};

// The sum of what the threads before this one have, and of all.
INLINE ACC before_thread(ACC own, ACC& all) {
    __shared__ ACC warps[THREADS / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    ACC sum = own;
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
        ACC other = __shfl_up_sync(0xffffffffu, sum, by);
        if (lane >= by) sum = folded(other, sum);
    }
    __syncthreads();
    if (lane == 31) warps[warp] = sum;
    ACC before = __shfl_up_sync(0xffffffffu, sum, 1);
    if (lane == 0) before = NEUTRAL;
    __syncthreads();
    ACC first = NEUTRAL;
    all = NEUTRAL;
#pragma unroll
    for (int other = 0; other < THREADS / 32; other++) {
        if (other < warp) first = folded(first, warps[other]);
        all = folded(all, warps[other]);
    }
    return folded(first, before);
}

extern "C" __global__ void __launch_bounds__(THREADS) scan(const Params p) {
    __shared__ ACC staged[CHUNK];
    const long long block = block_index();
    const long long row = block / p.chunk_count, chunk = block % p.chunk_count;
    if (row >= p.row_count) return;
    const long long start = chunk * CHUNK;
    const IN* in = p.in + row * p.in_stride + start;
    const int count = (int)min((long long)CHUNK, p.count - start);
    for (int i = threadIdx.x; i < CHUNK; i += THREADS) staged[i] = i < count ? convert<ACC>(in[i]) : NEUTRAL;
    __syncthreads();
    ACC own[EACH], sum = NEUTRAL, all;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        sum = folded(sum, staged[threadIdx.x * EACH + e]);
        own[e] = sum;
    }
    ACC before = before_thread(sum, all);
#if TOTALS
    if (threadIdx.x == 0) ((ACC*)p.out)[row * p.out_stride + chunk] = all;
#else
#if STARTS
    if (chunk > 0) before = folded(p.starts[row * p.chunk_count + chunk - 1], before);
#endif
#pragma unroll
    for (int e = 0; e < EACH; e++) staged[threadIdx.x * EACH + e] = folded(before, own[e]);
    __syncthreads();
    OUT* out = p.out + row * p.out_stride + start;
    for (int i = threadIdx.x; i < count; i += THREADS) out[i] = convert<OUT>(staged[i]);
#endif
}
