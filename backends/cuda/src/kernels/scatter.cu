// target[.., index[.., i, ..], ..] = or += values[.., i, ..]: a thread for each line along the axis, in index order.
// ELEMENT, ACC: types; INDEX; RANK; ADD.

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
        const ELEMENT value = p.values[at[2] + i * p.value_step];
#if ADD
        *to = convert<ELEMENT>(plus(convert<ACC>(*to), convert<ACC>(value)));
#else
        *to = value;
#endif
    }
}
