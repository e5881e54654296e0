"""Train a small network on handwritten digits with PaddlePaddle's DataParallel, on any number of processes.

    trainwright apply -f trainjob.yaml

The data are the 1,797 images of 8 x 8 pixels that come with scikit-learn; one fifth is held out for testing.
Every process has the whole network and its part of each batch; Paddle averages the gradients. After every
epoch rank 0 writes a checkpoint; a run that finds one goes on from there, on any number of processes.
"""

import argparse
import hashlib
import os
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

try:
    from trainwright.progress import report
except ImportError:  # without trainwright: train all the same

    def report(**_):
        pass


def main():
    options = parse_options()
    if not paddle.is_compiled_with_cuda():
        paddle.set_device("cpu")
    dist.init_parallel_env()
    rank, ranks = dist.get_rank(), dist.get_world_size()

    train, test = load_data(options.seed)
    paddle.seed(options.seed)
    network = build_network()
    optimizer = paddle.optimizer.Momentum(
        learning_rate=options.learning_rate, momentum=0.9, parameters=network.parameters()
    )
    checkpoint = options.checkpoint_dir / "digits.pdparams"
    done = restore(checkpoint, network, optimizer)
    parallel = paddle.DataParallel(network)

    def say(text):
        if rank == 0:
            print(text, flush=True)

    say(f"{ranks} processes, starting after epoch {done}")
    accuracy = measure_accuracy(network, test)
    for epoch in range(done + 1, options.epochs + 1):
        losses = []
        for images, labels in draw_batches(train, options, epoch, rank, ranks):
            loss = paddle.nn.functional.cross_entropy(parallel(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            losses.append(float(loss))
        loss, accuracy = float(np.mean(losses)), measure_accuracy(network, test)
        say(f"epoch {epoch}/{options.epochs}  loss {loss:.4f}  test accuracy {accuracy:.4f}")
        report(step=epoch, total=options.epochs, epoch=epoch, metrics={"loss": loss, "accuracy": accuracy})
        if rank == 0:
            save(checkpoint, epoch, network, optimizer)

    say(f"test accuracy {accuracy:.4f}, checkpoint {checkpoint}")
    print(f"rank {rank} has parameters {digest(network)}", flush=True)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step, over all processes")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--checkpoint-dir",
        type=lambda text: Path(text).absolute(),
        default=os.environ.get("CHECKPOINT_DIR", "checkpoints"),
        help="default: $CHECKPOINT_DIR, else ./checkpoints",
    )
    return parser.parse_args()


def load_data(seed):
    """Return training and test set. The same split in every process: it depends on the seed alone."""
    digits = load_digits()
    images, labels = (digits.data / 16).astype(np.float32), digits.target.astype(np.int64)
    train, test = train_test_split(np.arange(len(labels)), test_size=0.2, stratify=labels, random_state=seed)
    return (images[train], labels[train]), (images[test], labels[test])


def draw_batches(data, options, epoch, rank, ranks):
    """Yield this process's part of each batch of an epoch. All processes shuffle alike and take turns."""
    images, labels = data
    order = np.random.default_rng((options.seed, epoch)).permutation(len(labels))
    size = options.batch_size - options.batch_size % ranks
    for start in range(0, len(order) - size + 1, size):
        mine = order[start : start + size][rank::ranks]
        yield paddle.to_tensor(images[mine]), paddle.to_tensor(labels[mine])


def build_network():
    nn = paddle.nn
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def measure_accuracy(network, test):
    """Return the share of test images that are recognised."""
    with paddle.no_grad():
        found = network(paddle.to_tensor(test[0])).numpy().argmax(axis=1)
    return float(np.mean(found == test[1]))


def digest(network):
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in network.parameters())).hexdigest()[
        :12
    ]


def save(path, epoch, network, optimizer):
    """Write a checkpoint, whole or not at all: a crash in the middle leaves the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    state = {"epoch": epoch, "network": network.state_dict(), "optimizer": optimizer.state_dict()}
    paddle.save(state, str(partial))
    partial.replace(path)


def restore(path, network, optimizer):
    """Take over the checkpoint that rank 0 finds, and return its epoch; 0 where there is none.

    The other processes, whose machines need not have it, get it from rank 0.
    """
    found = [None]
    if dist.get_rank() == 0 and path.exists():
        found = [path.read_bytes()]
    if dist.get_world_size() > 1:
        dist.broadcast_object_list(found, src=0)
    if found[0] is None:
        return 0
    copy = path.with_name(f"{path.name}.{os.getpid()}")
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(found[0])
    state = paddle.load(str(copy))
    copy.unlink()
    network.set_state_dict(state["network"])
    optimizer.set_state_dict(state["optimizer"])
    return state["epoch"]


if __name__ == "__main__":
    main()
