"""Train a small network on handwritten digits with JAX, data parallel over the processes of a TrainJob.

    trainwright apply -f trainjob.yaml

The data are the 1,797 images of 8 x 8 pixels that come with scikit-learn; one fifth is held out for testing.
Every process has all parameters and its part of each batch. What looks like one computation over one batch
is compiled for all devices of all processes: JAX adds the gradients up by itself. After every epoch process 0
writes a checkpoint; a run that finds one goes on from there, on any number of processes.
"""

import argparse
import hashlib
import itertools
import os
import signal
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

try:
    from trainwright.progress import report
except ImportError:  # without trainwright: train all the same

    def report(**_):
        pass


LAYERS = (64, 64, 10)


def main():
    options = parse_options()
    # JAX reads only the address by itself, so all three are passed.
    jax.distributed.initialize(
        coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"],
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
        process_id=int(os.environ["JAX_PROCESS_ID"]),
    )
    devices = jax.make_mesh((jax.device_count(),), ("batch",))
    everywhere = NamedSharding(devices, PartitionSpec())
    in_parts = NamedSharding(devices, PartitionSpec("batch"))

    train, test = load_data(options.seed)
    checkpoint = options.checkpoint_dir / "digits.npz"
    done, state = restore(checkpoint, build_state(options.seed))
    state = jax.device_put(state, everywhere)
    say(f"{jax.process_count()} processes, {jax.device_count()} devices, starting after epoch {done}")

    accuracy = measure_accuracy(state["network"], test)
    for epoch in range(done + 1, options.epochs + 1):
        losses = []
        for images, labels in draw_batches(train, options, epoch):
            batch = tuple(jax.make_array_from_process_local_data(in_parts, part) for part in (images, labels))
            state, loss = train_step(state, batch, options.learning_rate)
            losses.append(loss)
        loss, accuracy = float(jnp.mean(jnp.stack(losses))), measure_accuracy(state["network"], test)
        say(f"epoch {epoch}/{options.epochs}  loss {loss:.4f}  test accuracy {accuracy:.4f}")
        report(step=epoch, total=options.epochs, epoch=epoch, metrics={"loss": loss, "accuracy": accuracy})
        save(checkpoint, epoch, state)
        # JAX catches the signal that asks a process to end. All agree on the step after which they do.
        if multihost_utils.reached_preemption_sync_point(epoch):
            say(f"asked to end after epoch {epoch}")
            sys.exit(128 + signal.SIGTERM)

    say(f"test accuracy {accuracy:.4f}, checkpoint {checkpoint}")
    print(f"process {jax.process_index()} has parameters {digest(state['network'])}", flush=True)
    jax.distributed.shutdown()


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
    images, labels = (digits.data / 16).astype(np.float32), digits.target
    train, test = train_test_split(np.arange(len(labels)), test_size=0.2, stratify=labels, random_state=seed)
    return (images[train], labels[train]), (images[test], labels[test])


def draw_batches(data, options, epoch):
    """Yield this process's part of each batch of an epoch. All processes shuffle alike and take turns."""
    images, labels = data
    order = np.random.default_rng((options.seed, epoch)).permutation(len(labels))
    size = options.batch_size - options.batch_size % jax.device_count()
    for start in range(0, len(order) - size + 1, size):
        mine = order[start : start + size][jax.process_index() :: jax.process_count()]
        yield images[mine], labels[mine]


def build_state(seed):
    """Return the network, with random weights, and the momentum of each of its parameters."""
    random = np.random.default_rng(seed)
    network = [
        {
            "weights": (random.standard_normal((inputs, outputs)) * (2 / inputs) ** 0.5).astype(np.float32),
            "bias": np.zeros(outputs, np.float32),
        }
        for inputs, outputs in itertools.pairwise(LAYERS)
    ]
    return {"network": network, "momentum": jax.tree.map(np.zeros_like, network)}


def predict(network, images):
    *hidden, last = network
    for layer in hidden:
        images = jax.nn.relu(images @ layer["weights"] + layer["bias"])
    return images @ last["weights"] + last["bias"]


def measure_loss(network, images, labels):
    chances = jax.nn.log_softmax(predict(network, images))
    return -jnp.mean(jnp.take_along_axis(chances, labels[:, None], axis=1))


@jax.jit
def train_step(state, batch, learning_rate):
    """Return the state after one step of gradient descent with momentum, and the loss before it."""
    loss, gradients = jax.value_and_grad(measure_loss)(state["network"], *batch)
    momentum = jax.tree.map(lambda old, new: 0.9 * old + new, state["momentum"], gradients)
    network = jax.tree.map(lambda value, step: value - learning_rate * step, state["network"], momentum)
    return {"network": network, "momentum": momentum}, loss


def measure_accuracy(network, test):
    """Return the share of test images that are recognised. Every process has all it needs for that."""
    network = jax.tree.map(read_own_copy, network)
    return float(np.mean(np.argmax(predict(network, test[0]), axis=1) == test[1]))


def read_own_copy(value):
    """Return this process's copy of a value that every device has."""
    return np.asarray(value.addressable_data(0) if isinstance(value, jax.Array) else value)


def digest(network):
    values = jax.tree.leaves(jax.tree.map(read_own_copy, network))
    return hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest()[:12]


def save(path, epoch, state):
    """Write a checkpoint in process 0, whole or not at all: a crash in the middle leaves the one before."""
    if jax.process_index() == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        values = [read_own_copy(value) for value in jax.tree.leaves(state)]
        with partial.open("wb") as file:
            np.savez(file, epoch, *values)
        partial.replace(path)


def restore(path, state):
    """Return the epoch and the state of the checkpoint; 0 and the given state where there is none.

    Process 0 reads the file and sends it to the others: their machines need not have it.
    """
    epoch = np.zeros((), np.int32)
    if jax.process_index() == 0 and path.exists():
        with np.load(path) as found:
            epoch, *values = (found[f"arr_{number}"] for number in range(len(found.files)))
        epoch, state = np.int32(epoch), jax.tree.unflatten(jax.tree.structure(state), values)
    epoch, state = multihost_utils.broadcast_one_to_all((epoch, state))
    return int(epoch), jax.tree.map(np.asarray, state)


def say(text):
    if jax.process_index() == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main()
