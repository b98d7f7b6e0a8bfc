"""Sizes that decide how data are cut, read, merged and moved; none of them depends on the machine or its workers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Constants of size of sums and predictions.

    Those that cut the data or shape the tree of merges decide the order of additions, hence the last bits. Rows of
    ``benchmarks/RESULTS.md`` in quotes measured the default; "chosen" ones were not measured.

    Attributes
    ----------
    regions : tasks of a stored array up to 48 GB, and the least number of groups of Dask blocks. Chosen: enough for
        some dozen workers, few enough for any scheduler.
    region_bytes : of a region of a larger array. Chosen.
    group_bytes : of small Dask blocks that one task takes, where there are more than `regions` of them. "graph": 45
        tasks for 10,000 chunks.
    leaves : most regions or groups of blocks, however large the array, so that what waits in the tree does not grow
        any more. "growth": 32 MB a worker.
    balance : largest box of a grid over that of the most even grid; within it fewer boxes are preferred. Chosen.
    read_bytes : read at once where storage chunks are smaller. "mean": 0.21 of the time of a mean for chunks of 0.2 MB.
    join_bytes : of small Dask blocks that are summed at once. "mean": 4.2 s before blocks were joined, 1.8 s since.
    gpu_step_bytes : read, or blocks joined, for one step of a GPU, as its kernels take microseconds to start. Chosen.
    whole_bytes : coordinates and weights up to this size travel whole, once to each worker; larger ones by the block.
        Chosen.
    fan_in : most partial sums merged by one task. Chosen.
    merge_bytes : of partial sums that one merge may hold: 16 of 1 MB, or fewer of larger ones, at least two. "growth":
        merges of 64 MB made memory grow with the number of chunks.
    waiting_bytes : of partial sums that a task which adds up its reads keeps before it merges them. Chosen.
    root_ratio : sums that together have at most this many times the bytes of their total are merged by one task.
        "graph": 1.21 to 1.46 times the statistics are moved where blocks have several cells.
    root_sums : most partial sums of that task. Chosen.
    counted_bytes : of holder codes in which the holders of each block are counted; of more codes there are taken to be
        as many as rows or holders. Chosen.
    checkpoint_sums : the highest level of the tree with this many sums is kept in a checkpoint. Chosen.
    checkpoint_files : most files of one variable in a checkpoint. Chosen.
    counted_chunks : of a stored array whose names are listed in every fit, to count those that were never written.
        Chosen: some tenths of a second on a disk, ten requests to an object store.
    retry_pauses : seconds before the second and the third try of a read. Chosen.
    kernel_bytes : that the kernels use beside a block: slabs in float64 and tables of features. "memory": measured
        peaks are 0.50 to 0.57 of what a plan says.
    compiler_bytes : that the first block adds once to each process: kernels compiled, libraries that read imported.
        Measured by `tests/execution/test_planning.py`.
    workspace_copies : of its own sums that a block holds while it contracts: total, slab, transposed, result.
    decode_copies : of a block while it is read: as decoded, and as scaled and masked.
    """

    regions: int = 48
    region_bytes: int = 1024 * 2**20
    group_bytes: int = 64 * 2**20
    leaves: int = 1024
    balance: float = 1.15

    read_bytes: int = 8 * 2**20
    join_bytes: int = 2 * 2**20
    gpu_step_bytes: int = 64 * 2**20
    whole_bytes: int = 2**20

    fan_in: int = 16
    merge_bytes: int = 16 * 2**20
    waiting_bytes: int = 4 * 2**20
    root_ratio: float = 3
    root_sums: int = 4096
    counted_bytes: int = 2**20

    checkpoint_sums: int = 16
    checkpoint_files: int = 64
    counted_chunks: int = 10_000
    retry_pauses: tuple[float, ...] = (0.1, 0.5)

    kernel_bytes: int = 24 * 2**20
    compiler_bytes: int = 240 * 2**20
    workspace_copies: int = 4
    decode_copies: int = 2

    def leaves_for(self, count: int) -> int:
        """Return `count` leaves, at least `regions` and at most `leaves`."""
        return max(self.regions, min(self.leaves, count))


LIMITS = Limits()
"""The default."""
