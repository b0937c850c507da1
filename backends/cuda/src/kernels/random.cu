// Random numbers: Philox4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) by the position
// of an element in row-major order. Arithmetic in f32 is, step by step, that of the CPU, fused multiply-adds included.
// Instructions are what limits it: a normal number takes 35 in the code for sm_90, 10 of them Philox's (NVRTC 13.0).
//
// ELEMENT   of the output; PROBABILITY: of the operand with probabilities, if HAS_PROBABILITY
// KIND      0 uniform, 1 normal, 2 exponential, 3 Bernoulli, 4 integer, 5 integer of 128 bits, 6 uniform of a range that is
//           twice as wide as a number can be; DOUBLE: in f64
// RANK      0: the output is contiguous, else of the grid
// V         elements of a thread, side by side if contiguous; a multiple of 4
// PARTS     of 256 V elements, of a contiguous output, are a block's

struct Params {
    ELEMENT* out;
    const PROBABILITY* probability;
    unsigned long long counter;
    // Of each round.
    unsigned keys[10][2];
    // Uniform: low, range (of kind 6 half of it), last. Normal: mean, std. Exponential: rate, the least. Bernoulli: p.
    // Integer: low, range as bits.
    double a, b, c;
    unsigned long long count;
#if RANK > 0
    // Out, probability, position.
    Grid<3, RANK> grid;
#endif
};

struct Words { unsigned at[4]; };

// A block; part 1 has as many words more.
INLINE Words philox(const Params& p, unsigned long long block, unsigned part) {
    const unsigned long long counter = p.counter + block;
    unsigned a = (unsigned)counter, b = (unsigned)(counter >> 32), c = part, d = 0;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        unsigned long long x = (unsigned long long)a * 0xd2511f53u, y = (unsigned long long)c * 0xcd9e8d57u;
        a = (unsigned)(y >> 32) ^ b ^ p.keys[round][0];
        b = (unsigned)y;
        c = (unsigned)(x >> 32) ^ d ^ p.keys[round][1];
        d = (unsigned)x;
    }
    return Words{{a, b, c, d}};
}

INLINE float unit_f32(unsigned word) { return (float)(int)(word >> 8) * (1.0f / 16777216.0f); }
INLINE double unit_f64(unsigned long long bits) { return (double)(long long)(bits >> 11) * (1.0 / 9007199254740992.0); }

// The upper 23 bits as the fraction of a number of [1, 2).
INLINE float one_to_two(unsigned word) { return __uint_as_float(__funnelshift_r(word, 0x3f800000u >> 23, 9)); }

// Polynomials, the constant first.
INLINE float fused_polynomial(float, float c) { return c; }
template <class... Rest> INLINE float fused_polynomial(float x, float c, Rest... rest) {
    return __fmaf_rn(fused_polynomial(x, rest...), x, c);
}

INLINE float minus_two_log(float x) {
    unsigned k = (__float_as_uint(x) - 0x3f2aaaabu) & 0xff800000u;
    float g = __fmaf_rn(__uint_as_float(__float_as_uint(x) - k), -2.0f, 2.0f);
    float p = fused_polynomial(g, 0.24999987f, 0.083331935f, 0.03125811f, 0.012518143f, 0.0051344805f, 0.002150492f,
        0.0011983907f, 0.00058546563f);
    return __fmaf_rn(p * g, g, __fmaf_rn((float)(int)k, -1.6525917e-7f, g));
}

// As sqrtf rounds (to nearest), without its test for what is subnormal, huge or no number.
INLINE float normal_root(float x) {
    float inverse;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    float near = x * inverse;
    return __fmaf_rn(__fmaf_rn(-near, near, x), 0.5f * inverse, near);
}

INLINE void quarter_turns(float v, float& cosine, float& sine) {
    float z = v * v;
    cosine = __fmaf_rn(-v, v, 1.0f) * fused_polynomial(z, 1.0f, -0.2337005f, 0.01996859f, -0.00089350983f, 2.3587914e-5f);
    sine = v * fused_polynomial(z, 1.5707964f, -0.6459638f, 0.079689704f, -0.0046737664f, 0.00015148513f);
}

