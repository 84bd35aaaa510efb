"""Repositories of quantized weights, assembled as their tool wrote them.

repository      the plan of one
files           what the tool wrote of its work, held against each other
llm_compressor  the recipe that llm-compressor writes
private         what stays on the machine of the quantizer
companions      which tensors belong to one module, and so into one file
metadata        what shards say beside their tensors
sizes           the parameters that packed weights stand for
words           the method, in the words of a card
card            README.md
"""
