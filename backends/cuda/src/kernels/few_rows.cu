// A product with an `a` of few rows: the time is that of reading `b` once.
// M               rows
// TURNED          columns of b are contiguous: a warp for each column. Otherwise rows are: GROUPS groups of lanes share what
//                 is summed over.
// V               elements of b at once

#define GROUPS 16

INLINE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
INLINE double fused(double a, double b, double c) { return __fma_rn(a, b, c); }

#if TURNED
extern "C" __global__ void __launch_bounds__(128) few_rows(const Params p) {
    const int lane = threadIdx.x % 32;
    const long long column = block_index() * 4 + threadIdx.x / 32;
    if (column >= p.n) return;
    const ELEMENT* b = p.b + column * p.b_line;
    ACC sums[M];
#pragma unroll
    for (int row = 0; row < M; row++) sums[row] = 0;
#pragma unroll 4
    for (long long at = lane * V; at < p.k; at += 32 * V) {
        ELEMENT weight[V];
        load<ELEMENT, V>(weight, b + at);
#pragma unroll
        for (int row = 0; row < M; row++) {
            ELEMENT factor[V];
            load<ELEMENT, V>(factor, p.a + row * p.a_row + at);
#pragma unroll
            for (int i = 0; i < V; i++) sums[row] = fused(convert<ACC>(factor[i]), convert<ACC>(weight[i]), sums[row]);
        }
    }
#pragma unroll
    for (int row = 0; row < M; row++) {
#pragma unroll
        for (int by = 16; by > 0; by /= 2) sums[row] += __shfl_xor_sync(0xffffffffu, sums[row], by);
        if (lane == row) finish(p, row, column, sums[row]);
    }
}
#else
extern "C" __global__ void __launch_bounds__(32 * GROUPS) few_rows(const Params p) {
    __shared__ ACC shared[GROUPS][M][32 * V];
    const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
    const long long first = block_index() * (32 * V);
    const long long column = first + lane * V;
    ACC sums[M][V];
#pragma unroll
    for (int row = 0; row < M; row++) {
#pragma unroll
        for (int i = 0; i < V; i++) sums[row][i] = 0;
    }
    if (column < p.n) {
#pragma unroll 8
        for (long long at = group; at < p.k; at += GROUPS) {
            ELEMENT weight[V];
            load<ELEMENT, V>(weight, p.b + at * p.b_line + column);
#pragma unroll
            for (int row = 0; row < M; row++) {
                const ACC factor = convert<ACC>(p.a[row * p.a_row + at]);
#pragma unroll
                for (int i = 0; i < V; i++) sums[row][i] = fused(factor, convert<ACC>(weight[i]), sums[row][i]);
            }
        }
    }
#pragma unroll
    for (int row = 0; row < M; row++) {
#pragma unroll
        for (int i = 0; i < V; i++) shared[group][row][lane * V + i] = sums[row][i];
    }
    __syncthreads();
    for (int place = threadIdx.x; place < M * 32 * V; place += 32 * GROUPS) {
        const int row = place / (32 * V), at = place % (32 * V);
        if (first + at >= p.n) continue;
        ACC sum = 0;
#pragma unroll
        for (int other = 0; other < GROUPS; other++) sum += shared[other][row][at];
        finish(p, row, first + at, sum);
    }
}
#endif
