// sums [16, 8] += a [16, 16] b [16, 8], as the PTX manual lays them out: with group = lane / 4 and member = lane % 4 a thread
// has of `a` rows group (+ 8 in odd registers) and columns 2 member, + 1 (+ 8 in the last two registers), of `b` the same
// rows as columns of `a` and column group, of the sums rows group, group + 8 and columns 2 member, + 1.
#define MMA(type) \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
INLINE void multiply(float (&sums)[4], const unsigned (&a)[4], const unsigned* b, f16) { MMA("f16"); }
INLINE void multiply(float (&sums)[4], const unsigned (&a)[4], const unsigned* b, bf16) { MMA("bf16"); }

// Four 8 x 8 matrices of shared memory: each group of eight lanes gives the rows of one. A thread gets two neighbours of row
// lane / 4 of each, turned: of column lane / 4.
INLINE void load_matrices(unsigned (&to)[4], const unsigned short* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}
INLINE void load_turned(unsigned (&to)[4], const unsigned short* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}
