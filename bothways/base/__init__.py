"""The ground: errors, files, the log, random numbers, devices. Imports no other room."""
