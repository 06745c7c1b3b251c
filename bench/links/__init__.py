"""The parts of network.py: links, contestants, samples, tables and the plot."""
