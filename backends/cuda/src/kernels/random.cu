// Random numbers: Philox4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) by the position
// of an element in row-major order. Arithmetic in f32 is, step by step, that of the CPU.
//
// ELEMENT   of the output; PROBABILITY: of the operand with probabilities, if HAS_PROBABILITY
// KIND      0 uniform, 1 normal, 2 exponential, 3 Bernoulli, 4 integer; DOUBLE: in f64
// RANK      0: the output is contiguous, else of the grid
// V         elements of a thread, side by side if contiguous; a multiple of 4

struct Params {
    ELEMENT* out;
    const PROBABILITY* probability;
    unsigned long long counter;
    unsigned key_low, key_high;
    // Uniform: low, range, last. Normal: mean, std. Exponential: rate. Bernoulli: p. Integer: low, range as bits.
    double a, b, c;
    unsigned long long count;
#if RANK > 0
    // Out, probability, position.
    Grid<3, RANK> grid;
#endif
};

struct Words { unsigned at[4]; };

INLINE Words philox(unsigned long long counter, unsigned k, unsigned l) {
    unsigned a = (unsigned)counter, b = (unsigned)(counter >> 32), c = 0, d = 0;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        unsigned long long x = (unsigned long long)a * 0xd2511f53u, y = (unsigned long long)c * 0xcd9e8d57u;
        a = (unsigned)(y >> 32) ^ b ^ k;
        b = (unsigned)y;
        c = (unsigned)(x >> 32) ^ d ^ l;
        d = (unsigned)x;
        k += 0x9e3779b9u;
        l += 0xbb67ae85u;
    }
    return Words{{a, b, c, d}};
}

INLINE float unit_f32(unsigned word) { return (float)(int)(word >> 8) * (1.0f / 16777216.0f); }
INLINE double unit_f64(unsigned long long bits) { return (double)(long long)(bits >> 11) * (1.0 / 9007199254740992.0); }

