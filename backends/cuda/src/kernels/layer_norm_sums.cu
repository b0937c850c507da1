// The derivatives of a layer normalisation's weight and bias: the sums over what spans of rows have left, in an order that
// depends on their number only. A block takes 32 columns of one of both; a thread every 32nd span.
//
// ELEMENT, ACC    types

struct Params {
    // [spans, count]; null if not wanted.
    const ACC* weight_sums;
    const ACC* bias_sums;
    ELEMENT* weight;
    ELEMENT* bias;
    long long spans, count;
};

extern "C" __global__ void __launch_bounds__(1024) layer_norm_sums(const Params p) {
    const long long blocks = (p.count + 31) / 32;
    const bool is_weight = p.weight_sums && block_index() < blocks;
    const ACC* sums = is_weight ? p.weight_sums : p.bias_sums;
    ELEMENT* out = is_weight ? p.weight : p.bias;
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    const long long first = block_index() % blocks * 32;
    ACC sum = 0;
    if (first + x < p.count) {
#pragma unroll 8
        for (long long span = y; span < p.spans; span += 32) sum += sums[span * p.count + first + x];
    }
    __shared__ ACC turned[32][33];
    turned[y][x] = sum;
    __syncthreads();
    sum = turned[x][y];
#pragma unroll
    for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    if (x == 0 && first + y < p.count) out[first + y] = convert<ELEMENT>(sum);
}
