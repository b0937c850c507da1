// Sorts each CHUNK of each row, by a bitonic network in shared memory.
// ELEMENT; PLAIN: elements are keys as they are; DESCENDING; CHUNK: a power of two.

#define THREADS (CHUNK / 2 < 512 ? CHUNK / 2 : 512)

struct Params {
    const ELEMENT* in;
    long long stride;
    Word* words;
    long long row_count, count, chunk_count;
};

extern "C" __global__ void __launch_bounds__(THREADS) sort_chunks(const Params p) {
    __shared__ Word words[CHUNK];
    const long long block = block_index();
    const long long row = block / p.chunk_count, start = block % p.chunk_count * CHUNK;
    if (row >= p.row_count) return;
    const ELEMENT* in = p.in + row * p.stride;
    for (int i = threadIdx.x; i < CHUNK; i += THREADS) {
        if (start + i < p.count) {
            Key key = PLAIN ? (Key)widen(in[start + i]) : to_key(widen(in[start + i]));
            words[i] = word_of(DESCENDING ? ~key : key, (unsigned)(start + i));
        } else {
            words[i] = last_word();
        }
    }
    sort<THREADS>(words, CHUNK);
    for (int i = threadIdx.x; i < CHUNK; i += THREADS) {
        if (start + i < p.count) p.words[row * p.count + start + i] = words[i];
    }
}
