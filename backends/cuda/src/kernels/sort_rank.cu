// Puts sorted runs of each row together, RUNS of them at most: words differ, so the place of one is its own in its run and
// the number of smaller ones in each other run. The searches of a thread go side by side.

#define RUNS 8

struct Params {
    const Word* from;
    Word* to;
    long long row_count, count, run;
};

extern "C" __global__ void __launch_bounds__(256) sort_rank(const Params p) {
    const long long at = (long long)block_index() * 256 + threadIdx.x;
    if (at >= p.row_count * p.count) return;
    const long long row = at / p.count, own = at % p.count;
    const Word* words = p.from + row * p.count;
    const Word word = words[own];
    // Of each run: what is below the first bound is smaller, what is from the second on is not.
    int low[RUNS], high[RUNS];
#pragma unroll
    for (int run = 0; run < RUNS; run++) {
        low[run] = (int)min(run * p.run, p.count);
        high[run] = (int)min((run + 1) * p.run, p.count);
    }
    for (long long left = p.run; left > 0; left /= 2) {
        Word middle[RUNS];
        // Loads first, whether they are wanted or not: a branch around each would make them wait for each other.
#pragma unroll
        for (int run = 0; run < RUNS; run++) middle[run] = words[min((low[run] + high[run]) / 2, (int)p.count - 1)];
#pragma unroll
        for (int run = 0; run < RUNS; run++) {
            const int at = (low[run] + high[run]) / 2;
            const bool is_open = low[run] < high[run], is_smaller = before(middle[run], word);
            if (is_open && is_smaller) low[run] = at + 1;
            if (is_open && !is_smaller) high[run] = at;
        }
    }
    long long place = 0;
#pragma unroll
    for (int run = 0; run < RUNS; run++) place += low[run] - min(run * p.run, p.count);
    p.to[row * p.count + place] = word;
}
