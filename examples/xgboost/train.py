"""Train boosted trees on the rows of all nodes with XGBoost, and compare them with trees grown on one.

    trainwright apply -f trainjob.yaml

The data are the 569 tumours that come with scikit-learn, each malignant or benign; one fifth is held out for
testing. Every node has its part of the rows. The nodes add up their histograms, so the trees are those that
one node with all rows would grow. The first node also runs the tracker, by which all find each other.

Rank 0 writes a checkpoint after every fifth tree; a run that finds one goes on from there. With --compare it
also trains a model alone, on all rows, and fails unless both predict the same.
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np
import xgboost as xgb
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from xgboost.tracker import RabitTracker

try:
    from trainwright.progress import report
except ImportError:  # without trainwright: train all the same

    def report(**_):
        pass


PARAMETERS = {
    "objective": "binary:logistic",
    "eval_metric": ["logloss", "error"],
    "max_depth": 3,
    "nthread": 1,
    # More bins than rows, so that none is merged: where the data are larger, nodes agree on approximate bins.
    "max_bin": 512,
}


def main():
    options = parse_options()
    node = int(os.environ["DMLC_TASK_ID"])
    # One worker on every node, even where it has several accelerators, one for each of which is counted.
    nodes = int(os.environ["DMLC_NUM_WORKER"]) // int(os.environ["DMLC_WORKERS_PER_NODE"])
    address, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])

    tracker = None
    if node == 0:
        # On all addresses: the one by which the others know this pod need not be its own.
        tracker = RabitTracker(n_workers=nodes, host_ip="0.0.0.0", port=port)
        tracker.start()
    # The first node may take its time: the others try again.
    with xgb.collective.CommunicatorContext(
        dmlc_tracker_uri=address, dmlc_tracker_port=port, dmlc_task_id=str(node), dmlc_retry=60
    ):
        rank = xgb.collective.get_rank()
        model = train_together(options, rank, nodes)
    if tracker is not None:
        tracker.wait_for()
    if rank == 0:
        judge(options, model)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trees", type=int, default=40)
    parser.add_argument("--compare", action="store_true", help="train alone as well, and compare")
    parser.add_argument(
        "--checkpoint-dir",
        type=lambda text: Path(text).absolute(),
        default=os.environ.get("CHECKPOINT_DIR", "checkpoints"),
        help="default: $CHECKPOINT_DIR, else ./checkpoints",
    )
    return parser.parse_args()


def load_rows():
    """Return features and labels of the training set, and of the test set."""
    features, labels = load_breast_cancer(return_X_y=True)
    train, test = train_test_split(np.arange(len(labels)), test_size=0.2, stratify=labels, random_state=0)
    return (features[train], labels[train]), (features[test], labels[test])


def train_together(options, rank, nodes):
    """Grow trees with the other nodes, each on its part of the rows, and return the model."""
    (features, labels), (test_features, test_labels) = load_rows()
    rows = xgb.DMatrix(features[rank::nodes], labels[rank::nodes])
    # Metrics are averages over the rows of all nodes, so each has its part of these, too.
    test = xgb.DMatrix(test_features[rank::nodes], test_labels[rank::nodes])

    model = restore(options.checkpoint_dir / "model.json", rank)
    done = model.num_boosted_rounds() if model else 0
    if rank == 0:
        print(f"{nodes} nodes, starting after tree {done}", flush=True)
    return xgb.train(
        PARAMETERS,
        rows,
        num_boost_round=options.trees - done,
        xgb_model=model,
        evals=[(test, "test")],
        verbose_eval=False,
        callbacks=[AfterEveryTree(options, done)],
    )


class AfterEveryTree(xgb.callback.TrainingCallback):
    """Reports how far it is and, in rank 0, writes a checkpoint."""

    def __init__(self, options, done):
        super().__init__()
        self.options = options
        self.done = done

    def after_iteration(self, model, epoch, evals_log):
        tree, last = self.done + epoch + 1, self.options.trees
        metrics = {name: values[-1] for name, values in evals_log["test"].items()}
        report(step=tree, total=last, metrics=metrics)
        if xgb.collective.get_rank() == 0 and (tree % 5 == 0 or tree == last):
            print(f"tree {tree}/{last}  logloss {metrics['logloss']:.4f}", flush=True)
            save(self.options.checkpoint_dir / "model.json", model)
        return False


def save(path, model):
    """Write a checkpoint, whole or not at all: a crash in the middle leaves the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name("partial.json")
    model.save_model(partial)
    partial.replace(path)


def restore(path, rank):
    """Return the model of the checkpoint on every node; None where there is none. Rank 0 reads it for all."""
    raw = path.read_bytes() if rank == 0 and path.exists() else b""
    raw = xgb.collective.broadcast(raw, 0)
    if not raw:
        return None
    model = xgb.Booster()
    model.load_model(bytearray(raw))
    return model


def judge(options, model):
    """Print how well the model does and, where wanted, how far it is from one that one node trained alone."""
    (features, labels), (test_features, test_labels) = load_rows()
    test = xgb.DMatrix(test_features)
    found = model.predict(test)
    print(f"test accuracy {np.mean((found > 0.5) == test_labels):.4f}", flush=True)
    if options.compare:
        alone = xgb.train(PARAMETERS, xgb.DMatrix(features, labels), num_boost_round=options.trees)
        difference = float(np.abs(found - alone.predict(test)).max())
        print(f"trained alone, no probability differs by more than {difference:.1e}", flush=True)
        if difference > 1e-4:
            sys.exit("the models are not the same")


if __name__ == "__main__":
    main()
