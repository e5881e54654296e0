"""What is seen -> what to do. Pure: no clock, no I/O, no logging."""
