"""Train boosted trees on the rows of all nodes with LightGBM.

    trainwright apply -f trainjob.yaml

The data are the 1,797 images of handwritten digits that come with scikit-learn; one fifth is held out for
testing. Every node has its part of the rows, and all grow the same trees from sums over all of them.

The first node writes a checkpoint after every fifth round; a run that finds one goes on from there. On
several machines it has to be in a folder that all of them see. With --compare the first node also trains a
model alone, on all rows, and fails unless that is about as good.
"""

import argparse
import hashlib
import os
import socket
import sys
import time
from pathlib import Path

import lightgbm as lgb
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

try:
    from trainwright.progress import report
except ImportError:  # without trainwright: train all the same

    def report(**_):
        pass


PARAMETERS = {
    "objective": "multiclass",
    "num_class": 10,
    "num_leaves": 15,
    "min_data_in_leaf": 10,
    "learning_rate": 0.2,
    "num_threads": 1,
    "verbose": -1,
}


def main():
    options = parse_options()
    node = int(os.environ["DMLC_TASK_ID"])
    # One worker on every node; XGBoost counts one for each accelerator of it.
    nodes = int(os.environ["DMLC_NUM_WORKER"]) // int(os.environ["DMLC_WORKERS_PER_NODE"])
    machines = find_machines(os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"]), nodes)
    together = {
        "tree_learner": "data",
        "pre_partition": True,
        "num_machines": nodes,
        "machines": ",".join(machines),
        "local_listen_port": int(machines[node].rpartition(":")[2]),
        "time_out": 5,  # minutes in which the others may start
    }
    checkpoint = options.checkpoint_dir / "model.txt"
    done = lgb.Booster(model_file=checkpoint).current_iteration() if checkpoint.exists() else 0
    if node == 0:
        print(f"{nodes} nodes, starting after round {done}", flush=True)

    (features, labels), (test_features, test_labels) = load_rows()

    def after_every_round(env):
        rounds = env.iteration + 1  # those of the checkpoint count
        report(step=rounds, total=options.rounds, metrics={"logloss": env.evaluation_result_list[0][2]})
        if node == 0 and (rounds % 5 == 0 or rounds == options.rounds):
            print(f"round {rounds}/{options.rounds}", flush=True)
            save(checkpoint, env.model)

    rows = lgb.Dataset(features[node::nodes], labels[node::nodes], free_raw_data=False)
    model = lgb.train(
        PARAMETERS | together,
        rows,
        num_boost_round=options.rounds - done,
        init_model=checkpoint if done else None,
        valid_sets=[rows.create_valid(test_features, test_labels)],
        callbacks=[after_every_round],
    )
    model.free_network()  # what this process trains from here on, it trains alone
    print(f"node {node} has trees {digest(model)}", flush=True)
    if node == 0:
        accuracy = measure_accuracy(model, test_features, test_labels)
        print(f"test accuracy {accuracy:.4f}, checkpoint {checkpoint}", flush=True)
        report(metrics={"accuracy": accuracy}, force=True)
        if options.compare:
            alone = lgb.train(PARAMETERS, lgb.Dataset(features, labels), num_boost_round=options.rounds)
            compare(accuracy, measure_accuracy(alone, test_features, test_labels))


def find_machines(first, port, nodes):
    """Return ADDRESS:PORT of each node, from the name of the first one: job-node-0-0.job.

    A process finds out which one it is by looking for its own address and port, so names do not do. Nodes
    that share one machine, and with it 127.0.0.1, have to differ by their ports.
    """
    if wait_for_address(first).startswith("127."):
        return [f"127.0.0.1:{port + node}" for node in range(nodes)]
    host, _, domain = first.partition(".")
    names = [f"{host.removesuffix('-0')}-{node}.{domain}" for node in range(nodes)]
    return [f"{wait_for_address(name)}:{port}" for name in names]


def wait_for_address(name):
    """Return the address of a node, whose name is not known before its pod is there."""
    for _ in range(60):
        try:
            return socket.gethostbyname(name)
        except socket.gaierror:
            time.sleep(2)
    sys.exit(f"there is no address for {name}")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
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
    features, labels = load_digits(return_X_y=True)
    train, test = train_test_split(np.arange(len(labels)), test_size=0.2, stratify=labels, random_state=0)
    return (features[train], labels[train]), (features[test], labels[test])


def measure_accuracy(model, features, labels):
    return float(np.mean(np.argmax(model.predict(features), axis=1) == labels))


def compare(together, alone):
    """Nodes choose their bins from their own rows, so the trees are not the same: only about as good."""
    print(f"trained alone, the test accuracy is {alone:.4f}", flush=True)
    if abs(together - alone) > 0.02:
        sys.exit("the models are not equally good")


def save(path, model):
    """Write a checkpoint, whole or not at all: a crash in the middle leaves the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    model.save_model(partial)
    partial.replace(path)


def digest(model):
    return hashlib.sha256(model.model_to_string().partition("\nparameters:")[0].encode()).hexdigest()[:12]


if __name__ == "__main__":
    main()
