// Puts sorted runs of each row together, RUNS of them at most: words differ, so the place of one is its own in its run and
// the number of smaller ones in each other run. A block places 32 words: each of its warps counts in one run, where
// neighbours look at about the same places.
// RUNS.

struct Params {
    const Word* from;
    Word* to;
    long long row_count, count, run;
};

extern "C" __global__ void __launch_bounds__(32 * RUNS) sort_rank(const Params p) {
    __shared__ int smaller[RUNS][32];
    const int lane = threadIdx.x % 32, run = threadIdx.x / 32;
    const long long at = (long long)block_index() * 32 + lane;
    const bool is_word = at < p.row_count * p.count;
    const long long row = at / p.count;
    const Word* words = p.from + row * p.count;
    Word word;
    if (is_word) {
        word = p.from[at];
        const int first = (int)min(run * p.run, p.count);
        int low = first, high = (int)min((run + 1) * p.run, p.count);
        while (low < high) {
            const int middle = (low + high) / 2;
            if (before(words[middle], word)) low = middle + 1;
            else high = middle;
        }
        smaller[run][lane] = low - first;
    }
    __syncthreads();
    if (run > 0 || !is_word) return;
    int place = 0;
#pragma unroll
    for (int other = 0; other < RUNS; other++) place += smaller[other][lane];
    p.to[row * p.count + place] = word;
}
