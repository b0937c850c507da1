// Elements as unsigned integers in the order of the result, and words of such a key and an index: all words of a row
// differ, and their order is stable.
//
// WIDE_KEY: keys have 64 bits, else 32. Indices have 32 bits.

#if WIDE_KEY
typedef unsigned long long Key;
struct Word { unsigned long long key; unsigned index, none; };
INLINE Word word_of(Key key, unsigned index) { return Word{key, index, 0}; }
INLINE Key key_of(Word word) { return word.key; }
INLINE unsigned index_of(Word word) { return word.index; }
INLINE bool before(Word a, Word b) { return a.key < b.key || (a.key == b.key && a.index < b.index); }
INLINE Word last_word() { return Word{~0ull, ~0u, 0}; }
#else
typedef unsigned Key;
typedef unsigned long long Word;
INLINE Word word_of(Key key, unsigned index) { return (Word)key << 32 | index; }
INLINE Key key_of(Word word) { return (Key)(word >> 32); }
INLINE unsigned index_of(Word word) { return (unsigned)word; }
INLINE bool before(Word a, Word b) { return a < b; }
INLINE Word last_word() { return ~0ull; }
#endif

// NaN is one key above all others, and −0 has the key of 0.
INLINE Key to_key(float x) {
    unsigned bits = __float_as_uint(x + 0.0f);
    return x != x ? ~(Key)0 : (Key)(bits ^ ((unsigned)((int)bits >> 31) | 0x80000000u));
}
INLINE Key to_key(double x) {
    unsigned long long bits = (unsigned long long)__double_as_longlong(x + 0.0);
    return x != x ? ~(Key)0 : (Key)(bits ^ ((unsigned long long)((long long)bits >> 63) | 0x8000000000000000ull));
}
INLINE Key to_key(int x) { return (Key)((unsigned)x ^ 0x80000000u); }
INLINE Key to_key(long long x) { return (Key)((unsigned long long)x ^ 0x8000000000000000ull); }
