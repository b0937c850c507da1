// The derivative of layer normalisation. A block goes through a span of rows; SPANS: it leaves the sums over its rows that
// the derivatives of weight and bias consist of, one row of them a span, and layer_norm_sums follows.
//
// ELEMENT, ACC    types; WEIGHT: is there one? SUM_WEIGHT, SUM_BIAS: are their derivatives wanted?
// One row at a time, LANES is the block, of which a multiprocessor is to hold RESIDENT threads at least. AHEAD: the next row
// is on its way while one is worked on; where a row takes most registers there are none for that, nor for the hints to the
// caches. CHUNKS 0: rows don't fit registers, and PASS 0 makes dx only, PASS 1 sums only.

struct Rows { ELEMENT* at; long long stride; };
struct Statistics { ACC* at; long long stride; };
struct Params {
    Rows dx, dy, x;
    Statistics mean, rstd;
    const ELEMENT* weight;
    // [spans, count]
    ACC* weight_sums;
    ACC* bias_sums;
    long long row_count, count, rows_per_span;
};

// Adds up both over the row; `turn` as over_row has it.
INLINE void add_over_row(ACC& a, ACC& b, int turn) {
#pragma unroll
    for (int by = 16; by > 0; by /= 2) {
        a += __shfl_xor_sync(0xffffffffu, a, by);
        b += __shfl_xor_sync(0xffffffffu, b, by);
    }
    __shared__ ACC shared[2][BLOCK / 32][2];
    if (threadIdx.x % 32 == 0) {
        shared[turn][threadIdx.x / 32][0] = a;
        shared[turn][threadIdx.x / 32][1] = b;
    }
    __syncthreads();
    a = b = 0;
#pragma unroll
    for (int warp = 0; warp < BLOCK / 32; warp++) {
        a += shared[turn][warp][0];
        b += shared[turn][warp][1];
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT / BLOCK) layer_norm_backward(const Params p) {
    const int lane = threadIdx.x % LANES;
    const ACC scale = 1 / (ACC)p.count;
#if CHUNKS > 0
    const long long span = block_index();
    const long long begin = span * p.rows_per_span, end = min(p.row_count, begin + p.rows_per_span);
    ACC weight[CHUNKS][V], weight_sums[CHUNKS][V], bias_sums[CHUNKS][V];
    FOR_CHUNKS {
#pragma unroll
        for (int i = 0; i < V; i++) {
            weight[c][i] = 1;
            weight_sums[c][i] = 0;
            bias_sums[c][i] = 0;
        }
#if WEIGHT
        if (CHUNK_AT(c) < p.count) take(weight[c], p.weight + CHUNK_AT(c));
#endif
    }
#if AHEAD
    ELEMENT next_x[CHUNKS][V], next_dy[CHUNKS][V];
    ACC next_mean, next_rstd;
    auto load_row = [&](long long row) {
        FOR_CHUNKS if (CHUNK_AT(c) < p.count) {
            load_once(next_x[c], p.x.at + row * p.x.stride + CHUNK_AT(c));
            load_once(next_dy[c], p.dy.at + row * p.dy.stride + CHUNK_AT(c));
        }
        next_mean = p.mean.at[row * p.mean.stride];
        next_rstd = p.rstd.at[row * p.rstd.stride];
    };
    load_row(begin);
#endif
#pragma unroll 1
    for (long long row = begin; row < end; row++) {
        ACC x[CHUNKS][V], dy[CHUNKS][V];
#if AHEAD
        FOR_CHUNKS if (CHUNK_AT(c) < p.count) {
            convert_all(x[c], next_x[c]);
            convert_all(dy[c], next_dy[c]);
        }
        const ACC mean = next_mean, rstd = next_rstd;
        if (row + 1 < end) load_row(row + 1);
#else
        const ACC mean = p.mean.at[row * p.mean.stride], rstd = p.rstd.at[row * p.rstd.stride];
        FOR_CHUNKS if (CHUNK_AT(c) < p.count) {
            take(x[c], p.x.at + row * p.x.stride + CHUNK_AT(c));
            take(dy[c], p.dy.at + row * p.dy.stride + CHUNK_AT(c));
        }
#endif
        ACC sum = 0, product = 0;
        FOR_CHUNKS if (CHUNK_AT(c) < p.count) {
#pragma unroll
            for (int i = 0; i < V; i++) {
                x[c][i] = (x[c][i] - mean) * rstd;
                if (SUM_BIAS) bias_sums[c][i] += dy[c][i];
                if (SUM_WEIGHT) weight_sums[c][i] += dy[c][i] * x[c][i];
                if (WEIGHT) dy[c][i] *= weight[c][i];
                sum += dy[c][i];
                product += dy[c][i] * x[c][i];
            }
        }
        add_over_row(sum, product, row % 2);
        sum *= scale;
        product *= scale;
        FOR_CHUNKS if (CHUNK_AT(c) < p.count) {
#pragma unroll
            for (int i = 0; i < V; i++) x[c][i] = (dy[c][i] - sum - x[c][i] * product) * rstd;
#if AHEAD
            give_once(p.dx.at + row * p.dx.stride + CHUNK_AT(c), x[c]);
#else
            give(p.dx.at + row * p.dx.stride + CHUNK_AT(c), x[c]);
#endif
        }
    }
    FOR_CHUNKS if (CHUNK_AT(c) < p.count) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            if (SUM_WEIGHT) p.weight_sums[span * p.count + CHUNK_AT(c) + i] = weight_sums[c][i];
            if (SUM_BIAS) p.bias_sums[span * p.count + CHUNK_AT(c) + i] = bias_sums[c][i];
        }
    }
