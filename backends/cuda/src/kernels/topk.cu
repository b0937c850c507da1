// The first K of each segment of each row. Each of THREADS threads finds the first word of its share; the K-th of these
// first words is a bound that at least K words meet, and only the shares of K threads hold such words: so they are few
// (at most ROOM), are collected and sorted. Words that pad a row are never collected.
//
// ELEMENT: or WORDS, the input is words; LAST: the result is values and indices, else words
// THREADS, ROOM: powers of two

struct Params {
    const ELEMENT* in;
    long long stride;
    const Word* from;
    // Without LAST: [rows, segments * k]
    Word* to;
    ELEMENT* values;
    long long value_stride;
    long long* indices;
    long long index_stride;
    long long row_count, count, segment, segment_count;
    long long k;
};

INLINE Word word_at(const Params& p, long long row, long long at) {
#if WORDS
    return p.from[row * p.count + at];
#else
    Key key = to_key(widen(p.in[row * p.stride + at]));
    return word_of(DESCENDING ? ~key : key, (unsigned)at);
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS) topk(const Params p) {
    __shared__ Word words[ROOM];
    __shared__ int found;
    const long long block = block_index();
    const long long row = block / p.segment_count, segment = block % p.segment_count;
    if (row >= p.row_count) return;
    const long long start = segment * p.segment, end = min(p.count, start + p.segment);
    Word best = last_word();
#pragma unroll 4
    for (long long at = start + threadIdx.x; at < end; at += THREADS) {
        const Word word = word_at(p, row, at);
        if (before(word, best)) best = word;
    }
    words[threadIdx.x] = best;
    if (threadIdx.x == 0) found = 0;
    sort<THREADS>(words, THREADS);
    const int wanted = (int)min(p.k, end - start);
    const Word bound = words[min(wanted, THREADS) - 1];
    __syncthreads();
#pragma unroll 4
    for (long long at = start + threadIdx.x; at < end; at += THREADS) {
        const Word word = word_at(p, row, at);
        // In any order: they are sorted next.
        if (!before(bound, word) && before(word, last_word())) words[atomicAdd(&found, 1)] = word;
    }
    __syncthreads();
    int size = 2;
    while (size < found) size *= 2;
    for (int i = found + threadIdx.x; i < size; i += THREADS) words[i] = last_word();
    sort<THREADS>(words, size);
    for (int rank = threadIdx.x; rank < (int)p.k; rank += THREADS) {
#if LAST
        const unsigned index = index_of(words[rank]);
        p.values[row * p.value_stride + rank] = p.in[row * p.stride + index];
        p.indices[row * p.index_stride + rank] = index;
#else
        p.to[(row * p.segment_count + segment) * p.k + rank] = rank < found ? words[rank] : last_word();
#endif
    }
}
