"""Plan -> files.

execute        a plan into a staging directory beside the target
writing        one operation -> one file, by any thread, process or machine
reservation    memory that tensors may take at once
executors      operations carried out by other processes, and by a dask cluster
tasks          a plan in N tasks: which file is whose
task_builds    one task carried out; all of them put into place
in_place       whether an output is what a plan would write
journal        which files of an interrupted build are finished
locking        one build of an output at a time
staging        free space, atomic publish
remote_target  a target behind an address, where nothing is renamed
remote_journal what of it is finished
uploads        one file of it, hashed on the way
"""