// Elements of a block: of two words each, or of one.
constexpr int IN_A_BLOCK = DOUBLE || KIND == 4 || KIND == 5 ? 2 : 4;

// What a block makes, and an element of it: of Bernoulli the probability at its position decides.
#if KIND == 3
typedef double Made;
INLINE ELEMENT finish(const Params& p, double drawn, unsigned long long probability_at, unsigned long long position) {
#if HAS_PROBABILITY
    double probability = convert<double>(p.probability[probability_at]);
#else
    double probability = p.a;
#endif
#if DOUBLE
    return convert<ELEMENT>((int)(drawn < probability));
#else
    // Within the step between two words the one decides that the block's second part has there.
    constexpr double TWO_32 = 4294967296.0;
    const double above = TWO_32 * probability - drawn;
    bool one = above >= 1;
    if (above > 0 && above < 1) {
        const Words more = philox(p, position / 4, 1);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (position % 4 == i) one = (double)more.at[i] < TWO_32 * above;
        }
    }
    return convert<ELEMENT>((int)one);
#endif
}
#else
typedef ELEMENT Made;
INLINE ELEMENT finish(const Params&, ELEMENT made, unsigned long long, unsigned long long) { return made; }
#endif

#if KIND == 5
// The upper 64 of 192 bits, the product of 128 and the range.
INLINE Made make(const Params& p, unsigned long long upper, unsigned long long lower) {
    unsigned long long range = (unsigned long long)__double_as_longlong(p.b);
    unsigned long long middle = upper * range, sum = middle + __umul64hi(lower, range);
    unsigned long long scaled = __umul64hi(upper, range) + (sum < middle);
    return convert<ELEMENT>((long long)((unsigned long long)__double_as_longlong(p.a) + scaled));
}
INLINE void make_block(const Params& p, unsigned long long block, Made* made) {
    const Words words = philox(p, block, 0), more = philox(p, block, 1);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        made[i] = make(p, words.at[2 * i] | (unsigned long long)words.at[2 * i + 1] << 32,
            more.at[2 * i] | (unsigned long long)more.at[2 * i + 1] << 32);
    }
}
#elif DOUBLE || KIND == 4
// Of a low and a high word.
INLINE Made make(const Params& p, unsigned low, unsigned high) {
    unsigned long long bits = low | (unsigned long long)high << 32;
#if KIND == 4
    unsigned long long range = (unsigned long long)__double_as_longlong(p.b);
    unsigned long long scaled = range == 0 ? bits : __umul64hi(bits, range);
    return convert<ELEMENT>((long long)((unsigned long long)__double_as_longlong(p.a) + scaled));
#elif KIND == 3
    return unit_f64(bits);
#elif KIND == 0
    double value = p.a + p.b * unit_f64(bits);
    return convert<ELEMENT>(value < p.c ? value : p.c);
#elif KIND == 6
    double part = p.b * unit_f64(bits), value = p.a + part + part;
    return convert<ELEMENT>(value < p.c ? value : p.c);
#elif KIND == 1
    double u = ((double)low + 0.5) * (1.0 / 4294967296.0), turn = ((double)high + 0.5) * (1.0 / 4294967296.0);
    return convert<ELEMENT>(p.a + p.b * (sqrt(-2.0 * log(1.0 - u)) * cos(6.283185307179586 * turn)));
#else
    double size = 0.0 - log(1.0 - unit_f64(bits)), half_a_step = 0.5 / 9007199254740992.0;
    double value = (size > half_a_step ? size : half_a_step) / p.a;
    return convert<ELEMENT>(value > p.b ? value : p.b);
#endif
}
INLINE void make_block(const Params& p, unsigned long long block, Made* made) {
    const Words words = philox(p, block, 0);
    made[0] = make(p, words.at[0], words.at[1]);
    made[1] = make(p, words.at[2], words.at[3]);
}
#elif KIND == 1
INLINE void make_block(const Params& p, unsigned long long block, Made* made) {
    const Words words = philox(p, block, 0);
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        unsigned first = words.at[i], second = words.at[i + 1];
        float radius = normal_root(minus_two_log(one_to_two(first) - (1.0f - 1.0f / 16777216.0f))), cosine, sine;
        radius = __uint_as_float(__float_as_uint(radius) | (second & 0x80000000u));
        quarter_turns(__fmaf_rn(one_to_two(second << 1), 2.0f, -3.0f), cosine, sine);
        made[i] = convert<ELEMENT>(__fmaf_rn((float)p.b, radius * cosine, (float)p.a));
        made[i + 1] = convert<ELEMENT>(__fmaf_rn((float)p.b, radius * sine, (float)p.a));
    }
}
#else
// Of one word.
INLINE Made make(const Params& p, unsigned word) {
#if KIND == 3
    return (double)word;
#else
    float unit = unit_f32(word);
#if KIND == 0
    float value = (float)p.a + (float)p.b * unit, last = (float)p.c;
    return convert<ELEMENT>(value < last ? value : last);
#elif KIND == 6
    float part = (float)p.b * unit, value = (float)p.a + part + part, last = (float)p.c;
    return convert<ELEMENT>(value < last ? value : last);
#else
    float size = 0.5f * minus_two_log(1.0f - unit), half_a_step = 0.5f / 16777216.0f, least = (float)p.b;
    float value = (size > half_a_step ? size : half_a_step) / (float)p.a;
    return convert<ELEMENT>(value > least ? value : least);
#endif
#endif
}
INLINE void make_block(const Params& p, unsigned long long block, Made* made) {
    const Words words = philox(p, block, 0);
#pragma unroll
    for (int i = 0; i < 4; i++) made[i] = make(p, words.at[i]);
}
#endif

