// Attention of any floats, widths and strides. A block of four warps owns 4 OWN queries; tiles of 32 keys come through shared
// memory, a key for each lane, and maxima, sums and results are carried along (T. Dao et al., "FlashAttention", 2022). A block
// makes 32 V columns of the result; where there are more, others make the same scores again.
// OWN         queries of a warp; changes no bit
// V           columns of the result that a lane makes

#define WARPS 4
#define QUERIES (WARPS * OWN)
#define KEYS 32
#define DEPTH 32

INLINE float power(float x) { return expf(x); }
INLINE double power(double x) { return exp(x); }

// Rows of `from` from `row`, 32 C columns of each from `column`; 0 past the ends.
template <int ROWS, int C, int PITCH> INLINE void stage(
    ACC (&to)[ROWS][PITCH], const ELEMENT* from, const Side<ELEMENT>& side,
    long long row, long long rows, long long column, long long columns) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    from += (row + warp) * side.row + (column + lane) * side.column;
    const int rows_there = (int)min(rows - row, (long long)ROWS), columns_there = (int)min(columns - column, 32ll * C);
#pragma unroll
    for (int i = 0; i < ROWS; i += WARPS) {
#pragma unroll
        for (int c = 0; c < C; c++) {
            const bool there = i + warp < rows_there && lane + 32 * c < columns_there;
            to[i + warp][lane + 32 * c] = there ? convert<ACC>(from[c * 32 * side.column]) : (ACC)0;
        }
        from += WARPS * side.row;
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) attention(const Params p) {
    __shared__ __align__(16) ACC queries[QUERIES][DEPTH];
    // One more than lanes, so that each lane's key is in banks of its own.
    __shared__ ACC keys[KEYS][DEPTH + 1];
    __shared__ ACC values[KEYS][32 * V];
    __shared__ __align__(16) ACC weights[QUERIES][KEYS];
    long long index = (long long)block_index();
    if (index >= p.blocks) return;
    const long long parts = (p.dv + 32 * V - 1) / (32 * V);
    const long long column = index % parts * (32 * V);
    index /= parts;
    const long long tile = index % p.tiles, pair = index / p.tiles;
    const long long batch = pair / p.heads, head = pair % p.heads;
    const int lane = threadIdx.x % 32, own = threadIdx.x / 32 * OWN;
    const long long first = tile * QUERIES;
    const MASK* mask = p.mask.of(batch, head);
    ACC results[OWN][V], most[OWN], total[OWN];
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        most[i] = LOWEST;
        total[i] = 0;
#pragma unroll
        for (int c = 0; c < V; c++) results[i][c] = 0;
    }
    long long end = p.m;
#if CAUSAL
    end = min(end, first + QUERIES);
#endif
    for (long long start = 0; start < end; start += KEYS) {
        ACC scores[OWN];
#pragma unroll
        for (int i = 0; i < OWN; i++) scores[i] = 0;
        for (long long depth = 0; depth < p.d; depth += DEPTH) {
            __syncthreads();
            // The same queries for each tile, if they fit.
            if (start == 0 || p.d > DEPTH) {
                stage<QUERIES, 1>(queries, p.query.of(batch, head), p.query, first, p.n, depth, p.d);
            }
            stage<KEYS, 1>(keys, p.key.of(batch, head), p.key, start, p.m, depth, p.d);
            __syncthreads();
#pragma unroll
            for (int k = 0; k < DEPTH; k++) {
#pragma unroll
                for (int i = 0; i < OWN; i++) scores[i] = fused(queries[own + i][k], keys[lane][k], scores[i]);
            }
        }
        // The last tile's values and weights are done with.
        __syncthreads();
        stage<KEYS, V>(values, p.value.of(batch, head), p.value, start, p.m, column, p.dv);
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const long long key = start + lane, query = min(first + own + i, p.n - 1);
            const ACC x = key < p.m ? score(scores[i], (ACC)p.scale, (ACC)1, p, mask, query, key) : LOWEST;
            ACC next = x > most[i] ? x : most[i];
#pragma unroll
            for (int by = 16; by > 0; by /= 2) {
                const ACC other = __shfl_xor_sync(0xffffffffu, next, by);
                next = other > next ? other : next;
            }
            const ACC shift = shift_of(next), correction = power(most[i] - shift), weight = power(x - shift);
            most[i] = next;
            total[i] = fused(total[i], correction, weight);
#pragma unroll
            for (int c = 0; c < V; c++) results[i][c] *= correction;
            weights[own + i][lane] = weight;
        }
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < KEYS; k++) {
#pragma unroll
            for (int i = 0; i < OWN; i++) {
#pragma unroll
                for (int c = 0; c < V; c++) {
                    results[i][c] = fused(weights[own + i][k], values[k][lane + 32 * c], results[i][c]);
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < OWN; i++) {
#pragma unroll
        for (int by = 16; by > 0; by /= 2) total[i] += __shfl_xor_sync(0xffffffffu, total[i], by);
        const long long row = first + own + i;
        if (row >= p.n) continue;
        const ACC factor = inverse(total[i]);
#pragma unroll
        for (int c = 0; c < V; c++) {
            const long long at = column + lane + 32 * c;
            if (at >= p.dv) continue;
            // A weight of 0 for all: 0 whatever the values are.
            const ACC x = factor == 0 ? 0 : results[i][c] * factor;
            p.out.of(batch, head)[row * p.out.row + at * p.out.column] = convert<ELEMENT>(x);
        }
    }
}
