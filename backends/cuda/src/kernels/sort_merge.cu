// Merges neighbouring sorted runs of each row. A block makes TILE words: it finds the two parts that they come from (the
// merge path of O. Green, R. McColl, D. Bader, "GPU merge path", 2012) and takes them to shared memory.

#define TILE 1024
#define THREADS 256
#define EACH (TILE / THREADS)

struct Params {
    const Word* from;
    Word* to;
    long long row_count, count, run;
};

// How many of the first `taken` words of the merged run come from `a`.
INLINE long long split(const Word* a, long long a_count, const Word* b, long long b_count, long long taken) {
    long long low = taken > b_count ? taken - b_count : 0, high = taken < a_count ? taken : a_count;
    while (low < high) {
        const long long middle = (low + high) / 2;
        if (before(b[taken - 1 - middle], a[middle])) high = middle;
        else low = middle + 1;
    }
    return low;
}

extern "C" __global__ void __launch_bounds__(THREADS) sort_merge(const Params p) {
    __shared__ Word shared[TILE];
    __shared__ long long bounds[2];
    const long long tiles = (2 * p.run + TILE - 1) / TILE, pairs = (p.count + 2 * p.run - 1) / (2 * p.run);
    const long long block = block_index();
    const long long row = block / (tiles * pairs), pair = block / tiles % pairs, tile = block % tiles;
    if (row >= p.row_count) return;
    const long long start = pair * 2 * p.run;
    const long long a_count = min(p.run, p.count - start);
    const long long b_count = max(0ll, min(p.run, p.count - start - p.run));
    const long long first = tile * TILE, last = min(first + TILE, a_count + b_count);
    if (first >= last) return;
    const Word* a = p.from + row * p.count + start;
    const Word* b = a + p.run;
    if (threadIdx.x < 2) bounds[threadIdx.x] = split(a, a_count, b, b_count, threadIdx.x == 0 ? first : last);
    __syncthreads();
    const long long a_first = bounds[0], b_first = first - a_first;
    const int of_a = (int)(bounds[1] - a_first), whole = (int)(last - first), of_b = whole - of_a;
    for (int i = threadIdx.x; i < whole; i += THREADS) shared[i] = i < of_a ? a[a_first + i] : b[b_first + i - of_a];
    __syncthreads();
    Word merged[EACH];
    const int begin = threadIdx.x * EACH;
    if (begin < whole) {
        int i = (int)split(shared, of_a, shared + of_a, of_b, begin), j = begin - i;
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            if (begin + e < whole) {
                const bool from_a = j >= of_b || (i < of_a && before(shared[i], shared[of_a + j]));
                merged[e] = from_a ? shared[i++] : shared[of_a + j++];
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (begin + e < whole) shared[begin + e] = merged[e];
    }
    __syncthreads();
    Word* to = p.to + row * p.count + start + first;
    for (int i = threadIdx.x; i < whole; i += THREADS) to[i] = shared[i];
}
