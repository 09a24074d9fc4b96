"""Drawing a world of triangle meshes off the screen, and the effects of lenses, shutters and light on the picture.

Only `sitl.rendering.context` and `sitl.rendering.rasteriser` need OpenGL; they are imported where something is drawn.
"""
