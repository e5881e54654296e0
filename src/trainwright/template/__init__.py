"""A runtime's JobSet template as one thinks of it: patches merged in, steps, counts, resources.

Stands below admission and render, so that what is checked is exactly what is rendered.
"""