#elif PASS == 0
    const long long row = block_index();
    if (row >= p.row_count) return;
    const ACC mean = p.mean.at[row * p.mean.stride], rstd = p.rstd.at[row * p.rstd.stride];
    ACC sum = 0, product = 0;
    for (int again = 0; again < 2; again++) {
        for (long long at = lane * V; at < p.count; at += LANES * V) {
            ACC x[V], dy[V], weight[V];
            take(x, p.x.at + row * p.x.stride + at);
            take(dy, p.dy.at + row * p.dy.stride + at);
#if WEIGHT
            take(weight, p.weight + at);
#endif
            ACC part = 0, part_product = 0;
#pragma unroll
            for (int i = 0; i < V; i++) {
                x[i] = (x[i] - mean) * rstd;
                if (WEIGHT) dy[i] *= weight[i];
                part += dy[i];
                part_product += dy[i] * x[i];
                x[i] = (dy[i] - sum - x[i] * product) * rstd;
            }
            if (again == 1) {
                give(p.dx.at + row * p.dx.stride + at, x);
                continue;
            }
            sum += part;
            product += part_product;
        }
        if (again == 1) break;
        add_over_row(sum, product, 0);
        sum *= scale;
        product *= scale;
    }
#else
    // A thread for each column of a span.
    const long long columns = (p.count + BLOCK - 1) / BLOCK;
    const long long span = block_index() / columns, column = block_index() % columns * BLOCK + threadIdx.x;
    const long long begin = span * p.rows_per_span, end = min(p.row_count, begin + p.rows_per_span);
    if (column >= p.count) return;
    ACC weight_sum = 0, bias_sum = 0;
#pragma unroll 4
    for (long long row = begin; row < end; row++) {
        const ACC mean = p.mean.at[row * p.mean.stride], rstd = p.rstd.at[row * p.rstd.stride];
        const ACC dy = convert<ACC>(p.dy.at[row * p.dy.stride + column]);
        const ACC x = convert<ACC>(p.x.at[row * p.x.stride + column]);
        bias_sum += dy;
        weight_sum += dy * ((x - mean) * rstd);
    }
    if (SUM_WEIGHT) p.weight_sums[span * p.count + column] = weight_sum;
    if (SUM_BIAS) p.bias_sums[span * p.count + column] = bias_sum;
#endif
}
