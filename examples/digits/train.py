"""Train a small convolutional network on handwritten digits with PyTorch's DistributedDataParallel.

The data are the 1,797 images of 8 x 8 pixels that come with scikit-learn; one fifth is held out for testing.

    trainwright run train.py --nodes 2 --nproc-per-node 2 -- --epochs 20
    torchrun --nproc-per-node 2 train.py --epochs 20

Uses one GPU per process where there are enough, else the CPU. After every epoch rank 0 writes a checkpoint.
A run that finds one goes on from there, on any number of nodes: stop it, start it again, and nothing is lost.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

try:
    from trainwright.progress import report
except ImportError:  # torchrun without trainwright: train all the same

    def report(**_):
        pass


def main():
    options = parse_options()
    device = start_distributed()
    torch.manual_seed(options.seed)

    train_set, test_set = load_data(options.seed)
    # Every rank draws another part of the same shuffle; `set_epoch` below makes each epoch a new one.
    sampler = DistributedSampler(train_set, seed=options.seed)
    loader = DataLoader(train_set, options.batch_size, sampler=sampler)

    model = DistributedDataParallel(build_network().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs)
    parts = {"model": model.module, "optimizer": optimizer, "schedule": schedule}

    checkpoint = options.checkpoint_dir / "digits.pt"
    done = restore(checkpoint, parts)
    say(f"{dist.get_world_size()} processes on {device.type}, starting after epoch {done}")

    for epoch in range(done + 1, options.epochs + 1):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, optimizer, device)
        schedule.step()
        accuracy = measure_accuracy(model, test_set, device)

        say(f"epoch {epoch}/{options.epochs}  loss {loss:.4f}  test accuracy {accuracy:.4f}")
        report(
            step=epoch,
            total=options.epochs,
            epoch=epoch,
            metrics={"loss": loss, "accuracy": accuracy},
        )
        save(checkpoint, epoch, parts)

    accuracy = measure_accuracy(model, test_set, device)
    report(step=options.epochs, total=options.epochs, metrics={"accuracy": accuracy}, force=True)
    say(f"test accuracy {accuracy:.4f}, checkpoint {checkpoint}")
    leave_distributed()


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16, help="images per process and step")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--checkpoint-dir",
        type=lambda text: Path(text).absolute(),
        default=os.environ.get("CHECKPOINT_DIR", "checkpoints"),
        help="default: $CHECKPOINT_DIR, else ./checkpoints",
    )
    return parser.parse_args()


def start_distributed():
    """Join the other processes and return this one's device. torchrun has set the variables for it."""
    local_rank, local_world_size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if torch.cuda.device_count() >= local_world_size:
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    return device


def leave_distributed():
    dist.destroy_process_group()
    # gloo's threads outlive the group, and need Python to let go of the tensors of the last collective. Where
    # Python ends first it aborts: "terminate called without an active exception" (PyTorch 2.15, Python 3.11).
    time.sleep(0.3)


def load_data(seed):
    """Return training and test set. The same split on every rank: it depends on the seed alone."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    train, test = train_test_split(
        range(len(labels)), test_size=0.2, stratify=digits.target, random_state=seed
    )
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def build_network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def train_epoch(model, loader, optimizer, device):
    """Train one epoch and return the mean loss over all ranks."""
    model.train()
    total = torch.zeros(2, device=device)  # sum of losses, number of images
    for batch in loader:
        images, labels = (part.to(device) for part in batch)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()  # DistributedDataParallel averages the gradients here
        optimizer.step()
        total += torch.stack([loss.detach() * len(labels), torch.tensor(float(len(labels)), device=device)])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


@torch.no_grad()
def measure_accuracy(model, test_set, device):
    """Return the share of test images that are recognised; every rank looks at its own part of them."""
    model.eval()
    rank, world_size = dist.get_rank(), dist.get_world_size()
    images, labels = (part[rank::world_size].to(device) for part in test_set.tensors)
    # The network itself, without the wrapper: no gradients, so nothing to synchronise.
    right = (model.module(images).argmax(dim=1) == labels).sum()
    dist.all_reduce(right)
    return right.item() / len(test_set)


def save(path, epoch, parts):
    """Write a checkpoint on rank 0, whole or not at all: a crash in the middle leaves the one before."""
    if dist.get_rank() == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        torch.save({"epoch": epoch, **{name: part.state_dict() for name, part in parts.items()}}, partial)
        partial.replace(path)


def restore(path, parts):
    """Load the checkpoint on every rank and return its epoch; 0 where there is none.

    Rank 0 reads the file and sends it to the others: their machines need not have it.
    """
    found = [None]
    if dist.get_rank() == 0 and path.exists():
        found = [torch.load(path, map_location="cpu", weights_only=True)]
    dist.broadcast_object_list(found)
    if found[0] is None:
        return 0
    for name, part in parts.items():
        part.load_state_dict(found[0][name])
    return found[0]["epoch"]


def say(text):
    if dist.get_rank() == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main()
