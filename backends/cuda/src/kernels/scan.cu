// Running sums of CHUNKs of rows. IN, OUT, ACC: types; TOTALS: only the sum of each chunk is made, for the next step;
// STARTS: a chunk goes on from the running sum of those before it.

#define THREADS 256
#define EACH 8
#define CHUNK (THREADS * EACH)

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
        if (lane >= by) sum = plus(sum, other);
    }
    __syncthreads();
    if (lane == 31) warps[warp] = sum;
    ACC before = __shfl_up_sync(0xffffffffu, sum, 1);
    if (lane == 0) before = 0;
    __syncthreads();
    ACC first = 0;
    all = 0;
#pragma unroll
    for (int other = 0; other < THREADS / 32; other++) {
        if (other < warp) first = plus(first, warps[other]);
        all = plus(all, warps[other]);
    }
    return plus(first, before);
}

extern "C" __global__ void __launch_bounds__(THREADS) scan(const Params p) {
    __shared__ ACC staged[CHUNK];
    const long long block = block_index();
    const long long row = block / p.chunk_count, chunk = block % p.chunk_count;
    if (row >= p.row_count) return;
    const long long start = chunk * CHUNK;
    const IN* in = p.in + row * p.in_stride + start;
    const int count = (int)min((long long)CHUNK, p.count - start);
    for (int i = threadIdx.x; i < CHUNK; i += THREADS) staged[i] = i < count ? convert<ACC>(in[i]) : (ACC)0;
    __syncthreads();
    ACC own[EACH], sum = 0, all;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        sum = plus(sum, staged[threadIdx.x * EACH + e]);
        own[e] = sum;
    }
    ACC before = before_thread(sum, all);
#if TOTALS
    if (threadIdx.x == 0) ((ACC*)p.out)[row * p.out_stride + chunk] = all;
#else
#if STARTS
    if (chunk > 0) before = plus(p.starts[row * p.chunk_count + chunk - 1], before);
#endif
#pragma unroll
    for (int e = 0; e < EACH; e++) staged[threadIdx.x * EACH + e] = plus(before, own[e]);
    __syncthreads();
    OUT* out = p.out + row * p.out_stride + start;
    for (int i = threadIdx.x; i < count; i += THREADS) out[i] = convert<OUT>(staged[i]);
#endif
}
