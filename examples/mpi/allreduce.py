"""Adds up arrays over all ranks of an MPI job, checks the sums, and says where each rank ran.

    mpirun python allreduce.py [NUMBERS]

Needs mpi4py and nothing else. One number more than all others would hide mistakes that long arrays show:
transports change with the length.
"""

from __future__ import annotations

import sys
from array import array

from mpi4py import MPI


def main() -> None:
    """Reduce arrays of one and of many doubles; rank 0 prints one line per rank."""
    world = MPI.COMM_WORLD
    lengths = (1, int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
    for length in lengths:
        mine = array("d", [world.rank + 1 + 0.5 * (position % 7) for position in range(length)])
        total = array("d", bytes(8 * length))
        world.Allreduce(mine, total, op=MPI.SUM)
        ranks = world.size * (world.size + 1) / 2
        for position, found in enumerate(total):
            if found != ranks + 0.5 * (position % 7) * world.size:
                sys.exit(f"rank {world.rank}: wrong sum {found} at {position} of {length}")
    lines = world.gather(f"rank {world.rank} of {world.size} on {MPI.Get_processor_name()}")
    if world.rank == 0:
        print("\n".join(lines))
        print(f"sums of {lengths[0]} and of {lengths[1]} doubles are right", flush=True)


if __name__ == "__main__":
    main()
