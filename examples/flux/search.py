"""Search for the best support vector machine, with the settings shared out among the tasks of a Flux job.

    trainwright apply -f trainjob.yaml

The data are the 1,797 images of handwritten digits that come with scikit-learn; one fifth is held out for
testing. Every task tries its part of the settings by cross-validation and writes down what it found; a run
that finds results goes on from there. The tasks need not talk to each other: whoever is the last to end
names the best settings, trains with them on all training images and tests that once.

On several machines the folder of the results has to be one that all of them see.
"""

import argparse
import json
import os
from itertools import product
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.svm import SVC

try:
    from trainwright.progress import report
except ImportError:  # without trainwright: search all the same

    def report(**_):
        pass


GRID = [{"C": c, "gamma": gamma} for c, gamma in product((0.1, 1.0, 10.0), (1e-4, 3e-4, 1e-3, 1e-2))]


def main():
    options = parse_options()
    rank, size = int(os.environ["FLUX_TASK_RANK"]), int(os.environ["FLUX_JOB_SIZE"])
    images, digits = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images, digits, test_size=0.2, random_state=0)
    options.results.mkdir(parents=True, exist_ok=True)
    mine = range(rank, len(GRID), size)
    for done, number in enumerate(mine, 1):
        file = options.results / f"{number}.json"
        if file.exists():
            print(f"task {rank} of {size}: {GRID[number]} was tried before", flush=True)
        else:
            accuracy = cross_val_score(SVC(**GRID[number]), train_x, train_y, cv=3).mean()
            write(file, {"settings": GRID[number], "accuracy": accuracy})
            print(f"task {rank} of {size}: {GRID[number]} gives {accuracy:.4f}", flush=True)
        report(step=done, total=len(mine))
    found = [json.loads(file.read_text()) for file in options.results.glob("[0-9]*.json")]
    if len(found) == len(GRID):
        best = max(found, key=lambda result: result["accuracy"])["settings"]
        accuracy = SVC(**best).fit(train_x, train_y).score(test_x, test_y)
        write(options.results / "best.json", {"settings": best, "accuracy": accuracy})
        print(f"best of {len(GRID)}: {best}, test accuracy {accuracy:.4f}", flush=True)


def write(file, result):
    """Write a file that others see whole or not at all."""
    part = file.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(result))
    part.replace(file)


def parse_options():
    parser = argparse.ArgumentParser()
    folder = Path(os.environ.get("CHECKPOINT_DIR", "results"))
    parser.add_argument("--results", type=Path, default=folder, help="folder of all tasks")
    return parser.parse_args()


if __name__ == "__main__":
    main()
