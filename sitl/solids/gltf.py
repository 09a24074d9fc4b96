"""glTF files among mesh files: their y axis is up (glTF 2.0, section 3.4), that of a solid's frame is z.

A file that is used here must be complete, because the log of a flight holds it alone.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from companion.core.arrays import Array

SUFFIXES = (".glb", ".gltf")
Y_UP_FROM_Z_UP = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
GLB_MAGIC, GLB_HEADER_BYTES = b"glTF", 20  # with length and kind of the first chunk, which is the JSON


def load_mesh(path: Path) -> Any:
    """A mesh file as one mesh of trimesh, z up; raises `ValueError` and what the readers of trimesh raise.

    glTF is turned from y up, with the transforms of its nodes; OBJ and PLY say nothing of an axis and are taken as they are.
    """
    import trimesh

    is_gltf = path.suffix.lower() in SUFFIXES
    if is_gltf:
        _check_buffers(path)
    mesh: Any = trimesh.load(path, force="mesh", process=False)
    if is_gltf and hasattr(mesh, "vertices"):
        vertices: Array = np.asarray(mesh.vertices, dtype=float)
        mesh.vertices = vertices @ Y_UP_FROM_Z_UP
    return mesh


def _check_buffers(path: Path) -> None:
    """Raise `ValueError` if a buffer is in a file of its own."""
    data = path.read_bytes()
    if data.startswith(GLB_MAGIC):
        length = int.from_bytes(data[12:16], "little")
        data = data[GLB_HEADER_BYTES : GLB_HEADER_BYTES + length]
    for i, buffer in enumerate(json.loads(data).get("buffers", [])):
        uri = buffer.get("uri", "data:")  # without the key: the binary chunk of a .glb
        if not uri.startswith("data:"):
            raise ValueError(f"buffers[{i}].uri = {uri!r}: buffers must be inside the file (.glb, or a data: URI)")
