// Places of what isn't zero, in row-major order. COUNTS: only how many each chunk has. ELEMENT; RANK: of the input, merged
// in row-major order; AXES: of the input.

#define THREADS 256
#define EACH 8
#define CHUNK (THREADS * EACH)

struct Params {
    const ELEMENT* in;
    // [chunks]: how many each has, or running sums of that.
    long long* counts;
    long long* out;
    long long row_stride, column_stride;
    Grid<1, RANK> grid;
    index_t count;
    // Sizes of the axes, the fastest first.
    Divider axes[AXES];
};

extern "C" __global__ void __launch_bounds__(THREADS) nonzero(const Params p) {
    __shared__ int warps[EACH][THREADS / 32];
    const unsigned long long chunk = block_index();
    const unsigned long long start = chunk * CHUNK;
    if (start >= p.count) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned found[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const unsigned long long place = start + e * THREADS + threadIdx.x;
        bool is = false;
        if (place < p.count) {
            index_t at[1];
            p.grid.at((index_t)place, at);
            is = widen(p.in[at[0]]) != 0;
        }
        found[e] = __ballot_sync(0xffffffffu, is);
        if (lane == 0) warps[e][warp] = __popc(found[e]);
    }
    __syncthreads();
#if COUNTS
    if (threadIdx.x == 0) {
        long long count = 0;
        for (int e = 0; e < EACH; e++) {
            for (int other = 0; other < THREADS / 32; other++) count += warps[e][other];
        }
        p.counts[chunk] = count;
    }
#else
    long long row = chunk > 0 ? p.counts[chunk - 1] : 0;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        long long own = row;
        for (int other = 0; other < THREADS / 32; other++) {
            if (other < warp) own += warps[e][other];
            row += warps[e][other];
        }
        if ((found[e] >> lane & 1) == 0) continue;
        own += __popc(found[e] & ((1u << lane) - 1));
        index_t rest = (index_t)(start + e * THREADS + threadIdx.x);
#pragma unroll
        for (int axis = 0; axis < AXES; axis++) {
            const index_t next = axis + 1 < AXES ? quotient(rest, p.axes[axis]) : 0;
            const index_t index = axis + 1 < AXES ? rest - next * p.axes[axis].size : rest;
            p.out[own * p.row_stride + (AXES - 1 - axis) * p.column_stride] = index;
            rest = next;
        }
    }
#endif
}
