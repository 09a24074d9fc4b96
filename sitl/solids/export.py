"""A world as one glTF file (GLB), for live views and other programs."""

from typing import Any

import numpy as np

from companion.core.errors import UserError
from sitl.solids.gltf import Y_UP_FROM_Z_UP
from sitl.solids.solids import Solids

ROOT = "W"


def glb(solids: Solids) -> bytes:
    """All solids with their textures as binary glTF, one node for each in the node W; raises `UserError`.

    The vertices are in W (z up); the node W turns them to y up, as glTF has it.
    """
    try:
        import trimesh
        from PIL import Image
    except ImportError as error:
        raise UserError(f"{error.name}: glTF files need the extra 'world': pip install 'companion[world]'") from None
    scene: Any = trimesh.Scene()
    y_up = np.eye(4)
    y_up[:3, :3] = Y_UP_FROM_Z_UP
    scene.graph.update(frame_to=ROOT, matrix=y_up)
    visuals: Any = trimesh.visual
    for mesh in solids.meshes():
        uv = mesh.uv * (1, -1) + (0, 1)  # trimesh counts v upwards
        picture = Image.fromarray(mesh.texture).convert("RGB")
        material = visuals.material.PBRMaterial(
            name=mesh.material, baseColorTexture=picture, metallicFactor=0.0, roughnessFactor=1.0
        )
        visual = visuals.TextureVisuals(uv=uv, material=material)
        triangles = trimesh.Trimesh(mesh.vertices_W, mesh.triangles, visual=visual, process=False)
        scene.add_geometry(triangles, geom_name=mesh.name, node_name=mesh.name, parent_node_name=ROOT)
    data: bytes = scene.export(file_type="glb")
    return data
