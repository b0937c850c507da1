// dweight[:, c] += Σ values[e] · dy[row of e, :] over the entries e that name column c, in their order. Words are sorted by
// column. A block makes the sums of COLUMNS columns and ROWS rows in shared memory and adds them along the axis in which
// dweight steps least.
// ELEMENT, ACC: types.

#define THREADS 256
#define COLUMNS 32
#define ROWS 64

INLINE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
INLINE double fused(double a, double b, double c) { return __fma_rn(a, b, c); }

struct Params {
    ELEMENT* dweight;
    const ELEMENT* dy;
    long long dy_stride;
    // [batch * k]
    const ELEMENT* values;
    const Word* words;
    const long long* error;
    long long row_step, column_step;
    long long n, h, k, entries;
};

extern "C" __global__ void __launch_bounds__(THREADS) sparse_weight(const Params p) {
    __shared__ ACC sums[COLUMNS][ROWS + 1];
    __shared__ long long bounds[COLUMNS + 1];
    const long long column_blocks = (p.h + COLUMNS - 1) / COLUMNS;
    const long long block = block_index();
    const long long first_row = block / column_blocks * ROWS, first_column = block % column_blocks * COLUMNS;
    if (first_row >= p.n || p.error[0] != 0) return;
    if (threadIdx.x <= COLUMNS) {
        // The first entry of the column or of a later one.
        const unsigned long long column = first_column + threadIdx.x;
        long long low = 0, high = p.entries;
        while (low < high) {
            const long long middle = (low + high) / 2;
            if (key_of(p.words[middle]) < column) low = middle + 1;
            else high = middle;
        }
        bounds[threadIdx.x] = low;
    }
    __syncthreads();
    if (bounds[0] == bounds[COLUMNS]) return;
    const int lane = threadIdx.x % 32;
    for (int column = threadIdx.x / 32; column < COLUMNS; column += THREADS / 32) {
        ACC sum[ROWS / 32];
#pragma unroll
        for (int i = 0; i < ROWS / 32; i++) sum[i] = 0;
        const long long end = bounds[column + 1];
#pragma unroll 4
        for (long long at = bounds[column]; at < end; at++) {
            const unsigned entry = index_of(p.words[at]);
            const ACC value = convert<ACC>(p.values[entry]);
            const ELEMENT* dy = p.dy + entry / p.k * p.dy_stride + first_row;
#pragma unroll
            for (int i = 0; i < ROWS / 32; i++) {
                if (first_row + lane + 32 * i < p.n) sum[i] = fused(convert<ACC>(dy[lane + 32 * i]), value, sum[i]);
            }
        }
#pragma unroll
        for (int i = 0; i < ROWS / 32; i++) sums[column][lane + 32 * i] = sum[i];
    }
    __syncthreads();
    const bool by_column = p.column_step <= p.row_step;
    for (int place = threadIdx.x; place < COLUMNS * ROWS; place += THREADS) {
        const int column = by_column ? place % COLUMNS : place / ROWS;
        const int row = by_column ? place / COLUMNS : place % ROWS;
        if (first_row + row >= p.n || first_column + column >= p.h) continue;
        // A column that no entry names stays as it is.
        if (bounds[column] == bounds[column + 1]) continue;
        ELEMENT* to = p.dweight + (first_row + row) * p.row_step + (first_column + column) * p.column_step;
        *to = convert<ELEMENT>(convert<ACC>(*to) + sums[column][row]);
    }
}
