"""The files people have -> examples. No torch."""
