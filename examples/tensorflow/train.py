"""Train a small network on handwritten digits with TensorFlow's MultiWorkerMirroredStrategy.

    trainwright apply -f trainjob.yaml

The data are the 1,797 images of 8 x 8 pixels that come with scikit-learn; one fifth is held out for testing.
Every worker has all variables and its part of each batch; TensorFlow averages what they add to a variable.
The workers find each other by TF_CONFIG. After every epoch worker 0 writes a checkpoint; a run that finds one
goes on from there, on any number of workers.
"""

import argparse
import hashlib
import itertools
import os
from pathlib import Path

import numpy as np
import tensorflow as tf
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
    # Before anything else of TensorFlow: it starts this worker's server, and waits for the others.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    worker, workers = resolver.task_id or 0, max(1, len(resolver.cluster_spec().as_dict().get("worker", [])))

    train, test = load_data(options.seed)
    checkpoint = options.checkpoint_dir / "digits.npz"
    found = restore(checkpoint) or (0, build_values(options.seed))
    done, network, momentum = build_variables(strategy, *found)

    def say(text):
        if worker == 0:
            print(text, flush=True)

    @tf.function
    def train_step(images, labels):
        def train_own_part(images, labels):
            with tf.GradientTape() as tape:
                loss = measure_loss(network, images, labels)
            for value, speed, gradient in zip(network, momentum, tape.gradient(loss, network), strict=True):
                speed.assign(0.9 * speed + gradient)
                value.assign_sub(options.learning_rate * speed)
            return loss

        losses = strategy.run(train_own_part, args=(images, labels))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    say(f"{workers} workers, starting after epoch {done}")
    accuracy = measure_accuracy(network, test)
    for epoch in range(done + 1, options.epochs + 1):
        batches = draw_batches(train, options, epoch, worker, workers)
        loss = float(np.mean([train_step(*map(tf.constant, batch)) for batch in batches]))
        accuracy = measure_accuracy(network, test)
        say(f"epoch {epoch}/{options.epochs}  loss {loss:.4f}  test accuracy {accuracy:.4f}")
        report(step=epoch, total=options.epochs, epoch=epoch, metrics={"loss": loss, "accuracy": accuracy})
        if worker == 0:
            save(checkpoint, epoch, network + momentum)

    say(f"test accuracy {accuracy:.4f}, checkpoint {checkpoint}")
    print(f"worker {worker} has variables {digest(network)}", flush=True)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step, over all workers")
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
    """Return training and test set. The same split in every worker: it depends on the seed alone."""
    digits = load_digits()
    images, labels = (digits.data / 16).astype(np.float32), digits.target
    train, test = train_test_split(np.arange(len(labels)), test_size=0.2, stratify=labels, random_state=seed)
    return (images[train], labels[train]), (images[test], labels[test])


def draw_batches(data, options, epoch, worker, workers):
    """Yield this worker's part of each batch of an epoch. All workers shuffle alike and take turns."""
    images, labels = data
    order = np.random.default_rng((options.seed, epoch)).permutation(len(labels))
    size = options.batch_size - options.batch_size % workers
    for start in range(0, len(order) - size + 1, size):
        mine = order[start : start + size][worker::workers]
        yield images[mine], labels[mine]


def build_values(seed):
    """Return weights and biases by turns, random ones, and then the momentum of each."""
    random = np.random.default_rng(seed)
    values = []
    for inputs, outputs in itertools.pairwise(LAYERS):
        values += [random.standard_normal((inputs, outputs)) * (2 / inputs) ** 0.5, np.zeros(outputs)]
    return [*values, *map(np.zeros_like, values)]


def build_variables(strategy, epoch, values):
    """Return the epoch, the network and its momentum as every worker has them: with the values of worker 0.

    TensorFlow sends these to the others, whose machines need not have the checkpoint. What workers assign
    later is averaged.
    """
    with strategy.scope():
        first = tf.Variable(epoch, dtype=tf.int64, trainable=False)
        variables = [
            tf.Variable(value, dtype=tf.float32, aggregation=tf.VariableAggregation.MEAN) for value in values
        ]
    half = len(variables) // 2
    return int(first.numpy()), variables[:half], variables[half:]


def predict(network, images):
    *hidden, weights, bias = network
    for number in range(0, len(hidden), 2):
        images = tf.nn.relu(images @ hidden[number] + hidden[number + 1])
    return images @ weights + bias


def measure_loss(network, images, labels):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, predict(network, images))
    return tf.reduce_mean(losses)


def measure_accuracy(network, test):
    """Return the share of test images that are recognised. Every worker has all it needs for that."""
    return float(np.mean(np.argmax(predict(network, test[0]), axis=1) == test[1]))


def digest(network):
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in network)).hexdigest()[:12]


def save(path, epoch, variables):
    """Write a checkpoint, whole or not at all: a crash in the middle leaves the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez(file, epoch, *(variable.numpy() for variable in variables))
    partial.replace(path)


def restore(path):
    """Return the epoch and the values of the checkpoint; None where there is none."""
    if not path.exists():
        return None
    with np.load(path) as found:
        epoch, *values = (found[f"arr_{number}"] for number in range(len(found.files)))
    return int(epoch), values


if __name__ == "__main__":
    main()
