// The first K words of each row as values and indices. ELEMENT.

struct Params {
    const Word* words;
    long long word_stride;
    const ELEMENT* in;
    long long stride;
    ELEMENT* values;
    long long value_stride;
    long long* indices;
    long long index_stride;
    long long row_count, k;
};

extern "C" __global__ void __launch_bounds__(256) sort_finish(const Params p) {
    const long long place = block_index() * 256 + threadIdx.x;
    const long long row = place / p.k, rank = place % p.k;
    if (row >= p.row_count) return;
    const unsigned index = index_of(p.words[row * p.word_stride + rank]);
    p.values[row * p.value_stride + rank] = p.in[row * p.stride + index];
    p.indices[row * p.index_stride + rank] = index;
}
