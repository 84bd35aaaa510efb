"""Speaking to a Hugging Face Hub: where a name leads, how long to wait, and what a failure means.

address           `org/name@revision`, `hf://...` and pasted web addresses
session           huggingface_hub's shared client, with a time limit for as long as repokit uses it
references        what a branch or a tag may be called
transport         one GET, bounded in everything that a server decides
remote_file       a line of a tree, and whether bytes are those that it names
revision_reader   the commit, the tree and the files of one revision; no answer is believed unchecked
errors            what that client raises, as errors for people

huggingface_hub is imported inside functions: `lint DIR` and `--help` do without it.
"""
