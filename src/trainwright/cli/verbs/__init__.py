"""One module for each verb: its options, and what it does with them."""
