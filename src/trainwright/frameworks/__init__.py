"""One module per way in which processes find each other: its rules for admission and what it adds to pods.

Stands below admission and render: both walk the one registry here, so a new framework is one module and one line.
"""
