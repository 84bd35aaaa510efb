"""The developer's program that derives the data of repokit.architectures from transformers, on the meta device.

Nothing else in repokit imports it: it needs torch and transformers.
"""
