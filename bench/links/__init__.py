"""What network.py is made of: links, contestants, samples, tables and the plot."""
