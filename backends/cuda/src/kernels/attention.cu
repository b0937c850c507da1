// What both kernels of attention share: operands and scores.
// ELEMENT, ACC, MASK    types of operands, of what is computed with, of the mask
// KIND                  of mask: 0 none, 1 true takes part, 2 added
// CAUSAL                do queries see only keys up to their own index?

template <class T> struct Side {
    T* at;
    long long batch, head, row, column;
    __device__ __forceinline__ T* of(long long b, long long h) const { return at + b * batch + h * head; }
};
struct Params {
    Side<ELEMENT> out, query, key, value;
    Side<MASK> mask;
    long long blocks, tiles, heads, n, m, d, dv;
    double scale;
};

INLINE float lowest(float) { return __int_as_float(0xff800000); }
INLINE double lowest(double) { return __longlong_as_double(0xfff0000000000000ll); }
#define LOWEST lowest(ACC())

// Named roundings, so that no two kernels are contracted differently.
INLINE float times(float a, float b) { return __fmul_rn(a, b); }
INLINE double times(double a, double b) { return __dmul_rn(a, b); }
INLINE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
INLINE double fused(double a, double b, double c) { return __fma_rn(a, b, c); }

// From a product to a score, in units in which `power` is taken: `scale` is of such units, and so is `unit` for what is added.
// -infinity if the key doesn't take part.
INLINE ACC score(ACC product, ACC scale, ACC unit, const Params& p, const MASK* mask, long long query, long long key) {
#if KIND == 2
    const ACC added = convert<ACC>(mask[query * p.mask.row + key * p.mask.column]);
    ACC x = fused(scale, product, times(unit, added));
#else
    ACC x = times(scale, product);
#endif
#if KIND == 1
    if (!widen(mask[query * p.mask.row + key * p.mask.column])) x = LOWEST;
#endif
#if CAUSAL
    if (key > query) x = LOWEST;
#endif
    return x;
}

// What is taken off all scores of a row whose largest is this.
INLINE ACC shift_of(ACC most) { return most == LOWEST ? (ACC)0 : most; }
// The factor that makes weights sum to 1; 0 for a row without any.
INLINE ACC inverse(ACC total) { return total == 0 ? (ACC)0 : 1 / total; }