// Cephes' logf, of a normal number: no division.
INLINE float log_normal(float x) {
    unsigned shifted = __float_as_uint(x) + (0x3f800000u - 0x3f3504f3u);
    float k = (float)((int)(shifted >> 23) - 127);
    float f = __uint_as_float((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float z = f * f, w = z * z;
    float a = (0.3333333f + f * -0.24999994f) + z * (0.20000715f + f * -0.16668058f);
    float b = (0.14249323f + f * -0.1242014f) + z * (0.11676999f + f * -0.1151461f);
    float p = (a + w * b) + (w * w) * 0.070376836f;
    float y = f * z * p - k * 0.00021219444f - 0.5f * z;
    return f + y + k * 0.6933594f;
}

// cos 2πu and sin 2πu: the quarter, and polynomials of what is left.
INLINE void turns(float u, float& cosine, float& sine) {
    float quarters = 4.0f * u;
    float rounded = quarters + 12582912.0f;
    unsigned n = __float_as_uint(rounded) & 3;
    float f = quarters - (rounded - 12582912.0f);
    float z = f * f, y = z * z;
    float c = ((1.0f + z * -1.2337005f) + y * (0.2536692f + z * -0.02086007f)) + (y * y) * 0.0009036281f;
    float s = f * (((1.5707964f + z * -0.6459641f) + y * (0.07969259f + z * -0.0046812664f)) + (y * y) * 0.00015820631f);
    cosine = __uint_as_float(__float_as_uint(n & 1 ? s : c) ^ ((n ^ (n << 1)) & 2) << 30);
    sine = __uint_as_float(__float_as_uint(n & 1 ? c : s) ^ (n & 2) << 30);
}

// Elements of a block: of two words each, or of one.
constexpr int IN_A_BLOCK = DOUBLE || KIND == 4 ? 2 : 4;

// What a block makes, and an element of it: of Bernoulli the probability at its position decides.
#if KIND == 3
typedef double Made;
INLINE ELEMENT finish(const Params& p, double unit, unsigned long long probability_at) {
#if HAS_PROBABILITY
    double probability = convert<double>(p.probability[probability_at]);
#else
    double probability = p.a;
#endif
    return convert<ELEMENT>((int)(unit < probability));
}
#else
typedef ELEMENT Made;
INLINE ELEMENT finish(const Params&, ELEMENT made, unsigned long long) { return made; }
#endif

#if DOUBLE || KIND == 4
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
#elif KIND == 1
    double u = ((double)low + 0.5) * (1.0 / 4294967296.0), turn = ((double)high + 0.5) * (1.0 / 4294967296.0);
    return convert<ELEMENT>(p.a + p.b * (sqrt(-2.0 * log(1.0 - u)) * cos(6.283185307179586 * turn)));
#else
    return convert<ELEMENT>((0.0 - log(1.0 - unit_f64(bits))) / p.a);
#endif
}
INLINE void make_block(const Params& p, const Words& words, Made* made) {
    made[0] = make(p, words.at[0], words.at[1]);
    made[1] = make(p, words.at[2], words.at[3]);
}
#elif KIND == 1
INLINE void make_block(const Params& p, const Words& words, Made* made) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        float radius = sqrtf(-2.0f * log_normal(1.0f - unit_f32(words.at[i]))), cosine, sine;
        turns(unit_f32(words.at[i + 1]), cosine, sine);
        made[i] = convert<ELEMENT>((float)p.a + (float)p.b * (radius * cosine));
        made[i + 1] = convert<ELEMENT>((float)p.a + (float)p.b * (radius * sine));
    }
}
#else
// Of one word.
INLINE Made make(const Params& p, unsigned word) {
    float unit = unit_f32(word);
#if KIND == 3
    return (double)unit;
#elif KIND == 0
    float value = (float)p.a + (float)p.b * unit, last = (float)p.c;
    return convert<ELEMENT>(value < last ? value : last);
#else
    return convert<ELEMENT>((0.0f - log_normal(1.0f - unit)) / (float)p.a);
#endif
}
INLINE void make_block(const Params& p, const Words& words, Made* made) {
#pragma unroll
    for (int i = 0; i < 4; i++) made[i] = make(p, words.at[i]);
}
#endif

extern "C" __global__ void __launch_bounds__(256) random(const Params p) {
#if RANK == 0
    const unsigned long long first = (block_index() * 256 + threadIdx.x) * V;
    if (first >= p.count) return;
    ELEMENT made[V];
#pragma unroll
    for (int i = 0; i < V; i += IN_A_BLOCK) {
        Made block[IN_A_BLOCK];
        make_block(p, philox(p.counter + (first + i) / IN_A_BLOCK, p.key_low, p.key_high), block);
#pragma unroll
        for (int j = 0; j < IN_A_BLOCK; j++) {
            if (first + i + j < p.count) made[i + j] = finish(p, block[j], first + i + j);
        }
    }
    if (ALIGNED && first + V <= p.count) {
        constexpr int AT_ONCE = V * sizeof(ELEMENT) > 16 ? 16 / sizeof(ELEMENT) : V;
#pragma unroll
        for (int i = 0; i < V; i += AT_ONCE) {
            ELEMENT part[AT_ONCE];
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) part[j] = made[i + j];
            store<ELEMENT, AT_ONCE>(p.out + first + i, part);
        }
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) {
            if (first + i < p.count) p.out[first + i] = made[i];
        }
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
        Words words = philox(p.counter + position / IN_A_BLOCK, p.key_low, p.key_high);
        Made made[IN_A_BLOCK];
        make_block(p, words, made);
        Made value = made[0];
#pragma unroll
        for (int j = 1; j < IN_A_BLOCK; j++) {
            if (position % IN_A_BLOCK == j) value = made[j];
        }
        p.out[offsets[0]] = finish(p, value, offsets[1]);
    }
#endif
}
