"""Train a small network on handwritten digits with PyTorch's FSDP: every rank holds a part of each parameter.

    trainwright apply -f trainjob.yaml
    torchrun --nproc-per-node 2 train.py

The data are the 1,797 images of 8 x 8 pixels that come with scikit-learn; one fifth is held out for testing.
The parameters of a layer come together when the layer computes, and are let go afterwards; those of the
optimizer never do. All ranks write a checkpoint together, each its part, into a folder that all of them see.
A run that finds one goes on from there, on any number of ranks: the parts are cut anew.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

try:
    from trainwright.progress import report
except ImportError:  # torchrun without trainwright: train all the same

    def report(**_):
        pass


def main():
    options = parse_options()
    device = start_distributed()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(options.seed)

    train_set, test_set = load_data(options.seed, device)
    network = build_network().to(device)
    everything = sum(value.numel() for value in network.parameters())
    divide(network, device)
    own = sum(value.to_local().numel() for value in network.parameters())
    optimizer = torch.optim.AdamW(network.parameters(), lr=options.learning_rate)

    checkpoint = options.checkpoint_dir / "latest"
    done = restore(checkpoint, network, optimizer)
    say(f"{ranks} ranks on {device.type}, starting after epoch {done}")
    print(f"rank {rank} holds {own} of {everything} parameters", flush=True)

    for epoch in range(done + 1, options.epochs + 1):
        loss = train_epoch(network, optimizer, train_set, options, epoch)
        accuracy = measure_accuracy(network, test_set)
        say(f"epoch {epoch}/{options.epochs}  loss {loss:.4f}  test accuracy {accuracy:.4f}")
        report(step=epoch, total=options.epochs, epoch=epoch, metrics={"loss": loss, "accuracy": accuracy})
        if epoch % options.epochs_per_checkpoint == 0 or epoch == options.epochs:
            save(options.checkpoint_dir, epoch, network, optimizer)

    say(f"test accuracy {measure_accuracy(network, test_set):.4f}, checkpoint {checkpoint}")
    dist.destroy_process_group()
    time.sleep(0.3)  # gloo's threads let go of their last tensors; a Python that ends before them may abort


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--epochs-per-checkpoint", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
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
    """Join the other ranks and return this one's device. torchrun has set the variables for it."""
    local_rank, local_world_size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if torch.cuda.device_count() >= local_world_size:
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    return device


def load_data(seed, device):
    """Return images and labels of training and test set. The same split on every rank."""
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32, device=device) / 16
    labels = torch.tensor(digits.target, device=device)
    train, test = train_test_split(
        range(len(labels)), test_size=0.2, stratify=digits.target, random_state=seed
    )
    return (images[train], labels[train]), (images[test], labels[test])


def build_network():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def divide(network, device):
    """Divide each layer among the ranks, and what is left of the network at last."""
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in network:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)


def train_epoch(network, optimizer, data, options, epoch):
    """Train one epoch, each rank on its part of the data, and return the mean loss over all ranks."""
    images, labels = data
    rank, ranks = dist.get_rank(), dist.get_world_size()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(options.seed + epoch))
    order = order[: len(order) // ranks * ranks]  # as many steps on every rank
    losses = []
    for part in order[rank::ranks].split(options.batch_size):
        loss = nn.functional.cross_entropy(network(images[part]), labels[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    mean = torch.stack(losses).mean()
    dist.all_reduce(mean)
    return mean.item() / ranks


@torch.no_grad()
def measure_accuracy(network, test_set):
    """Return the share of test images that are recognised. All join in: each has a part of the network."""
    images, labels = test_set
    return (network(images).argmax(dim=1) == labels).float().mean().item()


def save(folder, epoch, network, optimizer):
    """Write a checkpoint of all ranks, and only then let `latest` lead to it: a crash leaves the old one."""
    model, state = get_state_dict(network, optimizer)
    dcp.save({"model": model, "optimizer": state, "epoch": epoch}, checkpoint_id=folder / f"epoch-{epoch}")
    if dist.get_rank() == 0:
        link = folder / "partial"
        link.unlink(missing_ok=True)
        link.symlink_to(f"epoch-{epoch}")
        link.replace(folder / "latest")


def restore(path, network, optimizer):
    """Load each rank's part of the checkpoint and return its epoch; 0 where there is none."""
    if not path.exists():
        return 0
    model, state = get_state_dict(network, optimizer)
    found = {"model": model, "optimizer": state, "epoch": 0}
    dcp.load(found, checkpoint_id=path)
    set_state_dict(network, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    return found["epoch"]


def say(text):
    if dist.get_rank() == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main()
