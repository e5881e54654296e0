"""Takes, keeps and hands on what jobs report, on this machine."""
