"""Train on handwritten digits with hybrid sharding: every slice has the whole model, spread over its nodes.

Within a slice nodes are near each other (one rack, one NVLink domain), and FSDP gathers and scatters
parameters all the time; between slices only gradients travel, once a step. So the mesh of devices has one row
per slice.

The data are the 1,797 images of 8 x 8 pixels that come with scikit-learn; one fifth is held out for testing.
Uses one GPU per process where there are enough, else the CPU.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
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
    mesh = build_mesh(device)
    say(f"{mesh.size(0)} slices of {mesh.size(1)} processes on {device.type}")
    row = int(mesh.get_local_rank("slice"))
    # What the mesh is for holds only if ranks follow each other within a slice.
    assert row == int(os.environ.get("TRAINWRIGHT_SLICE_INDEX", row)), "the rows of the mesh are no slices"

    torch.manual_seed(0)
    images, labels, test_images, test_labels = load_data(device)
    network = build_network().to(device)
    for layer in network:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)

    rank, processes = dist.get_rank(), dist.get_world_size()
    for epoch in range(1, options.epochs + 1):
        shuffled = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        own = shuffled[rank::processes][: len(images) // processes]  # as many for every process
        for batch in own.split(32):
            loss = nn.functional.cross_entropy(network(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 5 == 0 or epoch == options.epochs:
            with torch.no_grad():
                accuracy = (network(test_images).argmax(dim=1) == test_labels).float().mean().item()
            say(f"epoch {epoch}/{options.epochs}  loss {loss.item():.4f}  test accuracy {accuracy:.4f}")
            report(step=epoch, total=options.epochs, metrics={"accuracy": accuracy})

    sizes = [parameter.to_local().numel() for parameter in network.parameters()]
    print(f"slice {row} process {mesh.get_local_rank('process')} keeps {sum(sizes)} parameters", flush=True)
    leave_distributed()


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
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


def build_mesh(device):
    """Return the devices as a table: a row per slice, in it the processes of its nodes."""
    slices = int(os.environ.get("TRAINWRIGHT_SLICE_COUNT", "1"))
    shape = (slices, dist.get_world_size() // slices)
    return init_device_mesh(device.type, shape, mesh_dim_names=("slice", "process"))


def load_data(device):
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
    labels = torch.tensor(digits.target)
    train, test = train_test_split(range(len(labels)), test_size=0.2, stratify=digits.target, random_state=0)
    return tuple(part.to(device) for part in (images[train], labels[train], images[test], labels[test]))


def build_network():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def say(text):
    if dist.get_rank() == 0:
        print(text, flush=True)


def leave_distributed():
    dist.destroy_process_group()
    # gloo's threads outlive the group, and need Python to let go of the tensors of the last collective.
    time.sleep(0.3)


if __name__ == "__main__":
    main()
