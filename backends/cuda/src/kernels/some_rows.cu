// A product of 16-bit floats with an `a` of some rows, on tensor cores. A block makes ROWS x COLUMNS results: its warps share
// what is summed over, DEPTH factors at a time in turn, and their sums are added in the order of the warps. It needs little
// shared memory, so that blocks of several streams share a multiprocessor: a library's kernel takes one for itself.
// TURNED          columns of b are contiguous, otherwise rows
// WARPS           of a block
// COLUMNS         of a block, 16 or 32
// AHEAD           turns whose factors a warp has under way; changes no bit

#define ROWS 32
#define DEPTH 32

// LINES lines of ALONG neighbours, 8 at once, shared out among the lanes of a warp. In shared memory a line is an odd multiple
// of 16 bytes, which keeps banks apart.
template <int LINES, int ALONG> struct Tile {
    static constexpr int PARTS = LINES * ALONG / 8 / 32;
    unsigned short at[LINES][ALONG + 8];

    INLINE int line(int part, int lane) { return (lane + 32 * part) / (ALONG / 8); }
    INLINE int place(int part, int lane) { return (lane + 32 * part) % (ALONG / 8) * 8; }
    // Zeros past the last line or neighbour.
    INLINE void fetch(
        uint4 (&to)[PARTS], const ELEMENT* from, long long step, long long lines, long long along, int lane) {
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            const int own = line(part, lane), first = place(part, lane);
            to[part] = own < lines && first < along ? *(const uint4*)(from + own * step + first) : make_uint4(0, 0, 0, 0);
        }
    }
    __device__ __forceinline__ void keep(const uint4 (&from)[PARTS], int lane) {
#pragma unroll
        for (int part = 0; part < PARTS; part++) *(uint4*)&at[line(part, lane)][place(part, lane)] = from[part];
    }
};
typedef Tile<ROWS, DEPTH> Left;
#if TURNED
typedef Tile<COLUMNS, DEPTH> Right;
#else
typedef Tile<DEPTH, COLUMNS> Right;
#endif

struct Factors {
    Left left;
    Right right;
};
union Shared {
    Factors factors[WARPS];
    float sums[WARPS][ROWS][COLUMNS + 4];
};

extern "C" __global__ void __launch_bounds__(32 * WARPS, 2) some_rows(const Params p) {
    __shared__ __align__(16) Shared shared;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long tiles = (p.n + COLUMNS - 1) / COLUMNS, index = (long long)block_index();
    const long long row = index / tiles * ROWS, column = index % tiles * COLUMNS;
    if (row >= p.m) return;
    const ELEMENT* a = p.a + row * p.a_row;
    uint4 left[AHEAD][Left::PARTS], right[AHEAD][Right::PARTS];
    auto fetch = [&](int slot, long long at) {
        Left::fetch(left[slot], a + at, p.a_row, p.m - row, p.k - at, lane);
#if TURNED
        Right::fetch(right[slot], p.b + column * p.b_line + at, p.b_line, p.n - column, p.k - at, lane);
#else
        Right::fetch(right[slot], p.b + at * p.b_line + column, p.b_line, p.k - at, p.n - column, lane);
#endif
    };
    Factors& own = shared.factors[warp];
    float sums[ROWS / 16][COLUMNS / 8][4];
#pragma unroll
    for (int i = 0; i < ROWS / 16 * (COLUMNS / 8) * 4; i++) ((float*)sums)[i] = 0;
    const long long turn = WARPS * DEPTH;
    long long at = warp * DEPTH;
#pragma unroll
    for (int slot = 0; slot < AHEAD; slot++) {
        if (at + slot * turn < p.k) fetch(slot, at + slot * turn);
    }
    while (at < p.k) {
#pragma unroll
        for (int slot = 0; slot < AHEAD; slot++, at += turn) {
            if (at >= p.k) break;
            own.left.keep(left[slot], lane);
            own.right.keep(right[slot], lane);
            __syncwarp();
            if (at + AHEAD * turn < p.k) fetch(slot, at + AHEAD * turn);
#pragma unroll
            for (int k = 0; k < DEPTH; k += 16) {
                unsigned rows[ROWS / 16][4];
#pragma unroll
                for (int i = 0; i < ROWS / 16; i++) {
                    load_matrices(rows[i], &own.left.at[i * 16 + lane % 16][k + lane / 16 * 8]);
                }
#pragma unroll
                for (int t = 0; t < COLUMNS / 8; t += 2) {
                    unsigned columns[4];
#if TURNED
                    load_matrices(columns, &own.right.at[(t + lane / 16) * 8 + lane % 8][k + lane / 8 % 2 * 8]);
#else
                    load_turned(columns, &own.right.at[k + lane % 16][(t + lane / 16) * 8]);
#endif
#pragma unroll
                    for (int i = 0; i < ROWS / 16; i++) {
                        multiply(sums[i][t], rows[i], columns, ELEMENT());
                        multiply(sums[i][t + 1], rows[i], columns + 2, ELEMENT());
                    }
                }
            }
            __syncwarp();
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ROWS / 16; i++) {
#pragma unroll
        for (int t = 0; t < COLUMNS / 8; t++) {
#pragma unroll
            for (int part = 0; part < 4; part++) {
                shared.sums[warp][i * 16 + lane / 4 + part / 2 * 8][t * 8 + lane % 4 * 2 + part % 2] = sums[i][t][part];
            }
        }
    }
    __syncthreads();
    for (int place = threadIdx.x; place < ROWS * COLUMNS; place += 32 * WARPS) {
        const int own_row = place / COLUMNS, own_column = place % COLUMNS;
        if (row + own_row >= p.m || column + own_column >= p.n) continue;
        float sum = 0;
#pragma unroll
        for (int other = 0; other < WARPS; other++) sum += shared.sums[other][own_row][own_column];
        finish(p, row + own_row, column + own_column, sum);
    }
}
