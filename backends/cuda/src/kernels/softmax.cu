// exp(x − max) / Σ of rows, or its logarithm; BACKWARD: their derivatives. ELEMENT, ACC: types; LOG.

// Where one element has nearly all of the weight, its logarithm and what that has for a gradient are small, and are computed from
// what the others have, not as a difference from 1: both keep their digits.

INLINE float minus_one(float x) { return expm1f(x); }
INLINE double minus_one(double x) { return expm1(x); }
INLINE float logarithm_beside_one(float x) { return log1pf(x); }
INLINE double logarithm_beside_one(double x) { return log1p(x); }

// Adds a power. Those that are 1, as that of the largest is, are counted by themselves.
INLINE void add_power(ACC& sum, ACC& ones, ACC power) {
    if (LOG && power == 1) {
        ones += 1;
    } else {
        sum += power;
    }
}

INLINE ACC pull_back_log(ACC y, ACC dy, ACC sum) {
    const ACC power = exponential(y);
    return power > (ACC)0.5 ? -(dy * minus_one(y) + power * (sum - dy)) : dy - power * sum;
}

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
            x[c][i] = LOG ? pull_back_log(x[c][i], dy[c][i], sum) : x[c][i] * (dy[c][i] - sum);
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
    ACC sum = 0, ones = 0;
    FOR_CHUNKS if (CHUNK_AT(c) < count) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            ACC power = exponential(x[c][i] - largest);
            add_power(sum, ones, power);
            if (!LOG) x[c][i] = power;
        }
    }
    sum = over_row(sum, Add(), 1);
    if (LOG) ones = over_row(ones, Add(), 0);
    const ACC factor = LOG ? logarithm_beside_one(sum + (ones - 1)) : 1 / sum;
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
        for (int i = 0; i < V; i++) y[i] = LOG ? pull_back_log(y[i], dy[i], sum) : y[i] * (dy[i] - sum);
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
    ACC sum = 0, ones = 0;
    for (long long at = lane * V; at < count; at += step) {
        ACC x[V], part = 0;
        take(x, in + at);
#pragma unroll
        for (int i = 0; i < V; i++) add_power(part, ones, exponential(x[i] - largest));
        sum += part;
    }
    sum = over_row(sum, Add(), 1);
    if (LOG) ones = over_row(ones, Add(), 0);
    const ACC factor = LOG ? logarithm_beside_one(sum + (ones - 1)) : 1 / sum;
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
