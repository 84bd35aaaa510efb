"""LoRA adapters merged into a base model, while it is copied.

planner      the plan of a merge
lora         an adapter of PEFT: its config and its tensors
places       which tensor of the base a name of the adapter means
changes      what an adapter changes in which tensor
experts      the same for experts that are stored as one tensor
combination  several adapters, in order
weights      the tensors of the base with what is changed in them
checks       whether what a plan says of a merged tensor fits together
"""
