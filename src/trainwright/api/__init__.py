"""What a user writes: the kinds as msgspec structs, constants, quantities, YAML in and out."""
