"""Bringing the code of a job to the pods that run it.

tree.py       what of a directory is code: everything but what ignore files name     (reads)
archive.py    a tree as one archive, the same bytes wherever it is made               (pure)
carriers.py   an archive as ConfigMaps, named by what they hold                       (pure)
placing.py    a TrainJob whose trainer starts in that code                            (pure)
mpi_agent.py  how mpirun brings it to pods that run sshd                              (pure)
entries.py    what is started there, by the words of the command line
"""
