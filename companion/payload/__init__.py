"""The payload camera: when it exposes, what became of each photograph, and from where it was taken."""
