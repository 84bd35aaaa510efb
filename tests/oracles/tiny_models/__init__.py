"""Tiny, complete, randomly initialised model repositories, written by transformers and peft themselves.

case.py        what a case is
tokenizer.py   five kinds of tokenizer, trained on the spot
config.py      any model type, made tiny
text.py        decoders, encoders, encoder-decoders
media.py       vision, audio, and text with either
variations.py  one model, saved in unusual ways: sharded, half precision, tied, padded, several templates
training.py    what Trainer leaves behind
adapters.py    peft adapters, and the base models that they fit

torch, transformers and peft are imported inside functions, so the cases can be listed where they are not installed.
"""
