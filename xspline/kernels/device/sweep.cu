// The sweep over a grid on a GPU: values are read once, as they are stored. That is the 4 bytes of a float32, where
// array-API functions (`passes.in_slabs`) read and write the whole block again in each step: some 90 bytes.
//
// A thread sums LINES lines over one tile, a range of the rows sorted by cell. Of each line it holds WIDTH sums, those
// of one support (the coefficients of a cell); when the next cell begins, the front of the support is put to its slot
// and the rest moves up. Slots of all tiles are then gathered in their order, so that the result does not depend on
// timing.
//
// VALUE       float or double
// MOMENT      1: of x - reference; 0: of ones, where x is known
// FUNCTIONS   0: one cell, its columns shared out in groups of WIDTH over blockIdx.z; else functions of a cell, and
// OFFSETS     entries that move together: 1, or FUNCTIONS for pairs (a, a + o), a-major

typedef long long integer;

static __device__ inline integer line_of(int which) {
    return ((integer)blockIdx.x * LINES + which) * blockDim.x + threadIdx.x;
}

// What the front of the support holds goes out; entry (a, o) becomes (a - 1, o).
static __device__ inline void put(double sums[WIDTH], double *out, integer stride) {
    int here = 0;
#pragma unroll
    for (int o = 0; o < OFFSETS; ++o) out[o * stride] = sums[o];
#pragma unroll
    for (int a = 0; a < FUNCTIONS; ++a) {
        const int count = OFFSETS == 1 ? 1 : FUNCTIONS - a, left = OFFSETS == 1 ? a + 1 < FUNCTIONS : count - 1;
#pragma unroll
        for (int o = 0; o < count; ++o) sums[here + o] = o < left ? sums[here + count + o] : 0.0;
        here += count;
    }
}

struct Totals {  // of each line
    double sums[LINES][WIDTH], square[LINES];
    integer number[LINES];
    unsigned long long digest[LINES];  // wraps around
};

static __device__ inline void load(const VALUE *const at[LINES], integer offset, VALUE next[LINES]) {
#pragma unroll
    for (int l = 0; l < LINES; ++l) next[l] = at[l][offset];
}

// One row: without branches, so that its functions are loaded once for all lines.
static __device__ inline void add(
    const VALUE next[LINES], const double *__restrict__ row, integer word, double reference, Totals &totals
) {
    double f[WIDTH];
#pragma unroll
    for (int q = 0; q < WIDTH; ++q) f[q] = row[q];
#pragma unroll
    for (int l = 0; l < LINES; ++l) {
        const bool known = next[l] == next[l];
        const double e = known ? (MOMENT ? (double)next[l] - reference : 1.0) : 0.0;
#pragma unroll
        for (int q = 0; q < WIDTH; ++q) totals.sums[l][q] += f[q] * e;
        if (MOMENT) {
            totals.square[l] += e * e;
            totals.number[l] += known;
            totals.digest[l] += known ? (unsigned long long)word : 0;
        }
    }
}

extern "C" __global__ void sweep(
    const VALUE *__restrict__ values,    // [before, rows, stored]
    const double *__restrict__ table,    // [rows, columns], sorted: functions or pairs
    const integer *__restrict__ order,   // rows sorted by cell
    const integer *__restrict__ words,   // [rows], sorted
    const integer *__restrict__ ends,    // sorted rows up to the end of each run of rows of one cell in one tile
    const integer *__restrict__ starts,  // where the support of each run begins
    const integer *__restrict__ tiles,   // runs up to the end of each tile
    const integer *__restrict__ slots,   // first slot of each tile
    integer rows, integer stored, integer column, integer after, integer lines, integer columns, integer count,
    double reference,
    double *__restrict__ sums_of,        // [slots, lines]
    double *__restrict__ power, integer *__restrict__ known, integer *__restrict__ digest  // [tiles, lines]
) {
    for (integer tile = blockIdx.y; tile < count; tile += gridDim.y) {
        const integer first = (integer)blockIdx.z * WIDTH;
        const VALUE *at[LINES];
        Totals totals;
#pragma unroll
        for (int l = 0; l < LINES; ++l) {
            const integer line = line_of(l) < lines ? line_of(l) : lines - 1;
            at[l] = values + line / after * rows * stored + column + line % after;
            totals.square[l] = 0.0;
            totals.number[l] = 0;
            totals.digest[l] = 0;
#pragma unroll
            for (int q = 0; q < WIDTH; ++q) totals.sums[l][q] = 0.0;
        }
        integer run = tile ? tiles[tile - 1] : 0, slot = slots[tile] + (FUNCTIONS ? 0 : first);
        integer i = run ? ends[run - 1] : 0, support = starts[run];
        for (; run < tiles[tile]; ++run) {
#if FUNCTIONS
            for (; support < starts[run]; support += OFFSETS, slot += OFFSETS) {
#pragma unroll
                for (int l = 0; l < LINES; ++l) {
                    double unused[OFFSETS];
                    const bool inside = line_of(l) < lines;
                    put(totals.sums[l], inside ? sums_of + slot * lines + line_of(l) : unused, inside ? lines : 1);
                }
            }
#endif
            for (; i + DEPTH <= ends[run]; i += DEPTH) {
                VALUE next[DEPTH][LINES];
#pragma unroll
                for (int d = 0; d < DEPTH; ++d) load(at, order[i + d] * stored, next[d]);  // none waits for another
#pragma unroll
                for (int d = 0; d < DEPTH; ++d)
                    add(next[d], table + (i + d) * columns + first, words[i + d], reference, totals);
            }
            for (; i < ends[run]; ++i) {
                VALUE next[LINES];
                load(at, order[i] * stored, next);
                add(next, table + i * columns + first, words[i], reference, totals);
            }
        }
#pragma unroll
        for (int l = 0; l < LINES; ++l) {
            const integer line = line_of(l);
            if (line >= lines) continue;
#if FUNCTIONS
            for (int a = 0; a < FUNCTIONS; ++a) put(totals.sums[l], sums_of + (slot + a * OFFSETS) * lines + line, lines);
#else
#pragma unroll
            for (int q = 0; q < WIDTH; ++q) sums_of[(slot + q) * lines + line] = totals.sums[l][q];
#endif
            if (MOMENT && first == 0) {
                power[tile * lines + line] = totals.square[l];
                known[tile * lines + line] = totals.number[l];
                digest[tile * lines + line] = (integer)totals.digest[l];
            }
        }
    }
}

// out[r] = sum of the slots that belong to r, in their order: [extent, lines].
extern "C" __global__ void gather(
    const double *__restrict__ sums_of, const integer *__restrict__ ends, const integer *__restrict__ slot,
    integer lines, integer extent, double *__restrict__ out
) {
    const integer line = (integer)blockIdx.x * blockDim.x + threadIdx.x;
    if (line >= lines) return;
    for (integer r = blockIdx.y; r < extent; r += gridDim.y) {
        double total = 0.0;
        for (integer i = r ? ends[r - 1] : 0; i < ends[r]; ++i) total += sums_of[slot[i] * lines + line];
        out[r * lines + line] = total;
    }
}
