"""Sizes that decide how data are cut, read, merged and moved; none of them depends on the machine or its workers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Constants of size of sums and predictions.

    Those that cut the data or shape the tree of merges decide the order of additions, hence the last bits. A name in
    quotes is the row of ``benchmarks/RESULTS.md`` that measured the default; "chosen" means that nobody measured it.
    """

    # number of tasks that a stored array of up to 48 GB is cut into; it is also the least number of groups that
    # Dask blocks are joined to. Chosen: enough for some dozen workers, few enough for any scheduler.
    regions: int = 48
    region_bytes: int = 1024 * 2**20  # size of a region of a larger array. Chosen.
    # size up to which one task takes small Dask blocks, where there are more than `regions` of them. "graph": 45
    # tasks for 10,000 chunks.
    group_bytes: int = 64 * 2**20
    # the most regions or groups of blocks that any array is cut into, and the most sums that one task merges, so that
    # the sums that wait in the tree do not grow with the array. "growth": 32 MB a worker.
    leaves: int = 1024
    # how many times larger than in the most even grid the largest box may be; among such grids the one with the
    # fewest boxes is taken. Chosen.
    balance: float = 1.15

    # size of one read where storage chunks are smaller, and up to which small Dask blocks are joined before they are
    # summed. "mean": 0.21 of the time of a mean for chunks of 0.2 MB.
    read_bytes: int = 8 * 2**20
    # size up to which reads or blocks are joined before a GPU sums them, as its kernels take microseconds to
    # start. Chosen.
    gpu_step_bytes: int = 64 * 2**20
    # size up to which a coordinate or weight travels whole, once to each worker; a larger one travels by the block, and
    # holders in larger codes are not counted: a block is taken to have as many as rows, or all. Chosen.
    whole_bytes: int = 2**20

    fan_in: int = 16  # the most partial sums that one task merges. Chosen.
    # size of the partial sums that one task may hold to merge them, though it always takes two. "growth": merges
    # of 64 MB made memory grow with the number of chunks. "per_pixel": with half of it four parts of the 128 months
    # of ERSST were merged in two steps, and a regression took 1.4 to 1.5 times its mean.
    merge_bytes: int = 32 * 2**20
    # size of the partial sums that a task that adds up its reads keeps before it merges them. Chosen.
    waiting_bytes: int = 4 * 2**20
    # one task merges all sums that are left if they have at most so many times the bytes of their total. "graph":
    # 1.21 to 1.46 times the statistics are moved where blocks have several cells.
    root_ratio: float = 3

    # a checkpoint keeps the highest level of the tree that has at least this many sums. Chosen.
    checkpoint_sums: int = 16
    # number of chunks up to which every fit lists the names in a store, to count those that were never written.
    # Chosen: some tenths of a second on a disk, ten requests to an object store.
    counted_chunks: int = 10_000
    # seconds before the second and the third try of a read. Chosen.
    retry_pauses: tuple[float, ...] = (0.1, 0.5)

    # memory that the kernels use beside a block, for slabs in float64 and tables of features. "memory": measured
    # peaks are 0.50 to 0.57 of what a plan says.
    kernel_bytes: int = 24 * 2**20
    # memory that the first block adds to each process, for compiled kernels and imported libraries. Measured by
    # `tests/execution/test_planning.py`.
    compiler_bytes: int = 240 * 2**20
    # number of arrays as large as its sums that a block holds while it contracts: the total, a slab, a transposed
    # copy and the result
    workspace_copies: int = 4
    # number of copies of a block while it is read: as decoded, and as scaled and masked
    decode_copies: int = 2

    def leaves_for(self, count: int) -> int:
        """Return `count` leaves, at least `regions` and at most `leaves`."""
        return max(self.regions, min(self.leaves, count))


LIMITS = Limits()
"""The default."""
