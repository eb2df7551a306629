"""Meshes: which devices gather parameters from each other, within hosts and slices."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from xlj.config import Config, Mesh
from xlj.sharding import meshes


def devices(groups, each, **of_group):
    """Returns devices of several groups in mixed order; `of_group` sets attributes by group."""
    return [
        SimpleNamespace(
            id=each * group + place, device_kind="", **{k: v(group) for k, v in of_group.items()}
        )
        for place in range(each)
        for group in range(groups)
    ]


def groups_of(arranged, name):
    return np.array([[getattr(device, name) for device in row] for row in arranged])


@pytest.mark.parametrize(
    "unarranged, name",
    [
        (devices(4, 8, process_index=int, platform=lambda _: "gpu"), "process_index"),
        (
            devices(
                4,
                8,
                slice_index=int,
                process_index=lambda _: 0,
                platform=lambda _: "cpu",
            ),
            "slice_index",
        ),
    ],
    ids=["hosts", "slices"],
)
@pytest.mark.parametrize("fsdp", [2, 8])
def test_parameters_are_gathered_over_fast_links(unarranged, name, fsdp):
    arranged = meshes._arrange(fsdp, unarranged)
    assert arranged.shape == (32 // fsdp, fsdp)
    assert len({device.id for device in arranged.flat}) == 32
    groups = groups_of(arranged, name)
    assert (groups == groups[:, :1]).all(), "an fsdp axis crosses slow links"
    assert not meshes.crosses_hosts(SimpleNamespace(devices=arranged))


def test_an_axis_longer_than_a_host_spans_whole_hosts():
    unarranged = devices(4, 8, process_index=int, platform=lambda _: "gpu")
    arranged = meshes._arrange(16, unarranged)
    assert [sorted(set(row)) for row in groups_of(arranged, "process_index").tolist()] == [
        [0, 1],
        [2, 3],
    ]
    assert meshes.crosses_hosts(SimpleNamespace(devices=arranged))


def test_a_mesh_of_one_host_has_the_order_of_the_device_ids():
    """Rows and masks do not depend on the layout of the devices."""
    config = dataclasses.replace(Config(), mesh=Mesh(fsdp=4))
    mesh = meshes.make_mesh(config)
    assert mesh.shape == {"replica": 2, "fsdp": 4}
    assert [device.id for device in mesh.devices.flat] == list(range(8))
