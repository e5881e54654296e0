"""One module per way in which processes find each other: its rules for admission and what it adds to pods.

Stands below admission and render, which both walk the one registry here: a new framework is one module and
one line.
"""
