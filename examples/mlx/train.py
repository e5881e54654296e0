"""Train a small network on handwritten digits with MLX, data parallel over the ranks that mpirun starts.

    trainwright apply -f trainjob.yaml

The data are the 1,797 images of 8 x 8 pixels that come with scikit-learn; one fifth is held out for testing.
After every epoch rank 0 writes a checkpoint; a run that finds one goes on from there, on any number of ranks.
"""

import argparse
import hashlib
import os
import shutil
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx import nn, optimizers
from mlx.utils import tree_flatten, tree_map, tree_unflatten
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

try:
    from trainwright.progress import report
except ImportError:  # mpirun without trainwright: train all the same

    def report(**_):
        pass


def main():
    options = parse_options()
    name_mpi_library()
    world = mx.distributed.init(strict=True, backend="mpi")
    rank, ranks = world.rank(), world.size()

    train, test = load_data(options.seed)
    mx.random.seed(options.seed)
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = optimizers.SGD(learning_rate=options.learning_rate, momentum=0.9)
    optimizer.init(network.trainable_parameters())
    checkpoint = options.checkpoint_dir / "digits.npz"
    done = restore(checkpoint, network, optimizer, rank)
    find_loss = nn.value_and_grad(network, measure_loss)

    def say(text):
        if rank == 0:
            print(text, flush=True)

    say(f"{ranks} ranks, starting after epoch {done}")
    accuracy = measure_accuracy(network, test)
    for epoch in range(done + 1, options.epochs + 1):
        losses = []
        for images, labels in draw_batches(train, options, epoch, rank, ranks):
            loss, gradients = find_loss(network, mx.array(images), mx.array(labels))
            optimizer.update(network, nn.average_gradients(gradients))
            mx.eval(network.parameters(), optimizer.state, loss)
            losses.append(loss.item())
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
    parser.add_argument("--batch-size", type=int, default=64, help="images per step, over all ranks")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--checkpoint-dir",
        type=lambda text: Path(text).absolute(),
        default=os.environ.get("CHECKPOINT_DIR", "checkpoints"),
        help="default: $CHECKPOINT_DIR, else ./checkpoints",
    )
    return parser.parse_args()


def name_mpi_library():
    """Let MLX load the library that belongs to mpirun, where the system's loader would not find it."""
    library = Path(shutil.which("mpirun") or "/").parent.parent / "lib" / "libmpi.so.40"
    if library.exists():
        os.environ.setdefault("MLX_MPI_LIBNAME", str(library))


def load_data(seed):
    """Return training and test set. The same split on every rank: it depends on the seed alone."""
    digits = load_digits()
    images, labels = (digits.data / 16).astype(np.float32), digits.target
    train, test = train_test_split(np.arange(len(labels)), test_size=0.2, stratify=labels, random_state=seed)
    return (images[train], labels[train]), (images[test], labels[test])


def draw_batches(data, options, epoch, rank, ranks):
    """Yield this rank's part of each batch of an epoch. All ranks shuffle alike and take turns."""
    images, labels = data
    order = np.random.default_rng((options.seed, epoch)).permutation(len(labels))
    size = options.batch_size - options.batch_size % ranks
    for start in range(0, len(order) - size + 1, size):
        mine = order[start : start + size][rank::ranks]
        yield images[mine], labels[mine]


def measure_loss(network, images, labels):
    return nn.losses.cross_entropy(network(images), labels, reduction="mean")


def measure_accuracy(network, test):
    """Return the share of test images that are recognised."""
    return float(np.mean(np.argmax(np.array(network(mx.array(test[0]))), axis=1) == test[1]))


def digest(network):
    values = [np.array(value).tobytes() for _, value in tree_flatten(network.parameters())]
    return hashlib.sha256(b"".join(values)).hexdigest()[:12]


def save(path, epoch, network, optimizer):
    """Write a checkpoint, whole or not at all: a crash in the middle leaves the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name("partial.npz")
    parts = {"network": network.parameters(), "optimizer": optimizer.state, "epoch": mx.array(epoch)}
    mx.savez(str(partial), **dict(tree_flatten(parts)))
    partial.replace(path)


def restore(path, network, optimizer, rank):
    """Set network and optimizer from the checkpoint and return its epoch; 0 where there is none.

    Rank 0 reads the file and sends it to the others: their machines need not have it.
    """
    parts = {"network": network.parameters(), "optimizer": optimizer.state, "epoch": mx.array(0)}
    if rank == 0 and path.exists():
        parts = tree_unflatten(list(mx.load(str(path)).items()))
    if rank != 0:
        parts = tree_map(mx.zeros_like, parts)
    parts = tree_map(mx.distributed.all_sum, parts)  # the others add nothing
    network.update(parts["network"])
    optimizer.state = parts["optimizer"]
    return parts["epoch"].item()


if __name__ == "__main__":
    main()
