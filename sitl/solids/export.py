"""A world as one glTF file (GLB), for live views and other programs."""

from typing import Any

from companion.core.errors import UserError
from sitl.solids.solids import Solids


def glb(solids: Solids) -> bytes:
    """All solids with their textures as binary glTF, one node for each, in W (z up); raises `UserError`."""
    try:
        import trimesh
        from PIL import Image
    except ImportError as error:
        raise UserError(f"{error.name}: glTF files need the extra 'world': pip install 'companion[world]'") from None
    scene: Any = trimesh.Scene()
    visuals: Any = trimesh.visual
    for mesh in solids.meshes():
        uv = mesh.uv * (1, -1) + (0, 1)  # trimesh counts v upwards
        picture = Image.fromarray(mesh.texture).convert("RGB")
        material = visuals.material.PBRMaterial(
            name=mesh.material, baseColorTexture=picture, metallicFactor=0.0, roughnessFactor=1.0
        )
        visual = visuals.TextureVisuals(uv=uv, material=material)
        triangles = trimesh.Trimesh(mesh.vertices_W, mesh.triangles, visual=visual, process=False)
        scene.add_geometry(triangles, geom_name=mesh.name, node_name=mesh.name)
    data: bytes = scene.export(file_type="glb")
    return data
