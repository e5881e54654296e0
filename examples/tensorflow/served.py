"""Train a small network on handwritten digits with TensorFlow's ParameterServerStrategy.

    trainwright apply -f served.yaml

The chief runs the program: it hands steps to the workers, which take the variables from the parameter servers
and send changes back as they come. Workers and servers only serve, and never end; the job is complete when
the chief is.
"""

import json
import os

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

try:
    from trainwright.progress import report
except ImportError:  # without trainwright: train all the same

    def report(**_):
        pass


EPOCHS = 20
BATCH_SIZE = 32
LEARNING_RATE = 0.1


def main():
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if task["type"] == "chief":
        direct(resolver)
    else:
        print(f"{task['type']} {task['index']} serves", flush=True)
        server = tf.distribute.Server(
            resolver.cluster_spec(), job_name=task["type"], task_index=task["index"], protocol="grpc"
        )
        server.join()


def direct(resolver):
    """Train with the workers, and print how well the network does."""
    servers = len(resolver.cluster_spec().as_dict()["ps"])
    strategy = tf.distribute.ParameterServerStrategy(
        # Each variable is divided among the servers.
        resolver,
        variable_partitioner=tf.distribute.experimental.partitioners.FixedShardsPartitioner(servers),
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    digits = load_digits()
    images, labels = (digits.data / 16).astype(np.float32), digits.target.astype(np.int64)
    train, test = train_test_split(np.arange(len(labels)), test_size=0.2, stratify=labels, random_state=0)
    with strategy.scope():
        weights, bias = tf.Variable(tf.zeros((64, 10))), tf.Variable(tf.zeros(10))
    print(f"weights are on {', '.join(part.device for part in weights.variables)}", flush=True)

    @tf.function
    def train_step(rows):
        images_here, labels_here = tf.gather(images, rows), tf.gather(labels, rows)

        def train_on_worker():
            with tf.GradientTape() as tape:
                found = images_here @ tf.convert_to_tensor(weights) + tf.convert_to_tensor(bias)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels_here, found))
            parts = [*weights.variables, *bias.variables]
            for part, gradient in zip(parts, tape.gradient(loss, parts), strict=True):
                part.assign_sub(LEARNING_RATE * gradient)
            return loss

        return strategy.run(train_on_worker)

    for epoch in range(1, EPOCHS + 1):
        order = np.random.default_rng(epoch).permutation(train)
        starts = range(0, len(order) - BATCH_SIZE + 1, BATCH_SIZE)
        losses = [
            coordinator.schedule(train_step, args=(tf.constant(order[start : start + BATCH_SIZE]),))
            for start in starts
        ]
        coordinator.join()
        loss = float(np.mean([value.fetch() for value in losses]))
        found = images[test] @ tf.convert_to_tensor(weights).numpy() + tf.convert_to_tensor(bias).numpy()
        accuracy = float(np.mean(np.argmax(found, axis=1) == labels[test]))
        print(f"epoch {epoch}/{EPOCHS}  loss {loss:.4f}  test accuracy {accuracy:.4f}", flush=True)
        report(
            step=epoch, total=EPOCHS, epoch=epoch, metrics={"loss": loss, "accuracy": accuracy}, force=True
        )


if __name__ == "__main__":
    main()
