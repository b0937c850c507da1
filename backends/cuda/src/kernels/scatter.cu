// target[.., index[.., i, ..], ..] = or += values[.., i, ..]: a thread for each line along the axis, in index order.
// ELEMENT, ACC: types; INDEX; RANK; FOLD: a `ScatterMode`.

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
    const INDEX* index;
    const ELEMENT* values;
    const long long* error;
    // Along the axis: how many, and the steps.
    long long count;
    long long target_step, index_step, value_step;
    // Target, index, values.
    Grid<3, RANK> lines;
    index_t line_count;
};

extern "C" __global__ void __launch_bounds__(128) scatter(const Params p) {
    const unsigned long long line = block_index() * 128 + threadIdx.x;
    // A bad index: nothing is written.
    if (line >= p.line_count || p.error[0] != 0) return;
    index_t at[3];
    p.lines.at((index_t)line, at);
    for (long long i = 0; i < p.count; i++) {
        const long long index = p.index[at[1] + i * p.index_step];
        ELEMENT* to = p.target + at[0] + index * p.target_step;
#if FOLD == 1
        // Of 16 bits all that goes to one place is summed before it is rounded.
        if (sizeof(ELEMENT) < sizeof(ACC) && Same<ACC, float>::value) {
            bool is_done = false;
            for (long long j = 0; j < i; j++) is_done |= p.index[at[1] + j * p.index_step] == index;
            if (is_done) continue;
            ACC sum = convert<ACC>(*to);
            for (long long j = i; j < p.count; j++) {
                if (p.index[at[1] + j * p.index_step] != index) continue;
                sum = folded(sum, convert<ACC>(p.values[at[2] + j * p.value_step]));
            }
            *to = convert<ELEMENT>(sum);
            continue;
        }
#endif
        const ELEMENT value = p.values[at[2] + i * p.value_step];
#if FOLD
        *to = convert<ELEMENT>(folded(convert<ACC>(*to), convert<ACC>(value)));
#else
        *to = value;
#endif
    }
}
