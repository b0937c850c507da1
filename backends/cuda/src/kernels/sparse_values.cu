// dvalues[b, j] = dy[b, :] · weight[:, index[b, j]]: a block for each row, a warp for each product.
// ELEMENT, ACC: types; V: elements at once.

#define THREADS 256

INLINE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
INLINE double fused(double a, double b, double c) { return __fma_rn(a, b, c); }

struct Params {
    ELEMENT* dvalues;
    const ELEMENT* dy;
    long long dy_stride;
    const long long* index;
    const ELEMENT* weight;
    const long long* error;
    long long dvalues_row, dvalues_column, index_row, index_column, pitch;
    long long rows, n, k;
};

extern "C" __global__ void __launch_bounds__(THREADS) sparse_values(const Params p) {
    const long long row = block_index();
    if (row >= p.rows || p.error[0] != 0) return;
    const int lane = threadIdx.x % 32;
    const ELEMENT* dy = p.dy + row * p.dy_stride;
    for (long long j = threadIdx.x / 32; j < p.k; j += THREADS / 32) {
        const ELEMENT* weight = p.weight + p.index[row * p.index_row + j * p.index_column] * p.pitch;
        ACC sums[V], sum = 0;
#pragma unroll
        for (int i = 0; i < V; i++) sums[i] = 0;
#pragma unroll 4
        for (long long at = lane * V; at < p.n; at += 32 * V) {
            ELEMENT a[V], b[V];
            load<ELEMENT, V>(a, dy + at);
            load<ELEMENT, V>(b, weight + at);
#pragma unroll
            for (int i = 0; i < V; i++) sums[i] = fused(convert<ACC>(a[i]), convert<ACC>(b[i]), sums[i]);
        }
#pragma unroll
        for (int i = 0; i < V; i++) sum += sums[i];
#pragma unroll
        for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
        if (lane == 0) p.dvalues[row * p.dvalues_row + j * p.dvalues_column] = convert<ELEMENT>(sum);
    }
}