#if RANK == 0
// The elements of a thread that are side by side; WHOLE: all are inside.
template <bool WHOLE> INLINE void make_part(const Params& p, index_t first) {
    const int count = WHOLE ? V : min((index_t)p.count - first, (index_t)V);
    ELEMENT made[V];
#pragma unroll
    for (int i = 0; i < V; i += IN_A_BLOCK) {
        Made block[IN_A_BLOCK];
        make_block(p, (first + i) / IN_A_BLOCK, block);
#pragma unroll
        for (int j = 0; j < IN_A_BLOCK; j++) {
            if (!HAS_PROBABILITY || i + j < count) made[i + j] = finish(p, block[j], first + i + j, first + i + j);
        }
    }
    constexpr int AT_ONCE = !WHOLE ? 1 : V * sizeof(ELEMENT) > 16 ? 16 / sizeof(ELEMENT) : V;
#pragma unroll
    for (int i = 0; i < V; i += AT_ONCE) {
        ELEMENT at_once[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) at_once[j] = made[i + j];
        if (i < count) store<ELEMENT, AT_ONCE>(p.out + first + i, at_once);
    }
}
#endif

extern "C" __global__ void __launch_bounds__(256) random(const Params p) {
#if RANK == 0
    constexpr int STEP = 256 * V;
    const index_t begin = (index_t)block_index() * (STEP * PARTS), first = begin + threadIdx.x * V;
    if (ALIGNED && begin + STEP * PARTS <= (index_t)p.count) {
#pragma unroll
        for (int part = 0; part < PARTS; part++) make_part<true>(p, first + part * STEP);
    } else {
#pragma unroll 1
        for (index_t at = first; at < (index_t)p.count && at < begin + STEP * PARTS; at += STEP) make_part<false>(p, at);
    }
#else
    // Positions lie anyhow: a block for each element.
#pragma unroll
    for (int i = 0; i < V; i++) {
        const unsigned long long at = block_index() * (256 * V) + threadIdx.x + i * 256;
        if (at >= p.count) return;
        index_t offsets[3];
        p.grid.at((index_t)at, offsets);
        const unsigned long long position = offsets[2];
        Made made[IN_A_BLOCK];
        make_block(p, position / IN_A_BLOCK, made);
        Made value = made[0];
#pragma unroll
        for (int j = 1; j < IN_A_BLOCK; j++) {
            if (position % IN_A_BLOCK == j) value = made[j];
        }
        p.out[offsets[0]] = finish(p, value, offsets[1], position);
    }
#endif
}
