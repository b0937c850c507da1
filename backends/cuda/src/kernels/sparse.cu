// out[b, :] = Σ_j values[b, j] · weight[:, index[b, j]] (+ bias), in the order of j. Columns of the weight have no holes.
// ELEMENT, ACC: types; BIAS; V: elements at once.

#define THREADS 128
#define PART 256

INLINE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
INLINE double fused(double a, double b, double c) { return __fma_rn(a, b, c); }

struct Params {
    ELEMENT* out;
    long long out_stride;
    const ELEMENT* values;
    const long long* index;
    const ELEMENT* weight;
    const ELEMENT* bias;
    const long long* error;
    // Steps along rows and columns of values, index, bias; from one column of the weight to the next.
    long long values_row, values_column, index_row, index_column, bias_row, bias_column, pitch;
    long long rows, n, k;
};

extern "C" __global__ void __launch_bounds__(THREADS) sparse_matmul(const Params p) {
    __shared__ ACC values[PART];
    __shared__ long long columns[PART];
    const long long tiles = (p.n + THREADS * V - 1) / (THREADS * V);
    const long long block = block_index();
    const long long row = block / tiles, at = block % tiles * (THREADS * V) + threadIdx.x * V;
    if (row >= p.rows || p.error[0] != 0) return;
    const bool live = at < p.n;
    ACC sums[V];
#pragma unroll
    for (int i = 0; i < V; i++) sums[i] = 0;
    for (long long first = 0; first < p.k; first += PART) {
        const int count = (int)min((long long)PART, p.k - first);
        __syncthreads();
        for (int j = threadIdx.x; j < count; j += THREADS) {
            values[j] = convert<ACC>(p.values[row * p.values_row + (first + j) * p.values_column]);
            columns[j] = p.index[row * p.index_row + (first + j) * p.index_column] * p.pitch;
        }
        __syncthreads();
        if (!live) continue;
#pragma unroll 8
        for (int j = 0; j < count; j++) {
            ELEMENT weight[V];
            load<ELEMENT, V>(weight, p.weight + columns[j] + at);
#pragma unroll
            for (int i = 0; i < V; i++) sums[i] = fused(convert<ACC>(weight[i]), values[j], sums[i]);
        }
    }
    if (!live) return;
    ELEMENT made[V];
#pragma unroll
    for (int i = 0; i < V; i++) {
#if BIAS
        sums[i] += convert<ACC>(p.bias[row * p.bias_row + (at + i) * p.bias_column]);
#endif
        made[i] = convert<ELEMENT>(sums[i]);
    }
    store<ELEMENT, V>(p.out + row * p.out_stride + at, made);
}
