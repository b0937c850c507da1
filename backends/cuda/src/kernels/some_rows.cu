// A product of 16-bit floats with an `a` of some rows, on tensor cores. A block makes 32 x 32 results: its warps share what is
// summed over, 32 factors at a time in turn, and their sums are added in the order of the warps. It needs little shared
// memory, so that blocks of several streams share a multiprocessor: a library's kernel takes one for itself.
// TURNED          columns of b are contiguous, otherwise rows
// WARPS           of a block

#define SIDE 32
// An odd multiple of 16 bytes keeps banks apart.
#define PITCH (SIDE + 8)

// A square of factors: lines of SIDE neighbours, `vectors` of 8 to a lane, zeros past the last line or neighbour.
INLINE void fetch(uint4 (&to)[4], const ELEMENT* from, long long step, long long lines, long long along, int lane) {
    const int at = lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int line = lane / 4 + 8 * i;
        to[i] = line < lines && at < along ? *(const uint4*)(from + line * step + at) : make_uint4(0, 0, 0, 0);
    }
}
INLINE void keep(unsigned short (&to)[SIDE][PITCH], const uint4 (&from)[4], int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) *(uint4*)&to[lane / 4 + 8 * i][lane % 4 * 8] = from[i];
}

union Shared {
    struct { unsigned short a[SIDE][PITCH], b[SIDE][PITCH]; } factors[WARPS];
    float sums[WARPS][SIDE][SIDE + 4];
};

extern "C" __global__ void __launch_bounds__(32 * WARPS) some_rows(const Params p) {
    __shared__ __align__(16) Shared shared;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long tiles = (p.n + SIDE - 1) / SIDE, index = (long long)block_index();
    const long long row = index / tiles * SIDE, column = index % tiles * SIDE;
    if (row >= p.m) return;
    const ELEMENT* a = p.a + row * p.a_row;
#if TURNED
    const ELEMENT* b = p.b + column * p.b_line;
#else
    const ELEMENT* b = p.b + column;
#endif
    auto& factors = shared.factors[warp];
    float sums[2][4][4];
#pragma unroll
    for (int i = 0; i < 32; i++) ((float*)sums)[i] = 0;
    uint4 next_a[4], next_b[4];
    // What is read ahead is stored when the former has been used.
    auto ahead = [&](long long at) {
        fetch(next_a, a + at, p.a_row, p.m - row, p.k - at, lane);
#if TURNED
        fetch(next_b, b + at, p.b_line, p.n - column, p.k - at, lane);
#else
        fetch(next_b, b + at * p.b_line, p.b_line, p.k - at, p.n - column, lane);
#endif
    };
    long long at = warp * SIDE;
    if (at < p.k) ahead(at);
    while (at < p.k) {
        keep(factors.a, next_a, lane);
        keep(factors.b, next_b, lane);
        __syncwarp();
        at += WARPS * SIDE;
        if (at < p.k) ahead(at);
#pragma unroll
        for (int k = 0; k < SIDE; k += 16) {
            unsigned left[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++) load_matrices(left[i], &factors.a[i * 16 + lane % 16][k + lane / 16 * 8]);
#pragma unroll
            for (int t = 0; t < 4; t += 2) {
                unsigned right[4];
#if TURNED
                load_matrices(right, &factors.b[(t + lane / 16) * 8 + lane % 8][k + lane / 8 % 2 * 8]);
#else
                load_turned(right, &factors.b[k + lane % 16][(t + lane / 16) * 8]);
#endif
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    multiply(sums[i][t], left[i], right, ELEMENT());
                    multiply(sums[i][t + 1], left[i], right + 2, ELEMENT());
                }
            }
        }
        __syncwarp();
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int t = 0; t < 4; t++) {
#pragma unroll
            for (int part = 0; part < 4; part++) {
                const int own_row = i * 16 + lane / 4 + part / 2 * 8, own_column = t * 8 + lane % 4 * 2 + part % 2;
                shared.sums[warp][own_row][own_column] = sums[i][t][part];
            }
        }
    }
    __syncthreads();
    for (int place = threadIdx.x; place < SIDE * SIDE; place += 32 * WARPS) {
        const int own_row = place / SIDE, own_column = place % SIDE;
        if (row + own_row >= p.m || column + own_column >= p.n) continue;
        float sum = 0;
#pragma unroll
        for (int other = 0; other < WARPS; other++) sum += shared.sums[other][own_row][own_column];
        finish(p, row + own_row, column + own_column, sum);
    }
}
