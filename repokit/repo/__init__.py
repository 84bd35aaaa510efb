"""One read-only view of a repository, wherever it lies: in memory, in a plan, in a directory, on the Hub.

source       the seam: list the files, read a range
memory       a Source out of a mapping, for the examples of rules
directory    a Source out of a folder
document     a parsed JSON object with typed accessors
repository   the view: lazy, cached, lists once, reads once, parses once
config, weights, tokenizer, chat_template, card    facets that need more than one value or file
worker       the one limited child process in which templates render and tokenizers run
"""
