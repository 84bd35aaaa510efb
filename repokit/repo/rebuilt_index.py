"""An index written anew from what the headers of its shards say."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from repokit.errors import MissingInput
from repokit.formats.safetensors import Header, read_header
from repokit.formats.strict_json import dumps, loads
from repokit.formats.tensors import FLOATS
from repokit.repo.source import Kind
from repokit.repo.weight_index import is_shard_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from repokit.repo.source import Source


def rebuilt_index(source: Source, path: str, shards: Sequence[str] = ()) -> bytes:
    """An index as transformers writes it: indent 2, keys sorted, a line end (modeling_utils.py `save_pretrained`).

    Metadata that was there stays. `total_size` is the bytes of all tensors; `total_parameters` is counted anew only
    where it was there and cannot be right. A tensor that two shards hold stays where the index has it.

    Args:
        source: The repository.
        path: Of the index; it need not exist.
        shards: The files that it is to name, by their paths in the repository; empty: those that it names now and
            that are there.

    Raises:
        MalformedFile: The index or a shard does not parse.
        MissingInput: A shard is not there, or there is none.
    """
    document = _document(source, path)
    folder = path.rpartition("/")[0] + "/" if "/" in path else ""
    old = document.get("weight_map")
    placed: dict[str, Any] = old if isinstance(old, dict) else {}
    names = shards or _named(source, folder, placed)
    headers = {shard: _header(source, shard) for shard in names}
    if not headers:
        raise MissingInput("names no shard that is there", path=path)
    weight_map: dict[str, str] = {}
    for shard in sorted(headers):
        inside = shard.removeprefix(folder)
        for tensor in headers[shard].tensors:
            if tensor.name not in weight_map or placed.get(tensor.name) == inside:
                weight_map[tensor.name] = inside
    metadata = _totals(document.get("metadata"), headers)
    return dumps({**document, "metadata": metadata, "weight_map": weight_map}, sort_keys=True, infinity=True)


def _document(source: Source, path: str) -> dict[str, Any]:
    if path not in source.entries():
        return {}
    document = loads(source.read(path), path, infinity=True)
    return document if isinstance(document, dict) else {}


def _named(source: Source, folder: str, placed: Mapping[str, Any]) -> list[str]:
    """The shards of a map that may be opened and are there."""
    known = source.entries()
    wanted = {folder + shard for shard in placed.values() if isinstance(shard, str) and is_shard_path(shard)}
    return sorted(shard for shard in wanted if shard in known and known[shard].kind is Kind.FILE)


def _header(source: Source, path: str) -> Header:
    if path not in source.entries():
        raise MissingInput("is not in the repository", path=path)
    size = source.entries()[path].size
    return read_header(lambda offset, length: source.read(path, offset, length), size, path)


def _totals(metadata: object, headers: Mapping[str, Header]) -> dict[str, Any]:
    tensors = [tensor for header in headers.values() for tensor in header.tensors]
    kept = dict(metadata) if isinstance(metadata, dict) else {}
    kept["total_size"] = sum(tensor.end - tensor.begin for tensor in tensors)
    if "total_parameters" in kept:
        kept["total_parameters"] = _parameters(kept["total_parameters"], headers)
    return kept


def _parameters(said: object, headers: Mapping[str, Header]) -> object:
    """How many parameters there are, buffers among them: what was said where it can be so.

    A buffer is stored and not counted, and has one dimension; packed weights have fewer elements than parameters.
    """
    tensors = {tensor.name: tensor for header in headers.values() for tensor in header.tensors}.values()
    most = sum(prod(tensor.shape) for tensor in tensors)
    floats = [tensor for tensor in tensors if tensor.dtype in FLOATS and len(tensor.shape) > 1]
    least = sum(prod(tensor.shape) for tensor in floats)
    packed = any(tensor.dtype not in FLOATS and len(tensor.shape) > 1 for tensor in tensors)
    plausible = type(said) is int and (packed or least <= said <= most)
    return said if plausible else most
