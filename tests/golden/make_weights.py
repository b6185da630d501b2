"""The weight function once more, from the xxhash package and the formula alone.

That is the oracle of tests/networks/test_simhash.py. Nothing of gbun is imported, so `weights.json` tells whether gbun
still draws the networks of old model files.
Run `python tests/golden/make_weights.py` to write the file; a change in it breaks every stored model.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import xxhash

FILE = Path(__file__).with_name("weights.json")
UNUSED_ID = 2**64 - 1

NAMES = ["", "age", "city=Paris", "city=paris", "Straße", "名前=値", "a" * 100, "x\ud800"]
IDS = [0, 1, 2, 255, 2**31, 2**32 - 1, 2**32, 7 << 32, 54_686_452, 2**62 + 1, 2**63 - 1, 2**63]
TABLES = [  # seed, round, density, number of outputs
    (0, 0, 1.0, 6),
    (0, 1, 1.0, 6),
    (1, 0, 1.0, 6),
    (2**63 - 1, 299, 1.0, 5),
    (42, 7, 0.5, 6),
    (42, 7, 0.1, 6),
    (0, 3, 0.3, 6),
    (0, 3, 0.001, 6),
]
NETWORKS = [  # seed, round, density, number of outputs, number of columns: most outputs are dead at first
    (0, 0, 0.1, 12, 3),
    (5, 2, 0.01, 12, 7),
    (7, 9, 0.001, 9, 1),
]


def hash_of(seed: int, round_: int, feature: int, output: int) -> int:
    model = xxhash.xxh32_intdigest(struct.pack("<Q", seed))
    output_seed = xxhash.xxh32_intdigest(struct.pack("<II", round_, output), seed=model)
    return xxhash.xxh32_intdigest(struct.pack("<Q", feature), seed=output_seed)


def float32(x: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", x))[0])


def weight_of(h: int, density: float) -> float:
    """(u - N) x float32(1 / N), one rounding; u has 24 bits, so the product is exact in float64."""
    n, u = max(1, round(density * 2**23)), h >> 8
    return float32((u - n) * float32(1.0 / n)) if u < 2 * n else 0.0


def network_of(seed: int, round_: int, density: float, n_outputs: int, n_columns: int) -> list[list[float]]:
    """One network of dense columns; an output that is zero everywhere gets one input back."""
    table = [[weight_of(hash_of(seed, round_, f, k), density) for k in range(n_outputs)] for f in range(n_columns)]
    for k in range(n_outputs):
        if not any(row[k] for row in table):
            f = hash_of(seed, round_, UNUSED_ID, k) % n_columns
            table[f][k] = weight_of(hash_of(seed, round_, f, k), 1.0) or 1.0
    return table


def name_id(name: str) -> int:
    return xxhash.xxh64_intdigest(name.encode("utf-8", "surrogatepass")) >> 1


def make_golden() -> dict[str, list[dict[str, object]]]:
    """Everything random that a model file relies on: hashes as integers, weights as exact hexadecimals."""
    ids = [*IDS, name_id("age"), name_id("city=Paris")]
    return {
        "names": [{"name": name, "id": name_id(name)} for name in NAMES],
        "tables": [
            {
                "seed": seed,
                "round": t,
                "density": density,
                "ids": ids,
                "hashes": [[hash_of(seed, t, f, k) for k in range(K)] for f in ids],
                "weights": [[weight_of(hash_of(seed, t, f, k), density).hex() for k in range(K)] for f in ids],
            }
            for seed, t, density, K in TABLES
        ],
        "networks": [
            {
                "seed": seed,
                "round": t,
                "density": density,
                "weights": [[w.hex() for w in row] for row in network_of(seed, t, density, K, m)],
            }
            for seed, t, density, K, m in NETWORKS
        ],
    }


def as_text(golden: dict[str, list[dict[str, object]]]) -> str:
    """JSON with one table a line."""
    parts = [
        f'"{part}": [\n' + ",\n".join(json.dumps(item) for item in items) + "\n]" for part, items in golden.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(as_text(make_golden()))
