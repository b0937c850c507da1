// One stage of a reduction. A unit is an output and a piece of what is reduced for it. Threads combine what they meet in
// the order of memory, in parts of 64 steps, then they are combined pairwise.
//
// IN, ACC, OUT    element types; MAP: 0 x, 1 x², 2 (x − mean)², 3 truth, 4 x − mean; FOLD: 0 sum, 1 product, 2 max, 3 min
// ROOT            the result is a square root; DIVIDE: it is divided; SETTLE: then it is added to the mean
// ARG             0, or with positions: 1 largest, 2 smallest; PAIRS: the input has positions already
// ACROSS          lanes lie along the first kept axis, not along what is reduced
// V, LANES        elements at once; lanes of a unit (along), lanes of a block side by side (across)
// KEPT, REDUCED   ranks
// PARTIAL         the results are partial, stored one after the other

#define BLOCK 256
#define PART 64

#if ARG
struct Best { ACC value; long long at; };
typedef Best Total;
#else
typedef ACC Total;
#endif
#if PAIRS
typedef Best Input;
#else
typedef IN Input;
#endif

INLINE bool is_nan(float x) { return x != x; }
INLINE bool is_nan(double x) { return x != x; }
INLINE bool is_nan(long long) { return false; }
INLINE bool is_nan(int) { return false; }
// Of floats; integers have one zero.
INLINE bool is_negative(float x) { return __float_as_int(x) < 0; }
INLINE bool is_negative(double x) { return __double_as_longlong(x) < 0; }
INLINE bool is_negative(long long) { return false; }
INLINE bool is_negative(int) { return false; }

template <class T> struct Bound;
template <> struct Bound<float> {
    INLINE float least() { return __int_as_float(0xff800000); }
    INLINE float most() { return __int_as_float(0x7f800000); }
};
template <> struct Bound<double> {
    INLINE double least() { return __longlong_as_double(0xfff0000000000000ll); }
    INLINE double most() { return __longlong_as_double(0x7ff0000000000000ll); }
};
template <> struct Bound<long long> {
    INLINE long long least() { return -9223372036854775807ll - 1; }
    INLINE long long most() { return 9223372036854775807ll; }
};
// Truth values.
template <> struct Bound<int> {
    INLINE int least() { return 0; }
    INLINE int most() { return 1; }
};

#if ARG
INLINE Total identity() { return Best{ARG == 1 ? Bound<ACC>::least() : Bound<ACC>::most(), 9223372036854775807ll}; }
INLINE Total combine(Total a, Total b) {
    bool nan_a = is_nan(a.value), nan_b = is_nan(b.value);
    bool same = nan_a ? nan_b : a.value == b.value;
    bool later = nan_a ? false : nan_b ? true : ARG == 1 ? b.value > a.value : b.value < a.value;
    return same ? (b.at < a.at ? b : a) : later ? b : a;
}
#else
INLINE Total identity() {
    return FOLD == 0 ? (ACC)0 : FOLD == 1 ? (ACC)1 : FOLD == 2 ? Bound<ACC>::least() : Bound<ACC>::most();
}
INLINE int plus(int a, int b) { return a + b; }
INLINE float multiply(float a, float b) { return a * b; }
INLINE double multiply(double a, double b) { return a * b; }
INLINE int multiply(int a, int b) { return a * b; }
INLINE long long multiply(long long a, long long b) { return (long long)((unsigned long long)a * (unsigned long long)b); }
INLINE Total combine(Total a, Total b) {
#if FOLD == 0
    return plus(a, b);
#elif FOLD == 1
    return multiply(a, b);
#elif FOLD == 2
    return b > a || is_nan(b) || (b == a && is_negative(a)) ? b : a;
#else
    return b < a || is_nan(b) || (b == a && is_negative(b)) ? b : a;
#endif
}
#endif

INLINE Total take(Input x, ACC mean, long long at) {
#if PAIRS
    return x;
#elif ARG
    return Best{convert<ACC>(x), at};
#elif MAP == 3
    return (ACC)(widen(x) != 0);
#else
    ACC value = convert<ACC>(x);
#if MAP == 4
    return value - mean;
#elif MAP == 1
    return value * value;
#elif MAP == 2
    return (value - mean) * (value - mean);
#else
    return value;
#endif
#endif
}

INLINE float root(float x) { return sqrtf(x); }
INLINE double root(double x) { return sqrt(x); }

template <class T> INLINE T shuffle_down(T x, int by, int width) {
    union { T value; int words[sizeof(T) / 4]; } from, to;
    from.value = x;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) / 4); i++) to.words[i] = __shfl_down_sync(0xffffffffu, from.words[i], by, width);
    return to.value;
}
#if ARG
INLINE Total shuffle(Total x, int by, int width) {
    return Best{shuffle_down(x.value, by, width), shuffle_down(x.at, by, width)};
}
#else
INLINE Total shuffle(Total x, int by, int width) { return shuffle_down(x, by, width); }
#endif

struct Params {
    const Input* in;
    void* out;
    long long* places;
    const ACC* means;
    double divisor;
    // Operands of the kept axes: in, out, places.
    Grid<3, KEPT> kept;
    Grid<1, REDUCED> reduced;
    // Counts of units of V elements, where there are such; of pieces, and how long they are.
    index_t kept_count, reduced_count, piece_count, piece;
    index_t kept_elements;
};

