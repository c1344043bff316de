"""The commands behind the command line: one module each; ``sources`` finds the data, model and noise they name."""
