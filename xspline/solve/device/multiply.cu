// The product of a symmetric pair array with vectors on a GPU: a thread sums one row, entry after entry.
//
// One launch, where array-API functions take two for each of the (2p + 1)^d offsets of a row: 686 for cubics of three
// coordinates.
//
// Over four axes, `bands` hold [O.., K..] the pair (k, k + o); an axis counts modulo K where its bit of `periodic` is
// set. Each thread takes VECTORS vectors, which share what it reads of the bands.

typedef long long integer;

struct Pair {
    int other, first, offset;  // the other member (-1: none), the first of the two, and how far apart they are
};

static __device__ inline Pair beside(int k, int step, int size, bool wraps) {
    int other = k + step;
    if (wraps) other += other < 0 ? size : other >= size ? -size : 0;
    if (other < 0 || other >= size) return {-1, 0, 0};
    return {other, step < 0 ? other : k, step < 0 ? -step : step};
}

extern "C" __global__ void multiply(
    const double *__restrict__ bands,  // [o0, o1, o2, LAST, k0, k1, k2, k3]
    const double *__restrict__ x,      // [vectors, k0, k1, k2, k3]
    integer k0, integer k1, integer k2, integer k3, integer o0, integer o1, integer o2,
    integer periodic, integer vectors,
    double *__restrict__ out           // as x
) {
    const integer size = k0 * k1 * k2 * k3, here = (integer)blockIdx.x * blockDim.x + threadIdx.x;
    const integer begin = (integer)blockIdx.y * VECTORS;
    if (here >= size) return;
    const int at0 = here / (k1 * k2 * k3), at1 = here / (k2 * k3) % k1, at2 = here / k3 % k2, at3 = here % k3;
    double total[VECTORS];
    for (int m = 0; m < VECTORS; ++m) total[m] = 0.0;
    for (int s0 = 1 - (int)o0; s0 < o0; ++s0) {
        const Pair a = beside(at0, s0, k0, periodic & 1);
        if (a.other < 0) continue;
        for (int s1 = 1 - (int)o1; s1 < o1; ++s1) {
            const Pair b = beside(at1, s1, k1, periodic & 2);
            if (b.other < 0) continue;
            for (int s2 = 1 - (int)o2; s2 < o2; ++s2) {
                const Pair c = beside(at2, s2, k2, periodic & 4);
                if (c.other < 0) continue;
                const integer offset = (((integer)a.offset * o1 + b.offset) * o2 + c.offset) * LAST;
                const double *band = bands + offset * size + ((a.first * k1 + b.first) * k2 + c.first) * k3;
                const double *from = x + begin * size + ((a.other * k1 + b.other) * k2 + c.other) * k3;
#pragma unroll
                for (int step = 1 - LAST; step < LAST; ++step) {  // loads that need not wait for each other
                    const Pair d = beside(at3, step, k3, periodic & 8);
                    const bool is = d.other >= 0;
                    const double entry = is ? band[d.offset * size + d.first] : 0.0;
#pragma unroll
                    for (int m = 0; m < VECTORS; ++m)
                        total[m] += entry * (is && begin + m < vectors ? from[m * size + d.other] : 0.0);
                }
            }
        }
    }
    for (int m = 0; m < VECTORS; ++m)
        if (begin + m < vectors) out[(begin + m) * size + here] = total[m];
}
