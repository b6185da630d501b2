"""One row in a fresh process: python -m benchmarks.speed.latency MODEL ROW THREADS prints the seconds of each step.

Run by prediction.py. Nothing is imported before the clock has started, except what Python itself has.
"""

from time import perf_counter

BEGAN = perf_counter()

import json  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402

LATER = 200


def main(model_path: str, row_path: str, n_threads: int) -> None:
    import scipy.sparse

    from gbun import load_model

    imported = perf_counter()
    model = load_model(model_path)
    loaded = perf_counter()
    row = scipy.sparse.load_npz(row_path)
    began = perf_counter()
    model.predict_proba(row, n_jobs=n_threads)
    first = perf_counter()
    later = []
    for _ in range(LATER):
        start = perf_counter()
        model.predict_proba(row, n_jobs=n_threads)
        later.append(perf_counter() - start)
    steps = {
        "import": imported - BEGAN,
        "load_model": loaded - imported,
        "first prediction": first - began,
        "import, load and first prediction": (loaded - BEGAN) + (first - began),
        "later predictions": statistics.median(later),
    }
    print(json.dumps(steps))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
