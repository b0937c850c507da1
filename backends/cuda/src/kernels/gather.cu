// out[.., i, ..] = source[.., index[.., i, ..], ..]. ELEMENT: bytes that are moved; INDEX; RANK; V elements at once, which
// share an index.

struct Params {
    ELEMENT* out;
    const ELEMENT* source;
    const INDEX* index;
    long long* error;
    long long size, stride;
    // Out, source, index, position; units of V elements.
    Grid<4, RANK> grid;
    index_t count;
};

extern "C" __global__ void __launch_bounds__(256) gather(const Params p) {
    const unsigned long long first = block_index() * (256 * 2) + threadIdx.x;
#pragma unroll
    for (int u = 0; u < 2; u++) {
        const unsigned long long place = first + u * 256;
        if (place >= p.count) return;
        index_t at[4];
        p.grid.at((index_t)place, at);
        const long long index = p.index[at[2]];
        if ((unsigned long long)index >= (unsigned long long)p.size) {
            report(p.error, index, at[3]);
            continue;
        }
        ELEMENT moved[V];
        load<ELEMENT, V>(moved, p.source + at[1] + index * p.stride);
        store<ELEMENT, V>(p.out + at[0], moved);
    }
}
