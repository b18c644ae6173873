"""Distance between two ISTHLOG1 files over the same tokens: kl.py TRUTH OTHER [--json]

Per row KL(truth || other) in nats over the full vocabulary; mean with its standard error, median, p99, maximum,
share of rows with the same most likely token, perplexities of both and their ratio. When OTHER holds fewer windows
or rows than TRUTH, the common ones are compared.
"""
import json
import sys
from pathlib import Path

import numpy as np

import logits_file

CHUNK = 16  # rows in float64 at a time


def compare(truth: logits_file.LogitsFile, other: logits_file.LogitsFile) -> dict:
    windows = min(truth.tokens.shape[0], other.tokens.shape[0])
    if truth.vocab != other.vocab or not np.array_equal(truth.tokens[:windows], other.tokens[:windows]):
        raise ValueError("the two files hold different tokens or vocabularies")
    first = max(truth.first_row, other.first_row)
    last = min(log.first_row + log.rows_per_window for log in (truth, other))
    pick = lambda log: np.concatenate([np.arange(first, last) - log.first_row + w * log.rows_per_window
                                       for w in range(windows)])
    rows_t, rows_o = pick(truth), pick(other)
    targets = truth.targets()[rows_t]
    kl, same, nll_t, nll_o = [], [], [], []
    for begin in range(0, len(rows_t), CHUNK):
        p = truth.rows[rows_t[begin : begin + CHUNK]].astype(np.float64)
        q = other.rows[rows_o[begin : begin + CHUNK]].astype(np.float64)
        kl.append((np.exp(p) * (p - q)).sum(axis=1))
        same.append(p.argmax(axis=1) == q.argmax(axis=1))
        target = targets[begin : begin + CHUNK]
        known = target >= 0
        index = np.arange(len(target))[known], target[known]
        nll_t.append(-p[index])
        nll_o.append(-q[index])
    kl, same = np.concatenate(kl), np.concatenate(same)
    nll_t, nll_o = np.concatenate(nll_t), np.concatenate(nll_o)
    return {"rows": len(kl), "mean_kl": float(kl.mean()), "mean_kl_se": float(kl.std(ddof=1) / np.sqrt(len(kl))),
            "median_kl": float(np.median(kl)), "p99_kl": float(np.quantile(kl, 0.99)), "max_kl": float(kl.max()),
            "same_top1": float(same.mean()), "ppl_truth": float(np.exp(nll_t.mean())),
            "ppl": float(np.exp(nll_o.mean())), "ppl_ratio": float(np.exp((nll_o - nll_t).mean()))}


def main() -> None:
    paths = [a for a in sys.argv[1:] if not a.startswith("--")]
    if len(paths) != 2:
        sys.exit(__doc__)
    result = compare(*(logits_file.load(Path(p)) for p in paths))
    if "--json" in sys.argv:
        print(json.dumps(result, indent=1))
    else:
        print("\n".join(f"{key:12} {value:.6g}" for key, value in result.items()))


if __name__ == "__main__":
    main()
