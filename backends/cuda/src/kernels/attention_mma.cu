// Attention of 16-bit floats on tensor cores. A warp owns 16 queries; keys and values come tile by tile through shared
// memory, and maxima, sums and results are carried along (T. Dao et al., "FlashAttention", 2022; T. Dao,
// "FlashAttention-2", 2023), so that scores never leave registers. Weights go to the second product in two parts of
// 16 bits, a number and what its rounding lost: rounding them to 8 or 11 bits would show in the result.
// D, DV       widths of keys and values, multiples of 16
// KEYS        of a tile, a multiple of 16
// WARPS       of a block, which share the tile; changes no bit: what is masked for a warp leaves all as it is
// ALIGNED     are 16 bytes of keys and values, and 4 of queries and results, loaded at once?

// Two neighbours in a word, the first in the lower half.
INLINE unsigned pair_at(const ELEMENT* at) {
#if ALIGNED
    return *(const unsigned*)at;
#else
    return at[0].bits | (unsigned)at[1].bits << 16;
#endif
}
INLINE unsigned paired(float first, float second, f16) {
    unsigned both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}
INLINE unsigned paired(float first, float second, bf16) {
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}
INLINE ELEMENT first_of(unsigned both) { return ELEMENT{(unsigned short)both}; }
INLINE ELEMENT second_of(unsigned both) { return ELEMENT{(unsigned short)(both >> 16)}; }

// Rows of a tile, those past the last as zeros. A pitch that is an odd multiple of 16 bytes keeps banks apart.
template <int WIDTH> INLINE void stage(
    unsigned short (&to)[KEYS][WIDTH + 8], const ELEMENT* from, long long step, long long first, long long count) {
    for (int at = threadIdx.x; at < KEYS * (WIDTH / 8); at += 32 * WARPS) {
        const int row = at / (WIDTH / 8), column = at % (WIDTH / 8) * 8;
        uint4 chunk = make_uint4(0, 0, 0, 0);
        if (first + row < count) {
            const ELEMENT* source = from + (first + row) * step + column;
#if ALIGNED
            chunk = *(const uint4*)source;
#else
            chunk = make_uint4(pair_at(source), pair_at(source + 2), pair_at(source + 4), pair_at(source + 6));
#endif
        }
        *(uint4*)&to[row][column] = chunk;
    }
}

