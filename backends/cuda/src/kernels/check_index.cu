// Are all indices inside an axis of SIZE? INDEX: their type; RANK.

struct Params {
    const INDEX* index;
    long long* error;
    long long size;
    // Index, position.
    Grid<2, RANK> grid;
    index_t count;
};

extern "C" __global__ void __launch_bounds__(256) check_index(const Params p) {
    const unsigned long long first = block_index() * (256 * 4) + threadIdx.x;
#pragma unroll
    for (int u = 0; u < 4; u++) {
        const unsigned long long place = first + u * 256;
        if (place >= p.count) return;
        index_t at[2];
        p.grid.at((index_t)place, at);
        const long long index = p.index[at[0]];
        if ((unsigned long long)index >= (unsigned long long)p.size) report(p.error, index, at[1]);
    }
}
