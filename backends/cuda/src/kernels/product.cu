// What products of ours share: act(alpha · x + bias) + beta · c for a sum x.
// ELEMENT, ACC    types; ACT: 0 none, 1 relu, 2 gelu; BIAS, ADDEND: are there such?

INLINE float upper_tail(float x) { return erfcf(x); }
INLINE double upper_tail(double x) { return erfc(x); }

struct Params {
    ELEMENT* out;
    const ELEMENT* a;
    const ELEMENT* b;
    const ELEMENT* bias;
    const ELEMENT* addend;
    double alpha, beta;
    long long m, n, k;
    // Steps along rows and columns; of a and b only from one line to the next.
    long long a_row, b_line, out_row, out_column, bias_row, bias_column, addend_row, addend_column;
};

INLINE void finish(const Params& p, long long row, long long column, ACC sum) {
    ACC x = (ACC)p.alpha * sum;
#if BIAS
    x += convert<ACC>(p.bias[row * p.bias_row + column * p.bias_column]);
#endif
#if ACT == 1
    // NaN stays.
    x = x < 0 ? 0 : x;
#elif ACT == 2
    x = (ACC)0.5 * x * upper_tail((ACC)-0.7071067811865476 * x);
#endif
#if ADDEND
    x += (ACC)p.beta * convert<ACC>(p.addend[row * p.addend_row + column * p.addend_column]);
#endif
    p.out[row * p.out_row + column * p.out_column] = convert<ELEMENT>(x);
}
