// Random numbers: Philox4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) by the position
// of an element in row-major order. Arithmetic in f32 is, step by step, that of the CPU.
//
// ELEMENT   of the output; PROBABILITY: of the operand with probabilities, if HAS_PROBABILITY
// KIND      0 uniform, 1 normal, 2 exponential, 3 Bernoulli, 4 integer; DOUBLE: in f64
// RANK      0: the output is contiguous, else of the grid
// V         elements of a thread, side by side if contiguous; even

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

// fdlibm's logf, of a normal number.
INLINE float log_normal(float x) {
    unsigned shifted = __float_as_uint(x) + (0x3f800000u - 0x3f3504f3u);
    float k = (float)((int)(shifted >> 23) - 127);
    float f = __uint_as_float((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float s = f / (2.0f + f);
    float z = s * s, w = z * z;
    float r = z * (0.66666663f + w * 0.28498787f) + w * (0.40000972f + w * 0.24279079f);
    float half_square = 0.5f * f * f;
    return s * (half_square + r) + k * 9.0580006e-6f - half_square + f + k * 0.69313812f;
}

// cos 2πu: the quarter, and a polynomial of what is left.
INLINE float cos_turns(float u) {
    float quarters = 4.0f * u;
    float rounded = quarters + 12582912.0f;
    unsigned n = __float_as_uint(rounded) & 3;
    float f = quarters - (rounded - 12582912.0f);
    float z = f * f, y = z * z;
    float cosine = ((1.0f + z * -1.2337005f) + y * (0.2536692f + z * -0.02086007f)) + (y * y) * 0.0009036281f;
    float sine = f * (((1.5707964f + z * -0.6459641f) + y * (0.07969259f + z * -0.0046812664f)) + (y * y) * 0.00015820631f);
    float value = n & 1 ? sine : cosine;
    return __uint_as_float(__float_as_uint(value) ^ ((n ^ (n << 1)) & 2) << 30);
}

INLINE ELEMENT make(const Params& p, unsigned low, unsigned high, unsigned long long probability_at) {
    unsigned long long bits = low | (unsigned long long)high << 32;
#if KIND == 4
    unsigned long long range = (unsigned long long)__double_as_longlong(p.b);
    unsigned long long scaled = range == 0 ? bits : __umul64hi(bits, range);
    return convert<ELEMENT>((long long)((unsigned long long)__double_as_longlong(p.a) + scaled));
#elif KIND == 3
#if HAS_PROBABILITY
    double probability = convert<double>(p.probability[probability_at]);
#else
    double probability = p.a;
#endif
    double unit = DOUBLE ? unit_f64(bits) : (double)unit_f32(high);
    return convert<ELEMENT>((int)(unit < probability));
#elif DOUBLE
#if KIND == 0
    double value = p.a + p.b * unit_f64(bits);
    return convert<ELEMENT>(value < p.c ? value : p.c);
#elif KIND == 1
    double u = ((double)low + 0.5) * (1.0 / 4294967296.0), turn = ((double)high + 0.5) * (1.0 / 4294967296.0);
    return convert<ELEMENT>(p.a + p.b * (sqrt(-2.0 * log(1.0 - u)) * cos(6.283185307179586 * turn)));
#else
    return convert<ELEMENT>((0.0 - log(1.0 - unit_f64(bits))) / p.a);
#endif
#else
#if KIND == 0
    float value = (float)p.a + (float)p.b * unit_f32(high), last = (float)p.c;
    return convert<ELEMENT>(value < last ? value : last);
#elif KIND == 1
    float radius = sqrtf(-2.0f * log_normal(1.0f - unit_f32(low)));
    return convert<ELEMENT>((float)p.a + (float)p.b * (radius * cos_turns(unit_f32(high))));
#else
    return convert<ELEMENT>((0.0f - log_normal(1.0f - unit_f32(high))) / (float)p.a);
#endif
#endif
}

extern "C" __global__ void __launch_bounds__(256) random(const Params p) {
#if RANK == 0
    const unsigned long long first = (block_index() * 256 + threadIdx.x) * V;
    if (first >= p.count) return;
    ELEMENT made[V];
#pragma unroll
    for (int i = 0; i < V; i += 2) {
        Words words = philox(p.counter + (first + i) / 2, p.key_low, p.key_high);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            if (first + i + j < p.count) made[i + j] = make(p, words.at[2 * j], words.at[2 * j + 1], first + i + j);
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
        Words words = philox(p.counter + position / 2, p.key_low, p.key_high);
        const bool odd = position & 1;
        p.out[offsets[0]] = make(p, odd ? words.at[2] : words.at[0], odd ? words.at[3] : words.at[1], offsets[1]);
    }
#endif
}
