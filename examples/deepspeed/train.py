"""Train a small network on handwritten digits with DeepSpeed, whose ZeRO divides the work of the optimizer.

    trainwright apply -f trainjob.yaml

The data are the 1,797 images of 8 x 8 pixels that come with scikit-learn; one fifth is held out for testing.
mpirun starts the ranks, each of which keeps gradients and optimizer state for its part of the parameters.
Uses GPUs where there are any, else CPUs, for which DeepSpeed compiles a part of itself at the first start.
After each epoch every rank writes its part of a checkpoint, into a folder that all of them see; a run that
finds one goes on from there, on as many ranks.
"""

import argparse
import os
import socket
from pathlib import Path

import torch
from mpi4py import MPI
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

if not torch.cuda.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read when deepspeed is imported

import deepspeed

try:
    from trainwright.progress import report
except ImportError:  # mpirun without trainwright: train all the same

    def report(**_):
        pass


def main():
    options = parse_options()
    rank, ranks = meet()
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    deepspeed.init_distributed(backend, auto_mpi_discovery=False, verbose=False)
    torch.manual_seed(options.seed)

    train_set, test_set = load_data(options.seed)
    network = build_network()
    engine, optimizer, _, _ = deepspeed.initialize(
        model=network,
        optimizer=torch.optim.AdamW(network.parameters(), lr=options.learning_rate),
        config={
            "train_micro_batch_size_per_gpu": options.batch_size,
            "zero_optimization": {"stage": options.stage},
            "zero_allow_untested_optimizer": True,
            "steps_per_print": 10**9,
        },
    )
    done = 0
    if (options.checkpoint_dir / "latest").exists():
        _, kept = engine.load_checkpoint(options.checkpoint_dir)
        done = kept["epoch"]

    def say(text):
        if rank == 0:
            print(text, flush=True)

    own = sum(group.numel() for group in optimizer.single_partition_of_fp32_groups)
    everything = sum(value.numel() for value in network.parameters())
    say(f"{ranks} ranks on {engine.device.type}, starting after epoch {done}")
    print(f"rank {rank} optimizes {own} of {everything} parameters", flush=True)

    accuracy = measure_accuracy(network, test_set, engine.device)
    for epoch in range(done + 1, options.epochs + 1):
        loss = train_epoch(engine, train_set, options, epoch)
        accuracy = measure_accuracy(network, test_set, engine.device)
        say(f"epoch {epoch}/{options.epochs}  loss {loss:.4f}  test accuracy {accuracy:.4f}")
        report(step=epoch, total=options.epochs, epoch=epoch, metrics={"loss": loss, "accuracy": accuracy})
        engine.save_checkpoint(options.checkpoint_dir, client_state={"epoch": epoch})
    say(f"test accuracy {accuracy:.4f}, checkpoint {options.checkpoint_dir}")
    torch.distributed.destroy_process_group()


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--stage", type=int, default=2, choices=(1, 2), help="of ZeRO")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--checkpoint-dir",
        type=lambda text: Path(text).absolute(),
        default=os.environ.get("CHECKPOINT_DIR", "checkpoints"),
        help="default: $CHECKPOINT_DIR, else ./checkpoints",
    )
    return parser.parse_args()


def meet():
    """Tell torch.distributed on all ranks where the first one is; return rank and number of ranks.

    DeepSpeed can find that out by itself, but takes port 29500, which another job of the machine may have.
    """
    world = MPI.COMM_WORLD
    found = None
    if world.rank == 0:
        with socket.create_server(("", 0)) as free:
            found = socket.gethostbyname(socket.gethostname()), free.getsockname()[1]
    address, port = world.bcast(found)
    local = world.Split_type(MPI.COMM_TYPE_SHARED)
    os.environ |= {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "RANK": str(world.rank),
        "WORLD_SIZE": str(world.size),
        "LOCAL_RANK": str(local.rank),
    }
    return world.rank, world.size


def load_data(seed):
    """Return images and labels of training and test set. The same split on every rank."""
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    train, test = train_test_split(
        range(len(labels)), test_size=0.2, stratify=digits.target, random_state=seed
    )
    return (images[train], labels[train]), (images[test], labels[test])


def build_network():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def train_epoch(engine, data, options, epoch):
    """Train one epoch on this rank's part of the data and return its mean loss."""
    images, labels = data
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(options.seed + epoch))
    order = order[: len(order) // ranks * ranks]  # as many steps on every rank
    losses = []
    for part in order[rank::ranks].split(options.batch_size):
        found = engine(images[part].to(engine.device))
        loss = nn.functional.cross_entropy(found, labels[part].to(engine.device))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def measure_accuracy(network, test_set, device):
    """Return the share of test images that are recognised."""
    images, labels = (part.to(device) for part in test_set)
    return (network(images).argmax(dim=1) == labels).float().mean().item()


if __name__ == "__main__":
    main()
