// (x − mean) · rstd · weight + bias of rows, x what is read plus an addend. ELEMENT, ACC: types; WEIGHT, BIAS, ADDEND: are there
// such? A multiprocessor is to hold RESIDENT threads at least.

struct Rows { ELEMENT* at; long long stride; };
struct Statistics { ACC* at; long long stride; };
struct Params {
    Rows out, in, addend;
    Statistics mean, rstd;
    const ELEMENT* weight;
    const ELEMENT* bias;
    double eps;
    long long row_count, count;
};

INLINE void finish(const Params& p, ACC (&x)[V], long long at, ACC mean, ACC rstd) {
    ACC weight[V], bias[V];
#if WEIGHT
    take(weight, p.weight + at);
#endif
#if BIAS
    take(bias, p.bias + at);
#endif
#pragma unroll
    for (int i = 0; i < V; i++) {
        x[i] = (x[i] - mean) * rstd;
        if (WEIGHT) x[i] = x[i] * weight[i];
        if (BIAS) x[i] = x[i] + bias[i];
    }
}

// A part of a row, read again for each step.
INLINE void take_sum(ACC (&x)[V], const ELEMENT* in, const ELEMENT* addend) {
    take(x, in);
#if ADDEND
    ACC more[V];
    take(more, addend);
#pragma unroll
    for (int i = 0; i < V; i++) x[i] += more[i];
#endif
}

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT / BLOCK) layer_norm(const Params p) {
    const int lane = threadIdx.x % LANES;
    const long long row = (long long)block_index() * (BLOCK / LANES) + threadIdx.x / LANES;
    const bool live = row < p.row_count;
    const long long own = live ? row : 0;
    ELEMENT* out = p.out.at + own * p.out.stride;
    const ELEMENT* in = p.in.at + own * p.in.stride;
    const ELEMENT* addend = p.addend.at + own * p.addend.stride;
    const long long count = live ? p.count : 0;
    // The mean is that of the distances to the first element: of equal ones what they are, where their sum is rounded.
    ACC first = convert<ACC>(in[0]);
#if ADDEND
    first += convert<ACC>(addend[0]);
#endif
    ACC sum = 0, squares = 0;
#if CHUNKS > 0
    ACC x[CHUNKS][V];
    FOR_CHUNKS if (CHUNK_AT(c) < count) {
        ELEMENT loaded[V];
        load_once(loaded, in + CHUNK_AT(c));
        convert_all(x[c], loaded);
#if ADDEND
        ELEMENT more[V];
        load_once(more, addend + CHUNK_AT(c));
#pragma unroll
        for (int i = 0; i < V; i++) x[c][i] += convert<ACC>(more[i]);
#endif
    }
    FOR_CHUNKS if (CHUNK_AT(c) < count) {
#pragma unroll
        for (int i = 0; i < V; i++) sum += x[c][i] - first;
    }
    const ACC mean = first + over_row(sum, Add(), 0) / (ACC)p.count;
    FOR_CHUNKS if (CHUNK_AT(c) < count) {
#pragma unroll
        for (int i = 0; i < V; i++) squares += (x[c][i] - mean) * (x[c][i] - mean);
    }
#else
    for (long long at = lane * V; at < count; at += LANES * V) {
        ACC x[V], part = 0;
        take_sum(x, in + at, addend + at);
#pragma unroll
        for (int i = 0; i < V; i++) part += x[i] - first;
        sum += part;
    }
    const ACC mean = first + over_row(sum, Add(), 0) / (ACC)p.count;
    for (long long at = lane * V; at < count; at += LANES * V) {
        ACC x[V], part = 0;
        take_sum(x, in + at, addend + at);
#pragma unroll
        for (int i = 0; i < V; i++) part += (x[i] - mean) * (x[i] - mean);
        squares += part;
    }
#endif
    const ACC variance = over_row(squares, Add(), 1) / (ACC)p.count;
    const ACC rstd = 1 / root(variance + (ACC)p.eps);
#if CHUNKS > 0
    FOR_CHUNKS if (CHUNK_AT(c) < count) {
        finish(p, x[c], CHUNK_AT(c), mean, rstd);
        give_once(out + CHUNK_AT(c), x[c]);
    }
#else
    for (long long at = lane * V; at < count; at += LANES * V) {
        ACC x[V];
        take_sum(x, in + at, addend + at);
        finish(p, x, at, mean, rstd);
        give(out + at, x);
    }
#endif
    if (live && lane == 0) {
        p.mean.at[row * p.mean.stride] = mean;
        p.rstd.at[row * p.rstd.stride] = rstd;
    }
}
