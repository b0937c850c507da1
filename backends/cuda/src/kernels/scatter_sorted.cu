// A scatter of entries that are sorted by destination, those of one in index order. A thread for each entry (and each of
// the positions that share the indices): the first entry of a destination does all of its entries.
// ELEMENT, ACC: types; RANK: of the lines that have indices of their own; SHARED: of the positions that share them; FOLD: a `ScatterMode`.

INLINE ACC folded(ACC a, ACC b) {
#if FOLD == 2
    return multiplied(a, b);
#elif FOLD == 3
    return a > b || a != a ? a : b;
#elif FOLD == 4
    return a < b || a != a ? a : b;
#else
    return plus(a, b);
#endif
}

struct Params {
    ELEMENT* target;
    const Word* words;
    const ELEMENT* values;
    const long long* error;
    // Entries of a line; along the axis the steps.
    long long count;
    long long target_step, value_step;
    // Target, values.
    Grid<2, RANK> lines;
    Grid<2, SHARED> shared;
    unsigned long long line_count, shared_count;
};

extern "C" __global__ void __launch_bounds__(128) scatter_sorted(const Params p) {
    const unsigned long long place = block_index() * 128 + threadIdx.x;
    const unsigned long long entry = place / p.shared_count;
    const unsigned long long line = entry / p.count;
    if (line >= p.line_count || p.error[0] != 0) return;
    const Word* words = p.words + line * p.count;
    long long first = entry - line * p.count;
    const Word own = words[first];
    if (first > 0 && key_of(words[first - 1]) == key_of(own)) return;
    index_t at[2], more[2];
    p.lines.at((index_t)line, at);
    p.shared.at((index_t)(place - entry * p.shared_count), more);
    ELEMENT* to = p.target + at[0] + more[0] + (long long)key_of(own) * p.target_step;
    const ELEMENT* values = p.values + at[1] + more[1];
#if FOLD
    ACC sum = convert<ACC>(*to);
    for (; first < p.count; first++) {
        const Word word = words[first];
        if (key_of(word) != key_of(own)) break;
        sum = folded(sum, convert<ACC>(values[(long long)index_of(word) * p.value_step]));
    }
    *to = convert<ELEMENT>(sum);
#else
    while (first + 1 < p.count && key_of(words[first + 1]) == key_of(own)) first++;
    *to = values[(long long)index_of(words[first]) * p.value_step];
#endif
}
