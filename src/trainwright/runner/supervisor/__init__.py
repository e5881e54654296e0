"""The process that makes one TrainJob run: its lock, its start and end, and what is done when it died."""
