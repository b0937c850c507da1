// Sorts so many words, a power of two, in shared memory by a bitonic network; the block has AT_ONCE threads, and all
// of them call it.
template <int AT_ONCE> INLINE void sort(Word* words, int count) {
    for (int size = 2; size <= count; size *= 2) {
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int pair = threadIdx.x; pair < count / 2; pair += AT_ONCE) {
                // Steps are powers of two: a division would take longer than the rest.
                const int low = 2 * pair - (pair & (step - 1)), high = low + step;
                const Word a = words[low], b = words[high];
                if (before(b, a) == ((low & size) == 0)) {
                    words[low] = b;
                    words[high] = a;
                }
            }
        }
    }
    __syncthreads();
}
