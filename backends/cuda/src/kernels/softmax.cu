// exp(x − max) / Σ of rows, or its logarithm; BACKWARD: their derivatives. ELEMENT, ACC: types; LOG.

struct Rows { ELEMENT* at; long long stride; };
struct Params {
    // Softmax: out, in. Backward: dx, y, dy.
    Rows out, in, gradient;
    long long row_count, count;
};

extern "C" __global__ void __launch_bounds__(BLOCK) softmax(const Params p) {
    const int lane = threadIdx.x % LANES;
    const long long row = (long long)block_index() * (BLOCK / LANES) + threadIdx.x / LANES;
    const bool live = row < p.row_count;
    const long long own = live ? row : 0;
    ELEMENT* out = p.out.at + own * p.out.stride;
    const ELEMENT* in = p.in.at + own * p.in.stride;
    const ELEMENT* gradient = p.gradient.at + own * p.gradient.stride;
    const long long count = live ? p.count : 0;
#if CHUNKS > 0
    ACC x[CHUNKS][V];
    FOR_CHUNKS if (CHUNK_AT(c) < count) take(x[c], in + CHUNK_AT(c));
#if BACKWARD
    ACC dy[CHUNKS][V];
    FOR_CHUNKS if (CHUNK_AT(c) < count) take(dy[c], gradient + CHUNK_AT(c));
    ACC sum = 0;
    FOR_CHUNKS if (CHUNK_AT(c) < count) {
#pragma unroll
        for (int i = 0; i < V; i++) sum += LOG ? dy[c][i] : x[c][i] * dy[c][i];
    }
    sum = over_row(sum, Add(), 1);
    FOR_CHUNKS if (CHUNK_AT(c) < count) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            x[c][i] = LOG ? dy[c][i] - exponential(x[c][i]) * sum : x[c][i] * (dy[c][i] - sum);
        }
        give(out + CHUNK_AT(c), x[c]);
    }
#else
    ACC largest = -infinity(ACC());
    FOR_CHUNKS if (CHUNK_AT(c) < count) {
#pragma unroll
        for (int i = 0; i < V; i++) largest = Largest()(largest, x[c][i]);
    }
    largest = over_row(largest, Largest(), 0);
    ACC sum = 0;
    FOR_CHUNKS if (CHUNK_AT(c) < count) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            ACC power = exponential(x[c][i] - largest);
            sum += power;
            if (!LOG) x[c][i] = power;
        }
    }
    sum = over_row(sum, Add(), 1);
    const ACC factor = LOG ? logarithm(sum) : 1 / sum;
    FOR_CHUNKS if (CHUNK_AT(c) < count) {
#pragma unroll
        for (int i = 0; i < V; i++) x[c][i] = LOG ? x[c][i] - largest - factor : x[c][i] * factor;
        give(out + CHUNK_AT(c), x[c]);
    }
#endif
#else
    const long long step = LANES * V;
#if BACKWARD
    ACC sum = 0;
    for (long long at = lane * V; at < count; at += step) {
        ACC y[V], dy[V], part = 0;
        take(y, in + at);
        take(dy, gradient + at);
#pragma unroll
        for (int i = 0; i < V; i++) part += LOG ? dy[i] : y[i] * dy[i];
        sum += part;
    }
    sum = over_row(sum, Add(), 1);
    for (long long at = lane * V; at < count; at += step) {
        ACC y[V], dy[V];
        take(y, in + at);
        take(dy, gradient + at);
#pragma unroll
        for (int i = 0; i < V; i++) y[i] = LOG ? dy[i] - exponential(y[i]) * sum : y[i] * (dy[i] - sum);
        give(out + at, y);
    }
#else
    ACC largest = -infinity(ACC());
    for (long long at = lane * V; at < count; at += step) {
        ACC x[V];
        take(x, in + at);
#pragma unroll
        for (int i = 0; i < V; i++) largest = Largest()(largest, x[i]);
    }
    largest = over_row(largest, Largest(), 0);
    ACC sum = 0;
    for (long long at = lane * V; at < count; at += step) {
        ACC x[V], part = 0;
        take(x, in + at);
#pragma unroll
        for (int i = 0; i < V; i++) part += exponential(x[i] - largest);
        sum += part;
    }
    sum = over_row(sum, Add(), 1);
    const ACC factor = LOG ? logarithm(sum) : 1 / sum;
    for (long long at = lane * V; at < count; at += step) {
        ACC x[V];
        take(x, in + at);
#pragma unroll
        for (int i = 0; i < V; i++) x[i] = LOG ? x[i] - largest - factor : exponential(x[i] - largest) * factor;
        give(out + at, x);
    }
#endif
#endif
}