INLINE void put(const Params& p, const index_t (&offsets)[3], index_t position, index_t piece, Total total, int step) {
#if PARTIAL
    // Across, neighbours are neighbouring outputs; along, they are pieces of one output.
    ((Total*)p.out)[ACROSS ? piece * p.kept_elements + position : position * p.piece_count + piece] = total;
#elif ARG
    ((OUT*)p.out)[offsets[1] + step * (p.kept.strides[1][0] / V)] = convert<OUT>(total.value);
    p.places[offsets[2] + step * (p.kept.strides[2][0] / V)] = total.at;
#else
    ACC value = total;
#if ROOT
    value = root(value);
#endif
#if DIVIDE
    value = convert<ACC>((double)value / p.divisor);
#endif
#if SETTLE
    // There is no distance to infinity.
    value = value - value == 0 ? p.means[position] + value : p.means[position];
#endif
    ((OUT*)p.out)[offsets[1] + step * (p.kept.strides[1][0] / V)] = convert<OUT>(value);
#endif
}

extern "C" __global__ void __launch_bounds__(BLOCK) reduce(const Params p) {
#if ACROSS
    constexpr int LINES = BLOCK / LANES;
    const int x = threadIdx.x % LANES, y = threadIdx.x / LANES;
    const index_t column_blocks = (p.kept_count + LANES - 1) / LANES;
    const unsigned long long block = block_index();
    const index_t piece = (index_t)(block / column_blocks);
    const index_t unit = (index_t)(block % column_blocks) * LANES + x;
    if (piece >= p.piece_count) return;
    const bool live = unit < p.kept_count;
    index_t offsets[3];
    p.kept.at(live ? unit : 0, offsets);
    Total total[V];
    ACC means[V];
#pragma unroll
    for (int v = 0; v < V; v++) {
        total[v] = identity();
        means[v] = MAP == 2 || MAP == 4 ? p.means[(live ? unit : 0) * V + v] : (ACC)0;
    }
    const index_t end = min(p.reduced_count, (piece + 1) * p.piece);
    if (live) {
        for (index_t r = piece * p.piece + y; r < end;) {
            const index_t stop = min(end, r + PART * LINES);
            Total part[V];
#pragma unroll
            for (int v = 0; v < V; v++) part[v] = identity();
#pragma unroll 4
            for (; r < stop; r += LINES) {
                index_t at[1];
                p.reduced.at(r, at);
                Input x[V];
#if V > 1
                load<Input, V>(x, p.in + offsets[0] + at[0]);
#else
                x[0] = p.in[offsets[0] + at[0]];
#endif
#pragma unroll
                for (int v = 0; v < V; v++) part[v] = combine(part[v], take(x[v], means[v], r));
            }
#pragma unroll
            for (int v = 0; v < V; v++) total[v] = combine(total[v], part[v]);
        }
    }
    __shared__ Total shared[V][BLOCK];
#pragma unroll
    for (int v = 0; v < V; v++) shared[v][threadIdx.x] = total[v];
    for (int half = LINES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (y < half) {
#pragma unroll
            for (int v = 0; v < V; v++) {
                shared[v][threadIdx.x] = combine(shared[v][threadIdx.x], shared[v][threadIdx.x + half * LANES]);
            }
        }
    }
    if (y == 0 && live) {
        // The kept units step over V outputs.
#pragma unroll
        for (int v = 0; v < V; v++) put(p, offsets, unit * V + v, piece, shared[v][threadIdx.x], v);
    }
#else
    constexpr int UNITS = BLOCK / LANES;
    const int lane = threadIdx.x % LANES;
    const unsigned long long unit = block_index() * UNITS + threadIdx.x / LANES;
    const index_t position = (index_t)(unit / p.piece_count), piece = (index_t)(unit % p.piece_count);
    const bool live = position < p.kept_count;
    index_t offsets[3];
    p.kept.at(live ? position : 0, offsets);
    const ACC mean = (MAP == 2 || MAP == 4) && live ? p.means[position] : (ACC)0;
    Total total[V];
#pragma unroll
    for (int v = 0; v < V; v++) total[v] = identity();
    if (live) {
        const index_t end = min(p.reduced_count, (piece + 1) * p.piece);
        for (index_t r = piece * p.piece + lane; r < end;) {
            const index_t stop = min(end, r + PART * LANES);
            Total part[V];
#pragma unroll
            for (int v = 0; v < V; v++) part[v] = identity();
#pragma unroll 4
            for (; r < stop; r += LANES) {
                index_t at[1];
                p.reduced.at(r, at);
                Input x[V];
#if V > 1
                load<Input, V>(x, p.in + offsets[0] + at[0]);
#else
                x[0] = p.in[offsets[0] + at[0]];
#endif
#pragma unroll
                for (int v = 0; v < V; v++) part[v] = combine(part[v], take(x[v], mean, (long long)r * V + v));
            }
#pragma unroll
            for (int v = 0; v < V; v++) total[v] = combine(total[v], part[v]);
        }
    }
#pragma unroll
    for (int half = V / 2; half > 0; half /= 2) {
#pragma unroll
        for (int v = 0; v < half; v++) total[v] = combine(total[v], total[v + half]);
    }
    Total result = total[0];
    constexpr int WIDTH = LANES < 32 ? LANES : 32;
#pragma unroll
    for (int by = WIDTH / 2; by > 0; by /= 2) result = combine(result, shuffle(result, by, WIDTH));
#if LANES > 32
    __shared__ Total shared[BLOCK / 32];
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = result;
    __syncthreads();
    if (lane == 0) {
#pragma unroll
        for (int warp = 1; warp < LANES / 32; warp++) result = combine(result, shared[threadIdx.x / 32 + warp]);
    }
#endif
    if (lane == 0 && live) put(p, offsets, position, piece, result, 0);
#endif
}