// Powers of 2: scores are in units of ln 2. What would be subnormal is 0.
#define LOG2_E 1.4426950408889634
INLINE float power(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
INLINE float largest_of_four(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
INLINE float sum_of_four(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) attention(const Params p) {
    __shared__ __align__(16) unsigned short keys[KEYS][D + 8];
    __shared__ __align__(16) unsigned short values[KEYS][DV + 8];
    const long long index = (long long)block_index();
    if (index >= p.blocks) return;
    const long long tile = index % p.tiles, pair = index / p.tiles;
    const long long batch = pair / p.heads, head = pair % p.heads;
    const int lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
    const long long first = (tile * WARPS + threadIdx.x / 32) * 16 + group;
    const long long rows[2] = {first, first + 8};
    // For addresses: those past the last aren't stored.
    const long long known[2] = {min(rows[0], p.n - 1), min(rows[1], p.n - 1)};
    const ELEMENT* query = p.query.of(batch, head);
    const ELEMENT* key = p.key.of(batch, head);
    const ELEMENT* value = p.value.of(batch, head);
    const MASK* mask = p.mask.of(batch, head);

    const float scale = (float)(p.scale * LOG2_E), unit = (float)LOG2_E;

    unsigned queries[D / 16][4];
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            queries[k][i] = pair_at(query + known[i % 2] * p.query.row + k * 16 + i / 2 * 8 + member * 2);
        }
    }
    float results[DV / 8][4];
#pragma unroll
    for (int t = 0; t < DV / 8; t++) {
#pragma unroll
        for (int i = 0; i < 4; i++) results[t][i] = 0;
    }
    float most[2] = {LOWEST, LOWEST}, total[2] = {0, 0};
    long long end = p.m;
#if CAUSAL
    // All warps of a block go on together: __syncthreads is for all.
    end = min(end, (tile + 1) * (WARPS * 16));
#endif
    for (long long start = 0; start < end; start += KEYS) {
        __syncthreads();
        stage<D>(keys, key, p.key.row, start, p.m);
        stage<DV>(values, value, p.value.row, start, p.m);
        __syncthreads();
        float scores[KEYS / 8][4];
        float next[2] = {most[0], most[1]};
#pragma unroll
        for (int t = 0; t < KEYS / 8; t += 2) {
#pragma unroll
            for (int i = 0; i < 4; i++) scores[t][i] = scores[t + 1][i] = 0;
#pragma unroll
            for (int k = 0; k < D / 16; k++) {
                unsigned columns[4];
                load_matrices(columns, &keys[(t + lane / 16) * 8 + lane % 8][k * 16 + lane / 8 % 2 * 8]);
                multiply(scores[t], queries[k], columns, ELEMENT());
                multiply(scores[t + 1], queries[k], columns + 2, ELEMENT());
            }
        }
        // How many of the tile there are for this thread's first column.
        const int there = (int)min(p.m - start, (long long)KEYS) - member * 2;
#pragma unroll
        for (int t = 0; t < KEYS / 8; t++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int own = t * 8 + i % 2;
                scores[t][i] = own < there
                    ? score(scores[t][i], scale, unit, p, mask, known[i / 2], start + member * 2 + own)
                    : LOWEST;
                next[i / 2] = fmaxf(next[i / 2], scores[t][i]);
            }
        }
        float shift[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            next[r] = largest_of_four(next[r]);
            shift[r] = shift_of(next[r]);
            const float correction = power(most[r] - shift[r]);
            most[r] = next[r];
            total[r] *= correction;
#pragma unroll
            for (int t = 0; t < DV / 8; t++) {
                results[t][2 * r] *= correction;
                results[t][2 * r + 1] *= correction;
            }
        }
#pragma unroll
        for (int t = 0; t < KEYS / 8; t++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                scores[t][i] = power(scores[t][i] - shift[i / 2]);
                total[i / 2] += scores[t][i];
            }
        }
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++) {
            unsigned whole[4], lost[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float a = scores[2 * k + i / 2][i % 2 * 2], b = scores[2 * k + i / 2][i % 2 * 2 + 1];
                whole[i] = paired(a, b, ELEMENT());
                lost[i] = paired(a - widen(first_of(whole[i])), b - widen(second_of(whole[i])), ELEMENT());
            }
#pragma unroll
            for (int t = 0; t < DV / 8; t += 2) {
                unsigned columns[4];
                load_turned(columns, &values[k * 16 + lane % 16][(t + lane / 16) * 8]);
                multiply(results[t], whole, columns, ELEMENT());
                multiply(results[t], lost, columns, ELEMENT());
                multiply(results[t + 1], whole, columns + 2, ELEMENT());
                multiply(results[t + 1], lost, columns + 2, ELEMENT());
            }
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float factor = inverse(sum_of_four(total[r]));
        if (rows[r] >= p.n) continue;
        ELEMENT* to = p.out.of(batch, head) + rows[r] * p.out.row + member * 2;
#pragma unroll
        for (int t = 0; t < DV / 8; t++) {
            // A weight of 0 for all: 0 whatever the values are.
            const float a = factor == 0 ? 0 : results[t][2 * r] * factor;
            const float b = factor == 0 ? 0 : results[t][2 * r + 1] * factor;
            const unsigned both = paired(a, b, ELEMENT());
#if ALIGNED
            *(unsigned*)(to + t * 8) = both;
#else
            to[t * 8] = first_of(both);
            to[t * 8 + 1] = second_of(both);
#endif
        }
    }
}
