"""MPI: mpirun on a launcher starts ranks on all nodes (spec 02 section 6).

Whatever mpirun the image brings, of Open MPI 4 and 5, MPICH and Intel MPI, finds all hosts without options:
each reads a variable of its own, and all of them are set. So no image can make a run silently use one host.

    framework     what launcher and nodes get
    nodes         which pods train, and how many ranks each of them has
    hostfile      the list of hosts, in the two forms that there are, in objects of bounded size
    environment   the variables that make an mpirun read it
    keys          ssh keys, and who may read them
    checks        what keeps a job from running, and what its user should know
"""

from trainwright.frameworks.mpi.framework import MPI

__all__ = ["MPI"]
