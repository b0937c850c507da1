// Outputs made from positions. ELEMENT: of the output; RANK.
// KIND: 0 counter of floats, 1 of integers, 2 upper triangle, 3 lower.

struct Params {
    ELEMENT* out;
    const ELEMENT* in;
#if KIND == 0
    double start, step;
#else
    // Of triangles the first is the diagonal.
    long long start, step;
#endif
    // Out, in, row, column; of counters out, position, 0, 0.
    Grid<4, RANK> grid;
    index_t count;
};

extern "C" __global__ void __launch_bounds__(256) fill(const Params p) {
    const unsigned long long first = block_index() * (256 * 4) + threadIdx.x;
#pragma unroll
    for (int u = 0; u < 4; u++) {
        const unsigned long long position = first + u * 256;
        if (position >= p.count) return;
        index_t at[4];
        p.grid.at((index_t)position, at);
#if KIND == 0
        p.out[at[0]] = convert<ELEMENT>(p.start + (double)at[1] * p.step);
#elif KIND == 1
        long long value = (long long)((unsigned long long)p.start + (unsigned long long)at[1] * (unsigned long long)p.step);
        p.out[at[0]] = convert<ELEMENT>(value);
#else
        const long long beyond = (long long)at[3] - (long long)at[2];
        const bool kept = KIND == 2 ? beyond >= p.start : beyond <= p.start;
        ELEMENT value{};
        if (kept) value = p.in[at[1]];
        p.out[at[0]] = value;
#endif
    }
}
