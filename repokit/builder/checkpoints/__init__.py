"""What lies in a source: its files, and where the bytes of every tensor are.

sources       what lies in a checkpoint, file by file
stored        the weights as they are stored, whatever holds them; in safetensors
torch_weights    in pickles
memory_weights   in a running program; arrays: arrays of any library as bytes
dcp_weights      of a torch.distributed checkpoint (FSDP sharded)
sliced_weights   of torch's slices in safetensors
zero_weights     of a DeepSpeed ZeRO checkpoint; zero_layout: its files
shard_sets    shards of safetensors whose index is missing or wrong
partitions    weights that are one process's part
layouts       which checkpoints can be built from, and what is said of the others
foreign       checkpoints of other frameworks, and what converts them
training_run  what a trainer wrote about its run
"""
